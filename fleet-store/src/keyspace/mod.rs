//! Pure: the state machine of the in-process backends.
//!
//! It implements the rules of the [`Store`](crate::Store) contract. It reads no clock; the caller
//! passes the time.

use std::collections::btree_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{Revision, Timestamp};

use crate::{
    Changes, Commit, Condition, Entry, Expect, KeyChange, LeaseId, Listing, StoreError,
    Transaction, Write,
};

/// A store as a plain data structure: keys with their values, revisions and leases, and recent
/// changes. It has no durability, no clients and no clock.
///
/// Mutating operations return their [`Changes`]. The owner can make these changes durable and
/// publish them to watchers. All timestamps passed to one keyspace must come from the same clock.
///
/// A store that owns a keyspace does three things:
///
/// - It calls [`expire`](Self::expire) before each change and at
///   [`next_expiry`](Self::next_expiry), and publishes those changes too.
/// - It stores the changes before it acknowledges and publishes them. After a failed write the
///   keyspace is ahead of the file, so the store reports [`StoreError::Unknown`] and reads the file
///   again before it serves anything else.
/// - After a restart it calls [`restore`](Self::restore), then
///   [`restore_lease`](Self::restore_lease) for each lease of an entry.
///
/// ```
/// use fleet_core::{Revision, Timestamp};
/// use fleet_store::{Commit, Transaction};
/// use fleet_store::backend::Keyspace;
///
/// let mut keyspace = Keyspace::new();
/// let now = Timestamp::from_millis(0);
/// let outcome = keyspace.apply(now, &Transaction::new().put("a", "1"))?;
/// assert_eq!(outcome.commit, Commit::Applied(Revision(1)));
/// assert_eq!(keyspace.read("").entries.len(), 1);
/// # Ok::<(), fleet_store::StoreError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Keyspace {
    revision: Revision,
    keys: BTreeMap<Arc<str>, StoredValue>,
    leases: Leases,
    history: History,
}

#[derive(Debug, Clone)]
struct StoredValue {
    value: Arc<[u8]>,
    modified: Revision,
    lease: Option<LeaseId>,
}

/// Effect of an applied transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyOutcome {
    /// Result for the committer.
    pub commit: Commit,
    /// Changes of the new revision; `None` if nothing was written.
    pub changes: Option<Changes>,
}

/// A lease that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedLease {
    /// The lease.
    pub lease: LeaseId,
    /// Revision that deleted the keys bound to the lease, if there were any.
    pub changes: Option<Changes>,
}

impl Keyspace {
    /// Default number of changes kept for watches that start in the past.
    pub const DEFAULT_HISTORY: usize = 10_000;

    /// Creates an empty keyspace at revision zero.
    #[must_use]
    pub fn new() -> Self {
        Self::restore(Revision::ZERO, LeaseId(0), Vec::new())
    }

    /// Restores a keyspace at `revision`, without leases and without history, so no watch can start
    /// before `revision`. `last_lease` is the last lease ID ever granted.
    #[must_use]
    pub fn restore(revision: Revision, last_lease: LeaseId, entries: Vec<Entry>) -> Self {
        let mut leases = Leases::after(last_lease);
        let stored = |entry: Entry| {
            let key: Arc<str> = entry.key.into();
            leases.rebind(&key, None, entry.lease);
            let (modified, lease) = (entry.modified, entry.lease);
            (key, StoredValue { value: entry.value.into(), modified, lease })
        };
        let keys = entries.into_iter().map(stored).collect();
        Self { revision, keys, leases, history: History::new(revision, Self::DEFAULT_HISTORY) }
    }

    /// Limits the history for watches that start in the past to `changes` changes. The latest
    /// revision is always kept whole, even if it has more changes.
    #[must_use]
    pub fn with_history(mut self, changes: usize) -> Self {
        self.history = History::new(self.revision, changes);
        self
    }

    /// Returns the current revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns all entries with a key that starts with `prefix`.
    #[must_use]
    pub fn read(&self, prefix: &str) -> Listing {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let under = self.keys.range::<str, _>(from).take_while(|(key, _)| key.starts_with(prefix));
        let entries = under.map(|(key, stored)| stored.entry(key)).collect();
        Listing { revision: self.revision, entries }
    }

