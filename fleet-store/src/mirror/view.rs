//! Pure: the snapshot derived from the store's entries, updated change by change.
//!
//! A unit is assembled from its record and its content. A machine is assembled from its claim, its
//! run-time metadata and its intent. One revision may change several of these parts, so all its
//! changes are recorded first. Then each affected unit and machine is assembled once. The cost
//! depends only on the number of affected objects.
//!
//! A whole listing is loaded in a different way, with the same result. All entries are available,
//! so the loader joins sorted lists instead of looking up each key. It joins units with their
//! contents, and states with the names of their units. Large maps are filled in key order, which
//! also makes them smaller. Data shared by many units is parsed once.

mod values;

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::fmt::Display;
use std::iter::Peekable;
use std::sync::Arc;

use fleet_core::snapshot::Fault;
use fleet_core::{
    Epoch, Intent, Machine, MachineId, Requirements, Revision, Snapshot, Unit, UnitState,
};
use fleet_unitfile::UnitName;

use super::changes::{ChangeSet, DeltaLog, ResultChange, ResultLog};
use super::contents::{Contents, StoredPlacements};
use super::follow::AffectedMachines;
use super::requirements_cache::RequirementsCache;
use crate::codec::{UnitRecord, decode_lineage, decode_state, decode_unit};
use crate::mirror::changes;
use crate::mirror::changes::is_same_unit;
use crate::mirror::contents::{Content, StoredContent};
use crate::registry::{CodecError, ContentId, Key, Lineage, MachineRecord, UnusedContent};
use crate::transfer::Export;
use crate::{Changes, Entry, KeyChange, Layout, Listing, RegistryError};

/// The snapshot and the data that it is derived from.
#[derive(Debug)]
pub(super) struct View {
    layout: Layout,
    snapshot: Arc<Snapshot>,
    records: BTreeMap<UnitName, Result<UnitRecord, Box<Fault>>>,
    placements: StoredPlacements,
    contents: Contents,
    claims: BTreeMap<MachineId, MachineRecord>,
    intents: BTreeMap<MachineId, Intent>,
    requirements_cache: RequirementsCache,
    /// Stored lineage.
    lineage: Option<Vec<u8>>,
    leader: Leader,
    /// Last revision that changed a unit, a machine or a placement.
    scheduling_revision: Revision,
    delta_log: DeltaLog,
    result_log: ResultLog,
    /// Result changes of the revision being applied.
    changed_results: Vec<ResultChange>,
    /// Machines affected by recent changes.
    affected: AffectedMachines,
}

/// The current leader.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Leader {
    None,
    Machine(MachineId),
    /// A leader with an unreadable claim.
    Unknown,
}

