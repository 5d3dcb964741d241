//! Pure: the snapshot as it follows from the store's entries, kept current change by change.
//!
//! A unit in the snapshot comes out of two entries, its record and its content, and a machine out
//! of its claim and its run-time metadata. So changes are first noted, then the units and machines
//! that they touch are put together anew. What a change costs depends on what it touches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::{Fault, Machine, MachineId, Requirements, Revision, Snapshot, Strictness, Unit};
use fleet_unitfile::{UnitFile, UnitName};

use crate::codec::{
    UnitRecord, decode_claim, decode_placement, decode_reason, decode_state, decode_text,
    decode_unit,
};
use crate::registry::MachineRecord;
use crate::{Change, Changes, CodecError, ContentId, Key, Layout, Listing, UnusedContent};

/// The snapshot with what it is made of.
#[derive(Debug, Clone)]
pub(super) struct View {
    layout: Layout,
    snapshot: Arc<Snapshot>,
    records: BTreeMap<UnitName, Result<UnitRecord, Fault>>,
    /// Placements that cannot be understood: a fault of their unit, so that nobody takes it for
    /// one that has none.
    bad_placements: BTreeMap<UnitName, Fault>,
    contents: BTreeMap<ContentId, Content>,
    /// Which units have which content, be the content there or not.
    users: BTreeMap<ContentId, BTreeSet<UnitName>>,
    /// The contents that are there and that no unit has.
    unused: BTreeSet<ContentId>,
    claims: BTreeMap<MachineId, MachineRecord>,
    /// The last revision that touched a unit, a machine or a placement.
    decisive: Revision,
}

/// A stored unit file, shared by all units that have it.
#[derive(Debug, Clone)]
struct Content {
    modified: Revision,
    file: Result<UnitFile, Fault>,
}

/// What has to be put together anew.
#[derive(Debug, Default)]
struct Touched {
    units: BTreeSet<UnitName>,
    machines: BTreeSet<MachineId>,
    /// Whether a placement changed, which is in the snapshot already.
    placements: bool,
}

