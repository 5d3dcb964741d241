//! Reads the lines of a unit's log, and follows it as it grows.

use std::io;
use std::sync::{Arc, Weak};

use fleet_core::Timestamp;
use fleet_core::journal::{JournalLine, JournalQuery};
use tokio::sync::{mpsc, watch};

use super::Log;
use super::cursor::{self, LogCursor};
use super::time_index::TimeIndex;
use crate::journal::Journal;
use crate::native::linux::inotify::FileWatch;
use crate::{ServiceError, wall_time};

/// Longer lines are split into pieces of this many bytes.
const MAX_LINE: usize = 64 * 1024;

/// Starts a task that sends the lines of a log to the returned journal. The task ends early if the
/// journal is dropped or the log is removed.
pub(crate) fn read(log: &Arc<Log>, query: &JournalQuery) -> io::Result<Journal> {
    let (lines, since) = (query.lines, query.since.map(|since| since.at(wall_time())));
    begin(log, query.follow, move |log| {
        let (text, end) = log.tail(lines, since)?;
        let first = end.saturating_sub(text.len() as u64);
        let notice = log.is_truncated_at(first).then(truncation_notice);
        Ok(InitialRead { text, end, time_index: log.time_index(), notice })
    })
}

/// Returns a line that reports that another program removed earlier lines.
fn truncation_notice() -> JournalLine {
    let text = "[earlier lines are lost: another program has truncated this log]";
    JournalLine::new(text)
}

/// As [`read`], but starts after the line with this cursor.
pub(crate) fn read_after(log: &Arc<Log>, cursor: &str, follow: bool) -> io::Result<Journal> {
    let cursor: Option<LogCursor> = cursor.parse().ok();
    begin(log, follow, move |log| {
        let (mut text, end) = log.tail(None, None)?;
        let first = end.saturating_sub(text.len() as u64);
        let found = cursor.and_then(|cursor| cursor.find(&text, first));
        let text = text.split_off(found.unwrap_or(0));
        let notice = found.is_none().then(JournalLine::gap);
        Ok(InitialRead { text, end, time_index: log.time_index(), notice })
    })
}

/// Lines that exist when reading starts.
struct InitialRead {
    text: Vec<u8>,
    /// Log offset at the end of `text`.
    end: u64,
    time_index: TimeIndex,
    /// Line to send before `text`.
    notice: Option<JournalLine>,
}

fn begin(
    log: &Arc<Log>,
    follow: bool,
    read: impl FnOnce(&Log) -> io::Result<InitialRead> + Send + 'static,
) -> io::Result<Journal> {
    // The watch starts before the first read, so that no change is missed.
    let changes = if follow { Some(FileWatch::of_file(log.path())?) } else { None };
    let (sender, broken, journal) = Journal::fallible();
    let (lines, last_read) = (Lines::default(), Vec::new());
    let mut feed = LogFollower { log: Arc::downgrade(log), sender, lines, last_read };
    let (alive, path) = (log.alive(), log.path().clone());
    tokio::spawn(async move {
        if let Err(source) = feed.run(read, changes, alive).await {
            let path = path.display();
            tracing::warn!(
                error = %source,
                log = %path,
                "cannot read all of a log: a client receives only a part"
            );
            let action = format!("read the log {path}");
            // The reader may be gone.
            drop(broken.send(ServiceError::Io { action, source }));
        }
    });
    Ok(journal)
}

struct LogFollower {
    log: Weak<Log>,
    sender: mpsc::Sender<JournalLine>,
    lines: Lines,
    /// The last bytes read.
    last_read: Vec<u8>,
}

impl LogFollower {
    async fn run(
        &mut self,
        read: impl FnOnce(&Log) -> io::Result<InitialRead> + Send + 'static,
        changes: Option<FileWatch>,
        alive: watch::Receiver<()>,
    ) -> io::Result<()> {
        let Some(partial) = self.read_log(read).await? else {
            return Ok(());
        };
        let InitialRead { text, end, time_index, notice } = partial;
        if let Some(notice) = notice
            && self.sender.send(notice).await.is_err()
        {
            return Ok(());
        }
        if !self.send(&text, end, |place| time_index.written_by(place)).await {
            return Ok(());
        }
        let Some(changes) = changes else {
            if let Some(partial) = self.lines.take_partial() {
                // The reader may be gone.
                let line = JournalLine::new(partial).with_time(time_index.written_by(end));
                drop(self.sender.send(line).await);
            }
            return Ok(());
        };
        self.follow(end, &changes, alive).await
    }