impl View {
    /// Creates the view of a store that was not read yet.
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            snapshot: Arc::default(),
            records: BTreeMap::new(),
            placements: StoredPlacements::default(),
            contents: Contents::default(),
            claims: BTreeMap::new(),
            intents: BTreeMap::new(),
            requirements_cache: RequirementsCache::default(),
            lineage: None,
            leader: Leader::None,
            scheduling_revision: Revision::ZERO,
            delta_log: DeltaLog::new(),
            result_log: ResultLog::since_listing(Revision::ZERO),
            changed_results: Vec::new(),
            affected: AffectedMachines::default(),
        }
    }

    pub(super) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Returns the changes since revision `seen`, or `None` if they are unknown.
    pub(super) fn since(&self, seen: Revision) -> Option<ChangeSet> {
        self.delta_log.since(seen)
    }

    /// Returns the result changes since revision `seen`, or `None` if they are unknown.
    pub(super) fn results_since(&self, seen: Revision) -> Option<BTreeSet<ResultChange>> {
        self.result_log.since(seen)
    }

    /// Returns the lineage, if it is known and readable.
    pub(super) fn lineage(&self) -> Option<Lineage> {
        decode_lineage(self.lineage.as_deref()?).ok()
    }

    /// Returns the exportable part of the cluster.
    pub(super) fn export(&self) -> Result<Export, RegistryError> {
        let lineage = self.lineage.as_deref().map(decode_lineage).transpose();
        let key = || self.layout.key(&Key::Lineage);
        let lineage = lineage.map_err(|source| RegistryError::Value { key: key(), source })?;
        let epoch_base = lineage.as_ref().map_or(0, Lineage::epoch_base);
        let max_epoch = Epoch(epoch_base + self.snapshot.revision.0);
        let (snapshot, intents) = (self.snapshot.clone(), self.intents.clone());
        Ok(Export { snapshot, intents, lineage, max_epoch })
    }

    /// Returns whether a stored lineage is that of the view, or the view has no lineage yet. A
    /// different epoch base does not matter.
    pub(super) fn is_of(&self, lineage: Option<&[u8]>) -> bool {
        let Some(own) = self.lineage.as_deref() else { return true };
        let same = |other| match (decode_lineage(own), decode_lineage(other)) {
            (Ok(own), Ok(other)) => own.same_history(&other),
            _ => own == other,
        };
        lineage.is_some_and(same)
    }

    /// Returns whether there is no leader other than the candidate.
    pub(super) fn may_lead(&self, candidate: &MachineId) -> bool {
        match &self.leader {
            Leader::None => true,
            Leader::Machine(machine) => machine == candidate,
            Leader::Unknown => false,
        }
    }

    /// Returns the machines with a claim that a revision changed. The `bool` is true if the machine
    /// is present after the change.
    pub(super) fn machines_in(&self, changes: &Changes) -> Vec<(MachineId, bool)> {
        let machines =
            changes.changes.iter().filter_map(|change| match self.layout.parse(&change.key)? {
                Key::Machine(machine) => Some((machine, change.value.is_some())),
                _ => None,
            });
        machines.collect()
    }

    /// Applies the changes of one revision.
    pub(super) fn apply(&mut self, revision_changes: &Changes) {
        let revision = revision_changes.revision;
        let mut changes = ChangeSet::default();
        for KeyChange { key, value, .. } in &revision_changes.changes {
            let Some(key) = self.layout.parse(key) else {
                continue;
            };
            match value {
                Some(value) => self.put(key, value, revision, None, &mut changes),
                None => self.delete(key, &mut changes),
            }
        }
        self.assemble(&changes, revision, None);
        let everywhere = self.snapshot.global_count() * self.snapshot.machines().len();
        let most = changes::names_for(self.records.len() + everywhere);
        self.delta_log.keep(most);
        self.result_log.keep(most);
        self.delta_log.follow(revision, changes);
        self.result_log.follow(revision, self.changed_results.drain(..));
    }

    /// Returns the last revision that changed a unit, a machine or a placement.
    pub(super) fn scheduling_revision(&self) -> Revision {
        self.scheduling_revision
    }

    /// Returns the contents that no unit uses.
    pub(super) fn unused_contents(&self) -> Vec<UnusedContent> {
        self.contents.unused()
    }

    fn edit(&mut self) -> &mut Snapshot {
        Arc::make_mut(&mut self.snapshot)
    }

    /// Returns an equal name that shares its text with the name of the unit's record, if there is
    /// one. This saves memory, because most names occur in many keys.
    fn shared_name(&self, name: UnitName) -> UnitName {
        self.records.get_key_value(&name).map_or(name, |(shared, _)| shared.clone())
    }

    fn shared_id(&self, id: MachineId) -> MachineId {
        self.claims.get_key_value(&id).map_or(id, |(shared, _)| shared.clone())
    }
}

/// Creates a fault with the whole chain of causes. Faults are only displayed.
pub(super) fn fault(what: &str, error: &dyn std::error::Error) -> Fault {
    let mut message = format!("{what} cannot be read: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    Fault { message }
}

const UNREADABLE_STATE: &str = "cannot read the state of a unit on a machine: ignoring it";

/// Logs that the stored value of a unit or machine cannot be read.
fn warn(message: &str, of: &dyn Display, error: &CodecError) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(%of, error, "{message}");
}

