//! Pure: the effect of each kind of key on the view.

use std::sync::Arc;

use fleet_core::rollout::RolloutId;
use fleet_core::snapshot::Fault;
use fleet_core::{Intent, MachineId, Revision};
use fleet_unitfile::UnitName;

use super::{Leader, UNREADABLE_STATE, View, fault, warn};
use crate::codec::{
    UnitRecord, decode_claim, decode_failures, decode_intent, decode_job, decode_leader,
    decode_placement, decode_reason, decode_rebalancing, decode_rollout, decode_schedule,
    decode_state, decode_text, decode_unit,
};
use crate::mirror::changes::{ChangeSet, ResultChange};
use crate::mirror::contents::{PlacementMove, UnitPlacements};
use crate::mirror::follow::AffectedMachines;
use crate::registry::{Key, MachineRecord, RemovePlacement};

impl View {
    /// Applies a value. `known` may have a readable earlier one.
    pub(super) fn put(
        &mut self,
        key: Key,
        value: &[u8],
        modified: Revision,
        known: Option<&Self>,
        changes: &mut ChangeSet,
    ) {
        match key {
            Key::Unit(unit) => {
                let record = decode_unit(value).map_err(|e| fault("the unit's record", &e));
                self.put_record(unit, Some(record.map_err(Box::new)), changes);
            }
            Key::Content(id) => {
                if self.contents.put(id, value, modified, &mut self.requirements_cache) {
                    changes.units.extend(self.contents.users(id).cloned());
                }
            }
            Key::Placement(machine, unit) => {
                self.put_placement((unit, machine), value, known, changes);
            }
            Key::Reason(unit) => self.put_reason(unit, value),
            Key::State(machine, unit) => self.put_state(machine, unit, value),
            Key::Machine(id) => self.put_claim(id, value, known, changes),
            Key::Metadata(machine, name) => {
                self.put_metadata(machine, name, value, known, changes);
            }
            Key::Intent(id) => self.put_intent(id, value, known, changes),
            Key::Rollout(id) => self.put_rollout(id, value),
            Key::Job(unit) => self.put_job(unit, value),
            Key::Failures(unit) => self.put_failures(unit, value, changes),
            Key::Schedule(unit) => self.put_schedule(unit, value),
            Key::Rebalancing => self.put_rebalancing(value, changes),
            Key::Lineage => self.lineage = Some(value.to_owned()),
            Key::Leader => {
                let claim = decode_leader(value);
                self.leader = claim.map_or(Leader::Unknown, |claim| Leader::Machine(claim.machine));
            }
            Key::PlacementVersion => self.placements.note_last_write(Some(modified)),
            Key::Term | Key::Revisions(_) | Key::History(_) | Key::RolloutFiles(_) => {}
        }
    }

    pub(super) fn delete(&mut self, key: Key, changes: &mut ChangeSet) {
        match key {
            Key::Unit(unit) => self.put_record(unit, None, changes),
            Key::Content(id) => {
                self.contents.remove(id);
                changes.units.extend(self.contents.users(id).cloned());
            }
            Key::Placement(machine, unit) => {
                let snapshot = Arc::make_mut(&mut self.snapshot);
                let moved = self.placements.remove(snapshot, &unit, &machine);
                self.note_move(unit, &machine, moved, changes);
            }
            Key::Reason(unit) => {
                self.edit().remove_reason(unit.as_str());
                self.changed_results.push(ResultChange::Reason(unit));
            }
            Key::State(machine, unit) => {
                self.edit().remove_state(unit.as_str(), machine.as_str());
                self.changed_results.push(ResultChange::State(unit, machine));
            }
            Key::Machine(id) => {
                self.claims.remove(&id);
                changes.machines.insert(id);
            }
            Key::Metadata(machine, name) => {
                self.edit().remove_dynamic_metadata(machine.as_str(), &name);
                changes.machines.insert(machine);
            }
            Key::Intent(id) => {
                self.intents.remove(&id);
                changes.machines.insert(id);
            }
            Key::Rollout(id) => {
                self.note_rollout(id);
                self.edit().remove_rollout(id);
            }
            Key::Job(unit) => {
                self.note_job(&unit);
                self.edit().remove_job(unit.as_str());
                self.changed_results.push(ResultChange::Progress(unit));
            }
            Key::Failures(unit) => {
                self.edit().remove_failures(unit.as_str());
                changes.units.insert(unit);
            }
            Key::Schedule(unit) => {
                self.edit().remove_schedule(unit.as_str());
                self.changed_results.push(ResultChange::Progress(unit));
            }
            Key::Rebalancing => {
                self.edit().rebalancing = None;
                changes.rebalancing = true;
            }
            Key::Leader => self.leader = Leader::None,
            Key::PlacementVersion => self.placements.note_last_write(None),
            Key::Term
            | Key::Lineage
            | Key::Revisions(_)
            | Key::History(_)
            | Key::RolloutFiles(_) => {}
        }
    }

