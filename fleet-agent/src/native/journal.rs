//! Hands the lines of a unit's log to a reader, and goes on as new ones are written.

use std::io;
use std::sync::{Arc, Weak};

use fleet_core::Timestamp;
use tokio::sync::{mpsc, watch};

use super::changes::Changes;
use super::log::Log;
use crate::{Journal, JournalLine, JournalQuery, wall_time};

/// A longer line is handed over in pieces of this many bytes.
const LONGEST_LINE: usize = 64 * 1024;

/// Starts to hand over the lines of a log. It ends with the reader or with the log.
pub(crate) fn read(log: &Arc<Log>, query: JournalQuery) -> io::Result<Journal> {
    // The watch begins before the first look, so that nothing falls between the two.
    let changes = if query.follow { Some(Changes::of(log.path())?) } else { None };
    let (sender, journal) = Journal::channel();
    let feed = Feed { log: Arc::downgrade(log), sender, lines: Lines::default() };
    let alive = log.alive();
    tokio::spawn(async move {
        if let Err(error) = feed.run(query, changes, alive).await {
            tracing::warn!(%error, "a journal ends early: its log cannot be read");
        }
    });
    Ok(journal)
}

struct Feed {
    log: Weak<Log>,
    sender: mpsc::Sender<JournalLine>,
    lines: Lines,
}

impl Feed {
    async fn run(
        mut self,
        query: JournalQuery,
        changes: Option<Changes>,
        mut alive: watch::Receiver<()>,
    ) -> io::Result<()> {
        let tail = move |log: &Log| {
            let (text, place) = log.tail(query.lines, query.since)?;
            Ok((text, place, log.moments()))
        };
        let Some((text, mut place, moments)) = self.look(tail).await? else {
            return Ok(());
        };
        let begin = place.saturating_sub(text.len() as u64);
        if !self.send(&text, |end| moments.written_by(begin + end)).await {
            return Ok(());
        }
        let Some(changes) = changes else {
            if let Some(rest) = self.lines.rest() {
                // The reader may have gone, which is no failure.
                let at = moments.written_by(place);
                drop(self.sender.send(JournalLine { at, text: rest }).await);
            }
            return Ok(());
        };
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
                place = end;
                if text.is_empty() {
                    break;
                }
                if !self.send(&text, |_| Some(wall_time())).await {
                    return Ok(());
                }
            }
        }
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

    /// Sends the lines of a text, of which `written_by` says when one was written that ends at a
    /// place in it. Returns whether the reader is still there.
    async fn send(&mut self, text: &[u8], written_by: impl Fn(u64) -> Option<Timestamp>) -> bool {
        for (end, text) in self.lines.take(text) {
            let at = written_by(end);
            if self.sender.send(JournalLine { at, text }).await.is_err() {
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