impl View {
    /// Assembles the changed objects, and sets the revision of the snapshot.
    fn assemble(&mut self, changes: &ChangeSet, revision: Revision, known: Option<&Self>) {
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
            (Some(shared), _) => shared,
            (None, Some(before)) if before.requirements.failed_on.is_empty() => {
                before.requirements.clone()
            }
            (None, _) => self.requirements_cache.read(name, &file)?,
        };
        let requirements = self.with_failures(name, requirements);
        let (name, desired, generation) = (name.clone(), record.desired, record.generation);
        let unit = Arc::new(Unit { name, file, requirements, desired, generation });
        Ok(before.filter(|before| is_same_unit(before, &unit)).unwrap_or(unit))
    }

    /// Adds the machines to avoid, because the unit has failed on them.
    fn with_failures(&self, name: &UnitName, requirements: Arc<Requirements>) -> Arc<Requirements> {
        let Some(limit) = requirements.move_after_failures else { return requirements };
        let record = self.snapshot.failures_of(name.as_str());
        let failed_on = record.map(|record| record.avoided(limit)).unwrap_or_default();
        if failed_on.is_empty() {
            return requirements;
        }
        Arc::new(Requirements::clone(&requirements).with_failed_on(failed_on))
    }

    /// Assembles a present machine from its claim, its run-time metadata and its intent. Run-time
    /// metadata overrides the configured metadata; an empty run-time value hides the key.
    fn machine(&self, id: &MachineId) -> Option<Machine> {
        let MachineRecord {
            id,
            address,
            api,
            mut metadata,
            version,
            offers,
            manager,
            cordoned,
            host: hostname,
            started: _,
        } = self.claims.get(id)?.clone();
        for (key, value) in self.snapshot.dynamic_metadata(id.as_str()).into_iter().flatten() {
            if value.is_empty() {
                metadata.remove(key);
            } else {
                metadata.insert(key.clone(), value.clone());
            }
        }
        let intent = self.intents.get(&id).copied();
        let cordoned = cordoned || intent.is_some();
        Some(Machine {
            id,
            address,
            api,
            hostname,
            metadata,
            version,
            offers,
            manager,
            cordoned,
            intent,
        })
    }
}

type Record = Result<UnitRecord, Box<Fault>>;

/// Entries of a listing by kind.
#[derive(Default)]
struct GroupedEntries {
    records: Vec<(UnitName, Record)>,
    contents: Vec<(ContentId, StoredContent)>,
    states: Vec<(UnitName, MachineId, Vec<u8>)>,
    /// Entries that are applied one by one, like changes of a watch. Machines are applied first,
    /// because the other entries refer to them.
    rest: Vec<(Key, Entry)>,
}

impl GroupedEntries {
    fn of(layout: &Layout, entries: Vec<Entry>) -> Self {
        let mut grouped = Self::default();
        for entry in entries {
            match layout.parse(&entry.key) {
                Some(Key::Unit(unit)) => {
                    let record = decode_unit(&entry.value);
                    let record = record.map_err(|e| Box::new(fault("the unit's record", &e)));
                    grouped.records.push((unit, record));
                }
                Some(Key::Content(id)) => {
                    let stored = StoredContent { value: entry.value, modified: entry.modified };
                    grouped.contents.push((id, stored));
                }
                Some(Key::State(machine, unit)) => {
                    grouped.states.push((unit, machine, entry.value));
                }
                Some(key) => grouped.rest.push((key, entry)),
                None => {}
            }
        }
        grouped.rest.sort_by(|(one, _), (other, _)| load_order(one).cmp(&load_order(other)));
        grouped
    }
}

/// Returns the key by which entries are sorted before they are applied. Placements are sorted by
/// unit, because the snapshot keeps them in that order.
fn load_order(key: &Key) -> (u8, Option<&UnitName>) {
    match key {
        Key::Machine(_) => (0, None),
        Key::Placement(_, unit) => (1, Some(unit)),
        _ => (2, None),
    }
}