    fn put_record(
        &mut self,
        unit: UnitName,
        record: Option<Result<UnitRecord, Box<Fault>>>,
        changes: &mut ChangeSet,
    ) {
        let content_of = |record: &Result<UnitRecord, _>| Some(record.as_ref().ok()?.content);
        let now = record.as_ref().and_then(content_of);
        let unit = self.shared_name(unit);
        let before = match record {
            Some(record) => self.records.insert(unit.clone(), record),
            None => self.records.remove(&unit),
        };
        self.contents.set_content_of(&unit, before.as_ref().and_then(content_of), now);
        changes.units.insert(unit);
    }

    fn put_reason(&mut self, unit: UnitName, value: &[u8]) {
        let unit = self.shared_name(unit);
        self.changed_results.push(ResultChange::Reason(unit.clone()));
        match decode_reason(value) {
            Ok(reason) => self.edit().put_reason(unit, reason),
            Err(error) => {
                let text = "cannot read why a unit is on no machine: showing no reason";
                warn(text, &unit, &error);
                self.edit().remove_reason(unit.as_str());
            }
        }
    }

    fn put_state(&mut self, machine: MachineId, unit: UnitName, value: &[u8]) {
        let (unit, machine) = (self.shared_name(unit), self.shared_id(machine));
        self.changed_results.push(ResultChange::State(unit.clone(), machine.clone()));
        match decode_state(unit.clone(), machine.clone(), value) {
            Ok(state) => self.edit().put_state(state),
            Err(error) => {
                warn(UNREADABLE_STATE, &unit, &error);
                self.edit().remove_state(unit.as_str(), machine.as_str());
            }
        }
    }

    /// Applies a machine's claim. If the claim is unreadable, the last known record remains,
    /// because the machine is still present.
    fn put_claim(
        &mut self,
        id: MachineId,
        value: &[u8],
        known: Option<&Self>,
        changes: &mut ChangeSet,
    ) {
        match decode_claim(value) {
            Ok(claim) => {
                self.claims.insert(id.clone(), claim.machine);
            }
            Err(error) => {
                let text =
                    "cannot read the record of a machine: using the known one, or an empty one";
                warn(text, &id, &error);
                let known = known.and_then(|view| view.claims.get(&id));
                self.claims.entry(id.clone()).or_insert_with(|| {
                    known.cloned().unwrap_or_else(|| MachineRecord::new(id.clone()))
                });
            }
        }
        changes.machines.insert(id);
    }

    /// Applies an intent. If the intent is unreadable, the last known intent remains. If there is
    /// none, the machine is treated as cordoned.
    fn put_intent(
        &mut self,
        id: MachineId,
        value: &[u8],
        known: Option<&Self>,
        changes: &mut ChangeSet,
    ) {
        let intent = decode_intent(value).unwrap_or_else(|error| {
            let text = "cannot read the cordon or drain of a machine: keeping the known one, or \
                        treating the machine as cordoned";
            warn(text, &id, &error);
            let known = known.unwrap_or(self).intents.get(&id);
            known.copied().unwrap_or(Intent::Cordoned)
        });
        self.intents.insert(id.clone(), intent);
        changes.machines.insert(id);
    }

    /// An unreadable request is not executed.
    fn put_rebalancing(&mut self, value: &[u8], changes: &mut ChangeSet) {
        let order = decode_rebalancing(value);
        let text = "cannot read the request to rebalance the cluster: ignoring it";
        let order = order.map_err(|error| warn(text, &"the cluster", &error)).ok();
        self.edit().rebalancing = order.map(Arc::new);
        changes.rebalancing = true;
    }

    /// An unreadable rollout neither proceeds nor holds machines back.
    fn put_rollout(&mut self, id: RolloutId, value: &[u8]) {
        self.note_rollout(id);
        match decode_rollout(id, value) {
            Ok(record) => self.edit().put_rollout(record),
            Err(error) => {
                warn("cannot read a rollout: ignoring it", &id, &error);
                self.edit().remove_rollout(id);
            }
        }
        self.note_rollout(id);
    }

    /// A machine starts no attempt of an unreadable job.
    fn put_job(&mut self, unit: UnitName, value: &[u8]) {
        self.note_job(&unit);
        match decode_job(value) {
            Ok(record) => {
                let unit = self.shared_name(unit.clone());
                self.edit().put_job(unit, record);
            }
            Err(error) => {
                warn("cannot read the job of a unit: ignoring it", &unit, &error);
                self.edit().remove_job(unit.as_str());
            }
        }
        self.note_job(&unit);
        self.changed_results.push(ResultChange::Progress(unit));
    }

    /// Records the machine of the current attempt of a job. Call this both before and after a
    /// change of the job.
    fn note_job(&mut self, unit: &UnitName) {
        let Some(record) = self.snapshot.job(unit.as_str()).cloned() else { return };
        if let Some((machine, _)) = record.state.current_attempt() {
            self.affected.add(machine);
        }
    }

