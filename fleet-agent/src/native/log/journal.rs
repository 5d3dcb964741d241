//! Reads the lines of a unit's log, and follows it as it grows. Each line has a cursor, from which
//! a client can continue.

use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Weak};
use std::{fmt, io};

use fleet_core::Timestamp;
use fleet_core::journal::{JournalLine, JournalQuery};
use tokio::sync::{mpsc, watch};

use super::Log;
use super::time_index::TimeIndex;
use crate::journal::Journal;
use crate::native::linux::files::FileWatch;
use crate::{ServiceError, wall_time};

/// Longer lines are split into pieces of this many bytes.
const MAX_LINE: usize = 64 * 1024;

/// Starts a task that sends the lines of a log to the returned journal. The task ends early if the
/// journal is dropped or the log is removed.
pub(crate) fn read(log: &Arc<Log>, query: &JournalQuery) -> io::Result<Journal> {
    match &query.after {
        Some(cursor) => read_after(log, cursor, query.follow),
        None => read_last(log, query),
    }
}

/// Reads the last lines of a log, which `lines` and `since` of the query limit.
fn read_last(log: &Arc<Log>, query: &JournalQuery) -> io::Result<Journal> {
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

/// Reads the lines after the line with this cursor.
fn read_after(log: &Arc<Log>, cursor: &str, follow: bool) -> io::Result<Journal> {
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
        let directory = log.path().parent().map(Path::to_owned);
        let read = tokio::task::spawn_blocking(move || read(&log)).await;
        // The directory of an unloaded unit is removed before its log.
        let is_unloaded = || directory.is_some_and(|directory| !directory.exists());
        match read.map_err(io::Error::other)? {
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_unloaded() => Ok(None),
            read => read.map(Some),
        }
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
        self.last_read = all[all.len().saturating_sub(MAX_CONTEXT)..].to_vec();
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

/// Number of bytes before an offset that are hashed.
pub(crate) const MAX_CONTEXT: usize = 64;

/// The end of a line in a log. Pure: no I/O, no clock.
///
/// A cursor consists of a log offset and a hash of the bytes before that offset. It stays valid
/// after a cut or rotation of the log, because log offsets keep their meaning.
///
/// The log offset at which the file begins (its base offset) can be lost, so that a later daemon
/// counts from zero again. A cursor offset beyond the end of the log shows this. Only then is the
/// log searched for the hashed bytes. Otherwise the hash only verifies the offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogCursor {
    offset: u64,
    /// Number of hashed bytes.
    length: usize,
    /// Hash of these bytes.
    hash: u64,
}

impl LogCursor {
    /// Creates a cursor for an offset, with the text before it.
    pub(crate) fn new(offset: u64, before: &[u8]) -> Self {
        let known = &before[before.len().saturating_sub(MAX_CONTEXT)..];
        Self { offset, length: known.len(), hash: hash(known) }
    }

    /// Returns the position of the cursor in `text`, which begins at the log offset `begin`.
    /// Returns `None` if the position is not found, or if several positions match. The caller then
    /// reports a gap, because a wrong position would silently skip lines.
    pub(crate) fn find(&self, text: &[u8], begin: u64) -> Option<usize> {
        // Anything before the beginning was dropped, even if it looks the same.
        let at = usize::try_from(self.offset.checked_sub(begin)?).unwrap_or(usize::MAX);
        if at <= text.len() {
            return self.is_at(text, at).then_some(at);
        }
        let ends = (1..=text.len()).filter(|&end| text[end - 1] == b'\n');
        let mut found = ends.filter(|&end| self.length > 0 && self.is_at(text, end));
        found.next().filter(|_| found.next().is_none())
    }

    fn is_at(&self, text: &[u8], at: usize) -> bool {
        at.checked_sub(self.length).is_some_and(|from| hash(&text[from..at]) == self.hash)
    }
}

impl fmt::Display for LogCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:x}", self.offset, self.length, self.hash)
    }
}

/// Error for a text that is not a valid cursor.
#[derive(Debug)]
pub(crate) struct InvalidLogCursor;

impl FromStr for LogCursor {
    type Err = InvalidLogCursor;

    fn from_str(text: &str) -> Result<Self, InvalidLogCursor> {
        let mut parts = text.split('.');
        let mut part = || parts.next().ok_or(InvalidLogCursor);
        let offset = part()?.parse().map_err(|_| InvalidLogCursor)?;
        let length =
            part()?.parse().ok().filter(|length| *length <= MAX_CONTEXT).ok_or(InvalidLogCursor)?;
        let hash = u64::from_str_radix(part()?, 16).map_err(|_| InvalidLogCursor)?;
        if parts.next().is_some() {
            Err(InvalidLogCursor)
        } else {
            Ok(Self { offset, length, hash })
        }
    }
}