    async fn follow(
        &mut self,
        mut place: u64,
        changes: &FileWatch,
        mut alive: watch::Receiver<()>,
    ) -> io::Result<()> {
        loop {
            tokio::select! {
                () = self.sender.closed() => return Ok(()),
                // The channel closes when the log is removed; it carries no values.
                _ = alive.changed() => return Ok(()),
                changed = changes.next() => changed?,
            }
            loop {
                let Some((text, end)) = self.read_log(move |log| log.read_from(place)).await?
                else {
                    return Ok(());
                };
                if text.is_empty() {
                    break;
                }
                let is_cut = end.saturating_sub(text.len() as u64) > place;
                place = end;
                if is_cut && !self.skip().await {
                    return Ok(());
                }
                if !self.send(&text, end, |_| Some(wall_time())).await {
                    return Ok(());
                }
            }
        }
    }

    /// Sends a gap line to the reader, because the log has discarded lines that were not read yet.
    /// If an incomplete line was read before, sends that line first. Returns whether the reader
    /// still exists.
    async fn skip(&mut self) -> bool {
        self.last_read.clear();
        let half = self.lines.take_partial();
        let told = half.map(JournalLine::from).into_iter().chain([JournalLine::gap()]);
        for line in told {
            if self.sender.send(line).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Reads the log outside the async runtime; `None` if the log was removed.
    async fn read_log<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Log) -> io::Result<T> + Send + 'static,
    ) -> io::Result<Option<T>> {
        let Some(log) = self.log.upgrade() else {
            return Ok(None);
        };
        let read = tokio::task::spawn_blocking(move || read(&log)).await;
        read.map_err(io::Error::other)?.map(Some)
    }

    /// Sends the lines of `text`, which ends at the log offset `end`. `written_by` maps the end
    /// offset of a line to the time of the line. Returns whether the reader still exists.
    async fn send(
        &mut self,
        text: &[u8],
        end: u64,
        written_by: impl Fn(u64) -> Option<Timestamp>,
    ) -> bool {
        let begin = end.saturating_sub(text.len() as u64);
        let last_read = std::mem::take(&mut self.last_read);
        let all = [&last_read[..], text].concat();
        self.last_read = all[all.len().saturating_sub(cursor::MAX_CONTEXT)..].to_vec();
        for (end, text) in self.lines.take(text) {
            let place = begin + end;
            let read = last_read.len() + usize::try_from(end).unwrap_or(usize::MAX);
            let cursor = LogCursor::new(place, &all[..read.min(all.len())]);
            let line =
                JournalLine::new(text).with_time(written_by(place)).with_cursor(cursor.to_string());
            if self.sender.send(line).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// Assembles lines from pieces.
#[derive(Debug, Default)]
struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    /// Appends `text` to the incomplete line. Returns the lines that are now complete, each with
    /// the offset of its end in `text`.
    fn take(&mut self, text: &[u8]) -> Vec<(u64, String)> {
        let (mut lines, mut end) = (Vec::new(), 0);
        for piece in text.split_inclusive(|&byte| byte == b'\n') {
            end += piece.len() as u64;
            self.partial.extend_from_slice(piece);
            if self.partial.ends_with(b"\n") || self.partial.len() >= MAX_LINE {
                lines.extend(self.take_partial().map(|line| (end, line)));
            }
        }
        lines
    }

    /// Takes the line that has no end yet.
    fn take_partial(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.partial);
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        (!line.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_assembled_from_pieces() {
        let mut lines = Lines::default();
        let line = |end, text: &str| (end, text.to_owned());
        assert_eq!(lines.take(b"one\ntw"), [line(4, "one")]);
        assert_eq!(lines.take(b"o\r\n\nth\xffree"), [line(3, "two"), line(4, "")]);
        assert_eq!(lines.take_partial().as_deref(), Some("th\u{fffd}ree"));
        assert_eq!(lines.take_partial(), None);
        let long = vec![b'x'; MAX_LINE];
        assert_eq!(lines.take(&long).len(), 1);
    }
}
