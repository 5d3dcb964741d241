//! Results of writers and deliveries of watches, and a check that they are consistent with one
//! history.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::Revision;
use fleet_store::{Changes, Listing};

/// Changes of a revision: values by key, `None` for deleted keys.
pub(crate) type Step = BTreeMap<String, Option<String>>;

/// Full history by revision.
pub(crate) type Steps = BTreeMap<Revision, Step>;

/// An attempt to write a unique value, and its result.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) result: WriteResult,
}

/// Result of a write as reported to the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteResult {
    /// Applied in this revision.
    Done(Revision),
    /// Not applied.
    NotDone,
    /// Possibly applied.
    Unknown,
}

/// Deliveries of one watch, and the listing that it started with.
#[derive(Debug, Clone)]
pub(crate) struct WatchLog {
    pub(crate) listing: Listing,
    pub(crate) changes: Vec<Changes>,
}

/// All results and deliveries.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) watch_logs: Vec<WatchLog>,
}

/// Returns the changes of a watch in a comparable form.
pub(crate) fn step(changes: &Changes) -> Step {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let value = |change: &fleet_store::KeyChange| change.value.as_deref().map(text);
    changes.changes.iter().map(|change| (change.key.to_string(), value(change))).collect()
}

impl History {
    /// Returns all contradictions to `truth`, the full history in the store.
    pub(crate) fn contradictions(&self, truth: &Steps) -> Vec<String> {
        let attempts = self.attempts.iter().filter_map(|attempt| attempt.contradiction(truth));
        let watch_logs =
            self.watch_logs.iter().filter_map(|watch_logs| watch_logs.contradiction(truth));
        attempts.chain(watch_logs).chain(twice(truth)).collect()
    }
}

impl Attempt {
    fn contradiction(&self, truth: &Steps) -> Option<String> {
        let happened = |step: &Step| step.get(&self.key) == Some(&Some(self.value.clone()));
        let wrong = match self.result {
            WriteResult::Done(revision) => !truth.get(&revision).is_some_and(happened),
            WriteResult::NotDone => truth.values().any(happened),
            WriteResult::Unknown => false,
        };
        wrong.then(|| format!("a writer was result what is not so: {self:?}"))
    }
}

impl WatchLog {
    fn contradiction(&self, truth: &Steps) -> Option<String> {
        let from = self.listing.revision;
        if state_at(truth, from) != listed(&self.listing) {
            return Some(format!("a listing is not what was there at {from}: {:?}", self.listing));
        }
        let delivered = self.changes.iter().filter(|changes| !changes.changes.is_empty());
        let delivered: Vec<_> =
            delivered.map(|changes| (changes.revision, step(changes))).collect();
        // A progress report also covers all earlier revisions.
        let upto = self.changes.last().map_or(from, |changes| changes.revision);
        if !self.changes.is_sorted_by(|one, other| one.revision < other.revision) {
            return Some(format!("a watch from {from} went back"));
        }
        let expected = truth.range(from.next()..).take_while(|(revision, _)| **revision <= upto);
        let expected: Vec<_> = expected.map(|(revision, step)| (*revision, step.clone())).collect();
        let first = expected.iter().zip(&delivered).position(|(one, other)| one != other);
        let at = first.unwrap_or(expected.len().min(delivered.len()));
        (delivered != expected).then(|| {
            let (due, got) = (expected.get(at), delivered.get(at));
            format!("a watch from {from} delivered {got:?} where {due:?} was due")
        })
    }
}

/// Returns the keys with their values after the steps up to `revision`.
fn state_at(truth: &Steps, revision: Revision) -> BTreeMap<String, String> {
    let mut state = BTreeMap::new();
    for (key, value) in truth.range(..=revision).flat_map(|(_, step)| step) {
        match value {
            Some(value) => state.insert(key.clone(), value.clone()),
            None => state.remove(key),
        };
    }
    state
}

