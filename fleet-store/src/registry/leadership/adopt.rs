//! How a cluster goes on in another store: its units come in, each with the machine that it is on.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Epoch, Generation, MachineId};
use fleet_unitfile::UnitName;

use super::Leadership;
use crate::codec::{
    UnitRecord, decode_lineage, encode_content, encode_lineage, encode_placement, encode_unit,
};
use crate::registry::{NewUnit, RegistryError};
use crate::{Condition, ContentId, Key, StoreError, Transaction};

/// How far a cluster that begins anew is ahead of what it continues: further than any store gets
/// between a copy and its loss, at a thousand revisions a second for eleven days. So no daemon of
/// the life before has ever seen one of its epochs.
pub(crate) const RESTORE_JUMP: u64 = 1_000_000_000;

/// After how many steps the leadership is renewed.
const RENEW_EVERY: usize = 16;

/// The keys of placements that are there of units that are not.
type OrphanedPlacements = BTreeMap<UnitName, Vec<String>>;

/// No cluster comes to a higher epoch, though they are counted from a time in microseconds. What is
/// counted on from there still fits into an export.
const MAX_EPOCH: u64 = 1 << 52;

/// Where a lineage has to begin so that its epochs come after `past`; nothing if those to come are
/// later than `present`, and that is enough.
pub(crate) fn raised_epoch_base(past: Epoch, present: u64) -> Result<Option<u64>, StoreError> {
    if past.0 > MAX_EPOCH {
        return Err(StoreError::Invalid(format!("epoch {past} is higher than any cluster gets")));
    }
    let next = past.0 + RESTORE_JUMP;
    Ok((past > Epoch::ZERO && present < next).then_some(next))
}

/// A unit as it was in another store.
#[derive(Debug, Clone)]
pub struct AdoptedUnit {
    /// The unit.
    pub unit: NewUnit,
    /// How often a restart of it was requested.
    pub generation: Generation,
    /// The machine that it was placed on, if it was.
    pub machine: Option<MachineId>,
}

impl Leadership {
    /// Lets all epochs from now on come after `past`, and after those that were made meanwhile
    /// where `past` is from: machines that remember them take what is placed now for newer. They do
    /// already where the lineage began later than the other one; where clocks differed, it is said
    /// to begin later.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoLineage`] when the store has none; [`RegistryError::Deposed`] when the
    /// leadership has ended; [`StoreError::Invalid`] when no cluster gets as far as `past`.
    pub async fn raise_epochs(&mut self, past: Epoch) -> Result<(), RegistryError> {
        let Some(next) = raised_epoch_base(past, self.epoch_base + self.elected.0)? else {
            return Ok(());
        };
        let (found, _) = self.registry.get(&Key::Lineage).await?;
        let Some(found) = found else { return Err(RegistryError::NoLineage) };
        let lineage = decode_lineage(&found.value)
            .map_err(|source| RegistryError::Value { key: found.key.clone(), source })?
            .with_epoch_base(next);
        let raise = self.fence().put(found.key, encode_lineage(&lineage));
        let mut placed = self.placed.lock().await;
        self.step(&mut placed, raise).await?;
        drop(placed);
        self.epoch_base = next;
        Ok(())
    }

    /// Stores units that are new here, each at once with its placement. So no engine ever sees one
    /// of them without the machine that it is on, and places it on another.
    ///
    /// Nothing is decided here, and no rule is asked: the placements are those of an engine that
    /// had asked them. The next engine to lead looks at all of them and takes back what it must.
    ///
    /// All placements are read once before. From then on nobody else adds one, so what is left
    /// there of a unit that was destroyed goes as a unit of its name comes.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Deposed`] when the leadership has ended; [`RegistryError::Conflict`] when a
    /// unit is there already. What came before in the list may be stored.
    pub async fn adopt(&self, units: &[AdoptedUnit]) -> Result<(), RegistryError> {
        let mut placed = self.placed.lock().await;
        // A unit of one of these names may have been placed in this very term, and destroyed.
        let latest = placed.map_or(self.elected, |placed| placed.max(self.elected));
        let epoch = Epoch(self.epoch_base + latest.0);
        let orphans = self.orphaned_placements(units).await?;
        let (mut rest, mut steps) = (units, 0);
        while !rest.is_empty() {
            let (taken, step) = self.adopt_batch(rest, &orphans, epoch);
            self.step(&mut placed, step).await?;
            rest = &rest[taken..];
            steps += 1;
            if steps % RENEW_EVERY == 0 {
                self.renew().await?;
            }
        }
        Ok(())
    }

    /// As many of the units as one transaction takes, but one at least, and how many these are.
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

    /// The placements that there are of units of these names.
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
