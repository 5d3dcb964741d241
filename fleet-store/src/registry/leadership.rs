//! Leadership: only one engine leads at a time, and some writes are possible only for the current
//! leader.

mod adopt;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::rebalancing::Rebalancing;
use fleet_core::{Epoch, MachineId, Placement, Reason, Revision, Term};
use fleet_unitfile::UnitName;
use tokio::sync::Mutex;

use super::destroy::pack;
use super::{Registry, RegistryError, unchanged};
use crate::codec::{
    LeaderClaim, decode_leader, decode_term, encode_leader, encode_placement, encode_reason,
    encode_rebalancing, encode_term,
};
use crate::registry::Key;
use crate::{Commit, Condition, Entry, LeaseId, StoreError, Transaction};

pub use adopt::AdoptedUnit;
#[cfg(feature = "embedded")]
pub(crate) use adopt::RESTORE_JUMP;
pub(super) use adopt::raised_epoch_base;

/// The right to decide on placements, for one term.
///
/// Every write has the condition that this leadership still lasts. So a leader that has not noticed
/// its replacement cannot write. Dropping the value does not end the leadership.
///
/// Placement keys begin with the machine, so the keys alone do not prevent two placements of a
/// unit. The following rules prevent them:
///
/// - Only leaders add placements.
/// - Each step that writes placements requires that the last placement write in the store, by any
///   leader, is the one that this leadership knows as the last.
/// - The step that adds the new placement of a moving unit also removes the old one, unless an
///   earlier step did. The removal has the condition that the old placement is unchanged.
#[derive(Debug)]
pub struct Leadership {
    registry: Registry,
    term: Term,
    lease: LeaseId,
    elected: Revision,
    /// Base of this lineage's epochs. A writer that changes the stored base also deposes this
    /// leader, which would otherwise continue with the old base.
    epoch_base: u64,
    /// Stored claim. It includes the term, so it is unique to this leadership.
    claim: Vec<u8>,
    /// Revision of the last placement write by a leader. Locked during writes.
    last_write: Mutex<Option<Revision>>,
}

/// Index, in the conditions of every transaction, of the condition that this leadership lasts.
pub(super) const LEADER_CONDITION: usize = 0;
/// Index of the condition that no other leader has written placements since the last placement
/// write that this leadership knows. Transactions that begin with [`Leadership::fence`] have it.
const PLACEMENTS_CONDITION: usize = 1;

/// Decisions of an engine, to be written by [`Leadership::commit`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlacementWrites {
    /// Placements to remove.
    pub remove: Vec<RemovePlacement>,
    /// Placements to add or move.
    pub set: Vec<SetPlacement>,
    /// New reasons of units without a machine; `None` deletes the old reason. If a unit in `set`
    /// still has a reason, it must be listed here with `None`. The step that places the unit then
    /// also deletes the reason.
    pub reasons: Vec<(UnitName, Option<Reason>)>,
    /// Update of the rebalancing request, if these placements are made for it.
    pub rebalance: Option<RebalanceUpdate>,
}

/// Update of the rebalancing request by moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebalanceUpdate {
    /// Request that the decision was based on.
    pub previous: Arc<Rebalancing>,
    /// Request after these moves.
    pub next: Rebalancing,
}

/// A placement to add, or to move to another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetPlacement {
    /// Unit to place.
    pub unit: UnitName,
    /// Machine to run it.
    pub machine: MachineId,
    /// Revision that the decision was based on. The stored epoch is this revision plus the epoch
    /// base of the store's [lineage](crate::registry::Lineage).
    pub epoch: Epoch,
    /// Placement that the decision saw and that this placement replaces. `None` means that the unit
    /// had no placement at the decision's revision.
    pub previous: Option<Placement>,
}

/// A placement to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovePlacement {
    /// Unit of the placement.
    pub unit: UnitName,
    /// Placement that the decision saw.
    pub previous: Placement,
}

impl PlacementWrites {
    /// Returns whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { remove, set, reasons, rebalance } = self;
        remove.is_empty() && set.is_empty() && reasons.is_empty() && rebalance.is_none()
    }
}