fn listed(listing: &Listing) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    listing.entries.iter().map(|entry| (entry.key.clone(), text(&entry.value))).collect()
}

/// Finds values that were written more than once, although each is unique.
fn twice(truth: &Steps) -> Option<String> {
    let mut watch_logs = BTreeSet::new();
    let mut pairs = truth.values().flatten().filter(|(_, value)| value.is_some());
    let again = pairs.find(|(key, value)| !watch_logs.insert((*key, *value)));
    again.map(|pair| format!("written twice: {pair:?}"))
}

#[cfg(test)]
mod tests {
    use fleet_store::{Entry, KeyChange};

    use super::*;

    fn changes(revision: u64, key: &str, value: &str) -> Changes {
        let change =
            KeyChange { key: key.into(), value: Some(value.as_bytes().into()), lease: None };
        Changes { revision: Revision(revision), changes: vec![change] }
    }

    /// A watch's report of its progress.
    fn nothing(revision: u64) -> Changes {
        Changes { revision: Revision(revision), changes: Vec::new() }
    }

    fn sound() -> (History, Steps) {
        let made = [(2, "a", "1"), (3, "a", "2"), (5, "b", "3"), (6, "a", "4")];
        let steps = made.map(|(revision, key, value)| changes(revision, key, value));
        let truth = steps.iter().map(|changes| (changes.revision, step(changes))).collect();
        let attempts = made.map(|(revision, key, value)| Attempt {
            key: key.to_owned(),
            value: value.to_owned(),
            result: WriteResult::Done(Revision(revision)),
        });
        let entry =
            Entry { key: "a".to_owned(), value: b"1".to_vec(), modified: Revision(2), lease: None };
        let listing = Listing { revision: Revision(2), entries: vec![entry] };
        let watch_logs = WatchLog { listing, changes: steps[1..].to_vec() };
        (History { attempts: attempts.to_vec(), watch_logs: vec![watch_logs] }, truth)
    }

    #[test]
    fn valid_history_has_no_contradictions() {
        let (history, truth) = sound();
        assert_eq!(history.contradictions(&truth), [""; 0]);
        let (mut history, truth) = sound();
        history.watch_logs[0].changes.insert(1, nothing(4));
        history.watch_logs[0].changes.push(nothing(7));
        assert_eq!(history.contradictions(&truth), [""; 0]);
    }

    #[test]
    fn every_fault_is_found() {
        let faults: [fn(&mut History, &mut Steps); 10] = [
            |_, truth| drop(truth.remove(&Revision(6))),
            |history, _| history.attempts[1].result = WriteResult::NotDone,
            |history, _| history.attempts[1].result = WriteResult::Done(Revision(5)),
            |history, _| drop(history.watch_logs[0].changes.remove(1)),
            |history, _| {
                let again = history.watch_logs[0].changes[1].clone();
                history.watch_logs[0].changes.insert(1, again);
            },
            |history, _| history.watch_logs[0].changes.swap(0, 1),
            |history, _| {
                history.watch_logs[0].changes.truncate(1);
                history.watch_logs[0].changes.push(nothing(6));
            },
            |history, _| history.watch_logs[0].changes.insert(1, nothing(5)),
            |history, _| history.watch_logs[0].listing.entries.clear(),
            |_, truth| drop(truth.insert(Revision(7), step(&changes(7, "a", "4")))),
        ];
        for (number, fault) in faults.iter().enumerate() {
            let (mut history, mut truth) = sound();
            fault(&mut history, &mut truth);
            assert!(!history.contradictions(&truth).is_empty(), "fault {number} is not found");
        }
    }

    #[test]
    fn unknown_write_may_or_may_not_be_in_the_history() {
        let (mut history, mut truth) = sound();
        history.attempts[3].result = WriteResult::Unknown;
        assert_eq!(history.contradictions(&truth), [""; 0]);
        history.watch_logs[0].changes.pop();
        truth.remove(&Revision(6));
        assert_eq!(history.contradictions(&truth), [""; 0]);
    }
}
