//! Moving a cluster to another store: adding its units together with their placements.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Epoch, Generation, MachineId};
use fleet_unitfile::UnitName;

use super::Leadership;
use crate::codec::{
    UnitRecord, decode_lineage, encode_content, encode_lineage, encode_placement, encode_unit,
};
use crate::registry::{ContentId, Key};
use crate::registry::{Lineage, NewUnit, RegistryError};
use crate::{Condition, StoreError, Transaction};

/// Number by which the revisions and epochs of a restored or imported cluster jump ahead, so that
/// the new epochs are higher than all that agents remember. It must exceed the number of revisions
/// that the old store created after its backup or export. At 1,000 revisions a second, it is enough
/// for eleven days.
pub(crate) const RESTORE_JUMP: u64 = 1_000_000_000;

/// Number of steps between renewals of the leadership.
const RENEW_EVERY: usize = 16;

/// Keys of existing placements of missing units.
type OrphanedPlacements = BTreeMap<UnitName, Vec<String>>;

/// Highest epoch of another cluster that is accepted. Epochs usually count from the number of
/// microseconds since 1970, which is well below this limit. The epochs that this cluster then
/// creates are higher, but still fit into an export, which allows numbers up to 2^53.
const MAX_EPOCH: u64 = 1 << 52;

/// Returns a new epoch base, with which all later epochs exceed `past` by at least `RESTORE_JUMP`.
/// Returns `None` if no new base is needed: `past` is zero, or the `present` epoch is already high
/// enough.
pub(crate) fn raised_epoch_base(past: Epoch, present: u64) -> Result<Option<u64>, StoreError> {
    if past.0 > MAX_EPOCH {
        return Err(StoreError::Invalid(format!(
            "epoch {past} is higher than the limit of {MAX_EPOCH}"
        )));
    }
    let next = past.0 + RESTORE_JUMP;
    Ok((past > Epoch::ZERO && present < next).then_some(next))
}

/// A unit from another store.
#[derive(Debug, Clone)]
pub struct AdoptedUnit {
    /// Unit to store.
    pub unit: NewUnit,
    /// Number of requested restarts.
    pub generation: Generation,
    /// Machine that it was placed on, if any.
    pub machine: Option<MachineId>,
}

impl Leadership {
    /// Raises the epoch base, so that all later epochs exceed `past`, an epoch of another cluster.
    /// They also exceed the epochs that the other cluster may have created since then. So machines
    /// that remember those epochs accept the new placements.
    ///
    /// This writes nothing if the epochs are already high enough. They usually are, because this
    /// lineage began later than that of the other cluster. They may be too low if the clocks of the
    /// two hosts differed.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoLineage`] when the store has no lineage; [`RegistryError::Deposed`] when
    /// the leadership has ended; [`StoreError::Invalid`] when `past` is beyond the limit for
    /// epochs.
    pub async fn raise_epochs(&mut self, past: Epoch) -> Result<(), RegistryError> {
        let Some(next) = raised_epoch_base(past, self.epoch_base + self.elected.0)? else {
            return Ok(());
        };
        let lineage = self.lineage().await?.with_epoch_base(next);
        self.put_lineage(&lineage).await?;
        self.epoch_base = next;
        Ok(())
    }

    /// Declares the store's lineage the successor of `earlier`, whose content it now has. Machines
    /// that have followed `earlier` then follow this store without further confirmation.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoLineage`] when the store has no lineage; [`RegistryError::Deposed`] when
    /// the leadership has ended.
    pub async fn succeed(&self, earlier: &Lineage) -> Result<(), RegistryError> {
        let lineage = self.lineage().await?;
        if lineage.continues(earlier) {
            return Ok(());
        }
        self.put_lineage(&lineage.with_predecessor(earlier)).await
    }

    async fn lineage(&self) -> Result<Lineage, RegistryError> {
        let (found, _) = self.registry.get(&Key::Lineage).await?;
        let Some(found) = found else { return Err(RegistryError::NoLineage) };
        decode_lineage(&found.value)
            .map_err(|source| RegistryError::Value { key: found.key, source })
    }

    async fn put_lineage(&self, lineage: &Lineage) -> Result<(), RegistryError> {
        let key = self.registry.key(&Key::Lineage);
        let put = self.fence().put(key, encode_lineage(lineage));
        let mut last_write = self.last_write.lock().await;
        self.step(&mut last_write, put).await.map(drop)
    }

