//! Hands the lines of a unit's log to a reader, and goes on as new ones are written.

use std::io;
use std::sync::{Arc, Weak};

use tokio::sync::{mpsc, watch};

use super::changes::Changes;
use super::log::Log;
use crate::{Journal, JournalQuery};

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
    sender: mpsc::Sender<String>,
    lines: Lines,
}

impl Feed {
    async fn run(
        mut self,
        query: JournalQuery,
        changes: Option<Changes>,
        mut alive: watch::Receiver<()>,
    ) -> io::Result<()> {
        let Some((text, mut place)) =
            self.look(move |log| log.tail(query.lines, query.since)).await?
        else {
            return Ok(());
        };
        if !self.send(&text).await {
            return Ok(());
        }
        let Some(changes) = changes else {
            if let Some(rest) = self.lines.rest() {
                // The reader may have gone, which is no failure.
                drop(self.sender.send(rest).await);
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
                if !self.send(&text).await {
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

    /// Whether the reader is still there.
    async fn send(&mut self, text: &[u8]) -> bool {
        for line in self.lines.take(text) {
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
    fn take(&mut self, text: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in text.split_inclusive(|&byte| byte == b'\n') {
            self.begun.extend_from_slice(piece);
            if self.begun.ends_with(b"\n") || self.begun.len() >= LONGEST_LINE {
                lines.extend(self.rest());
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
        assert_eq!(lines.take(b"one\ntw"), ["one"]);
        assert_eq!(lines.take(b"o\r\n\nth\xffree"), ["two", ""]);
        assert_eq!(lines.rest().as_deref(), Some("th\u{fffd}ree"));
        assert_eq!(lines.rest(), None);
        let long = vec![b'x'; LONGEST_LINE];
        assert_eq!(lines.take(&long).len(), 1);
    }
}