/// Returns the units to place, or an error if a unit occurs twice. The two placements of such a
/// unit would have different keys, so the store would keep both.
fn distinct_units(placements: &[SetPlacement]) -> Result<BTreeSet<&UnitName>, StoreError> {
    let mut units = BTreeSet::new();
    match placements.iter().find(|place| !units.insert(&place.unit)) {
        Some(SetPlacement { unit, .. }) => {
            Err(StoreError::Invalid(format!("unit {unit} is placed twice in one commit")))
        }
        None => Ok(units),
    }
}

/// Returns whether the stored leadership is the candidate's. An unreadable one is not.
fn is_claim_of(leader: &Entry, candidate: &MachineId) -> bool {
    decode_leader(&leader.value).is_ok_and(|claim| claim.machine == *candidate)
}

impl Leadership {
    /// Implements [`Registry::campaign`].
    pub(super) async fn campaign(
        registry: &Registry,
        candidate: &MachineId,
        ttl: Duration,
    ) -> Result<Option<Self>, RegistryError> {
        let (leader_key, term_key) = (registry.key(&Key::Leader), registry.key(&Key::Term));
        let version_key = registry.key(&Key::PlacementVersion);
        let entries = registry.store.read(&registry.layout.engine()).await?.entries;
        let leader = entries.iter().find(|entry| entry.key == leader_key);
        if leader.is_some_and(|leader| !is_claim_of(leader, candidate)) {
            return Ok(None);
        }
        let (epoch_base, same_epoch_base) = registry.epoch_base_condition().await?;
        let before = entries.iter().find(|entry| entry.key == term_key);
        let last_write = entries.iter().find(|entry| entry.key == version_key);
        let last = before.map_or(Ok(0), |entry| decode_term(&entry.value));
        let last = last.map_err(|source| RegistryError::Value { key: term_key.clone(), source })?;
        let term = Term(last).next();
        let claim = encode_leader(&LeaderClaim { machine: candidate.clone(), term: term.0 });
        let claiming = |lease| {
            Transaction::new()
                .when(unchanged(&leader_key, leader))
                .when(unchanged(&term_key, before))
                .when(unchanged(&version_key, last_write))
                .when(same_epoch_base)
                .put_leased(leader_key.clone(), claim.clone(), lease)
                .put(term_key.clone(), encode_term(term.0))
        };
        let (lease, commit) = registry.with_lease(ttl, claiming).await?;
        let Commit::Applied(elected) = commit else {
            return Ok(None);
        };
        if let Some(before) = leader.and_then(|leader| leader.lease) {
            registry.release_lease(before).await;
        }
        let last_write = Mutex::new(last_write.map(|entry| entry.modified));
        Ok(Some(Self {
            registry: registry.clone(),
            term,
            lease,
            elected,
            epoch_base,
            claim,
            last_write,
        }))
    }

    /// Returns the term of this leadership. Later terms are higher.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// Returns the revision of the election. A new leader must not decide before its mirror has
    /// reached this revision.
    #[must_use]
    pub fn elected(&self) -> Revision {
        self.elected
    }

    /// Renews the leadership for its full time to live.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Deposed`] when the leadership has ended. After [`RegistryError::Store`],
    /// the leadership may or may not have ended.
    pub async fn renew(&self) -> Result<(), RegistryError> {
        match self.registry.store.renew(self.lease).await {
            Err(StoreError::LeaseLost(_)) => Err(RegistryError::Deposed { term: self.term }),
            other => Ok(other?),
        }
    }

    /// Ends the leadership, so that another engine need not wait for it to expire.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`] when the store fails; the leadership then ends when it expires.
    pub async fn resign(self) -> Result<(), RegistryError> {
        Ok(self.registry.store.revoke(self.lease).await?)
    }

