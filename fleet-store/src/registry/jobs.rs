//! Jobs, schedules and counted failures: advanced by the leader. Users request changes of
//! schedules.

use std::time::Duration;

use fleet_core::failures::FailureRecord;
use fleet_core::job::JobRecord;
use fleet_core::schedule::{ScheduleRecord, ScheduleRequest};
use fleet_core::{Generation, Placement, Revision, Snapshot, Unit};
use fleet_unitfile::UnitName;

use super::leadership::LEADER_CONDITION;
use super::{
    BulkWrite, Key, Leadership, Registry, RegistryError, RemovePlacement, UnitWrite, units,
};
use crate::clock::sleep;
use crate::codec::{decode_schedule, encode_failures, encode_job, encode_schedule};
use crate::{Commit, Condition, Mirror, Transaction};

/// Maximum number of attempts when other writers change a schedule concurrently.
const MAX_ATTEMPTS: usize = 10;

/// Wait between two reads of a schedule that does not exist yet.
const SCHEDULE_INTERVAL: Duration = Duration::from_millis(300);

/// Progress of a job, a schedule or counted failures, written in one step together with changes of
/// units.
#[derive(Debug, Clone, Copy)]
pub struct RecordUpdate<'a, T> {
    /// The unit.
    pub unit: &'a UnitName,
    /// The record as the decision saw it; `None` if there was none.
    pub seen: Option<&'a T>,
    /// The record after the decision; `None` to remove it.
    pub next: Option<&'a T>,
    /// Writes of units. Each one requires that its unit is as in the snapshot.
    pub writes: &'a [UnitWrite],
    /// The snapshot that the decision was based on.
    pub snapshot: &'a Snapshot,
}

impl Leadership {
    /// Writes the progress of a job. Requires that this leadership lasts, that the job is as the
    /// decision saw it, and that its unit and all written units are as in the snapshot.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Deposed`] when the leadership has ended; [`RegistryError::Conflict`] when
    /// the job or a unit has changed.
    pub async fn advance_job(
        &self,
        update: &RecordUpdate<'_, JobRecord>,
        mirror: &Mirror,
    ) -> Result<Revision, RegistryError> {
        let key = Key::Job(update.unit.clone());
        let transaction = self.record_update(self.led(), key, update, encode_job, mirror).await?;
        self.commit_update(transaction).await
    }

    /// Writes the progress of a schedule, under the conditions of
    /// [`advance_job`](Self::advance_job).
    ///
    /// # Errors
    ///
    /// As for a job.
    pub async fn advance_schedule(
        &self,
        update: &RecordUpdate<'_, ScheduleRecord>,
        mirror: &Mirror,
    ) -> Result<Revision, RegistryError> {
        let key = Key::Schedule(update.unit.clone());
        let transaction =
            self.record_update(self.led(), key, update, encode_schedule, mirror).await?;
        self.commit_update(transaction).await
    }

    /// Writes the counted failures of a unit, under the conditions of
    /// [`advance_job`](Self::advance_job). In the same step, removes a placement, if one is given.
    ///
    /// # Errors
    ///
    /// As for a job. [`RegistryError::Conflict`] also when the placement has changed.
    pub async fn advance_failures(
        &self,
        update: &RecordUpdate<'_, FailureRecord>,
        removed: Option<&Placement>,
        mirror: &Mirror,
    ) -> Result<Revision, RegistryError> {
        let key = Key::Failures(update.unit.clone());
        let Some(previous) = removed else {
            let transaction =
                self.record_update(self.led(), key, update, encode_failures, mirror).await?;
            return self.commit_update(transaction).await;
        };
        let (unit, previous) = (update.unit.clone(), previous.clone());
        let removal = RemovePlacement { unit, previous };
        self.remove_with(&removal, |first| {
            self.record_update(first, key, update, encode_failures, mirror)
        })
        .await
    }

