//! Rollouts: requested by clients, and carried out by the leader.

use std::collections::BTreeSet;

use fleet_core::rollout::{
    Member, Rollout, RolloutAction, RolloutId, RolloutPhase, RolloutRecord, RolloutRequest,
    UnitTarget,
};
use fleet_core::{Revision, Snapshot};
use fleet_unitfile::{UnitFile, UnitName};

use super::bulk::BulkStep;
use super::leadership::LEADER_CONDITION;
use super::{Leadership, Registry, RegistryError};
use crate::clock::wall_millis;
use crate::codec::{decode_rollout, decode_rollout_files, encode_rollout, encode_rollout_files};
use crate::registry::{BulkWrite, CodecError, Key, NewUnit, UnitWrite};
use crate::{Commit, Condition, Mirror, Transaction};

/// Unit files of a member of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberFiles {
    /// The file before the rollout; `None` if the rollout creates the unit.
    pub from: Option<UnitFile>,
    /// The file of the rollout.
    pub to: UnitFile,
}

/// File of a unit that does not run, such as a template, which is replaced when the rollout
/// completes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeferredFile {
    /// The unit.
    pub name: UnitName,
    /// The file before the rollout. If the unit has another one by then, it is kept.
    pub from: UnitFile,
    /// The file of the rollout.
    pub to: UnitFile,
}

/// Unit files of a rollout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RolloutFiles {
    /// The files of each member, in the order of the members.
    pub members: Vec<MemberFiles>,
    /// Files to replace at the end.
    pub deferred: Vec<DeferredFile>,
}

/// A rollout to store.
#[derive(Debug, Clone)]
pub struct NewRollout {
    /// The rollout.
    pub rollout: Rollout,
    /// Its files.
    pub files: RolloutFiles,
}

/// Progress of a rollout, to be written by [`Leadership::advance_rollout`].
#[derive(Debug, Clone, Copy)]
pub struct RolloutStep<'a> {
    /// The rollout as the decision saw it.
    pub seen: &'a RolloutRecord,
    /// The rollout after the decision.
    pub next: &'a RolloutRecord,
    /// The writes to make.
    pub actions: &'a [RolloutAction],
    /// The files of the rollout. They may be missing if there are no actions and the rollout does
    /// not complete.
    pub files: Option<&'a RolloutFiles>,
    /// The snapshot that the decision was based on.
    pub snapshot: &'a Snapshot,
}

/// Number of ended rollouts that are kept.
const ENDED: usize = 10;

/// Maximum number of attempts when other writers change a rollout concurrently.
const MAX_ATTEMPTS: usize = 10;

impl Registry {
    /// Stores a rollout, which the leader then carries out. Deletes the oldest ended rollouts.
    /// `seen` is the snapshot that the rollout was made for.
    ///
    /// A member that has changed since `seen` is superseded: the rollout does not write it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`](crate::StoreError::Invalid) when the files of all members do not
    /// fit into one transaction; [`RegistryError::Conflict`] when another rollout was stored since
    /// `seen`. It may have the same members.
    pub async fn create_rollout(
        &self,
        new: NewRollout,
        seen: &Snapshot,
    ) -> Result<(RolloutId, Revision), RegistryError> {
        let (id, transaction) = self.rollout_transaction(&new, seen);
        match self.store.commit(transaction).await? {
            Commit::Applied(revision) => Ok((id, revision)),
            Commit::Refused { .. } => Err(RegistryError::Conflict),
        }
    }

    /// Returns the number of a new rollout, and the transaction that stores it.
    pub(super) fn rollout_transaction(
        &self,
        new: &NewRollout,
        seen: &Snapshot,
    ) -> (RolloutId, Transaction) {
        let rollout = new.rollout.clone();
        let last = seen.rollouts().last().map_or(RolloutId(0), |record| record.id);
        let record = RolloutRecord { id: last.next(), requested_at: wall_millis(), rollout };
        let files = encode_rollout_files(&new.files);
        let key = self.key(&Key::Rollout(record.id));
        let mut transaction = Transaction::new()
            .when(Condition::absent(&key))
            .put(key, encode_rollout(&record))
            .put(self.key(&Key::RolloutFiles(record.id)), files);
        for old in outdated_rollouts(seen) {
            transaction = transaction.delete(self.key(&Key::Rollout(old)));
        }
        (record.id, transaction)
    }

    /// Applies a request to a rollout, and returns the rollout.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoRollout`] when the rollout does not exist;
    /// [`RegistryError::RolloutRequest`] when its phase does not admit the request;
    /// [`RegistryError::Conflict`] when other writers keep changing it.
    pub async fn request_rollout(
        &self,
        id: RolloutId,
        request: RolloutRequest,
    ) -> Result<(RolloutRecord, Revision), RegistryError> {
        for _ in 0..MAX_ATTEMPTS {
            let (entry, _) = self.get(&Key::Rollout(id)).await?;
            let entry = entry.ok_or(RegistryError::NoRollout { id })?;
            let mut record = decode_rollout(id, &entry.value)
                .map_err(|source| RegistryError::Value { key: entry.key.clone(), source })?;
            if !record.rollout.request(request)? {
                return Ok((record, entry.modified));
            }
            let same = Condition::modified_at(&entry.key, entry.modified);
            let mut put = Transaction::new().when(same).put(entry.key, encode_rollout(&record));
            if record.rollout.phase.has_ended() {
                put = put.delete(self.key(&Key::RolloutFiles(id)));
            }
            if let Commit::Applied(revision) = self.store.commit(put).await? {
                return Ok((record, revision));
            }
        }
        Err(RegistryError::Conflict)
    }

