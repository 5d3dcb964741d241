//! Pure: loading a whole listing.
//!
//! All entries are available, so this joins sorted lists instead of looking up each key. It joins
//! units with their contents, and states with the names of their units. Large maps are filled in
//! key order, which also makes them smaller. Data shared by many units is parsed once.

use std::collections::btree_map;
use std::iter::Peekable;
use std::sync::Arc;

use fleet_core::snapshot::Fault;
use fleet_core::{MachineId, Unit, UnitState};
use fleet_unitfile::UnitName;

use super::{UNREADABLE_STATE, View, fault, warn};
use crate::codec::{UnitRecord, decode_state, decode_unit};
use crate::mirror::changes::{ChangeSet, ResultLog};
use crate::mirror::contents::{Content, Contents, StoredContent};
use crate::mirror::follow::AffectedMachines;
use crate::registry::{ContentId, Key};
use crate::{Entry, Layout, Listing};

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
