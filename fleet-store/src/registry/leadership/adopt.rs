//! How a cluster goes on in another store: its units come in, each with the machine that it is on.

use std::collections::BTreeSet;

use fleet_core::{Epoch, Generation, MachineId, Placement};

use super::Leadership;
use crate::codec::{UnitRecord, decode_lineage, encode_lineage, encode_placement, encode_unit};
use crate::registry::{NewUnit, RegistryError};
use crate::{Condition, ContentId, Key, Transaction};

/// How far a cluster that begins anew is ahead of what it continues: further than any store gets
/// between a copy and its loss, at a thousand revisions a second for eleven days. So no daemon of
/// the life before has ever seen one of its epochs.
pub(crate) const LEAP: u64 = 1_000_000_000;

/// After how many steps the leadership is renewed.
const STEPS: usize = 16;

/// Where a lineage has to begin so that its epochs come after `past`; nothing if those to come are
/// later than `present`, and that is enough.
pub(crate) fn raised(past: Epoch, present: u64) -> Option<u64> {
    let next = past.0.saturating_add(LEAP);
    (past > Epoch::ZERO && present < next).then_some(next)
}

/// A unit as it was in another store.
#[derive(Debug, Clone)]
pub struct Adopted {
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
    /// leadership has ended.
    pub async fn raise_epochs(&mut self, past: Epoch) -> Result<(), RegistryError> {
        let Some(next) = raised(past, self.beginning + self.elected.0) else { return Ok(()) };
        let (found, _) = self.registry.get(&Key::Lineage).await?;
        let Some(found) = found else { return Err(RegistryError::NoLineage) };
        let lineage = decode_lineage(&found.value)
            .map_err(|source| RegistryError::Value { key: found.key.clone(), source })?
            .beginning_at(next);
        let raise = self.fence().put(found.key, encode_lineage(&lineage));
        let mut placed = self.placed.lock().await;
        self.step(&mut placed, raise).await?;
        drop(placed);
        self.beginning = next;
        Ok(())
    }

    /// Stores units that are new here, each at once with its placement. So no engine ever sees one
    /// of them without the machine that it is on, and places it on another.
    ///
    /// Nothing is decided here, and no rule is asked: the placements are those of an engine that
    /// had asked them. The next engine to lead looks at all of them and takes back what it must.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Deposed`] when the leadership has ended; [`RegistryError::Conflict`] when a
    /// unit, or a placement of it, is there already. What came before in the list may be stored.
    pub async fn adopt(&self, units: &[Adopted]) -> Result<(), RegistryError> {
        let epoch = Epoch(self.beginning + self.elected.0);
        let mut placed = self.placed.lock().await;
        let (mut rest, mut steps) = (units, 0);
        while !rest.is_empty() {
            let (taken, step) = self.adopting(rest, epoch);
            self.step(&mut placed, step).await?;
            rest = &rest[taken..];
            steps += 1;
            if steps % STEPS == 0 {
                self.renew().await?;
            }
        }
        Ok(())
    }

    /// As many of the units as one transaction takes, but one at least, and how many these are.
    fn adopting(&self, units: &[Adopted], epoch: Epoch) -> (usize, Transaction) {
        let mut step = self.fence();
        let mut size = step.size();
        let mut contents = BTreeSet::new();
        for (taken, adopted) in units.iter().enumerate() {
            let content = ContentId::of(adopted.unit.file.source());
            let group = self.adopting_one(adopted, content, !contents.contains(&content), epoch);
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

    fn adopting_one(
        &self,
        adopted: &Adopted,
        content: ContentId,
        with_content: bool,
        epoch: Epoch,
    ) -> Transaction {
        let Adopted { unit: NewUnit { name, file, desired }, generation, machine } = adopted;
        let key = self.registry.key(&Key::Unit(name.clone()));
        let placement = self.registry.key(&Key::Placement(name.clone()));
        let record = UnitRecord { content, desired: *desired, generation: *generation };
        let mut group = Transaction::new()
            .when(Condition::absent(&key))
            .when(Condition::absent(&placement))
            .put(key, encode_unit(&record));
        if with_content {
            group = group.put(self.registry.key(&Key::Content(content)), file.source());
        }
        let Some(machine) = machine.clone() else {
            return group;
        };
        group.put(placement, encode_placement(&Placement { machine, epoch }))
    }
}