    /// Returns the unit files of a rollout that has not ended.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoRollout`] when there are no files, because the rollout has ended or does
    /// not exist; [`RegistryError::Value`] when they cannot be read.
    pub async fn rollout_files(&self, id: RolloutId) -> Result<RolloutFiles, RegistryError> {
        let (entry, _) = self.get(&Key::RolloutFiles(id)).await?;
        let entry = entry.ok_or(RegistryError::NoRollout { id })?;
        decode_rollout_files(&entry.value)
            .map_err(|source| RegistryError::Value { key: entry.key, source })
    }
}

/// Returns the ended rollouts to delete. A rollout that ended early, and still keeps machines from
/// updating a global unit, is not deleted.
fn outdated_rollouts(snapshot: &Snapshot) -> Vec<RolloutId> {
    let holds = |record: &RolloutRecord| {
        let is_early =
            matches!(record.rollout.phase, RolloutPhase::Stopped { .. } | RolloutPhase::Aborted);
        is_early
            && record.rollout.members.iter().any(|Member { id, .. }| {
                let unit = snapshot.unit(id.unit.as_str());
                let on = id.machine.as_ref().zip(unit);
                on.is_some_and(|(machine, unit)| snapshot.holds_update(unit, machine))
            })
    };
    let ended = snapshot.rollouts().filter(|record| record.rollout.phase.has_ended());
    let ended: Vec<_> = ended.map(|record| (record.id, holds(record))).collect();
    let excess = (ended.len() + 1).saturating_sub(ENDED);
    ended.into_iter().take(excess).filter(|(_, holds)| !holds).map(|(id, _)| id).collect()
}

impl Leadership {
    /// Writes the progress of a rollout together with its actions. Returns the revision of the last
    /// step that was applied. A later step may be refused, because a unit has changed.
    ///
    /// Each step requires that this leadership lasts, that the rollout is as the decision saw it,
    /// and that each unit is as in the snapshot.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Deposed`] when the leadership has ended, perhaps after some steps;
    /// [`RegistryError::Conflict`] when no step was applied, because the rollout or a unit has
    /// changed.
    pub async fn advance_rollout(
        &self,
        step: &RolloutStep<'_>,
        mirror: &Mirror,
    ) -> Result<Revision, RegistryError> {
        let registry = self.registry();
        let writes = unit_writes(step)?;
        // A unit that is removed must not leave a placement that the mirror does not show yet.
        let any_placement = false;
        let seen = step.snapshot;
        let bulk = BulkWrite { seen, writes, rollout: None, placements: None, any_placement };
        let key = registry.key(&Key::Rollout(step.next.id));
        let (seen, next) = (encode_rollout(step.seen), encode_rollout(step.next));
        let when = |value: &Vec<u8>| {
            let as_seen = Condition::value(&key, value.clone());
            Transaction::new().when(self.leads()).when(as_seen)
        };
        let mut first = when(&seen);
        if seen != next {
            first = first.put(&key, next.clone());
        }
        if step.next.rollout.phase.has_ended() {
            first = first.delete(registry.key(&Key::RolloutFiles(step.next.id)));
        }
        let mut written = None;
        for BulkStep { transaction, .. } in
            registry.bulk_steps(&bulk, mirror, first, &when(&next)).await?
        {
            match registry.store.commit(transaction).await? {
                Commit::Applied(revision) => written = Some(revision),
                Commit::Refused { condition: LEADER_CONDITION, .. } => {
                    return Err(RegistryError::Deposed { term: self.term() });
                }
                // The next decision returns the actions again that are left.
                Commit::Refused { .. } => break,
            }
        }
        written.ok_or(RegistryError::Conflict)
    }
}

/// Returns the writes of the units. A global unit is written once for all its members.
fn unit_writes(step: &RolloutStep<'_>) -> Result<Vec<UnitWrite>, RegistryError> {
    let (mut writes, mut global) = (Vec::new(), BTreeSet::new());
    if step.next.rollout.phase == RolloutPhase::Completed {
        let deferred = step.files.into_iter().flat_map(|files| &files.deferred);
        writes.extend(deferred.filter_map(|file| deferred_write(file, step.snapshot)));
    }
    for action in step.actions {
        let index = action.member();
        let (Some(member), Some(files)) =
            (step.next.rollout.members.get(index), step.files.and_then(|it| it.members.get(index)))
        else {
            let source = CodecError::damaged("the unit files of a member are missing");
            return Err(RegistryError::Value { key: format!("rollout {}", step.next.id), source });
        };
        let name = &member.id.unit;
        let target = action.after(member);
        if member.id.machine.is_some() {
            let stored = step.snapshot.unit(name.as_str()).map(|unit| UnitTarget::of(unit));
            if stored == target || !global.insert(name) {
                continue;
            }
        }
        let file = match action {
            RolloutAction::Update { .. } => Some(&files.to),
            RolloutAction::Restore { .. } | RolloutAction::Remove { .. } => files.from.as_ref(),
        };
        writes.push(match target.zip(file) {
            Some((UnitTarget { desired, generation, .. }, file)) => {
                let unit = NewUnit { name: name.clone(), file: file.clone(), desired };
                UnitWrite::PutAt(unit, generation)
            }
            None => UnitWrite::Destroy(name.clone()),
        });
    }
    Ok(writes)
}

/// Returns the write of a unit, unless its file has changed since the rollout was requested.
fn deferred_write(deferred: &DeferredFile, snapshot: &Snapshot) -> Option<UnitWrite> {
    let DeferredFile { name, from, to } = deferred;
    let current = snapshot.unit(name.as_str()).filter(|unit| unit.file == *from)?;
    let (name, file, desired) = (name.clone(), to.clone(), current.desired);
    Some(UnitWrite::Put(NewUnit { name, file, desired }))
}