    /// Returns the changes under `prefix` after the revision `after`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Compacted`] when these changes are no longer kept; [`StoreError::Invalid`]
    /// when `after` does not exist yet.
    pub fn changes_after(&self, after: Revision, prefix: &str) -> Result<Vec<Changes>, StoreError> {
        if after > self.revision {
            let last = self.revision;
            let text = format!("revision {after} does not exist yet: the last revision is {last}");
            return Err(StoreError::Invalid(text));
        }
        let changes = self.history.after(after)?;
        Ok(changes.filter_map(|changes| changes.under(prefix)).collect())
    }

    /// Checks the conditions and applies the writes, all or nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`] when [`Transaction::check`] fails; [`StoreError::LeaseLost`] when
    /// all conditions hold and a write binds a key to an ended lease. After an error, nothing is
    /// changed.
    pub fn apply(
        &mut self,
        now: Timestamp,
        transaction: &Transaction,
    ) -> Result<ApplyOutcome, StoreError> {
        transaction.check()?;
        if let Some(commit) = self.refusal(&transaction.conditions) {
            return Ok(ApplyOutcome { commit, changes: None });
        }
        self.check_leases(now, &transaction.writes)?;
        let mut writes: Vec<&Write> = transaction.writes.iter().collect();
        writes.sort_unstable_by_key(|write| write.key());
        let next = self.revision.next();
        let made = writes.into_iter().filter_map(|write| self.change(next, write)).collect();
        let changes = self.record_revision(made);
        Ok(ApplyOutcome { commit: Commit::Applied(self.revision), changes })
    }

    /// Applies a revision that another keyspace created from the same state. The leases of its keys
    /// need not exist in this keyspace. When such a lease ends, the other keyspace deletes the keys
    /// in a later revision.
    pub fn apply_changes(&mut self, changes: Changes) {
        self.revision = changes.revision;
        self.write(&changes);
        self.history.push(changes);
    }

    /// Grants a lease that ends unless it is renewed within `ttl`. A `ttl` below a millisecond is
    /// raised to a millisecond.
    pub fn grant(&mut self, now: Timestamp, ttl: Duration) -> LeaseId {
        self.leases.grant(now, ttl)
    }

    /// Restores a lease after a restart, with its full `ttl`.
    pub fn restore_lease(&mut self, now: Timestamp, lease: LeaseId, ttl: Duration) {
        self.leases.insert(now, lease, ttl);
    }

    /// Renews a lease for its full time to live.
    ///
    /// # Errors
    ///
    /// [`StoreError::LeaseLost`] when the lease has ended or is past its end time.
    pub fn renew(&mut self, now: Timestamp, lease: LeaseId) -> Result<(), StoreError> {
        self.leases.renew(now, lease)
    }

    /// Renews all leases. The caller uses this after a time in which no lease could be renewed.
    pub fn renew_all(&mut self, now: Timestamp) {
        self.leases.renew_all(now);
    }

    /// Ends a lease and deletes the keys bound to it. Returns `None` if the lease had already
    /// ended.
    pub fn revoke(&mut self, lease: LeaseId) -> Option<EndedLease> {
        let keys = self.leases.end(lease)?;
        let deleted = keys.into_iter().map(|key| KeyChange { key, value: None, lease: None });
        let changes = self.delete_all(deleted.collect());
        Some(EndedLease { lease, changes })
    }

    /// Ends the expired leases, earliest first. Each lease with keys creates one revision.
    pub fn expire(&mut self, now: Timestamp) -> Vec<EndedLease> {
        let due = self.leases.due(now);
        due.into_iter().filter_map(|lease| self.revoke(lease)).collect()
    }

