//! The keyspace behaves like a naive model under random operations.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_core::{Revision, Timestamp};
use fleet_store::backend::Keyspace;
use fleet_store::{
    Changes, Commit, Condition, Entry, Expect, KeyChange, LeaseId, Listing, StoreError,
    Transaction, Write,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// An operation on a keyspace.
#[derive(Debug, Clone)]
enum Step {
    Commit(Transaction),
    Grant(u64),
    Renew(u64),
    Revoke(u64),
    /// Time passes, and expired leases are ended.
    Pass(u64),
    /// Time passes, but expired leases are not ended yet.
    Lag(u64),
}

fn key() -> impl Strategy<Value = String> {
    "[ab]/?[abc]?"
}

fn write() -> impl Strategy<Value = Write> {
    let lease = prop_oneof![Just(None), (1..6u64).prop_map(|id| Some(LeaseId(id)))];
    let put = (key(), vec(0..3u8, 0..2), lease);
    prop_oneof![
        3 => put.prop_map(|(key, value, lease)| Write::Put { key, value, lease }),
        1 => key().prop_map(|key| Write::Delete { key }),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    let expect = prop_oneof![
        Just(Expect::Absent),
        Just(Expect::Present),
        vec(0..3u8, 0..2).prop_map(Expect::Value),
        (0..30u64).prop_map(|revision| Expect::ModifiedAt(Revision(revision))),
    ];
    (key(), expect).prop_map(|(key, expect)| Condition { key, expect })
}

fn step() -> impl Strategy<Value = Step> {
    let transaction = (vec(condition(), 0..2), vec(write(), 0..4))
        .prop_map(|(conditions, writes)| Transaction { conditions, writes });
    prop_oneof![
        8 => transaction.prop_map(Step::Commit),
        2 => (0..20u64).prop_map(Step::Grant),
        2 => (1..6u64).prop_map(Step::Renew),
        1 => (1..6u64).prop_map(Step::Revoke),
        2 => (0..8u64).prop_map(Step::Pass),
        1 => (0..8u64).prop_map(Step::Lag),
    ]
}

/// The contract in its simplest implementation: every lookup is a search.
#[derive(Default)]
struct Model {
    now: u64,
    entries: Vec<Entry>,
    leases: Vec<(LeaseId, u64, u64)>,
    granted: u64,
    /// Entries at each revision.
    states: Vec<Vec<Entry>>,
}

impl Model {
    fn revision(&self) -> Revision {
        Revision(self.states.len() as u64)
    }

    fn find(&self, key: &str) -> Option<Entry> {
        self.entries.iter().find(|entry| entry.key == key).cloned()
    }

    fn lasts(&self, id: LeaseId) -> bool {
        self.leases.iter().any(|(lease, _, end)| *lease == id && self.now < *end)
    }

    fn holds(&self, condition: &Condition) -> bool {
        match (&condition.expect, self.find(&condition.key)) {
            (Expect::Absent, found) => found.is_none(),
            (Expect::Present, found) => found.is_some(),
            (Expect::Value(value), found) => found.is_some_and(|entry| entry.value == *value),
            (Expect::ModifiedAt(at), found) => found.is_some_and(|entry| entry.modified == *at),
        }
    }

    fn commit(&mut self, transaction: &Transaction) -> Option<Commit> {
        let keys: Vec<&str> = transaction.writes.iter().map(Write::key).collect();
        if keys.iter().enumerate().any(|(i, key)| keys[..i].contains(key)) {
            return None;
        }
        for (condition, expected) in transaction.conditions.iter().enumerate() {
            if !self.holds(expected) {
                return Some(Commit::Refused { condition, found: self.find(&expected.key) });
            }
        }
        let lost = |write: &Write| match write {
            Write::Put { lease: Some(lease), .. } => !self.lasts(*lease),
            _ => false,
        };
        if transaction.writes.iter().any(lost) {
            return None;
        }
        let before = self.entries.clone();
        let modified = self.revision().next();
        for write in &transaction.writes {
            self.entries.retain(|entry| entry.key != write.key());
            if let Write::Put { key, value, lease } = write.clone() {
                self.entries.push(Entry { key, value, modified, lease });
            }
        }
        self.record(&before);
        Some(Commit::Applied(self.revision()))
    }

    fn end(&mut self, id: LeaseId) {
        let before = self.entries.clone();
        if self.leases.iter().any(|(lease, _, _)| *lease == id) {
            self.leases.retain(|(lease, _, _)| *lease != id);
            self.entries.retain(|entry| entry.lease != Some(id));
        }
        self.record(&before);
    }

    /// Adds a revision if the entries have changed.
    fn record(&mut self, before: &[Entry]) {
        self.entries.sort_by(|a, b| a.key.cmp(&b.key));
        if self.entries != before {
            self.states.push(self.entries.clone());
        }
    }

    fn over(&self) -> Vec<LeaseId> {
        let mut over: Vec<_> = self.leases.iter().filter(|(_, _, end)| *end <= self.now).collect();
        over.sort_by_key(|(id, _, end)| (*end, *id));
        over.into_iter().map(|(id, _, _)| *id).collect()
    }

    fn state(&self, revision: Revision) -> &[Entry] {
        revision.0.checked_sub(1).map_or(&[], |index| &self.states[index as usize])
    }

    fn listing(&self, prefix: &str) -> Listing {
        let under = self.entries.iter().filter(|entry| entry.key.starts_with(prefix));
        Listing { revision: self.revision(), entries: under.cloned().collect() }
    }
}

/// Applies a step to both and compares the results.
fn take(step: &Step, keyspace: &mut Keyspace, model: &mut Model, made: &mut Vec<Changes>) {
    let now = Timestamp::from_millis(model.now);
    match step {
        Step::Commit(transaction) => {
            let outcome = keyspace.apply(now, transaction);
            assert_eq!(outcome.as_ref().ok().map(|o| o.commit.clone()), model.commit(transaction));
            made.extend(outcome.ok().and_then(|outcome| outcome.changes));
        }
        Step::Grant(ttl) => {
            let id = keyspace.grant(now, Duration::from_millis(*ttl));
            model.granted += 1;
            assert_eq!(id, LeaseId(model.granted));
            let ttl = (*ttl).max(1);
            model.leases.push((id, ttl, model.now + ttl));
        }
        Step::Renew(id) => {
            let (id, renewed) = (LeaseId(*id), keyspace.renew(now, LeaseId(*id)));
            assert_eq!(renewed.is_ok(), model.lasts(id));
            if model.lasts(id) {
                let now = model.now;
                let lease = model.leases.iter_mut().find(|(lease, _, _)| *lease == id);
                lease.into_iter().for_each(|(_, ttl, end)| *end = now + *ttl);
            }
        }
        Step::Revoke(id) => {
            made.extend(keyspace.revoke(LeaseId(*id)).and_then(|ended| ended.changes));
            model.end(LeaseId(*id));
        }
        Step::Pass(millis) => {
            model.now += millis;
            let ended = keyspace.expire(Timestamp::from_millis(model.now));
            assert_eq!(ended.iter().map(|ended| ended.lease).collect::<Vec<_>>(), model.over());
            made.extend(ended.into_iter().filter_map(|ended| ended.changes));
            model.over().into_iter().for_each(|lease| model.end(lease));
        }
        Step::Lag(millis) => model.now += millis,
    }
}

/// Returns the entries after applying changes.
fn replay(from: &[Entry], all: &[Changes]) -> Vec<Entry> {
    let mut entries: BTreeMap<String, Entry> =
        from.iter().map(|entry| (entry.key.clone(), entry.clone())).collect();
    for changes in all {
        for KeyChange { key, value, lease } in &changes.changes {
            let (key, lease) = (key.to_string(), *lease);
            match value {
                Some(value) => {
                    let (value, modified) = (value.to_vec(), changes.revision);
                    entries.insert(key.clone(), Entry { key, value, modified, lease });
                }
                None => assert!(entries.remove(&key).is_some(), "{key} was not there"),
            }
        }
    }
    entries.into_values().collect()
}

proptest! {
    #[test]
    fn keyspace_behaves_like_its_model(steps in vec(step(), 0..60), prefix in "[ab]?/?") {
        let (mut keyspace, mut model, mut made) = (Keyspace::new(), Model::default(), Vec::new());
        for step in &steps {
            take(step, &mut keyspace, &mut model, &mut made);
            prop_assert_eq!(keyspace.read(&prefix), model.listing(&prefix));
            let next = model.leases.iter().map(|(_, _, end)| Timestamp::from_millis(*end)).min();
            prop_assert_eq!(keyspace.next_expiry(), next);
        }
        // Every revision was returned once, and its changes lead from the previous state to it.
        let revisions: Vec<u64> = made.iter().map(|changes| changes.revision.0).collect();
        prop_assert_eq!(revisions, (1..=model.revision().0).collect::<Vec<_>>());
        for revision in 0..=model.revision().0 {
            let after = keyspace.changes_after(Revision(revision), "").unwrap();
            prop_assert_eq!(replay(model.state(Revision(revision)), &after), model.entries.clone());
        }
    }

    /// A keyspace that only applies changes is identical to the keyspace that created them. The
    /// readers of a durable store have such a keyspace.
    #[test]
    fn keyspace_fed_with_changes_is_identical(steps in vec(step(), 0..60)) {
        let (mut keyspace, mut model, mut made) = (Keyspace::new(), Model::default(), Vec::new());
        let mut follower = Keyspace::new();
        for step in &steps {
            take(step, &mut keyspace, &mut model, &mut made);
            made.drain(..).for_each(|changes| follower.apply_changes(changes));
            prop_assert_eq!(follower.read(""), keyspace.read(""));
        }
    }

    #[test]
    fn history_is_bounded_and_complete(writes in vec(1..5usize, 1..40), most in 0..20usize) {
        let mut keyspace = Keyspace::new().with_history(most);
        let mut all = Vec::new();
        for count in writes {
            let put = |transaction: Transaction, i| transaction.put(format!("{i}"), "");
            let transaction = (0..count).fold(Transaction::new(), put);
            all.extend(keyspace.apply(Timestamp::default(), &transaction).unwrap().changes);
        }
        let mut kept = 0;
        for revision in (0..=all.len()).rev() {
            match keyspace.changes_after(Revision(revision as u64), "") {
                Ok(changes) => prop_assert_eq!(&changes, &all[revision..]),
                Err(StoreError::Compacted { oldest }) => prop_assert!(oldest.0 > revision as u64),
                Err(error) => prop_assert!(false, "{}", error),
            }
            if keyspace.changes_after(Revision(revision as u64), "").is_ok() {
                kept = all[revision..].iter().map(|changes| changes.changes.len()).sum();
            }
        }
        let newest = all.last().map_or(0, |changes| changes.changes.len());
        prop_assert!(kept <= most.max(newest));
    }
}