    /// Stores new units, each in the same step as its placement. Otherwise an engine could see a
    /// unit without a placement, and place it on another machine.
    ///
    /// No rules are checked here, because the engine of the other cluster has already checked these
    /// placements. The next leader examines all of them and removes invalid ones.
    ///
    /// Destroyed units of the same names may have left placements behind. The step that adds a unit
    /// deletes them. All placements are read only once, before the first write, because no other
    /// writer can add any afterwards.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Deposed`] when the leadership has ended; [`RegistryError::Conflict`] when a
    /// unit exists already. Units earlier in the list may be stored in either case.
    pub async fn adopt(&self, units: &[AdoptedUnit]) -> Result<(), RegistryError> {
        let mut last_write = self.last_write.lock().await;
        // In this term a unit of one of these names may have been placed and destroyed.
        let latest = last_write.map_or(self.elected, |last_write| last_write.max(self.elected));
        let epoch = Epoch(self.epoch_base + latest.0);
        let orphans = self.orphaned_placements(units).await?;
        let (mut rest, mut steps) = (units, 0);
        while !rest.is_empty() {
            let (taken, step) = self.adopt_batch(rest, &orphans, epoch);
            self.step(&mut last_write, step).await?;
            rest = &rest[taken..];
            steps += 1;
            if steps % RENEW_EVERY == 0 {
                self.renew().await?;
            }
        }
        Ok(())
    }

    /// Returns the transaction with as many of the first units as fit into it, at least one, and
    /// the number of these units.
    fn adopt_batch(
        &self,
        units: &[AdoptedUnit],
        orphans: &OrphanedPlacements,
        epoch: Epoch,
    ) -> (usize, Transaction) {
        let mut step = self.fence();
        let mut size = step.size();
        let mut contents = BTreeSet::new();
        for (taken, adopted) in units.iter().enumerate() {
            let content = ContentId::of(adopted.unit.file.source());
            let mut group = self.adopt_one(adopted, content, orphans, epoch);
            if !contents.contains(&content) {
                let key = self.registry.key(&Key::Content(content));
                group = group.put(key, encode_content(adopted.unit.file.source()));
            }
            size += group.size();
            let fits = size <= Transaction::MAX_BYTES
                && step.conditions.len() + group.conditions.len() <= Transaction::MAX_OPERATIONS
                && step.writes.len() + group.writes.len() <= Transaction::MAX_OPERATIONS;
            if taken > 0 && !fits {
                return (taken, step);
            }
            step.conditions.extend(group.conditions);
            step.writes.extend(group.writes);
            contents.insert(content);
        }
        (units.len(), step)
    }

    fn adopt_one(
        &self,
        adopted: &AdoptedUnit,
        content: ContentId,
        orphans: &OrphanedPlacements,
        epoch: Epoch,
    ) -> Transaction {
        let AdoptedUnit { unit: NewUnit { name, desired, .. }, generation, machine } = adopted;
        let key = self.registry.key(&Key::Unit(name.clone()));
        let record = UnitRecord { content, desired: *desired, generation: *generation };
        let absent = Condition::absent(&key);
        let mut group = Transaction::new().when(absent).put(key, encode_unit(&record));
        let placement = machine.as_ref().map(|machine| self.placement(machine, name));
        let old = orphans.get(name).into_iter().flatten();
        for old in old.filter(|old| Some(*old) != placement.as_ref()) {
            group = group.delete(old);
        }
        match placement {
            Some(placement) => group.put(placement, encode_placement(epoch)),
            None => group,
        }
    }

    /// Returns the existing placements of units with these names.
    async fn orphaned_placements(
        &self,
        units: &[AdoptedUnit],
    ) -> Result<OrphanedPlacements, RegistryError> {
        let names: BTreeSet<_> = units.iter().map(|adopted| &adopted.unit.name).collect();
        let mut orphans = OrphanedPlacements::new();
        let registry = &self.registry;
        for entry in registry.store.read(&registry.layout.placements()).await?.entries {
            if let Some(Key::Placement(_, unit)) = registry.layout.parse(&entry.key)
                && names.contains(&unit)
            {
                orphans.entry(unit).or_default().push(entry.key);
            }
        }
        Ok(orphans)
    }
}
