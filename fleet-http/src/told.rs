//! Pure but for the clock: how far journals that are followed were told, to go on from there.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::server::JournalLine;

/// How much longer ago than they were opened journals are read from which nothing was told: what a
/// question may take until it is there.
const ON_THE_WAY: Duration = Duration::from_secs(1);

/// How many bytes all positions take in a request at most: what its head may have, less some room
/// for the rest of it; enough for the 256 machines of one journal. Beyond that the machines of
/// which nothing was told for longest are forgotten, for over the weeks a unit may have been on any
/// number of them.
const MOST: usize = 56 * 1024;

/// The lines of each machine that were told last.
#[derive(Debug)]
pub(crate) struct Told {
    /// The last line of a machine.
    last: BTreeMap<String, Last>,
    /// How many lines were told.
    lines: u64,
    /// What all positions take in a request.
    bytes: usize,
    opened: Stopwatch,
}

#[derive(Debug)]
struct Last {
    position: String,
    /// Which line it is of all that were told.
    line: u64,
}

impl Told {
    /// Nothing was told, of journals that are opened now.
    pub(crate) fn new() -> Self {
        Self { last: BTreeMap::new(), lines: 0, bytes: 0, opened: Stopwatch::start() }
    }

    /// A line was told.
    pub(crate) fn on_line(&mut self, line: &JournalLine) {
        let Some((machine, position)) = line.position.as_ref().and_then(|at| at.split_once('/'))
        else {
            return;
        };
        self.lines += 1;
        let last = Last { position: position.to_owned(), line: self.lines };
        self.bytes += size(machine, position);
        if let Some(before) = self.last.insert(machine.to_owned(), last) {
            self.bytes -= size(machine, &before.position);
        }
        while self.bytes > MOST && self.last.len() > 1 {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self.last.iter().min_by_key(|(_, last)| last.line);
        let Some(machine) = oldest.map(|(machine, _)| machine.clone()) else { return };
        if let Some(last) = self.last.remove(&machine) {
            self.bytes -= size(&machine, &last.position);
        }
    }

    /// The position of the last line of that machine.
    pub(crate) fn position(&self, machine: &str) -> Option<&str> {
        self.last.get(machine).map(|last| &*last.position)
    }

    /// The positions of the last lines of all machines, each with its machine.
    pub(crate) fn positions(&self) -> impl Iterator<Item = String> {
        self.last.iter().map(|(machine, last)| format!("{machine}/{}", last.position))
    }

    /// Of what time nothing was missed where nothing was told.
    pub(crate) fn since_opened(&self) -> Duration {
        self.opened.elapsed() + ON_THE_WAY
    }
}

/// What a position takes in a request, where all but letters and digits takes three bytes.
fn size(machine: &str, position: &str) -> usize {
    let escaped = |byte: u8| if byte.is_ascii_alphanumeric() { 1 } else { 3 };
    let position = machine.bytes().chain([b'/']).chain(position.bytes());
    "&after=".len() + position.map(escaped).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_each_machine_counts() {
        let mut told = Told::new();
        for position in [Some("m1/1"), Some("m2/s=1;i=2/3"), None, Some("m1/2"), Some("odd")] {
            let position = position.map(str::to_owned);
            told.on_line(&JournalLine { position, ..String::new().into() });
        }
        assert_eq!(told.positions().collect::<Vec<_>>(), ["m1/2", "m2/s=1;i=2/3"]);
        assert_eq!((told.position("m1"), told.position("m3")), (Some("2"), None));
        assert!(told.since_opened() >= ON_THE_WAY);
    }

    #[test]
    fn what_was_told_longest_ago_is_forgotten_before_a_request_gets_too_long() {
        let mut told = Told::new();
        let cursor = "s=0123456789abcdef0123456789abcdef;i=1f;b=0123456789abcdef0123456789abcdef;\
                      m=123456789;t=123456789abcd;x=0123456789abcdef";
        let tell = |told: &mut Told, machine: u32| {
            let position = Some(format!("{machine:032x}/{cursor}"));
            told.on_line(&JournalLine { position, ..String::new().into() });
        };
        for machine in 0..1_000 {
            tell(&mut told, machine);
            tell(&mut told, 0);
        }
        let kept = told.positions().count();
        assert!((256..1_000).contains(&kept), "{kept}");
        let sizes = told.last.iter().map(|(machine, last)| size(machine, &last.position));
        assert_eq!(sizes.sum::<usize>(), told.bytes);
        assert!(told.bytes <= MOST);
        let there = |machine: u32| told.position(&format!("{machine:032x}")).is_some();
        assert_eq!([0, 1, 999].map(there), [true, false, true]);
    }
}