    /// Writes decisions: first the removals, then the placements, then the reasons, each in the
    /// given order. Returns the revision of the last step.
    ///
    /// Many decisions are written in several steps, each of which is atomic. The first step
    /// includes the update of the rebalancing request.
    ///
    /// If the placements need more than one step, all moving units first leave their old machines,
    /// the last unit first. Only afterwards are they placed on their new machines. This way no unit
    /// is placed on a machine before the units that make room for it have left.
    ///
    /// There is no separate check that a unit without a previous placement still has none. Only
    /// leaders write placements, so it is enough to check that no leader has written any since the
    /// decision.
    ///
    /// # Errors
    ///
    /// - [`RegistryError::Deposed`] when the leadership has ended.
    /// - [`RegistryError::Conflict`] when a placement or the rebalancing request has changed since
    ///   the decision, or a unit no longer exists. Earlier steps may be applied, and the engine
    ///   must decide again.
    /// - [`RegistryError::Encode`] when a reason cannot be encoded. No step is applied.
    /// - [`StoreError::Invalid`] when a unit is placed twice. No step is applied.
    pub async fn commit(&self, writes: &PlacementWrites) -> Result<Revision, RegistryError> {
        let placed_units = distinct_units(&writes.set)?;
        let reasons = writes.reasons.iter().filter(|(unit, _)| !placed_units.contains(unit));
        let reasons = reasons.map(|(unit, reason)| self.reason_write(unit, reason.as_ref()));
        let reasons: Vec<_> = reasons.collect::<Result<_, _>>()?;
        let mut last_write = self.last_write.lock().await;
        let saw = |place: &SetPlacement| last_write.is_none_or(|write| write.0 <= place.epoch.0);
        if !writes.set.iter().all(|place| place.previous.is_some() || saw(place)) {
            return Err(RegistryError::Conflict);
        }
        let mut revision = self.elected;
        for transaction in self.steps(writes, reasons) {
            revision = self.step(&mut last_write, transaction).await?;
        }
        Ok(revision)
    }

    /// Commits a transaction that begins with the [fence](Self::fence), directly after the previous
    /// write.
    async fn step(
        &self,
        last_write: &mut Option<Revision>,
        mut transaction: Transaction,
    ) -> Result<Revision, RegistryError> {
        transaction.conditions[PLACEMENTS_CONDITION] =
            self.registry.placements_unchanged_since(*last_write);
        match self.registry.store.commit(transaction).await? {
            Commit::Applied(revision) => {
                *last_write = Some(revision);
                Ok(revision)
            }
            Commit::Refused { condition: LEADER_CONDITION, .. } => {
                Err(RegistryError::Deposed { term: self.term })
            }
            Commit::Refused { .. } => Err(RegistryError::Conflict),
        }
    }

    /// Removes a placement in one step with the rest of a transaction. `rest` extends the beginning
    /// of the transaction.
    pub(super) async fn remove_with<F>(
        &self,
        removal: &RemovePlacement,
        rest: impl FnOnce(Transaction) -> F,
    ) -> Result<Revision, RegistryError>
    where
        F: Future<Output = Result<Transaction, RegistryError>>,
    {
        let mut last_write = self.last_write.lock().await;
        let transaction = rest(self.fence()).await?.and(self.remove_placement(removal));
        self.step(&mut last_write, transaction).await
    }