/// Computes the FNV-1a hash. All versions of this program must use the same hash, because a client
/// may keep a cursor across an upgrade.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    #[test]
    fn cursor_is_found_after_cut() {
        let text = b"one\ntwo\ntwo\nthree\nfour\n";
        let two = LogCursor::new(1008, b"one\ntwo\n");
        assert_eq!(two.find(text, 1000), Some(8), "nothing was cut");
        assert_eq!(two.find(b"three\n", 1012), None, "it was dropped");
        let third = LogCursor::new(1012, b"two\ntwo\n");
        assert_eq!(third.find(b"two\ntwo\nthree\n", 0), Some(8), "the base has changed");
        assert_eq!(third.find(b"two\nthree\n", 0), None, "half of the hashed text was dropped");
        let word = LogCursor::new(90, b"tick\n");
        assert_eq!(word.find(b"tock\ntick\ntock\n", 0), Some(10), "there is one of it");
        assert_eq!(word.find(b"tick\ntick\ntock\n", 0), None, "it could be either");
        assert_eq!(LogCursor::new(9, b"tick\n").find(b"tick\ntock\ntick\n", 0), None);
        assert_eq!(
            LogCursor::new(7, b"").find(text, 0),
            Some(7),
            "the offset is all that is known"
        );
        assert_eq!(LogCursor::new(700, b"").find(text, 0), None);
    }

    #[test]
    fn cursor_round_trips() {
        let position = LogCursor::new(7, b"one\n");
        insta::assert_snapshot!(position, @"7.4.715adb46adb6c5f");
        assert_eq!(position.to_string().parse::<LogCursor>().unwrap(), position);
        for text in
            ["", "1", "1.2", "1.2.x", "1.2.3.4", "-1.2.3", "1.65.3", "1.2.11111111111111111"]
        {
            assert!(text.parse::<LogCursor>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_or_fails(text in ".*", log in any::<Vec<u8>>()) {
            if let Ok(position) = text.parse::<LogCursor>() {
                let _any = position.find(&log, 3);
            }
        }

        /// No line is skipped silently, however often lines repeat.
        #[test]
        fn cursor_is_exact_or_reported_lost(
            lines in proptest::collection::vec(prop_oneof!["tick\n", "tock\n"], 1..60),
            read in any::<prop::sample::Index>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let (read, cut) = (read.index(lines.len() + 1), cut.index(lines.len() + 1));
            let (before, begin) = (lines[..read].concat(), lines[..cut].concat().len());
            let position = LogCursor::new(before.len() as u64, before.as_bytes());
            let remaining = lines[cut..].concat();
            let found = position.find(remaining.as_bytes(), begin as u64);
            let offset = before.len().checked_sub(begin);
            // With that much text before it, the cursor is unambiguous.
            if offset.is_some_and(|at| at >= MAX_CONTEXT.min(before.len())) {
                prop_assert_eq!(found, offset);
            } else {
                prop_assert!(found.is_none() || found == offset, "{:?} is not {:?}", found, offset);
            }
        }

        /// Checks that a cut of the log does not invalidate a cursor. With `base_changed`, the
        /// cursor's offset may lie beyond the end of the log. Then the cursor is found by the text
        /// before it, which is unique here.
        #[test]
        fn cut_does_not_move_cursor(
            numbers in proptest::collection::btree_set(0..10_000_u32, 1..60),
            read in any::<prop::sample::Index>(),
            cut in any::<prop::sample::Index>(),
            base_changed in any::<bool>(),
        ) {
            let lines: Vec<String> = numbers.iter().map(|number| format!("n{number}\n")).collect();
            let read = read.index(lines.len());
            let cut = cut.index(read + 1);
            let before = lines[..=read].concat();
            let position = LogCursor::new(before.len() as u64, lines[read].as_bytes());
            let begin = if base_changed { 0 } else { lines[..cut].concat().len() };
            let remaining = lines[cut..].concat();
            let found = position.find(remaining.as_bytes(), begin as u64);
            let rest = lines[read + 1..].concat();
            if base_changed && before.len() <= remaining.len() && cut > 0 {
                prop_assert!(found.is_none_or(|at| remaining[at..] == rest));
            } else {
                prop_assert_eq!(found.map(|at| &remaining[at..]), Some(&*rest));
            }
        }
    }
}
