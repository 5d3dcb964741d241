//! Leadership: one engine at a time, and writes that only the present leader can make.

mod adopt;
mod rebalancing;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{Epoch, MachineId, Placement, Reason, Rebalancing, Revision, Term};
use fleet_unitfile::UnitName;
use tokio::sync::Mutex;

use super::batch::pack;
use super::{Registry, RegistryError, unchanged};
use crate::codec::{
    LeaderClaim, decode_leader, decode_term, encode_leader, encode_placement, encode_reason,
    encode_term,
};
use crate::{Commit, Condition, Entry, Key, LeaseId, StoreError, Transaction};

pub use adopt::AdoptedUnit;
#[cfg(feature = "embedded")]
pub(crate) use adopt::RESTORE_JUMP;
pub(super) use adopt::raised_epoch_base;

/// The right to decide on placements, in one term.
///
/// Every write through it has as a condition that this very leadership still lasts, so a leader
/// that was overtaken without noticing cannot write. Dropping it does not end it.
///
/// Placements are kept by machine, and yet a unit never gets two: nobody but a leader adds one,
/// each of its writes has as a condition that none was added since this leadership knows of them,
/// and a unit that moves leaves its machine, on condition that it still is there, in the same step
/// or an earlier one.
#[derive(Debug)]
pub struct Leadership {
    registry: Registry,
    term: Term,
    lease: LeaseId,
    elected: Revision,
    /// What the epochs of this lineage are counted from. Who else changes it deposes the leader.
    epoch_base: u64,
    /// The stored claim, which no other leadership ever has: the term is in it.
    claim: Vec<u8>,
    /// When placements were last written by a leader, locked while they are.
    placed: Mutex<Option<Revision>>,
}

/// Where the conditions that every transaction has are among its conditions: this leadership lasts,
/// and no leader wrote placements since this one knows of them.
const LEADER_CONDITION: usize = 0;
const PLACEMENTS_CONDITION: usize = 1;

/// What an engine has decided, to be written by [`Leadership::commit`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlacementWrites {
    /// Placements that go.
    pub remove: Vec<RemovePlacement>,
    /// Units that get a machine, or another one.
    pub set: Vec<SetPlacement>,
    /// What each unit without a machine gets as its reason; nothing takes the old one away. A unit
    /// that is placed and has a reason is listed with nothing: the reason goes as it is placed.
    pub reasons: Vec<(UnitName, Option<Reason>)>,
    /// What becomes of the order to rebalance by these placements, if they are made for it.
    pub rebalance: Option<RebalanceUpdate>,
}

/// That units are moved for the order to rebalance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebalanceUpdate {
    /// The order that the decision saw.
    pub seen: Arc<Rebalancing>,
    /// The order with these moves made.
    pub now: Rebalancing,
}

/// A placement to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetPlacement {
    /// The unit.
    pub unit: UnitName,
    /// The machine that is to run it.
    pub machine: MachineId,
    /// The revision that this was decided on. The epoch that is stored is so much later than where
    /// the store's [lineage](crate::Lineage) begins.
    pub epoch: Epoch,
    /// The placement that the decision saw, and that this one takes the place of. Nothing says
    /// that at that revision there was none.
    pub previous: Option<Placement>,
}

/// A placement to be taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovePlacement {
    /// The unit.
    pub unit: UnitName,
    /// The placement that the decision saw.
    pub previous: Placement,
}

impl PlacementWrites {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { remove, set, reasons, rebalance } = self;
        remove.is_empty() && set.is_empty() && reasons.is_empty() && rebalance.is_none()
    }
}