    /// Returns the end time of the next lease to end.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.leases.next_end()
    }

    /// Returns the refusal for the first condition that does not hold, if any.
    fn refusal(&self, conditions: &[Condition]) -> Option<Commit> {
        let condition = conditions.iter().position(|condition| !self.holds(condition))?;
        let key = conditions[condition].key.as_str();
        let found = self.keys.get(key).map(|stored| stored.entry(key));
        Some(Commit::Refused { condition, found })
    }

    fn holds(&self, condition: &Condition) -> bool {
        let stored = self.keys.get(condition.key.as_str());
        match &condition.expect {
            Expect::Absent => stored.is_none(),
            Expect::Present => stored.is_some(),
            Expect::Value(value) => stored.is_some_and(|stored| *stored.value == **value),
            Expect::ModifiedAt(revision) => stored.is_some_and(|s| s.modified == *revision),
        }
    }

    /// Checks that every lease in the writes still lasts.
    fn check_leases(&self, now: Timestamp, writes: &[Write]) -> Result<(), StoreError> {
        writes.iter().try_for_each(|write| match write {
            Write::Put { lease: Some(lease), .. } => self.leases.check(now, *lease).map(drop),
            _ => Ok(()),
        })
    }

    /// Applies a write and returns the change, or `None` if the write deletes an absent key. Looks
    /// up the key only once, because lookups are slow among many keys.
    fn change(&mut self, modified: Revision, write: &Write) -> Option<KeyChange> {
        match write {
            Write::Put { key, value, lease } => {
                let (value, lease): (Arc<[u8]>, _) = (value.as_slice().into(), *lease);
                let stored = StoredValue { value: value.clone(), modified, lease };
                let (key, before) = match self.keys.entry(key.as_str().into()) {
                    // Reuse the text of the stored key.
                    MapEntry::Occupied(mut found) => {
                        let before = found.insert(stored);
                        (found.key().clone(), before.lease)
                    }
                    MapEntry::Vacant(free) => {
                        let key = free.key().clone();
                        free.insert(stored);
                        (key, None)
                    }
                };
                self.leases.rebind(&key, before, lease);
                Some(KeyChange { key, value: Some(value), lease })
            }
            Write::Delete { key } => {
                let (key, before) = self.keys.remove_entry(key.as_str())?;
                self.leases.rebind(&key, before.lease, None);
                Some(KeyChange { key, value: None, lease: None })
            }
        }
    }

    /// Creates the next revision from deletions. `None` if there are no deletions.
    fn delete_all(&mut self, changes: Vec<KeyChange>) -> Option<Changes> {
        let changes = self.record_revision(changes)?;
        self.write(&changes);
        Some(changes)
    }

    /// Records the next revision with these changes, which must be in key order. If `changes` is
    /// empty, records nothing and returns `None`.
    fn record_revision(&mut self, changes: Vec<KeyChange>) -> Option<Changes> {
        if changes.is_empty() {
            return None;
        }
        self.revision = self.revision.next();
        let changes = Changes { revision: self.revision, changes };
        self.history.push(changes.clone());
        Some(changes)
    }

    fn write(&mut self, changes: &Changes) {
        for KeyChange { key, value, lease } in &changes.changes {
            let lease = *lease;
            let stored =
                value.clone().map(|value| StoredValue { value, modified: changes.revision, lease });
            let before = match stored {
                Some(stored) => self.keys.insert(key.clone(), stored),
                None => self.keys.remove(key),
            };
            self.leases.rebind(key, before.and_then(|stored| stored.lease), lease);
        }
    }
}

impl Default for Keyspace {
    fn default() -> Self {
        Self::new()
    }
}

impl StoredValue {
    fn entry(&self, key: &str) -> Entry {
        Entry {
            key: key.to_owned(),
            value: self.value.to_vec(),
            modified: self.modified,
            lease: self.lease,
        }
    }
}

/// Whole revisions, oldest first. Beyond the limit the oldest are dropped.
#[derive(Debug, Clone)]
struct History {
    /// Revision after which all changes are kept.
    oldest: Revision,
    revisions: VecDeque<Changes>,
    /// Total number of changes in all kept revisions.
    changes: usize,
    max_changes: usize,
}

impl History {
    /// Creates a history that begins at `revision` and keeps at most `max_changes` changes.
    fn new(revision: Revision, max_changes: usize) -> Self {
        Self { oldest: revision, revisions: VecDeque::new(), changes: 0, max_changes }
    }

    fn push(&mut self, changes: Changes) {
        self.changes += changes.changes.len();
        self.revisions.push_back(changes);
        while self.changes > self.max_changes && self.revisions.len() > 1 {
            self.forget_oldest();
        }
    }

