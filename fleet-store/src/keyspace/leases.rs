//! Pure: leases, their end times, and the keys bound to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;

use crate::{LeaseId, StoreError};

/// Leases that have not been ended. Some may be past their end time.
#[derive(Debug, Clone)]
pub(super) struct Leases {
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
    pub(super) fn after(last: LeaseId) -> Self {
        Self { last, leases: BTreeMap::new(), keys: BTreeMap::new(), ends: BTreeSet::new() }
    }

    pub(super) fn grant(&mut self, now: Timestamp, ttl: Duration) -> LeaseId {
        self.last = LeaseId(self.last.0 + 1);
        self.insert(now, self.last, ttl);
        self.last
    }

    pub(super) fn insert(&mut self, now: Timestamp, id: LeaseId, ttl: Duration) {
        let ttl = ttl.max(Duration::from_millis(1)); // the resolution of timestamps
        let end = now.after(ttl);
        if let Some(before) = self.leases.insert(id, Lease { ttl, end }) {
            self.ends.remove(&(before.end, id));
        }
        self.ends.insert((end, id));
    }

    /// Returns the time to live of a lease, or [`StoreError::LeaseLost`] if the lease has ended. A
    /// lease past its end time counts as ended, even if it is not removed yet.
    pub(super) fn check(&self, now: Timestamp, id: LeaseId) -> Result<Duration, StoreError> {
        let lease = self.leases.get(&id).filter(|lease| now < lease.end);
        lease.map(|lease| lease.ttl).ok_or(StoreError::LeaseLost(id))
    }

    pub(super) fn renew(&mut self, now: Timestamp, id: LeaseId) -> Result<(), StoreError> {
        let ttl = self.check(now, id)?;
        self.insert(now, id, ttl);
        Ok(())
    }

    /// Renews all leases, including those past their end time.
    pub(super) fn renew_all(&mut self, now: Timestamp) {
        let all: Vec<_> = self.leases.iter().map(|(id, lease)| (*id, lease.ttl)).collect();
        all.into_iter().for_each(|(id, ttl)| self.insert(now, id, ttl));
    }

    /// Ends a lease and returns the keys bound to it, or `None` if the lease does not exist.
    pub(super) fn end(&mut self, id: LeaseId) -> Option<BTreeSet<Arc<str>>> {
        let lease = self.leases.remove(&id)?;
        self.ends.remove(&(lease.end, id));
        Some(self.keys.remove(&id).unwrap_or_default())
    }

    /// Returns the leases past their end time, earliest first.
    pub(super) fn due(&self, now: Timestamp) -> Vec<LeaseId> {
        let over = self.ends.iter().take_while(|(end, _)| *end <= now);
        over.map(|(_, id)| *id).collect()
    }

    pub(super) fn next_end(&self) -> Option<Timestamp> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Moves a key from one lease, or none, to another, or none.
    pub(super) fn rebind(&mut self, key: &Arc<str>, from: Option<LeaseId>, to: Option<LeaseId>) {
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