impl Registry {
    /// Tries to become the leader for `ttl`, and as long as that is renewed. The result is nothing
    /// while someone else leads.
    ///
    /// A leadership of the same candidate is that of an earlier life of its daemon, and is taken
    /// over at once, in a new term.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Value`] when the stored term or lineage cannot be read: then nobody may
    /// lead, since nobody knows which term or epoch would be a new one.
    pub async fn campaign(
        &self,
        candidate: &MachineId,
        ttl: Duration,
    ) -> Result<Option<Leadership>, RegistryError> {
        let (leader_key, term_key) = (self.key(&Key::Leader), self.key(&Key::Term));
        let placed_key = self.key(&Key::PlacementVersion);
        let entries = self.store.read(&self.layout.engine()).await?.entries;
        let leader = entries.iter().find(|entry| entry.key == leader_key);
        if leader.is_some_and(|leader| !is_claim_of(leader, candidate)) {
            return Ok(None);
        }
        let (epoch_base, same_beginning) = self.epoch_base_condition().await?;
        let before = entries.iter().find(|entry| entry.key == term_key);
        let placed = entries.iter().find(|entry| entry.key == placed_key);
        let last = before.map_or(Ok(0), |entry| decode_term(&entry.value));
        let last = last.map_err(|source| RegistryError::Value { key: term_key.clone(), source })?;
        let term = Term(last).next();
        let claim = encode_leader(&LeaderClaim { machine: candidate.clone(), term: term.0 });
        let claiming = |lease| {
            Transaction::new()
                .when(unchanged(&leader_key, leader))
                .when(unchanged(&term_key, before))
                .when(unchanged(&placed_key, placed))
                .when(same_beginning)
                .put_leased(leader_key.clone(), claim.clone(), lease)
                .put(term_key.clone(), encode_term(term.0))
        };
        let (lease, commit) = self.with_lease(ttl, claiming).await?;
        let Commit::Applied(elected) = commit else {
            return Ok(None);
        };
        if let Some(before) = leader.and_then(|leader| leader.lease) {
            self.release_lease(before).await;
        }
        let placed = Mutex::new(placed.map(|entry| entry.modified));
        let registry = self.clone();
        Ok(Some(Leadership { registry, term, lease, elected, epoch_base, claim, placed }))
    }
}

/// The units that are placed. Each can be only once: two machines would be two keys.
fn distinct_units(places: &[SetPlacement]) -> Result<BTreeSet<&UnitName>, StoreError> {
    let mut units = BTreeSet::new();
    match places.iter().find(|place| !units.insert(&place.unit)) {
        Some(SetPlacement { unit, .. }) => {
            Err(StoreError::Invalid(format!("unit {unit} is placed twice in one commit")))
        }
        None => Ok(units),
    }
}

/// Whether the stored leadership is the candidate's own. One that cannot be read is not.
fn is_claim_of(leader: &Entry, candidate: &MachineId) -> bool {
    decode_leader(&leader.value).is_ok_and(|claim| claim.machine == *candidate)
}

impl Leadership {
    /// The term of this leadership; a later one is higher.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// The revision that it began with: a leader waits for its mirror to come that far before it
    /// decides on anything.
    #[must_use]
    pub fn elected(&self) -> Revision {
        self.elected
    }

    /// Gives the leadership its whole time to live again.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Deposed`] when it has ended; [`RegistryError::Store`] says nothing of it.
    pub async fn renew(&self) -> Result<(), RegistryError> {
        match self.registry.store.renew(self.lease).await {
            Err(StoreError::LeaseLost(_)) => Err(RegistryError::Deposed { term: self.term }),
            other => Ok(other?),
        }
    }

    /// Ends the leadership, so that another engine need not wait for its time to be over.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`]; the leadership ends in its time then.
    pub async fn resign(self) -> Result<(), RegistryError> {
        Ok(self.registry.store.revoke(self.lease).await?)
    }

