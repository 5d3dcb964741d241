//! Remembers the last line received from each machine's journal, so that a reader can resume after
//! it.
//!
//! Pure except for the clock.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_core::journal::JournalLine;

use crate::clock::Stopwatch;

/// Margin for the age of lines in a request. Lines become older while the request is on its way to
/// the machine. The margin makes up for that time, if it is at most one second.
pub(crate) const REQUEST_MARGIN: Duration = Duration::from_secs(1);

/// Maximum size of all cursors in a request, in bytes.
///
/// The limit leaves room for the rest of the request head. It is sufficient for 256 machines, the
/// maximum that one request can read from. However, a journal that is followed for weeks may
/// collect the cursors of more machines, as the unit moves. Beyond the limit, the cursor that was
/// not updated for the longest time is dropped.
const MAX_BYTES: usize = 56 * 1024;

/// The last line received from each machine.
#[derive(Debug)]
pub(crate) struct Cursors {
    /// Last line of each machine, by machine ID.
    last: BTreeMap<String, LastEntry>,
    /// Number of lines received.
    lines: u64,
    /// Size of all cursors in a request, in bytes.
    bytes: usize,
    opened: Stopwatch,
}

#[derive(Debug)]
struct LastEntry {
    cursor: String,
    /// Number of this line among all received lines.
    line: u64,
}

impl Cursors {
    /// Creates an empty set of cursors for journals that are opened now.
    pub(crate) fn new() -> Self {
        Self { last: BTreeMap::new(), lines: 0, bytes: 0, opened: Stopwatch::start() }
    }

    /// Records a received line. A line without a cursor is ignored.
    pub(crate) fn record(&mut self, line: &JournalLine) {
        let Some((machine, cursor)) = line.cursor.as_ref().and_then(|at| at.split_once('/')) else {
            return;
        };
        self.lines += 1;
        let last = LastEntry { cursor: cursor.to_owned(), line: self.lines };
        self.bytes += size(machine, cursor);
        if let Some(before) = self.last.insert(machine.to_owned(), last) {
            self.bytes -= size(machine, &before.cursor);
        }
        while self.bytes > MAX_BYTES && self.last.len() > 1 {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self.last.iter().min_by_key(|(_, last)| last.line);
        let Some(machine) = oldest.map(|(machine, _)| machine.clone()) else { return };
        if let Some(last) = self.last.remove(&machine) {
            self.bytes -= size(&machine, &last.cursor);
        }
    }

    /// Returns the cursor of the machine's last line.
    pub(crate) fn cursor(&self, machine: &str) -> Option<&str> {
        self.last.get(machine).map(|last| &*last.cursor)
    }

    /// Returns the cursor of each machine's last line, prefixed with the machine ID.
    pub(crate) fn cursors(&self) -> impl Iterator<Item = String> {
        self.last.iter().map(|(machine, last)| format!("{machine}/{}", last.cursor))
    }

    /// Returns the time since the journals were opened, plus [`REQUEST_MARGIN`]. Use this as the
    /// maximum age of lines when a journal without a cursor is opened again: then no line is
    /// missed.
    pub(crate) fn time_since_opened(&self) -> Duration {
        self.opened.elapsed() + REQUEST_MARGIN
    }
}

/// Returns the size of a cursor in a request URL, in bytes. Every byte except ASCII letters and
/// digits is percent-encoded and takes three bytes.
fn size(machine: &str, cursor: &str) -> usize {
    let escaped = |byte: u8| if byte.is_ascii_alphanumeric() { 1 } else { 3 };
    let cursor = machine.bytes().chain([b'/']).chain(cursor.bytes());
    "&after=".len() + cursor.map(escaped).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_cursor_of_each_machine_is_kept() {
        let mut cursors = Cursors::new();
        for cursor in [Some("m1/1"), Some("m2/s=1;i=2/3"), None, Some("m1/2"), Some("odd")] {
            let cursor = cursor.map(str::to_owned);
            cursors.record(&JournalLine::new("").with_cursor(cursor));
        }
        assert_eq!(cursors.cursors().collect::<Vec<_>>(), ["m1/2", "m2/s=1;i=2/3"]);
        assert_eq!((cursors.cursor("m1"), cursors.cursor("m3")), (Some("2"), None));
        assert!(cursors.time_since_opened() >= REQUEST_MARGIN);
    }

    #[test]
    fn oldest_cursors_are_dropped_beyond_the_limit() {
        let mut cursors = Cursors::new();
        let cursor = "s=0123456789abcdef0123456789abcdef;i=1f;b=0123456789abcdef0123456789abcdef;\
                      m=123456789;t=123456789abcd;x=0123456789abcdef";
        let record = |cursors: &mut Cursors, machine: u32| {
            let cursor = Some(format!("{machine:032x}/{cursor}"));
            cursors.record(&JournalLine::new("").with_cursor(cursor));
        };
        for machine in 0..1_000 {
            record(&mut cursors, machine);
            record(&mut cursors, 0);
        }
        let count = cursors.cursors().count();
        assert!((256..1_000).contains(&count), "{count}");
        let sizes = cursors.last.iter().map(|(machine, last)| size(machine, &last.cursor));
        assert_eq!(sizes.sum::<usize>(), cursors.bytes);
        assert!(cursors.bytes <= MAX_BYTES);
        let there = |machine: u32| cursors.cursor(&format!("{machine:032x}")).is_some();
        assert_eq!([0, 1, 999].map(there), [true, false, true]);
    }
}