impl View {
    /// The view of a store that nothing was read of yet.
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            snapshot: Arc::new(Snapshot::default()),
            records: BTreeMap::new(),
            bad_placements: BTreeMap::new(),
            contents: BTreeMap::new(),
            users: BTreeMap::new(),
            unused: BTreeSet::new(),
            claims: BTreeMap::new(),
            decisive: Revision::ZERO,
        }
    }

    pub(super) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The view of a whole listing. Unit files that this view knows are not read once more.
    pub(super) fn relist(&self, listing: Listing) -> Self {
        let mut view = Self::new(self.layout.clone());
        let mut touched = Touched::default();
        for entry in listing.entries {
            let Some(key) = self.layout.parse(&entry.key) else {
                continue;
            };
            match (&key, self.known_content(&key, &entry.value)) {
                (Key::Content(id), Some(file)) => {
                    view.put_content(*id, entry.modified, file, &mut touched);
                }
                _ => view.put(key, &entry.value, entry.modified, &mut touched),
            }
        }
        view.settle(touched, listing.revision);
        view.decisive = listing.revision; // what is missing from the listing may have been there
        view
    }

    /// Takes over what one revision changed.
    pub(super) fn apply(&mut self, changes: &Changes) {
        let mut touched = Touched::default();
        for Change { key, value, .. } in &changes.changes {
            let Some(key) = self.layout.parse(key) else {
                continue;
            };
            match value {
                Some(value) => self.put(key, value, changes.revision, &mut touched),
                None => self.delete(key, &mut touched),
            }
        }
        self.settle(touched, changes.revision);
    }

    /// The last revision that touched a unit, a machine or a placement.
    pub(super) fn decisive(&self) -> Revision {
        self.decisive
    }

    /// The contents that no unit has.
    pub(super) fn unused_contents(&self) -> Vec<UnusedContent> {
        let of = |id: &ContentId| Some((*id, self.contents.get(id)?.modified));
        let unused = self.unused.iter().filter_map(of);
        unused.map(|(id, modified)| UnusedContent { id, modified }).collect()
    }

    fn edit(&mut self) -> &mut Snapshot {
        Arc::make_mut(&mut self.snapshot)
    }

    fn put(&mut self, key: Key, value: &[u8], modified: Revision, touched: &mut Touched) {
        match key {
            Key::Unit(unit) => {
                let record = decode_unit(value).map_err(|e| fault("the unit's record", &e));
                self.put_record(unit, Some(record), touched);
            }
            Key::Content(id) => {
                let known = self.known_content(&Key::Content(id), value);
                let file = known.unwrap_or_else(|| read_content(id, value));
                self.put_content(id, modified, file, touched);
            }
            Key::Placement(unit) => self.put_placement(unit, value, touched),
            Key::Reason(unit) => match decode_reason(value) {
                Ok(reason) => self.edit().put_reason(unit, reason),
                Err(error) => {
                    warn("reason", &unit, &error);
                    self.edit().remove_reason(unit.as_str());
                }
            },
            Key::State(machine, unit) => self.put_state(machine, unit, value),
            Key::Machine(id) => self.put_claim(id, value, touched),
            Key::Metadata(machine, name) => match decode_text(value) {
                Ok(text) => {
                    self.edit().put_dynamic_metadata(machine.clone(), name, text);
                    touched.machines.insert(machine);
                }
                Err(error) => warn("metadata", &machine, &error),
            },
            Key::Leader | Key::Term => {}
        }
    }

    fn delete(&mut self, key: Key, touched: &mut Touched) {
        match key {
            Key::Unit(unit) => self.put_record(unit, None, touched),
            Key::Content(id) => {
                self.contents.remove(&id);
                self.note_use(id);
                touched.units.extend(self.users.get(&id).into_iter().flatten().cloned());
            }
            Key::Placement(unit) => {
                self.edit().unplace(unit.as_str());
                touched.placements = true;
                if self.bad_placements.remove(&unit).is_some() {
                    touched.units.insert(unit);
                }
            }
            Key::Reason(unit) => self.edit().remove_reason(unit.as_str()),
            Key::State(machine, unit) => {
                self.edit().remove_state(unit.as_str(), machine.as_str());
            }
            Key::Machine(id) => {
                self.claims.remove(&id);
                touched.machines.insert(id);
            }
            Key::Metadata(machine, name) => {
                self.edit().remove_dynamic_metadata(machine.as_str(), &name);
                touched.machines.insert(machine);
            }
            Key::Leader | Key::Term => {}
        }
    }

    fn put_record(
        &mut self,
        unit: UnitName,
        record: Option<Result<UnitRecord, Fault>>,
        touched: &mut Touched,
    ) {
        let content_of = |record: Option<&Result<UnitRecord, Fault>>| {
            record.and_then(|record| record.as_ref().ok()).map(|record| record.content)
        };
        let new = content_of(record.as_ref());
        let before = match record {
            Some(record) => self.records.insert(unit.clone(), record),
            None => self.records.remove(&unit),
        };
        if let Some(old) = content_of(before.as_ref())
            && let Some(users) = self.users.get_mut(&old)
        {
            users.remove(&unit);
            if users.is_empty() {
                self.users.remove(&old);
                self.note_use(old);
            }
        }
        if let Some(new) = new {
            self.users.entry(new).or_default().insert(unit.clone());
            self.note_use(new);
        }
        touched.units.insert(unit);
    }

    /// Keeps in mind whether the content is there for no unit.
    fn note_use(&mut self, id: ContentId) {
        if self.contents.contains_key(&id) && !self.users.contains_key(&id) {
            self.unused.insert(id);
        } else {
            self.unused.remove(&id);
        }
    }

    fn put_placement(&mut self, unit: UnitName, value: &[u8], touched: &mut Touched) {
        touched.placements = true;
        let before = match decode_placement(value) {
            Ok(placement) => {
                self.edit().place(unit.clone(), placement.machine, placement.epoch);
                self.bad_placements.remove(&unit)
            }
            Err(error) => {
                let fault = fault("the unit's placement", &error);
                self.bad_placements.insert(unit.clone(), fault.clone());
                Some(fault)
            }
        };
        if before.is_some() {
            touched.units.insert(unit);
        }
    }

    fn put_state(&mut self, machine: MachineId, unit: UnitName, value: &[u8]) {
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
    fn put_claim(&mut self, id: MachineId, value: &[u8], touched: &mut Touched) {
        match decode_claim(value) {
            Ok(claim) => {
                self.claims.insert(id.clone(), claim.machine);
            }
            Err(error) => {
                warn("claim", &id, &error);
                self.claims.entry(id.clone()).or_insert_with(|| MachineRecord::new(id.clone()));
            }
        }
        touched.machines.insert(id);
    }

    fn put_content(
        &mut self,
        id: ContentId,
        modified: Revision,
        file: Result<UnitFile, Fault>,
        touched: &mut Touched,
    ) {
        let same = match (&file, self.contents.get(&id).map(|content| &content.file)) {
            (Ok(new), Some(Ok(old))) => new.source() == old.source(),
            _ => false,
        };
        self.contents.insert(id, Content { modified, file });
        self.note_use(id);
        if !same {
            touched.units.extend(self.users.get(&id).into_iter().flatten().cloned());
        }
    }

    /// The file of a content that was read before, if these are its bytes.
    fn known_content(&self, key: &Key, value: &[u8]) -> Option<Result<UnitFile, Fault>> {
        let Key::Content(id) = key else { return None };
        let file = self.contents.get(id)?.file.as_ref().ok()?;
        (file.source() == value).then(|| Ok(file.clone()))
    }

    /// Puts together what was touched, and says of which revision the snapshot is now.
    fn settle(&mut self, touched: Touched, revision: Revision) {
        if touched.placements || !touched.units.is_empty() || !touched.machines.is_empty() {
            self.decisive = revision;
        }
        for name in touched.units {
            match self.unit(&name) {
                Some(Ok(unit)) => self.edit().put_unit(unit),
                Some(Err(fault)) => self.edit().put_fault(name, fault),
                None => self.edit().remove_unit(name.as_str()),
            }
        }
        for id in touched.machines {
            match self.machine(&id) {
                Some(machine) => self.edit().put_machine(machine),
                None => self.edit().remove_machine(id.as_str()),
            }
        }
        self.edit().revision = revision;
    }

    /// The unit as its record and content say; nothing if there is no record.
    fn unit(&self, name: &UnitName) -> Option<Result<Unit, Fault>> {
        let record = match self.records.get(name)? {
            Ok(record) => record,
            Err(fault) => return Some(Err(fault.clone())),
        };
        if let Some(fault) = self.bad_placements.get(name) {
            return Some(Err(fault.clone()));
        }
        Some(self.unit_of(name, record))
    }

    fn unit_of(&self, name: &UnitName, record: &UnitRecord) -> Result<Unit, Fault> {
        let content = self.contents.get(&record.content).ok_or_else(|| Fault {
            message: format!("the content {} of the unit is missing", record.content),
        })?;
        let file = content.file.clone()?;
        let requirements = self.requirements(name, &file)?;
        let (desired, generation) = (record.desired, record.generation);
        Ok(Unit { name: name.clone(), file, requirements, desired, generation })
    }

    /// What the file demands: as known, if the unit has the same file already.
    fn requirements(&self, name: &UnitName, file: &UnitFile) -> Result<Arc<Requirements>, Fault> {
        if let Some(unit) = self.snapshot.unit(name.as_str())
            && unit.file.source() == file.source()
        {
            return Ok(unit.requirements.clone());
        }
        // What was accepted once is read as leniently as can be: rules may have become stricter.
        let parsed = Requirements::parse(name, file, Strictness::Warn)
            .map_err(|e| fault("the unit's requirements", &e))?;
        Ok(Arc::new(parsed.requirements))
    }

    /// A machine that is present, with its configured metadata overridden by what was set at run
    /// time; an empty value hides the key.
    fn machine(&self, id: &MachineId) -> Option<Machine> {
        let MachineRecord { id, address, mut metadata, version, offers, cordoned } =
            self.claims.get(id)?.clone();
        for (key, value) in self.snapshot.dynamic_metadata(id.as_str()).into_iter().flatten() {
            if value.is_empty() {
                metadata.remove(key);
            } else {
                metadata.insert(key.clone(), value.clone());
            }
        }
        Some(Machine { id, address, metadata, version, offers, cordoned })
    }
}

/// Reads a stored unit file: what it is kept under must be what it is.
fn read_content(id: ContentId, value: &[u8]) -> Result<UnitFile, Fault> {
    if ContentId::of(value) != id {
        return Err(Fault { message: format!("the content {id} of the unit is damaged") });
    }
    UnitFile::parse(value).map_err(|error| fault("the unit's content", &error))
}

/// A fault, with the whole chain of causes: it is only ever shown.
fn fault(what: &str, error: &dyn std::error::Error) -> Fault {
    let mut message = format!("{what} cannot be understood: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    Fault { message }
}

fn warn(what: &str, of: &dyn std::fmt::Display, error: &CodecError) {
    tracing::warn!(%of, error = error as &dyn std::error::Error, "a stored {what} is passed over");
}
