//! Writes of several units in one step.

use fleet_core::rollout::RolloutId;
use fleet_core::{Generation, Revision, Snapshot, TargetState};
use fleet_unitfile::UnitName;

use super::units::restarted;
use super::{Registry, RegistryError};
use crate::codec::{UnitRecord, encode_unit};
use crate::registry::{ContentId, Key, NewRollout, NewUnit};
use crate::{Commit, Condition, Entry, Mirror, Transaction, Write};

/// Writes of several units, relative to a snapshot: each unit must still be as the snapshot shows
/// it. The caller must check requirements.
///
/// Up to [`MAX_ATOMIC`](Self::MAX_ATOMIC) units are written in one step, all or nothing. More units
/// are written in several steps, in the order of this list.
#[derive(Debug, Clone)]
pub struct BulkWrite<'a> {
    /// Snapshot on which the caller has based its decision.
    pub seen: &'a Snapshot,
    /// Writes, at most one for each unit.
    pub writes: Vec<UnitWrite>,
    /// Rollout to store in the first step, whose members are not written here.
    pub rollout: Option<NewRollout>,
    /// Condition that no leader has written placements since the snapshot, if that is required.
    pub placements: Option<PlacementsUnchanged>,
    /// Whether to destroy units even if the mirror may not know their latest placements. The engine
    /// then removes a remaining placement, as for every missing unit.
    pub any_placement: bool,
}

/// Error of a bulk write.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct BulkError {
    /// The cause.
    pub error: RegistryError,
    /// Number of writes that were made before, in the order of the list.
    pub written: usize,
}

/// Condition that no leader has placed or removed units meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacementsUnchanged(pub(crate) Option<Revision>);

impl PlacementsUnchanged {
    /// Returns the condition for a snapshot that is read from the mirror after this call.
    #[must_use]
    pub fn since_now(mirror: &Mirror) -> Self {
        Self(mirror.last_placement_write())
    }
}

/// Write of one unit.
#[derive(Debug, Clone)]
pub enum UnitWrite {
    /// Creates a unit, or replaces the file and the desired state of an existing one.
    Put(NewUnit),
    /// Like `Put`, but the unit gets this generation in any case.
    PutAt(NewUnit, Generation),
    /// Sets the desired state of a unit.
    SetDesired(UnitName, TargetState),
    /// Requests a restart of a unit, as [`Registry::request_restart`] does.
    Restart(UnitName),
    /// Destroys a unit.
    Destroy(UnitName),
}

impl UnitWrite {
    /// Returns the name of the unit.
    #[must_use]
    pub fn name(&self) -> &UnitName {
        match self {
            Self::Put(unit) | Self::PutAt(unit, _) => &unit.name,
            Self::SetDesired(name, _) | Self::Restart(name) | Self::Destroy(name) => name,
        }
    }
}

impl BulkWrite<'_> {
    /// Number of units that fit into one step in any case, unless their files are large, or unless
    /// they are destroyed together with records of jobs, schedules or failures. A step can have
    /// more units that keep their files, or that share one.
    pub const MAX_ATOMIC: usize = Transaction::MAX_OPERATIONS / 4;
}

impl Registry {
    /// Writes units, and stores the rollout, if there is one. Returns the revision of the last step
    /// and the number of the rollout.
    ///
    /// # Errors
    ///
    /// [`BulkError`] with the number of writes that were made before, in earlier steps. Its cause
    /// is [`RegistryError::Changed`] or [`RegistryError::NotFound`] when a unit is not as in the
    /// snapshot, and [`RegistryError::Conflict`] when the placements or the rollouts are not.
    pub async fn write_units(
        &self,
        bulk: &BulkWrite<'_>,
        mirror: &Mirror,
    ) -> Result<(Revision, Option<RolloutId>), BulkError> {
        let mut first = Transaction::new();
        // The first step may make the leader place units, so only this one has the condition.
        if let Some(PlacementsUnchanged(last)) = bulk.placements {
            first = first.when(self.placements_unchanged_since(last));
        }
        let mut rollout = None;
        if let Some(new) = &bulk.rollout {
            let (id, stored) = self.rollout_transaction(new, bulk.seen);
            (rollout, first) = (Some(id), first.and(stored));
        }
        let steps = self.bulk_steps(bulk, mirror, first, &Transaction::new()).await;
        let steps = steps.map_err(|error| BulkError { error, written: 0 })?;
        let (mut revision, mut written) = (bulk.seen.revision, 0);
        for step in steps {
            let count = step.count;
            if let Some(applied) =
                self.commit_step(step).await.map_err(|error| BulkError { error, written })?
            {
                revision = applied;
            }
            written += count;
        }
        Ok((revision, rollout))
    }

    /// Packs the writes into as few transactions as possible. The first one begins with `first`,
    /// and each other one with `fence`.
    pub(super) async fn bulk_steps(
        &self,
        bulk: &BulkWrite<'_>,
        mirror: &Mirror,
        first: Transaction,
        fence: &Transaction,
    ) -> Result<Vec<BulkStep>, RegistryError> {
        let mut steps = vec![BulkStep::beginning_with(first)];
        for write in &bulk.writes {
            let group = self.bulk_transaction(write, bulk, mirror).await?;
            if !steps.last_mut().is_some_and(|step| step.try_add(write.name(), &group)) {
                let mut step = BulkStep::beginning_with(fence.clone());
                step.add(write.name(), &group);
                steps.push(step);
            }
        }
        // A unit that is too large for any transaction must not leave half of the others.
        for step in &steps {
            step.transaction.check()?;
        }
        Ok(steps)
    }

