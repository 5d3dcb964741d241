//! Hands the lines of a unit's log to a reader, and goes on as new ones are written.

use std::io;
use std::sync::{Arc, Weak};

use fleet_core::Timestamp;
use tokio::sync::{mpsc, watch};

use super::changes::Changes;
use super::log::Log;
use super::moments::Moments;
use super::position::{self, Position};
use crate::{Journal, JournalLine, JournalQuery, ServiceError, wall_time};

/// A longer line is handed over in pieces of this many bytes.
const LONGEST_LINE: usize = 64 * 1024;

/// Starts to hand over the lines of a log. It ends with the reader or with the log.
pub(crate) fn read(log: &Arc<Log>, query: JournalQuery) -> io::Result<Journal> {
    begin(log, query.follow, move |log| {
        let (text, end) = log.tail(query.lines, query.since)?;
        Ok(Begun { text, end, moments: log.moments(), is_after_a_gap: false })
    })
}

/// The same, from after the line with that position on.
pub(crate) fn read_after(log: &Arc<Log>, position: &str, follow: bool) -> io::Result<Journal> {
    let position: Option<Position> = position.parse().ok();
    begin(log, follow, move |log| {
        let (mut text, end) = log.tail(None, None)?;
        let first = end.saturating_sub(text.len() as u64);
        let found = position.and_then(|position| position.find(&text, first));
        let text = text.split_off(found.unwrap_or(0));
        Ok(Begun { text, end, moments: log.moments(), is_after_a_gap: found.is_none() })
    })
}

/// What is there already.
struct Begun {
    text: Vec<u8>,
    /// The place that it ends at.
    end: u64,
    moments: Moments,
    is_after_a_gap: bool,
}

fn begin(
    log: &Arc<Log>,
    follow: bool,
    look: impl FnOnce(&Log) -> io::Result<Begun> + Send + 'static,
) -> io::Result<Journal> {
    // The watch begins before the first look, so that nothing falls between the two.
    let changes = if follow { Some(Changes::of(log.path())?) } else { None };
    let (sender, broken, journal) = Journal::breakable();
    let (lines, before) = (Lines::default(), Vec::new());
    let mut feed = Feed { log: Arc::downgrade(log), sender, lines, before };
    let alive = log.alive();
    tokio::spawn(async move {
        if let Err(source) = feed.run(look, changes, alive).await {
            tracing::warn!(error = %source, "a journal ends early: its log cannot be read");
            let action = "read the log of a unit".to_owned();
            // Where the reader has gone, nobody asks why.
            drop(broken.send(ServiceError::Io { action, source }));
        }
    });
    Ok(journal)
}

struct Feed {
    log: Weak<Log>,
    sender: mpsc::Sender<JournalLine>,
    lines: Lines,
    /// The last of what was read.
    before: Vec<u8>,
}

impl Feed {
    async fn run(
        &mut self,
        look: impl FnOnce(&Log) -> io::Result<Begun> + Send + 'static,
        changes: Option<Changes>,
        alive: watch::Receiver<()>,
    ) -> io::Result<()> {
        let Some(begun) = self.look(look).await? else {
            return Ok(());
        };
        let Begun { text, end, moments, is_after_a_gap } = begun;
        if is_after_a_gap && self.sender.send(JournalLine::gap()).await.is_err() {
            return Ok(());
        }
        if !self.send(&text, end, |place| moments.written_by(place)).await {
            return Ok(());
        }
        let Some(changes) = changes else {
            if let Some(rest) = self.lines.rest() {
                // The reader may have gone, which is no failure.
                let line = JournalLine { at: moments.written_by(end), ..rest.into() };
                drop(self.sender.send(line).await);
            }
            return Ok(());
        };
        self.follow(end, &changes, alive).await
    }

    async fn follow(
        &mut self,
        mut place: u64,
        changes: &Changes,
        mut alive: watch::Receiver<()>,
    ) -> io::Result<()> {
        loop {
            tokio::select! {
                () = self.sender.closed() => return Ok(()),
                // An error is the only thing that this channel ever says: the log is no more.
                _ = alive.changed() => return Ok(()),
                changed = changes.next() => changed?,
            }
            loop {
                let Some((text, end)) = self.look(move |log| log.read_from(place)).await? else {
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

    /// Says that something was cut off before it was read. Returns whether the reader is there.
    async fn skip(&mut self) -> bool {
        self.before.clear();
        let half = self.lines.rest();
        let told = half.map(JournalLine::from).into_iter().chain([JournalLine::gap()]);
        for line in told {
            if self.sender.send(line).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Reads the log away from the runtime; `None` when it is no more.
    async fn look<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Log) -> io::Result<T> + Send + 'static,
    ) -> io::Result<Option<T>> {
        let Some(log) = self.log.upgrade() else {
            return Ok(None);
        };
        let read = tokio::task::spawn_blocking(move || read(&log)).await;
        read.map_err(io::Error::other)?.map(Some)
    }

    /// Sends the lines of a text that ends at a place. `written_by` says when one was written that
    /// ends at a place. Returns whether the reader is still there.
    async fn send(
        &mut self,
        text: &[u8],
        end: u64,
        written_by: impl Fn(u64) -> Option<Timestamp>,
    ) -> bool {
        let begin = end.saturating_sub(text.len() as u64);
        let before = std::mem::take(&mut self.before);
        let all = [&before[..], text].concat();
        self.before = all[all.len().saturating_sub(position::MOST)..].to_vec();
        for (end, text) in self.lines.take(text) {
            let place = begin + end;
            let read = before.len() + usize::try_from(end).unwrap_or(usize::MAX);
            let position = Position::new(place, &all[..read.min(all.len())]);
            let line =
                JournalLine { at: written_by(place), text, position: Some(position.to_string()) };
            if self.sender.send(line).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// Puts lines together that are read in pieces.
#[derive(Debug, Default)]
struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// The lines that are whole now, each with where it ends in the text.
    fn take(&mut self, text: &[u8]) -> Vec<(u64, String)> {
        let (mut lines, mut end) = (Vec::new(), 0);
        for piece in text.split_inclusive(|&byte| byte == b'\n') {
            end += piece.len() as u64;
            self.begun.extend_from_slice(piece);
            if self.begun.ends_with(b"\n") || self.begun.len() >= LONGEST_LINE {
                lines.extend(self.rest().map(|line| (end, line)));
            }
        }
        lines
    }

    /// What has no line end yet.
    fn rest(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.begun);
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        (!line.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together() {
        let mut lines = Lines::default();
        let line = |end, text: &str| (end, text.to_owned());
        assert_eq!(lines.take(b"one\ntw"), [line(4, "one")]);
        assert_eq!(lines.take(b"o\r\n\nth\xffree"), [line(3, "two"), line(4, "")]);
        assert_eq!(lines.rest().as_deref(), Some("th\u{fffd}ree"));
        assert_eq!(lines.rest(), None);
        let long = vec![b'x'; LONGEST_LINE];
        assert_eq!(lines.take(&long).len(), 1);
    }
}
