//! Destroying units together with their placements. Placement keys begin with the machine. Many
//! small writes are packed into few transactions.

use std::time::Duration;

use fleet_core::Revision;
use fleet_unitfile::UnitName;

use super::units::check_unchanged;
use super::{Registry, RegistryError};
use crate::clock::within;
use crate::codec::encode_schedule;
use crate::registry::Key;
use crate::{Commit, Condition, Mirror, Transaction};

/// Maximum number of attempts when the placement changes concurrently.
const MAX_ATTEMPTS: usize = 10;

/// Time to wait in each attempt for the mirror to see the change.
const MIRROR_TIMEOUT: Duration = Duration::from_secs(1);

/// Index of the condition that the unit exists.
const UNIT_CONDITION: usize = 0;

impl Registry {
    /// Deletes a unit, its revisions, its placement and its reason in one step. Its content stays
    /// until it is [collected](Self::collect_contents).
    ///
    /// Only the mirror knows the machine of the placement, so the step has the condition that the
    /// mirror's knowledge is up to date. If it is not, this waits up to a second for the mirror and
    /// tries again, up to ten times. After that it deletes the unit without the condition. The
    /// engine then removes a remaining placement, as for every missing unit.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NotFound`] when the unit does not exist.
    pub async fn destroy(
        &self,
        name: &UnitName,
        mirror: &Mirror,
    ) -> Result<Revision, RegistryError> {
        self.destroy_if(name, mirror, None).await
    }

    /// Like [`destroy`](Self::destroy), but only if the unit was not written after revision `seen`.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NotFound`] when the unit does not exist; [`RegistryError::Changed`] when it
    /// was written after `seen`; [`RegistryError::Conflict`] when other writers keep changing the
    /// unit.
    pub async fn destroy_if_unchanged(
        &self,
        name: &UnitName,
        mirror: &Mirror,
        seen: Revision,
    ) -> Result<Revision, RegistryError> {
        self.destroy_if(name, mirror, Some(seen)).await
    }

    async fn destroy_if(
        &self,
        name: &UnitName,
        mirror: &Mirror,
        unchanged: Option<Revision>,
    ) -> Result<Revision, RegistryError> {
        for _ in 0..MAX_ATTEMPTS {
            let existence = self.existence_condition(name, unchanged).await?;
            let transaction = self.destroy_transaction(name, existence, mirror, true);
            if let Some(revision) = self.try_destroy(name, transaction, unchanged.is_some()).await?
            {
                return Ok(revision);
            }
            if !self.wait_for_mirror(name, mirror).await? {
                break;
            }
        }
        let existence = self.existence_condition(name, unchanged).await?;
        let transaction = self.destroy_transaction(name, existence, mirror, false);
        let destroyed = self.try_destroy(name, transaction, unchanged.is_some()).await?;
        destroyed.ok_or(RegistryError::Conflict)
    }

    /// Returns the condition that the unit exists, and is unchanged if required.
    async fn existence_condition(
        &self,
        name: &UnitName,
        unchanged: Option<Revision>,
    ) -> Result<Condition, RegistryError> {
        let key = Key::Unit(name.clone());
        let Some(seen) = unchanged else { return Ok(Condition::present(self.key(&key))) };
        let (entry, _) = self.get(&key).await?;
        let entry = entry.ok_or_else(|| RegistryError::NotFound { name: name.clone() })?;
        check_unchanged(seen, name, &entry)?;
        Ok(Condition::modified_at(self.key(&key), entry.modified))
    }

    /// Destroys a unit; `None` if a condition of the transaction does not hold.
    async fn try_destroy(
        &self,
        name: &UnitName,
        transaction: Transaction,
        is_unchanged: bool,
    ) -> Result<Option<Revision>, RegistryError> {
        match self.commit_grouped(transaction).await? {
            Commit::Applied(revision) => Ok(Some(revision)),
            // If the unit had to be unchanged, it may still exist. The caller checks that.
            Commit::Refused { condition: UNIT_CONDITION, .. } if !is_unchanged => {
                Err(RegistryError::NotFound { name: name.clone() })
            }
            Commit::Refused { .. } => Ok(None),
        }
    }