    /// Returns the revisions after `after`, which must not be in the future.
    fn after(&self, after: Revision) -> Result<impl Iterator<Item = &Changes>, StoreError> {
        if after < self.oldest {
            return Err(StoreError::Compacted { oldest: self.oldest });
        }
        let first = self.revisions.partition_point(|changes| changes.revision <= after);
        Ok(self.revisions.range(first..))
    }

    fn forget_oldest(&mut self) {
        if let Some(forgotten) = self.revisions.pop_front() {
            self.changes -= forgotten.changes.len();
            self.oldest = forgotten.revision;
        }
    }
}

/// Leases that have not been ended. Some may be past their end time.
#[derive(Debug, Clone)]
struct Leases {
    last: LeaseId,
    leases: BTreeMap<LeaseId, Lease>,
    /// Keys of each lease, including leases that only another keyspace grants; see
    /// `Keyspace::apply_changes`.
    keys: BTreeMap<LeaseId, BTreeSet<Arc<str>>>,
    ends: BTreeSet<(Timestamp, LeaseId)>,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    ttl: Duration,
    end: Timestamp,
}

impl Leases {
    /// Creates an empty set; the next lease gets the ID after `last`.
    fn after(last: LeaseId) -> Self {
        Self { last, leases: BTreeMap::new(), keys: BTreeMap::new(), ends: BTreeSet::new() }
    }

    fn grant(&mut self, now: Timestamp, ttl: Duration) -> LeaseId {
        self.last = LeaseId(self.last.0 + 1);
        self.insert(now, self.last, ttl);
        self.last
    }

    fn insert(&mut self, now: Timestamp, id: LeaseId, ttl: Duration) {
        let ttl = ttl.max(Duration::from_millis(1)); // the resolution of timestamps
        let end = now.after(ttl);
        if let Some(before) = self.leases.insert(id, Lease { ttl, end }) {
            self.ends.remove(&(before.end, id));
        }
        self.ends.insert((end, id));
    }

    /// Returns the time to live of a lease, or [`StoreError::LeaseLost`] if the lease has ended. A
    /// lease past its end time counts as ended, even if it is not removed yet.
    fn check(&self, now: Timestamp, id: LeaseId) -> Result<Duration, StoreError> {
        let lease = self.leases.get(&id).filter(|lease| now < lease.end);
        lease.map(|lease| lease.ttl).ok_or(StoreError::LeaseLost(id))
    }

    fn renew(&mut self, now: Timestamp, id: LeaseId) -> Result<(), StoreError> {
        let ttl = self.check(now, id)?;
        self.insert(now, id, ttl);
        Ok(())
    }

    /// Renews all leases, including those past their end time.
    fn renew_all(&mut self, now: Timestamp) {
        let all: Vec<_> = self.leases.iter().map(|(id, lease)| (*id, lease.ttl)).collect();
        all.into_iter().for_each(|(id, ttl)| self.insert(now, id, ttl));
    }

    /// Ends a lease and returns the keys bound to it, or `None` if the lease does not exist.
    fn end(&mut self, id: LeaseId) -> Option<BTreeSet<Arc<str>>> {
        let lease = self.leases.remove(&id)?;
        self.ends.remove(&(lease.end, id));
        Some(self.keys.remove(&id).unwrap_or_default())
    }

    /// Returns the leases past their end time, earliest first.
    fn due(&self, now: Timestamp) -> Vec<LeaseId> {
        let over = self.ends.iter().take_while(|(end, _)| *end <= now);
        over.map(|(_, id)| *id).collect()
    }

    fn next_end(&self) -> Option<Timestamp> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Moves a key from one lease, or none, to another, or none.
    fn rebind(&mut self, key: &Arc<str>, from: Option<LeaseId>, to: Option<LeaseId>) {
        if from == to {
            return;
        }
        if let Some(from) = from
            && let Some(keys) = self.keys.get_mut(&from)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.keys.remove(&from);
            }
        }
        if let Some(to) = to {
            self.keys.entry(to).or_default().insert(key.clone());
        }
    }
}