    /// The unit's machines to avoid depend on its failures, so the unit changes as well.
    fn put_failures(&mut self, unit: UnitName, value: &[u8], changes: &mut ChangeSet) {
        let unit = self.shared_name(unit);
        match decode_failures(value) {
            Ok(record) => self.edit().put_failures(unit.clone(), record),
            Err(error) => {
                warn("cannot read the failures of a unit: ignoring them", &unit, &error);
                self.edit().remove_failures(unit.as_str());
            }
        }
        changes.units.insert(unit);
    }

    fn put_schedule(&mut self, unit: UnitName, value: &[u8]) {
        let unit = self.shared_name(unit);
        self.changed_results.push(ResultChange::Progress(unit.clone()));
        match decode_schedule(value) {
            Ok(record) => self.edit().put_schedule(unit, record),
            Err(error) => {
                warn("cannot read the schedule of a unit: ignoring it", &unit, &error);
                self.edit().remove_schedule(unit.as_str());
            }
        }
    }

    /// Records the machines that a rollout lets update a global unit, or holds back. Call this both
    /// before and after a change of the rollout.
    fn note_rollout(&mut self, id: RolloutId) {
        let Some(record) = self.snapshot.rollout(id).cloned() else { return };
        for member in &record.rollout.members {
            member.id.machine.iter().for_each(|machine| self.affected.add(machine));
        }
    }

    /// For unreadable metadata the known value remains.
    fn put_metadata(
        &mut self,
        machine: MachineId,
        name: String,
        value: &[u8],
        known: Option<&Self>,
        changes: &mut ChangeSet,
    ) {
        let text = decode_text(value).or_else(|error| {
            let text = "cannot read the metadata of a machine: keeping the known value, if any";
            warn(text, &machine, &error);
            let pairs = known.and_then(|view| view.snapshot.dynamic_metadata(machine.as_str()));
            pairs.and_then(|pairs| pairs.get(&name)).cloned().ok_or(())
        });
        if let Ok(text) = text {
            self.edit().put_dynamic_metadata(machine.clone(), name, text);
            changes.machines.insert(machine);
        }
    }
}

impl View {
    /// Takes the set of machines affected since the last call.
    pub(in crate::mirror) fn take_affected(&mut self) -> AffectedMachines {
        std::mem::take(&mut self.affected)
    }

    /// Returns the placements of a unit.
    pub(in crate::mirror) fn placements_of(&self, unit: &UnitName) -> UnitPlacements {
        self.placements.of(&self.snapshot, unit)
    }

    pub(in crate::mirror) fn last_placement_write(&self) -> Option<Revision> {
        self.placements.last_write()
    }

    /// Returns the superseded placements.
    pub(in crate::mirror) fn superseded(&self) -> Vec<RemovePlacement> {
        self.placements.superseded()
    }

    /// Applies a stored placement. If the placement is unreadable, the last known version remains,
    /// because the unit still has a placement.
    pub(super) fn put_placement(
        &mut self,
        (unit, machine): (UnitName, MachineId),
        value: &[u8],
        known: Option<&Self>,
        changes: &mut ChangeSet,
    ) {
        let (unit, machine) = (self.shared_name(unit), self.shared_id(machine));
        let read = decode_placement(value).map_err(|e| fault("the unit's placement", &e));
        let known = known.map(|view| &*view.snapshot);
        let snapshot = Arc::make_mut(&mut self.snapshot);
        let moved = self.placements.put(snapshot, (&unit, machine.clone()), read, known);
        self.note_move(unit, &machine, moved, changes);
    }

    /// Records the effects of a changed placement.
    pub(super) fn note_move(
        &mut self,
        unit: UnitName,
        machine: &MachineId,
        moved: PlacementMove,
        changes: &mut ChangeSet,
    ) {
        if moved.had_fault {
            changes.units.insert(unit.clone());
        }
        if self.snapshot.fault(unit.as_str()).is_some() {
            // Any machine may run the unit, and has to know whether it is placed elsewhere.
            self.affected.add_all();
        }
        changes.placements.insert(unit);
        self.affected.add(machine);
        let [before, after] = &moved.machines;
        if before != after {
            before.iter().chain(after).for_each(|machine| self.affected.add(machine));
        }
    }

    /// Records the machines that a change of a unit affects: the machine of its placement, or all
    /// machines if the unit is global or unreadable. Call this both before and after the change.
    pub(super) fn note_affected(&mut self, unit: &UnitName) {
        let name = unit.as_str();
        if let Some(placement) = self.snapshot.placement(name) {
            self.affected.add(&placement.machine);
        }
        let anywhere = self.snapshot.unit(name).is_some_and(|unit| unit.is_global());
        if anywhere || self.snapshot.fault(name).is_some() {
            self.affected.add_all();
        }
    }
}