    /// Writes what was decided: first what goes, then the placements, then the reasons, each in the
    /// order given. Much is written in several steps. Each step is whole, and the result is the
    /// revision of the last step. Where placements take more than one step, every unit that moves
    /// leaves, the last one first, before any comes: between two steps no two units are placed on
    /// one machine of which one is yet to leave it for the other. What becomes of the order to
    /// rebalance is written with the first step.
    ///
    /// That a unit had no placement when this was decided is not looked up unit by unit: placements
    /// are written by leaders alone, so it is enough that none was since.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Deposed`] when the leadership has ended; [`RegistryError::Conflict`] when a
    /// placement or the order to rebalance is no longer what the decision saw, or a unit is gone:
    /// decide again. Earlier steps are done then. [`RegistryError::Encode`] when a reason cannot be
    /// stored, and [`StoreError::Invalid`] when a unit is placed twice: nothing is done.
    pub async fn commit(&self, writes: &PlacementWrites) -> Result<Revision, RegistryError> {
        let placed_units = distinct_units(&writes.set)?;
        let reasons = writes.reasons.iter().filter(|(unit, _)| !placed_units.contains(unit));
        let reasons = reasons.map(|(unit, reason)| self.reason_write(unit, reason.as_ref()));
        let reasons: Vec<_> = reasons.collect::<Result<_, _>>()?;
        let mut placed = self.placed.lock().await;
        let saw = |place: &SetPlacement| placed.is_none_or(|placed| placed.0 <= place.epoch.0);
        if !writes.set.iter().all(|place| place.previous.is_some() || saw(place)) {
            return Err(RegistryError::Conflict);
        }
        let mut revision = self.elected;
        for transaction in self.steps(writes, reasons) {
            revision = self.step(&mut placed, transaction).await?;
        }
        Ok(revision)
    }

    /// Commits a transaction that begins with the [fence](Self::fence), right after the one before.
    async fn step(
        &self,
        placed: &mut Option<Revision>,
        mut transaction: Transaction,
    ) -> Result<Revision, RegistryError> {
        transaction.conditions[PLACEMENTS_CONDITION] =
            self.registry.placements_unchanged_since(*placed);
        match self.registry.store.commit(transaction).await? {
            Commit::Applied(revision) => {
                *placed = Some(revision);
                Ok(revision)
            }
            Commit::Refused { condition: LEADER_CONDITION, .. } => {
                Err(RegistryError::Deposed { term: self.term })
            }
            Commit::Refused { .. } => Err(RegistryError::Conflict),
        }
    }

    /// How every transaction begins.
    fn fence(&self) -> Transaction {
        let (leader, placed) =
            (self.registry.key(&Key::Leader), self.registry.key(&Key::PlacementVersion));
        Transaction::new()
            .when(Condition::value(leader, self.claim.clone()))
            .when(self.registry.placements_unchanged_since(None))
            .put(placed, encode_term(self.term.0))
    }

    /// The transactions of a commit. A move is one write if all placements fit into one of them.
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
        let noted = || {
            writes.rebalance.iter().map(|note| self.rebalancing_write(&note.seen, Some(&note.now)))
        };
        let placements: Vec<_> = noted().chain(unplace()).chain(moved).collect();
        if pack(fence, placements.iter().cloned()).len() <= 1 {
            return pack(fence, placements.into_iter().chain(reasons));
        }
        let leaving = writes.set.iter().rev().filter_map(|place| {
            let (unit, previous) = (place.unit.clone(), place.previous.clone()?);
            Some(self.remove_placement(&RemovePlacement { unit, previous }))
        });
        let coming = writes.set.iter().map(|place| placing(place, None));
        let mut steps = pack(fence, noted().chain(unplace()).chain(leaving));
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
        // A unit that has a placement is there: the placement goes with the unit.
        let (old, as_seen) = self.expected(&place.unit, previous);
        let placing = placing.when(as_seen);
        if old == key { placing } else { placing.delete(old) }
    }

    /// The key of a placement that a decision saw, and the condition that it is still so.
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

    /// The condition that keeps what belongs to a unit from outliving it.
    fn exists(&self, unit: &UnitName) -> Condition {
        Condition::present(self.registry.key(&Key::Unit(unit.clone())))
    }
}