    pub(super) fn epoch_base(&self) -> u64 {
        self.epoch_base
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Condition that this leadership lasts.
    pub(super) fn leads(&self) -> Condition {
        Condition::value(self.registry.key(&Key::Leader), self.claim.clone())
    }

    /// Returns the beginning of every transaction.
    fn fence(&self) -> Transaction {
        let version = self.registry.key(&Key::PlacementVersion);
        Transaction::new()
            .when(self.leads())
            .when(self.registry.placements_unchanged_since(None))
            .put(version, encode_term(self.term.0))
    }

    /// Returns the transactions of a commit. If all placements fit into one transaction, each move
    /// is a single group of writes. Otherwise each move is split into a removal and a new
    /// placement.
    fn steps(&self, writes: &PlacementWrites, reasons: Vec<Transaction>) -> Vec<Transaction> {
        let fence = &self.fence();
        let over = writes.reasons.iter().filter(|(_, reason)| reason.is_none());
        let over: BTreeSet<_> = over.map(|(unit, _)| unit).collect();
        let placing = |place: &SetPlacement, previous: Option<&Placement>| {
            let placing = self.set_placement(place, previous);
            let reason = self.registry.key(&Key::Reason(place.unit.clone()));
            if over.contains(&place.unit) { placing.delete(reason) } else { placing }
        };
        let unplace = || writes.remove.iter().map(|unplace| self.remove_placement(unplace));
        let moved = writes.set.iter().map(|place| placing(place, place.previous.as_ref()));
        let rebalance = || {
            writes
                .rebalance
                .iter()
                .map(|update| self.rebalancing_write(&update.previous, Some(&update.next)))
        };
        let placements: Vec<_> = rebalance().chain(unplace()).chain(moved).collect();
        if pack(fence, placements.iter().cloned()).len() <= 1 {
            return pack(fence, placements.into_iter().chain(reasons));
        }
        let leaving = writes.set.iter().rev().filter_map(|place| {
            let (unit, previous) = (place.unit.clone(), place.previous.clone()?);
            Some(self.remove_placement(&RemovePlacement { unit, previous }))
        });
        let coming = writes.set.iter().map(|place| placing(place, None));
        let mut steps = pack(fence, rebalance().chain(unplace()).chain(leaving));
        steps.extend(pack(fence, coming.chain(reasons)));
        steps
    }

    fn remove_placement(&self, unplace: &RemovePlacement) -> Transaction {
        let (key, as_seen) = self.expected(&unplace.unit, &unplace.previous);
        Transaction::new().when(as_seen).delete(key)
    }

    fn set_placement(&self, place: &SetPlacement, previous: Option<&Placement>) -> Transaction {
        let key = self.placement(&place.machine, &place.unit);
        let value = encode_placement(Epoch(self.epoch_base + place.epoch.0));
        let placing = Transaction::new().put(&key, value);
        let Some(previous) = previous else {
            return placing.when(self.exists(&place.unit));
        };
        // A unit with a placement exists, because a unit and its placement are deleted together.
        let (old, as_seen) = self.expected(&place.unit, previous);
        let placing = placing.when(as_seen);
        if old == key { placing } else { placing.delete(old) }
    }

    /// Returns the key of a placement that a decision saw, and the condition that the placement is
    /// unchanged.
    fn expected(&self, unit: &UnitName, previous: &Placement) -> (String, Condition) {
        let key = self.placement(&previous.machine, unit);
        let as_seen = Condition::value(&key, encode_placement(previous.epoch));
        (key, as_seen)
    }

    fn placement(&self, machine: &MachineId, unit: &UnitName) -> String {
        self.registry.key(&Key::Placement(machine.clone(), unit.clone()))
    }

    fn reason_write(
        &self,
        unit: &UnitName,
        reason: Option<&Reason>,
    ) -> Result<Transaction, RegistryError> {
        let key = self.registry.key(&Key::Reason(unit.clone()));
        let Some(reason) = reason else {
            return Ok(Transaction::new().delete(key));
        };
        let value = encode_reason(reason).map_err(RegistryError::Encode)?;
        Ok(Transaction::new().when(self.exists(unit)).put(key, value))
    }

    /// Condition that the unit exists, so that its data cannot outlive it.
    fn exists(&self, unit: &UnitName) -> Condition {
        Condition::present(self.registry.key(&Key::Unit(unit.clone())))
    }
}

impl Leadership {
    /// Replaces the stored rebalancing request by `now`, or deletes it if `now` is `None`. This
    /// requires that the stored request still equals `seen`.
    ///
    /// Updates that belong to moves are made by [`commit`](Self::commit) instead, in the same step
    /// as the placements.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Deposed`] when the leadership has ended; [`RegistryError::Conflict`] when
    /// the request has changed. Nothing is written in either case.
    pub async fn update_rebalancing(
        &self,
        seen: &Rebalancing,
        now: Option<&Rebalancing>,
    ) -> Result<Revision, RegistryError> {
        let mut transaction = Transaction::new().when(self.leads());
        let rebalancing_write = self.rebalancing_write(seen, now);
        transaction.conditions.extend(rebalancing_write.conditions);
        transaction.writes.extend(rebalancing_write.writes);
        match self.registry.store.commit(transaction).await? {
            Commit::Applied(revision) => Ok(revision),
            Commit::Refused { condition: LEADER_CONDITION, .. } => {
                Err(RegistryError::Deposed { term: self.term })
            }
            Commit::Refused { .. } => Err(RegistryError::Conflict),
        }
    }

    /// Returns the update of a request, on condition that it is unchanged.
    fn rebalancing_write(&self, seen: &Rebalancing, now: Option<&Rebalancing>) -> Transaction {
        let key = self.registry.key(&Key::Rebalancing);
        let as_seen = Condition::value(&key, encode_rebalancing(seen));
        let transaction = Transaction::new().when(as_seen);
        match now {
            Some(now) => transaction.put(key, encode_rebalancing(now)),
            None => transaction.delete(key),
        }
    }
}