    /// Commits a step, unless it writes nothing.
    async fn commit_step(&self, step: BulkStep) -> Result<Option<Revision>, RegistryError> {
        if step.transaction.writes.is_empty() {
            return Ok(None);
        }
        match self.store.commit(step.transaction).await? {
            Commit::Applied(revision) => Ok(Some(revision)),
            Commit::Refused { condition, found } => {
                let unit = step.units.into_iter().nth(condition).flatten();
                Err(match (unit, found) {
                    (None, _) => RegistryError::Conflict,
                    (Some(name), Some(Entry { modified, .. })) => {
                        RegistryError::Changed { name, modified }
                    }
                    (Some(name), None) => RegistryError::NotFound { name },
                })
            }
        }
    }

    /// Returns the transaction of one write. Its first condition is that the unit is as in `seen`.
    async fn bulk_transaction(
        &self,
        write: &UnitWrite,
        bulk: &BulkWrite<'_>,
        mirror: &Mirror,
    ) -> Result<Transaction, RegistryError> {
        let (name, seen) = (write.name(), bulk.seen);
        let key = self.key(&Key::Unit(name.clone()));
        let known = seen.unit(name.as_str()).map(|unit| UnitRecord {
            content: ContentId::of(unit.file.source()),
            desired: unit.desired,
            generation: unit.generation,
        });
        let is_unreadable = seen.fault(name.as_str()).is_some();
        let same = match &known {
            Some(known) => Condition::value(&key, encode_unit(known)),
            None if is_unreadable => Condition::present(&key),
            None => Condition::absent(&key),
        };
        let missing = || RegistryError::NotFound { name: name.clone() };
        let record = match (write, known) {
            (UnitWrite::Put(unit) | UnitWrite::PutAt(unit, _), _) if is_unreadable => {
                let (entry, _) = self.get(&Key::Unit(name.clone())).await?;
                return self.put_transaction(unit, Generation::ZERO, entry.as_ref()).await;
            }
            (UnitWrite::Put(unit) | UnitWrite::PutAt(unit, _), known) => {
                let content = ContentId::of(unit.file.source());
                let (desired, generation) = (unit.desired, Generation::ZERO);
                let (mut record, revision) = match known {
                    Some(known) => {
                        let before = seen.unit(name.as_str()).map(|unit| unit.file.source());
                        let before = (known.content, before);
                        let after = (content, unit.file.source().len());
                        let revision = self.next_revision(name, before, after).await?;
                        (UnitRecord { content, ..known.with_desired(desired) }, revision)
                    }
                    None => {
                        let revision = self.first_revision(name, content);
                        (UnitRecord { content, desired, generation }, revision)
                    }
                };
                if let UnitWrite::PutAt(_, generation) = write {
                    record.generation = *generation;
                }
                return Ok(self.content_transaction(same, unit, key, &record).and(revision));
            }
            (UnitWrite::Destroy(_), None) if !is_unreadable => return Err(missing()),
            (UnitWrite::Destroy(_), _) => {
                return Ok(self.destroy_transaction(name, same, mirror, !bulk.any_placement));
            }
            (UnitWrite::SetDesired(_, desired), Some(known)) => known.with_desired(*desired),
            (UnitWrite::Restart(_), Some(known)) => {
                let epoch_base = mirror.lineage().map_or(0, |lineage| lineage.epoch_base());
                restarted(known, epoch_base, seen.revision)
            }
            (UnitWrite::SetDesired(..) | UnitWrite::Restart(_), None) => return Err(missing()),
        };
        if Some(record) == known {
            return Ok(Transaction::new().when(same));
        }
        Ok(Transaction::new().when(same).put(key, encode_unit(&record)))
    }
}

/// Writes of one transaction.
pub(super) struct BulkStep {
    pub(super) transaction: Transaction,
    /// Unit that each condition expects to be unchanged.
    units: Vec<Option<UnitName>>,
    /// Number of units.
    count: usize,
}

impl BulkStep {
    fn beginning_with(transaction: Transaction) -> Self {
        let units = vec![None; transaction.conditions.len()];
        Self { transaction, units, count: 0 }
    }

    /// Adds the transaction of a unit, unless the step would then be too large.
    fn try_add(&mut self, unit: &UnitName, group: &Transaction) -> bool {
        let (conditions, writes) = self.missing(group);
        let most = Transaction::MAX_OPERATIONS;
        let fits = self.transaction.conditions.len() + conditions.len() <= most
            && self.transaction.writes.len() + writes.len() <= most
            && self.transaction.size() + group.size() <= Transaction::MAX_BYTES;
        if fits {
            self.add(unit, group);
        }
        fits
    }

    fn add(&mut self, unit: &UnitName, group: &Transaction) {
        let (conditions, writes) = self.missing(group);
        let first = group.conditions.first().map(|condition| &condition.key);
        let of = |condition: &Condition| (Some(&condition.key) == first).then(|| unit.clone());
        self.count += 1;
        self.units.extend(conditions.iter().map(of));
        self.transaction.conditions.extend(conditions);
        self.transaction.writes.extend(writes);
    }

    /// Returns the conditions and writes that the step does not have yet. Units with the same file
    /// share the write of their content.
    fn missing(&self, group: &Transaction) -> (Vec<Condition>, Vec<Write>) {
        let is_new = |it: &&Condition| !self.transaction.conditions.contains(it);
        let conditions = group.conditions.iter().filter(is_new).cloned().collect();
        let is_new =
            |it: &&Write| !self.transaction.writes.iter().any(|other| other.key() == it.key());
        (conditions, group.writes.iter().filter(is_new).cloned().collect())
    }
}
