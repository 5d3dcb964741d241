//! Pure but for the clock: how far journals that are followed were told, to go on from there.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::server::JournalLine;

/// How much longer ago than they were opened journals are read from which nothing was told: what a
/// question may take until it is there.
const ON_THE_WAY: Duration = Duration::from_secs(1);

/// The lines of each machine that were told last.
#[derive(Debug)]
pub(crate) struct Told {
    /// The position of the last line of a machine.
    last: BTreeMap<String, String>,
    opened: Stopwatch,
}

impl Told {
    /// Nothing was told, of journals that are opened now.
    pub(crate) fn new() -> Self {
        Self { last: BTreeMap::new(), opened: Stopwatch::start() }
    }

    /// A line was told.
    pub(crate) fn on_line(&mut self, line: &JournalLine) {
        let Some((machine, position)) = line.position.as_ref().and_then(|at| at.split_once('/'))
        else {
            return;
        };
        match self.last.get_mut(machine) {
            Some(last) => position.clone_into(last),
            None => drop(self.last.insert(machine.to_owned(), position.to_owned())),
        }
    }

    /// The position of the last line of that machine.
    pub(crate) fn position(&self, machine: &str) -> Option<&str> {
        self.last.get(machine).map(String::as_str)
    }

    /// The positions of the last lines of all machines, each with its machine.
    pub(crate) fn positions(&self) -> impl Iterator<Item = String> {
        self.last.iter().map(|(machine, position)| format!("{machine}/{position}"))
    }

    /// Of what time nothing was missed where nothing was told.
    pub(crate) fn since_opened(&self) -> Duration {
        self.opened.elapsed() + ON_THE_WAY
    }
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
}