    /// Returns the generation that a unit of a snapshot gets by a restart.
    #[must_use]
    pub fn restarted_generation(&self, unit: &Unit, snapshot: &Snapshot) -> Generation {
        units::raised_generation(unit.generation, self.epoch_base(), snapshot.revision)
    }

    /// Returns a transaction that requires this leadership.
    fn led(&self) -> Transaction {
        Transaction::new().when(self.leads())
    }

    async fn commit_update(&self, transaction: Transaction) -> Result<Revision, RegistryError> {
        match self.registry().store.commit(transaction).await? {
            Commit::Applied(revision) => Ok(revision),
            Commit::Refused { condition: LEADER_CONDITION, .. } => {
                Err(RegistryError::Deposed { term: self.term() })
            }
            Commit::Refused { .. } => Err(RegistryError::Conflict),
        }
    }

    /// Returns the transaction of an update, which begins with `first`.
    async fn record_update<T>(
        &self,
        first: Transaction,
        key: Key,
        update: &RecordUpdate<'_, T>,
        encode: fn(&T) -> Vec<u8>,
        mirror: &Mirror,
    ) -> Result<Transaction, RegistryError> {
        let registry = self.registry();
        let key = registry.key(&key);
        let as_seen = match update.seen {
            Some(seen) => Condition::value(&key, encode(seen)),
            None => Condition::absent(&key),
        };
        let first = first.when(as_seen);
        let first = match update.next {
            Some(next) => first.put(key, encode(next)),
            None => first.delete(key),
        };
        registry.with_units(first, update, mirror).await
    }
}

impl Registry {
    /// Adds the writes of an update to a transaction, and the condition that its unit is unchanged.
    async fn with_units<T>(
        &self,
        first: Transaction,
        update: &RecordUpdate<'_, T>,
        mirror: &Mirror,
    ) -> Result<Transaction, RegistryError> {
        let seen = update.snapshot;
        let mut writes = update.writes.to_vec();
        let is_written = writes.iter().any(|write| write.name() == update.unit);
        if let Some(unit) = seen.unit(update.unit.as_str()).filter(|_| !is_written) {
            // This changes nothing, so only its condition remains.
            writes.push(UnitWrite::SetDesired(unit.name.clone(), unit.desired));
        }
        // A unit that is removed must not leave a placement that the mirror does not show yet.
        let any_placement = false;
        let bulk = BulkWrite { seen, writes, rollout: None, placements: None, any_placement };
        let steps = self.bulk_steps(&bulk, mirror, first, &Transaction::new()).await?;
        let transactions = steps.into_iter().map(|step| step.transaction);
        Ok(transactions.reduce(Transaction::and).unwrap_or_default())
    }

    /// Applies a request to a schedule, and returns the schedule. Waits up to three seconds for the
    /// leader to make it.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoSchedule`] when the unit has no schedule, or no leader has seen it yet;
    /// [`RegistryError::Conflict`] when other writers keep changing the schedule.
    pub async fn request_schedule(
        &self,
        unit: &UnitName,
        request: ScheduleRequest,
    ) -> Result<(ScheduleRecord, Revision), RegistryError> {
        let mut is_missing = false;
        for _ in 0..MAX_ATTEMPTS {
            let (entry, _) = self.get(&Key::Schedule(unit.clone())).await?;
            // The leader makes the schedule soon after its unit.
            let Some(entry) = entry else {
                sleep(SCHEDULE_INTERVAL).await;
                is_missing = true;
                continue;
            };
            is_missing = false;
            let mut record = decode_schedule(&entry.value)
                .map_err(|source| RegistryError::Value { key: entry.key.clone(), source })?;
            if !record.request(request) {
                return Ok((record, entry.modified));
            }
            let same = Condition::modified_at(&entry.key, entry.modified);
            let put = Transaction::new().when(same).put(entry.key, encode_schedule(&record));
            if let Commit::Applied(revision) = self.store.commit(put).await? {
                return Ok((record, revision));
            }
        }
        Err(match is_missing {
            true => RegistryError::NoSchedule { unit: unit.clone() },
            false => RegistryError::Conflict,
        })
    }
}
