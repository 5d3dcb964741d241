//! Pure: the snapshot as it follows from the store's entries, kept current change by change.
//!
//! A unit in the snapshot comes out of two entries, its record and its content, and a machine out
//! of its claim and its run-time metadata. So changes are first noted, then the units and machines
//! that they touch are put together anew. What a change costs depends on what it touches. A whole
//! listing is taken over in another way (`load`), with the same outcome.

mod load;
mod placing;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use fleet_core::{Epoch, Fault, Intent, Machine, MachineId, Revision, Snapshot, Unit};
use fleet_unitfile::UnitName;

use super::concern::Concerned;
use super::contents::{Content, Contents};
use super::demands::Demands;
use super::difference::{Difference, Feed, same_unit};
use super::places::Places;
use super::reports::{Report, Reports};
use super::room;
use crate::codec::{
    UnitRecord, decode_claim, decode_intent, decode_leader, decode_lineage, decode_reason,
    decode_rebalancing, decode_state, decode_text, decode_unit,
};
use crate::registry::{Lineage, MachineRecord};
use crate::{Change, Changes, CodecError, Export, Key, Layout, RegistryError, UnusedContent};

/// The snapshot with what it is made of.
#[derive(Debug)]
pub(super) struct View {
    layout: Layout,
    snapshot: Arc<Snapshot>,
    records: BTreeMap<UnitName, Result<UnitRecord, Box<Fault>>>,
    places: Places,
    contents: Contents,
    claims: BTreeMap<MachineId, MachineRecord>,
    intents: BTreeMap<MachineId, Intent>,
    demands: Demands,
    /// Which history this is, as it is stored.
    lineage: Option<Vec<u8>>,
    leader: Leader,
    /// The last revision that touched a unit, a machine or a placement.
    decisive: Revision,
    feed: Feed,
    reports: Reports,
    /// What the changes that are being taken over have changed of reports.
    reported: Vec<Report>,
    /// Whom the changes of late concern.
    concerned: Concerned,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Leader {
    Nobody,
    Engine(MachineId),
    /// Somebody whose claim cannot be understood.
    Unknown,
}

impl View {
    /// The view of a store that nothing was read of yet.
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            snapshot: Arc::default(),
            records: BTreeMap::new(),
            places: Places::default(),
            contents: Contents::default(),
            claims: BTreeMap::new(),
            intents: BTreeMap::new(),
            demands: Demands::default(),
            lineage: None,
            leader: Leader::Nobody,
            decisive: Revision::ZERO,
            feed: Feed::new(),
            reports: Reports::since_listing(Revision::ZERO),
            reported: Vec::new(),
            concerned: Concerned::default(),
        }
    }

    pub(super) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// What is different now from how it was at the revision `seen`; nothing if that is not known.
    pub(super) fn since(&self, seen: Revision) -> Option<Difference> {
        self.feed.since(seen)
    }

    /// Which results of decisions are different now from how they were at the revision `seen`;
    /// nothing if that is not known.
    pub(super) fn reports_since(&self, seen: Revision) -> Option<BTreeSet<Report>> {
        self.reports.since(seen)
    }

    /// Which history this is, if that is known and can be read.
    pub(super) fn lineage(&self) -> Option<Lineage> {
        decode_lineage(self.lineage.as_deref()?).ok()
    }

    /// What of the cluster can be exported.
    pub(super) fn export(&self) -> Result<Export, RegistryError> {
        let lineage = self.lineage.as_deref().map(decode_lineage).transpose();
        let key = || self.layout.key(&Key::Lineage);
        let lineage = lineage.map_err(|source| RegistryError::Value { key: key(), source })?;
        let beginning = lineage.as_ref().map_or(0, Lineage::beginning);
        let epochs = Epoch(beginning + self.snapshot.revision.0);
        let (snapshot, intents) = (self.snapshot.clone(), self.intents.clone());
        Ok(Export { snapshot, intents, lineage, epochs })
    }

    /// Whether what is stored as the lineage is that of this view, which may have none yet. Where
    /// it begins may be raised; it stays the same history.
    pub(super) fn is_of(&self, lineage: Option<&[u8]>) -> bool {
        let Some(own) = self.lineage.as_deref() else { return true };
        let same = |other| match (decode_lineage(own), decode_lineage(other)) {
            (Ok(own), Ok(other)) => own.is_the_same_as(&other),
            _ => own == other,
        };
        lineage.is_some_and(same)
    }

    /// Whether nobody leads but, perhaps, the candidate itself.
    pub(super) fn is_open_to(&self, candidate: &MachineId) -> bool {
        match &self.leader {
            Leader::Nobody => true,
            Leader::Engine(machine) => machine == candidate,
            Leader::Unknown => false,
        }
    }

    /// The machines whose claims one revision changed, and whether they are there now.
    pub(super) fn machines_in(&self, changes: &Changes) -> Vec<(MachineId, bool)> {
        let machines =
            changes.changes.iter().filter_map(|change| match self.layout.parse(&change.key)? {
                Key::Machine(machine) => Some((machine, change.value.is_some())),
                _ => None,
            });
        machines.collect()
    }

    /// Takes over what one revision changed.
    pub(super) fn apply(&mut self, changes: &Changes) {
        let mut touched = Difference::default();
        for Change { key, value, .. } in &changes.changes {
            let Some(key) = self.layout.parse(key) else {
                continue;
            };
            match value {
                Some(value) => self.put(key, value, changes.revision, None, &mut touched),
                None => self.delete(key, &mut touched),
            }
        }
        self.settle(&touched, changes.revision, None);
        let everywhere = self.snapshot.global_count() * self.snapshot.machines().len();
        let most = room::for_runs(self.records.len() + everywhere);
        self.feed.keep(most);
        self.reports.keep(most);
        self.feed.follow(changes.revision, touched);
        self.reports.follow(changes.revision, self.reported.drain(..));
    }

    /// The last revision that touched a unit, a machine or a placement.
    pub(super) fn decisive(&self) -> Revision {
        self.decisive
    }

    /// The contents that no unit has.
    pub(super) fn unused_contents(&self) -> Vec<UnusedContent> {
        self.contents.unused()
    }

    fn edit(&mut self) -> &mut Snapshot {
        Arc::make_mut(&mut self.snapshot)
    }

    /// Takes over a value; `known` may have read it before.
    fn put(
        &mut self,
        key: Key,
        value: &[u8],
        modified: Revision,
        known: Option<&Self>,
        touched: &mut Difference,
    ) {
        match key {
            Key::Unit(unit) => {
                let record = decode_unit(value).map_err(|e| fault("the unit's record", &e));
                self.put_record(unit, Some(record.map_err(Box::new)), touched);
            }
            Key::Content(id) => {
                if self.contents.put(id, value, modified, &mut self.demands) {
                    touched.units.extend(self.contents.users(id).cloned());
                }
            }
            Key::Placement(machine, unit) => {
                self.put_placement((unit, machine), value, known, touched);
            }
            Key::Reason(unit) => self.put_reason(unit, value),
            Key::State(machine, unit) => self.put_state(machine, unit, value),
            Key::Machine(id) => self.put_claim(id, value, known, touched),
            Key::Metadata(machine, name) => {
                self.put_metadata(machine, name, value, known, touched);
            }
            Key::Intent(id) => self.put_intent(id, value, known, touched),
            Key::Rebalancing => self.put_rebalancing(value, touched),
            Key::Lineage => self.lineage = Some(value.to_owned()),
            Key::Leader => {
                let claim = decode_leader(value);
                self.leader = claim.map_or(Leader::Unknown, |claim| Leader::Engine(claim.machine));
            }
            Key::Placed => self.places.note_written(Some(modified)),
            Key::Term => {}
        }
    }

    fn delete(&mut self, key: Key, touched: &mut Difference) {
        match key {
            Key::Unit(unit) => self.put_record(unit, None, touched),
            Key::Content(id) => {
                self.contents.remove(id);
                touched.units.extend(self.contents.users(id).cloned());
            }
            Key::Placement(machine, unit) => {
                let snapshot = Arc::make_mut(&mut self.snapshot);
                let moved = self.places.remove(snapshot, &unit, &machine);
                self.note_move(unit, &machine, moved, touched);
            }
            Key::Reason(unit) => {
                self.edit().remove_reason(unit.as_str());
                self.reported.push(Report::Reason(unit));
            }
            Key::State(machine, unit) => {
                self.edit().remove_state(unit.as_str(), machine.as_str());
                self.reported.push(Report::State(unit, machine));
            }
            Key::Machine(id) => {
                self.claims.remove(&id);
                touched.machines.insert(id);
            }
            Key::Metadata(machine, name) => {
                self.edit().remove_dynamic_metadata(machine.as_str(), &name);
                touched.machines.insert(machine);
            }
            Key::Intent(id) => {
                self.intents.remove(&id);
                touched.machines.insert(id);
            }
            Key::Rebalancing => {
                self.edit().rebalancing = None;
                touched.rebalancing = true;
            }
            Key::Leader => self.leader = Leader::Nobody,
            Key::Placed => self.places.note_written(None),
            Key::Term | Key::Lineage => {}
        }
    }

    fn put_record(
        &mut self,
        unit: UnitName,
        record: Option<Result<UnitRecord, Box<Fault>>>,
        touched: &mut Difference,
    ) {
        let content_of = |record: &Result<UnitRecord, _>| Some(record.as_ref().ok()?.content);
        let now = record.as_ref().and_then(content_of);
        let unit = self.shared_name(unit);
        let before = match record {
            Some(record) => self.records.insert(unit.clone(), record),
            None => self.records.remove(&unit),
        };
        self.contents.change_use(&unit, before.as_ref().and_then(content_of), now);
        touched.units.insert(unit);
    }

    fn put_reason(&mut self, unit: UnitName, value: &[u8]) {
        let unit = self.shared_name(unit);
        self.reported.push(Report::Reason(unit.clone()));
        match decode_reason(value) {
            Ok(reason) => self.edit().put_reason(unit, reason),
            Err(error) => {
                warn("reason", &unit, &error);
                self.edit().remove_reason(unit.as_str());
            }
        }
    }

    fn put_state(&mut self, machine: MachineId, unit: UnitName, value: &[u8]) {
        let (unit, machine) = (self.shared_name(unit), self.shared_id(machine));
        self.reported.push(Report::State(unit.clone(), machine.clone()));
        match decode_state(unit.clone(), machine.clone(), value) {
            Ok(state) => self.edit().put_state(state),
            Err(error) => {
                warn("state", &unit, &error);
                self.edit().remove_state(unit.as_str(), machine.as_str());
            }
        }
    }

    /// A claim that cannot be understood is one all the same: the machine is there. What was known
    /// of it stays.
    fn put_claim(
        &mut self,
        id: MachineId,
        value: &[u8],
        known: Option<&Self>,
        touched: &mut Difference,
    ) {
        match decode_claim(value) {
            Ok(claim) => {
                self.claims.insert(id.clone(), claim.machine);
            }
            Err(error) => {
                warn("claim", &id, &error);
                let known = known.and_then(|view| view.claims.get(&id));
                self.claims.entry(id.clone()).or_insert_with(|| {
                    known.cloned().unwrap_or_else(|| MachineRecord::new(id.clone()))
                });
            }
        }
        touched.machines.insert(id);
    }

    /// Of what people said and nobody here understands, what was known stays, or it is at least
    /// that the machine is to take no more units.
    fn put_intent(
        &mut self,
        id: MachineId,
        value: &[u8],
        known: Option<&Self>,
        touched: &mut Difference,
    ) {
        let intent = decode_intent(value).unwrap_or_else(|error| {
            warn("intent", &id, &error);
            let known = known.unwrap_or(self).intents.get(&id);
            known.copied().unwrap_or(Intent::Cordoned)
        });
        self.intents.insert(id.clone(), intent);
        touched.machines.insert(id);
    }

    /// An order that cannot be understood is not carried out.
    fn put_rebalancing(&mut self, value: &[u8], touched: &mut Difference) {
        let order = decode_rebalancing(value);
        let order = order.map_err(|error| warn("order", &"the cluster", &error)).ok();
        self.edit().rebalancing = order.map(Arc::new);
        touched.rebalancing = true;
    }

    /// Of metadata that cannot be understood, too, what was known stays.
    fn put_metadata(
        &mut self,
        machine: MachineId,
        name: String,
        value: &[u8],
        known: Option<&Self>,
        touched: &mut Difference,
    ) {
        let text = decode_text(value).or_else(|error| {
            warn("metadata", &machine, &error);
            let pairs = known.and_then(|view| view.snapshot.dynamic_metadata(machine.as_str()));
            pairs.and_then(|pairs| pairs.get(&name)).cloned().ok_or(())
        });
        if let Ok(text) = text {
            self.edit().put_dynamic_metadata(machine.clone(), name, text);
            touched.machines.insert(machine);
        }
    }

    /// The same name, sharing its text with the unit's record: most names come in many keys.
    fn shared_name(&self, name: UnitName) -> UnitName {
        self.records.get_key_value(&name).map_or(name, |(shared, _)| shared.clone())
    }

    fn shared_id(&self, id: MachineId) -> MachineId {
        self.claims.get_key_value(&id).map_or(id, |(shared, _)| shared.clone())
    }

    /// Puts together what was touched, and says of which revision the snapshot is now.
    fn settle(&mut self, touched: &Difference, revision: Revision, known: Option<&Self>) {
        if !touched.is_empty() {
            self.decisive = revision;
        }
        for name in &touched.units {
            self.note_concerned(name);
            match self.unit(name, known) {
                Some(Ok(unit)) => self.edit().put_unit(unit),
                Some(Err(fault)) => self.edit().put_fault(name.clone(), fault),
                None => self.edit().remove_unit(name.as_str()),
            }
            self.note_concerned(name);
        }
        touched.machines.iter().for_each(|machine| self.concerned.add(machine));
        for id in &touched.machines {
            match self.machine(id) {
                Some(machine) => self.edit().put_machine(machine),
                None => self.edit().remove_machine(id.as_str()),
            }
        }
        self.edit().revision = revision;
    }

    /// The unit as its record and content say; nothing if there is no record.
    fn unit(&mut self, name: &UnitName, known: Option<&Self>) -> Option<Result<Arc<Unit>, Fault>> {
        let record = match self.records.get(name)? {
            Ok(record) => *record,
            Err(fault) => return Some(Err(Fault::clone(fault))),
        };
        if let Some(fault) = self.places.fault(name) {
            return Some(Err(fault.clone()));
        }
        let before = self.snapshot.unit(name.as_str());
        let before = before.or_else(|| known?.snapshot.unit(name.as_str())).cloned();
        let content = self.contents.get(record.content);
        Some(content.and_then(|content| self.unit_of(name, record, content, before)))
    }

    /// The unit that a record makes: the one before, if it is no other.
    fn unit_of(
        &mut self,
        name: &UnitName,
        record: UnitRecord,
        content: Content,
        before: Option<Arc<Unit>>,
    ) -> Result<Arc<Unit>, Fault> {
        let file = content.file;
        let before = before.filter(|before| before.file == file);
        let requirements = match (content.requirements, &before) {
            (Some(of_any), _) => of_any,
            (None, Some(before)) => before.requirements.clone(),
            (None, None) => self.demands.read(name, &file)?,
        };
        let (name, desired, generation) = (name.clone(), record.desired, record.generation);
        let unit = Arc::new(Unit { name, file, requirements, desired, generation });
        Ok(before.filter(|before| same_unit(before, &unit)).unwrap_or(unit))
    }

    /// A machine that is present, with its configured metadata overridden by what was set at run
    /// time, where an empty value hides the key, and with what people said is to become of it.
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

/// A fault, with the whole chain of causes: it is only ever shown.
pub(super) fn fault(what: &str, error: &dyn std::error::Error) -> Fault {
    let mut message = format!("{what} cannot be understood: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    Fault { message }
}

fn warn(what: &str, of: &dyn Display, error: &CodecError) {
    tracing::warn!(%of, error = error as &dyn std::error::Error, "a stored {what} is passed over");
}