impl View {
    /// Creates the view of a whole listing. Reuses parsed data of this view.
    pub(in crate::mirror) fn relist(&self, listing: Listing) -> Self {
        let mut view = Self::new(self.layout.clone());
        view.requirements_cache = self.requirements_cache.clone();
        // Entries that are missing now may have affected any machine.
        view.affected = AffectedMachines::all();
        let GroupedEntries { records, contents, states, rest } =
            GroupedEntries::of(&view.layout, listing.entries);
        view.records = records.into_iter().collect();
        let mut changes = ChangeSet::default();
        for (key, entry) in rest {
            view.put(key, &entry.value, entry.modified, Some(self), &mut changes);
        }
        view.load_units(contents, self);
        view.load_states(states);
        // The changes include units with unreadable placements.
        view.assemble(&changes, listing.revision, Some(self));
        // Entries that are missing now may have existed.
        view.scheduling_revision = listing.revision;
        view.changed_results.clear();
        view.result_log = ResultLog::since_listing(listing.revision);
        view.delta_log = self.delta_log.clone();
        let changes = ChangeSet::between(&self.snapshot, &view.snapshot);
        view.delta_log.jump(listing.revision, changes);
        view
    }

    /// Assembles all units with a record.
    fn load_units(&mut self, stored: Vec<(ContentId, StoredContent)>, known: &Self) {
        let users = self.records.iter().enumerate().filter_map(|(at, (unit, record))| {
            let content = record.as_ref().ok()?.content;
            Some((content, at, unit.clone()))
        });
        let mut users: Vec<_> = users.collect();
        users.sort_unstable();
        let named = users.iter().map(|(content, _, unit)| (*content, unit.clone()));
        self.contents = Contents::of(stored, named, &known.contents, &mut self.requirements_cache);
        let mut contents = self.contents_by_unit(users);
        let records = std::mem::take(&mut self.records);
        let mut units = Vec::with_capacity(records.len());
        for ((name, record), content) in records.iter().zip(&mut contents) {
            match self.loaded(name, record, content.take(), known) {
                Ok(unit) => units.push(unit),
                Err(fault) => self.edit().put_fault(name.clone(), fault),
            }
        }
        self.records = records;
        self.edit().put_units(units);
    }

    /// Returns the content of each record, in the order of their names.
    fn contents_by_unit(
        &self,
        users: Vec<(ContentId, usize, UnitName)>,
    ) -> Vec<Option<Result<Content, Fault>>> {
        let mut found = Vec::new();
        found.resize_with(self.records.len(), || None);
        let mut ordered_lookup = self.contents.ordered_lookup();
        for (content, at, _) in users {
            if let Some(slot) = found.get_mut(at) {
                *slot = Some(ordered_lookup.get(content));
            }
        }
        found
    }

    fn loaded(
        &mut self,
        name: &UnitName,
        record: &Record,
        content: Option<Result<Content, Fault>>,
        known: &Self,
    ) -> Result<Arc<Unit>, Fault> {
        let record = *record.as_ref().map_err(|fault| Fault::clone(fault))?;
        let content = content.unwrap_or_else(|| self.contents.get(record.content))?;
        let before = known.snapshot.unit(name.as_str()).cloned();
        self.unit_of(name, record, content, before)
    }

    fn load_states(&mut self, mut states: Vec<(UnitName, MachineId, Vec<u8>)>) {
        states.sort_unstable_by(|(one, on, _), (other, there, _)| (one, on).cmp(&(other, there)));
        let mut names = Names { left: self.records.iter().peekable() };
        let states: Vec<_> = states
            .into_iter()
            .filter_map(|(unit, machine, value)| {
                read_state(names.shared(unit), self.shared_id(machine), &value)
            })
            .collect();
        self.edit().put_states(states);
    }
}

fn read_state(unit: UnitName, machine: MachineId, value: &[u8]) -> Option<UnitState> {
    let state = decode_state(unit.clone(), machine, value);
    state.map_err(|error| warn(UNREADABLE_STATE, &unit, &error)).ok()
}

/// Names of the records, for lookups in name order.
struct Names<'a> {
    left: Peekable<btree_map::Iter<'a, UnitName, Record>>,
}

impl Names<'_> {
    /// Returns an equal name that shares its text with the name of the unit's record, if there is
    /// one. Names must be passed in order.
    fn shared(&mut self, name: UnitName) -> UnitName {
        while self.left.next_if(|(other, _)| **other < name).is_some() {}
        match self.left.peek() {
            Some((other, _)) if **other == name => (*other).clone(),
            _ => name,
        }
    }
}