    /// Returns the transaction that destroys a unit and the placements that the mirror shows. The
    /// unit's record is not decoded, so a damaged unit can also be destroyed.
    ///
    /// If `exactly` is set, the transaction is refused if the unit may have other placements. Its
    /// additional conditions are:
    ///
    /// - With such placements: all of them still exist.
    /// - Without: no leader has written placements since the mirror's state.
    pub(super) fn destroy_transaction(
        &self,
        name: &UnitName,
        existence: Condition,
        mirror: &Mirror,
        exactly: bool,
    ) -> Transaction {
        let (seen, snapshot) = (mirror.placements_of(name), mirror.snapshot());
        let record = self.key(&Key::Unit(name.clone()));
        let mut transaction = Transaction::new().when(existence).delete(record);
        for machine in &seen.machines {
            let placement = self.key(&Key::Placement(machine.clone(), name.clone()));
            if exactly {
                // While this placement exists, there is no other one.
                transaction = transaction.when(Condition::present(&placement));
            }
            transaction = transaction.delete(placement);
        }
        if exactly && seen.machines.is_empty() {
            transaction = transaction.when(self.placements_unchanged_since(seen.last_write));
        }
        // Otherwise the leader ends the schedule.
        if let Some(record) = snapshot.schedule(name.as_str()).filter(|_| exactly) {
            let key = self.key(&Key::Schedule(name.clone()));
            // A run that starts meanwhile would not be in the record that remains.
            transaction = transaction.when(Condition::value(&key, encode_schedule(record)));
            transaction = match record.after_destroy() {
                Some(rest) => transaction.put(key, encode_schedule(&rest)),
                None => transaction.delete(key),
            };
        }
        // A later unit of this name must not continue them. The leader removes others.
        let records = [
            (snapshot.job(name.as_str()).is_some(), Key::Job(name.clone())),
            (snapshot.failures_of(name.as_str()).is_some(), Key::Failures(name.clone())),
        ];
        for (_, key) in records.iter().filter(|(exists, _)| *exists) {
            transaction = transaction.delete(self.key(key));
        }
        transaction
            .delete(self.key(&Key::Reason(name.clone())))
            .delete(self.key(&Key::Revisions(name.clone())))
            .delete(self.key(&Key::History(name.clone())))
    }

    /// Waits until the mirror has seen the last change of the unit and its schedule, and the last
    /// write of placements. Returns `false` if that takes too long.
    async fn wait_for_mirror(
        &self,
        name: &UnitName,
        mirror: &Mirror,
    ) -> Result<bool, RegistryError> {
        let (unit, _) = self.get(&Key::Unit(name.clone())).await?;
        let Some(unit) = unit else {
            return Err(RegistryError::NotFound { name: name.clone() });
        };
        // The last write of placements includes all earlier ones. An earlier unit of this name was
        // destroyed before this one was created.
        let (placed, _) = self.get(&Key::PlacementVersion).await?;
        let (schedule, _) = self.get(&Key::Schedule(name.clone())).await?;
        let others = placed.into_iter().chain(schedule).map(|entry| entry.modified);
        let changed = others.fold(unit.modified, Revision::max);
        Ok(matches!(within(MIRROR_TIMEOUT, mirror.wait_for(changed)).await, Some(Ok(_))))
    }
}

/// Packs groups of conditions and writes into as few transactions as possible, in order. A group is
/// never split, so all its writes are applied together. Every transaction begins with the
/// conditions and writes of `fence`.
pub(super) fn pack(
    fence: &Transaction,
    groups: impl IntoIterator<Item = Transaction>,
) -> Vec<Transaction> {
    let mut packed = Vec::new();
    let mut open = fence.clone();
    let mut size = fence.size();
    for group in groups {
        let group_size = group.size();
        if open.writes.len() > fence.writes.len() && !fits(&open, &group, size + group_size) {
            packed.push(std::mem::replace(&mut open, fence.clone()));
            size = fence.size();
        }
        open.conditions.extend(group.conditions);
        open.writes.extend(group.writes);
        size += group_size;
    }
    if open.writes.len() > fence.writes.len() {
        packed.push(open);
    }
    packed
}

fn fits(open: &Transaction, group: &Transaction, size: usize) -> bool {
    open.writes.len() + group.writes.len() <= Transaction::MAX_OPERATIONS
        && open.conditions.len() + group.conditions.len() <= Transaction::MAX_OPERATIONS
        && size <= Transaction::MAX_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Condition;

    fn group(i: usize, bytes: usize) -> Transaction {
        let fresh = Condition::absent(format!("a{i}"));
        Transaction::new().when(fresh).put(format!("a{i}"), vec![0; bytes]).delete(format!("b{i}"))
    }

    #[test]
    fn groups_stay_whole_and_in_order_within_the_bounds() {
        for (count, bytes) in [(0, 0), (1, 0), (50, 1), (51, 1), (500, 10), (10, 400_000)] {
            let fence = Transaction::new().when(Condition::present("leader"));
            let packed = pack(&fence, (0..count).map(|i| group(i, bytes)));
            assert!(packed.iter().all(|transaction| transaction.check().is_ok()));
            assert!(packed.iter().all(|t| t.conditions[0] == fence.conditions[0]));
            assert!(packed.iter().all(|t| t.writes.len() == 2 * (t.conditions.len() - 1)));
            let writes: Vec<_> = packed.into_iter().flat_map(|t| t.writes).collect();
            let expected: Vec<_> = (0..count).flat_map(|i| group(i, bytes).writes).collect();
            assert_eq!(writes, expected);
        }
    }

    #[test]
    fn transaction_is_filled_before_the_next_starts() {
        let packed = pack(&Transaction::new(), (0..120).map(|i| group(i, 1)));
        let writes: Vec<usize> =
            packed.iter().map(|transaction| transaction.writes.len()).collect();
        assert_eq!(writes, [128, 112]);
    }
}
