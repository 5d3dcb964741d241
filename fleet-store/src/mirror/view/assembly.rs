//! Pure: assembling units and machines from their entries.

use std::sync::Arc;

use fleet_core::{Fault, Machine, MachineId, Revision, Unit};
use fleet_unitfile::UnitName;

use super::View;
use crate::codec::UnitRecord;
use crate::mirror::changes::{ChangeSet, is_same_unit};
use crate::mirror::contents::Content;
use crate::registry::MachineRecord;

impl View {
    /// Assembles the changed objects, and sets the revision of the snapshot.
    pub(super) fn assemble(
        &mut self,
        changes: &ChangeSet,
        revision: Revision,
        known: Option<&Self>,
    ) {
        if !changes.is_empty() {
            self.scheduling_revision = revision;
        }
        for name in &changes.units {
            self.note_affected(name);
            match self.unit(name, known) {
                Some(Ok(unit)) => self.edit().put_unit(unit),
                Some(Err(fault)) => self.edit().put_fault(name.clone(), fault),
                None => self.edit().remove_unit(name.as_str()),
            }
            self.note_affected(name);
        }
        changes.machines.iter().for_each(|machine| self.affected.add(machine));
        for id in &changes.machines {
            match self.machine(id) {
                Some(machine) => self.edit().put_machine(machine),
                None => self.edit().remove_machine(id.as_str()),
            }
        }
        self.edit().revision = revision;
    }

    /// Assembles the unit from its record and content. Returns `None` if the unit has no record.
    fn unit(&mut self, name: &UnitName, known: Option<&Self>) -> Option<Result<Arc<Unit>, Fault>> {
        let record = match self.records.get(name)? {
            Ok(record) => *record,
            Err(fault) => return Some(Err(Fault::clone(fault))),
        };
        if let Some(fault) = self.placements.fault(name) {
            return Some(Err(fault.clone()));
        }
        let before = self.snapshot.unit(name.as_str());
        let before = before.or_else(|| known?.snapshot.unit(name.as_str())).cloned();
        let content = self.contents.get(record.content);
        Some(content.and_then(|content| self.unit_of(name, record, content, before)))
    }

    /// Assembles the unit of a record. Returns `before` if it is equal.
    pub(super) fn unit_of(
        &mut self,
        name: &UnitName,
        record: UnitRecord,
        content: Content,
        before: Option<Arc<Unit>>,
    ) -> Result<Arc<Unit>, Fault> {
        let file = content.file;
        let before = before.filter(|before| before.file == file);
        let requirements = match (content.requirements, &before) {
            (Some(shared), _) => shared,
            (None, Some(before)) => before.requirements.clone(),
            (None, None) => self.requirements_cache.read(name, &file)?,
        };
        let (name, desired, generation) = (name.clone(), record.desired, record.generation);
        let unit = Arc::new(Unit { name, file, requirements, desired, generation });
        Ok(before.filter(|before| is_same_unit(before, &unit)).unwrap_or(unit))
    }

    /// Assembles a present machine from its claim, its run-time metadata and its intent. Run-time
    /// metadata overrides the configured metadata; an empty run-time value hides the key.
    fn machine(&self, id: &MachineId) -> Option<Machine> {
        let MachineRecord { id, address, api, mut metadata, version, offers, cordoned, .. } =
            self.claims.get(id)?.clone();
        for (key, value) in self.snapshot.dynamic_metadata(id.as_str()).into_iter().flatten() {
            if value.is_empty() {
                metadata.remove(key);
            } else {
                metadata.insert(key.clone(), value.clone());
            }
        }
        let intent = self.intents.get(&id).copied();
        let cordoned = cordoned || intent.is_some();
        Some(Machine { id, address, api, metadata, version, offers, cordoned, intent })
    }
}
