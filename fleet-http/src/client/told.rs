//! Pure: which lines of a journal were told already, when it is read again from a little before.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;

use fleet_core::Timestamp;

use crate::JournalLine;

/// How many lines are known again.
const MOST: usize = 4096;

/// A line, in short: when it was written, and the hash of its text.
type Short = (Timestamp, u64);

/// The lines that were told last.
///
/// Lines of which nobody knows when they were written are not known again.
#[derive(Debug, Default)]
pub(super) struct Told {
    last: VecDeque<Short>,
    /// Of these, how often each will be told again.
    again: BTreeMap<Short, usize>,
    /// What was written before this was told, or not asked for. Until the first line that is new.
    from: Option<Timestamp>,
}

impl Told {
    /// How far to go back before the last line, when `most` is surely enough: where nothing was
    /// told, whatever is there was not asked for.
    pub(super) fn overlap(&self, most: Duration) -> Duration {
        if self.last.is_empty() { Duration::ZERO } else { most }
    }

    /// From now on come lines of which some were told.
    pub(super) fn go_back(&mut self) {
        self.from = self.last.iter().map(|(at, _)| *at).min();
        self.again.clear();
        for line in &self.last {
            *self.again.entry(*line).or_default() += 1;
        }
    }

    /// Whether the line was not told yet; it is now.
    pub(super) fn is_new(&mut self, line: &JournalLine) -> bool {
        let Some(at) = line.at else { return true };
        let mut hasher = DefaultHasher::new();
        line.text.hash(&mut hasher);
        let short = (at, hasher.finish());
        if let Some(left) = self.again.get_mut(&short).filter(|left| **left > 0) {
            *left -= 1;
            return false;
        }
        if self.from.is_some_and(|from| at < from) {
            return false;
        }
        self.from = None;
        self.last.push_back(short);
        if self.last.len() > MOST {
            self.last.pop_front();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: u64, text: &str) -> JournalLine {
        JournalLine { at: Some(Timestamp::from_millis(at)), text: text.to_owned() }
    }

    /// The texts of the lines that are new.
    fn new<'a>(told: &mut Told, lines: &[(u64, &'a str)]) -> Vec<&'a str> {
        let is_new = |(at, text): &&(u64, &str)| told.is_new(&line(*at, text));
        lines.iter().filter(is_new).map(|(_, text)| *text).collect()
    }

    #[test]
    fn what_was_told_is_not_told_again_and_all_else_is() {
        let mut told = Told::default();
        assert_eq!(new(&mut told, &[(5, "a"), (7, "tick"), (7, "tick")]), ["a", "tick", "tick"]);
        for _ in 0..2 {
            told.go_back();
            // What was written before the first line was not asked for.
            let again = [(3, "old"), (5, "a"), (7, "tick"), (7, "tick")];
            assert_eq!(new(&mut told, &again), [""; 0]);
        }
        assert_eq!(new(&mut told, &[(7, "tick"), (6, "b"), (9, "c")]), ["tick", "b", "c"]);
        // A clock was set back.
        assert_eq!(new(&mut told, &[(1, "d")]), ["d"]);
        told.go_back();
        assert_eq!(new(&mut told, &[(6, "b"), (9, "c"), (1, "d"), (2, "e")]), ["e"]);
    }

    #[test]
    fn there_is_a_bound_and_what_is_older_counts_as_told() {
        let mut told = Told::default();
        let many = MOST as u64 + 100;
        assert!((0..many).all(|at| told.is_new(&line(at, "x"))));
        assert_eq!(told.last.len(), MOST);
        told.go_back();
        assert!((0..many).all(|at| !told.is_new(&line(at, "x"))));
        assert!(told.is_new(&line(many, "x")));
    }

    #[test]
    fn lines_without_a_moment_are_all_new() {
        let mut told = Told::default();
        let undated = JournalLine::from("x".to_owned());
        assert!(told.is_new(&undated) && told.is_new(&undated));
        assert_eq!(told.overlap(Duration::from_secs(1)), Duration::ZERO);
    }
}
