//! Pure: the stored unit files, their units, and the files without units. Also the stored
//! placements, of which the snapshot shows at most one for each unit.
//!
//! Placement keys begin with the machine, so a store can hold two placements of one unit. Fleet's
//! own writers never create two. If another writer does, the placement with the higher epoch takes
//! precedence. (Agents apply the same rule to placements that they remember.) With equal epochs,
//! the placement on the first machine in order takes precedence. The other placements are
//! *superseded*, and the engine removes them in its next pass.
//!
//! The epoch of an unreadable placement is unknown, so it might take precedence over all other
//! placements of its unit. The snapshot then shows no placement of the unit, with one exception. If
//! the unreadable placement was readable earlier, its last readable version counts. If that version
//! takes precedence, the snapshot shows it, so no machine wrongly concludes that the unit is placed
//! elsewhere.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::iter::Peekable;
use std::sync::Arc;

use fleet_core::snapshot::Fault;
use fleet_core::{Epoch, MachineId, Placement, Requirements, Revision, Snapshot};
use fleet_unitfile::{UnitFile, UnitName};

use super::requirements_cache::RequirementsCache;
use super::view::fault;
use crate::codec::decode_content;
use crate::registry::{ContentId, RemovePlacement, UnusedContent};

/// Unit files by content ID.
#[derive(Debug, Default)]
pub(super) struct Contents {
    files: BTreeMap<ContentId, ContentEntry>,
    /// Units by the content that they use, whether it is stored or not.
    users: BTreeSet<(ContentId, Option<UnitName>)>,
    /// Stored contents that no unit uses.
    unused: BTreeSet<ContentId>,
}

/// A stored content, not yet parsed.
#[derive(Debug)]
pub(super) struct StoredContent {
    pub(super) value: Vec<u8>,
    pub(super) modified: Revision,
}

/// A parsed unit file, shared by all units that use it.
#[derive(Debug, Clone)]
pub(super) struct Content {
    pub(super) file: UnitFile,
    /// Requirements of the file, if they do not depend on the unit's name.
    pub(super) requirements: Option<Arc<Requirements>>,
}

/// A content or its fault.
#[derive(Debug)]
struct ContentEntry {
    modified: Revision,
    content: Result<Content, Box<Fault>>,
}

impl Contents {
    /// Creates the contents of a whole cluster from its stored unit files. A file that `known` has
    /// already parsed is not parsed again. `users` has each unit with the content that it uses; the
    /// result is fastest if they are ordered by content and then by unit name.
    pub(super) fn of(
        stored: Vec<(ContentId, StoredContent)>,
        users: impl Iterator<Item = (ContentId, UnitName)>,
        known: &Self,
        requirements_cache: &mut RequirementsCache,
    ) -> Self {
        let read = |(id, StoredContent { value, modified }): (ContentId, StoredContent)| {
            let content = known.with_bytes(id, &value).cloned();
            let content = content.map_or_else(|| read(id, &value, requirements_cache), Ok);
            (id, ContentEntry { modified, content })
        };
        let files: BTreeMap<_, _> = stored.into_iter().map(read).collect();
        let users: BTreeSet<_> = users.map(|(id, unit)| (id, Some(unit))).collect();
        let mut used = users.iter().map(|(id, _)| *id).peekable();
        let unused = files.keys().copied().filter(|id| {
            while used.next_if(|user| user < id).is_some() {}
            used.peek() != Some(id)
        });
        let unused = unused.collect();
        Self { files, unused, users }
    }

    /// Returns the content with this ID, or its fault.
    pub(super) fn get(&self, id: ContentId) -> Result<Content, Fault> {
        content(id, self.files.get(&id))
    }

    /// Returns a lookup for queries in ID order.
    pub(super) fn ordered_lookup(&self) -> OrderedLookup<'_> {
        OrderedLookup { left: self.files.iter().peekable() }
    }

    /// Stores a content. Returns whether it differs from the previous one.
    pub(super) fn put(
        &mut self,
        id: ContentId,
        value: &[u8],
        modified: Revision,
        requirements_cache: &mut RequirementsCache,
    ) -> bool {
        let same = self.with_bytes(id, value).cloned();
        let is_other = same.is_none();
        let content = same.map_or_else(|| read(id, value, requirements_cache), Ok);
        self.files.insert(id, ContentEntry { modified, content });
        self.note_use(id);
        is_other
    }

    pub(super) fn remove(&mut self, id: ContentId) {
        self.files.remove(&id);
        self.note_use(id);
    }

    /// Updates the content that a unit uses.
    pub(super) fn set_content_of(
        &mut self,
        unit: &UnitName,
        before: Option<ContentId>,
        now: Option<ContentId>,
    ) {
        if before == now {
            return;
        }
        if let Some(before) = before {
            self.users.remove(&(before, Some(unit.clone())));
            self.note_use(before);
        }
        if let Some(now) = now {
            self.users.insert((now, Some(unit.clone())));
            self.note_use(now);
        }
    }

    /// Returns the units that use a content.
    pub(super) fn users(&self, id: ContentId) -> impl Iterator<Item = &UnitName> {
        let from = self.users.range((id, None)..);
        from.take_while(move |(of, _)| *of == id).filter_map(|(_, unit)| unit.as_ref())
    }

    pub(super) fn unused(&self) -> Vec<UnusedContent> {
        let of = |id: &ContentId| Some((*id, self.files.get(id)?.modified));
        let unused = self.unused.iter().filter_map(of);
        unused.map(|(id, modified)| UnusedContent { id, modified }).collect()
    }

    /// Updates the set of unused contents.
    fn note_use(&mut self, id: ContentId) {
        if self.files.contains_key(&id) && self.users(id).next().is_none() {
            self.unused.insert(id);
        } else {
            self.unused.remove(&id);
        }
    }

    /// Returns the content if it was parsed before from the same bytes.
    fn with_bytes(&self, id: ContentId, value: &[u8]) -> Option<&Content> {
        let content = self.files.get(&id)?.content.as_ref().ok()?;
        let is_same = |source| source == content.file.source();
        decode_content(id, value).is_ok_and(is_same).then_some(content)
    }
}

/// A lookup for queries in ID order.
pub(super) struct OrderedLookup<'a> {
    left: Peekable<btree_map::Iter<'a, ContentId, ContentEntry>>,
}

impl OrderedLookup<'_> {
    /// Returns the content with this ID, or its fault. The IDs of successive queries must not
    /// decrease.
    pub(super) fn get(&mut self, id: ContentId) -> Result<Content, Fault> {
        while self.left.next_if(|(other, _)| **other < id).is_some() {}
        content(id, self.left.peek().filter(|(other, _)| **other == id).map(|(_, entry)| *entry))
    }
}

fn content(id: ContentId, entry: Option<&ContentEntry>) -> Result<Content, Fault> {
    match entry.map(|entry| &entry.content) {
        Some(Ok(content)) => Ok(content.clone()),
        Some(Err(fault)) => Err(Fault::clone(fault)),
        None => Err(Fault { message: format!("the unit's file, with hash {id}, is missing") }),
    }
}

/// Parses a stored unit file after checking its bytes against its ID.
fn read(
    id: ContentId,
    value: &[u8],
    requirements_cache: &mut RequirementsCache,
) -> Result<Content, Box<Fault>> {
    let what = "the unit's file";
    let source = decode_content(id, value).map_err(|error| fault(what, &error))?;
    let file = UnitFile::parse(source).map_err(|error| fault(what, &error))?;
    let requirements = requirements_cache.read_shared(&file);
    Ok(Content { file, requirements })
}

/// Stored placements, in addition to those in the snapshot.
#[derive(Debug, Default)]
pub(super) struct StoredPlacements {
    /// Readable placements that the snapshot does not show.
    others: BTreeMap<UnitName, BTreeMap<MachineId, Epoch>>,
    /// Unreadable placements. Each of them is also a fault of its unit, because the unit would
    /// otherwise look as if it had no placement.
    unreadable: BTreeMap<UnitName, BTreeMap<MachineId, Fault>>,
    /// Last write of placements by a leader, if any.
    last_write: Option<Revision>,
}

/// Known placements of one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnitPlacements {
    /// Machines with a placement of the unit; usually one or none.
    pub(crate) machines: Vec<MachineId>,
    /// Revision of the last write of placements by a leader, if any. `machines` is complete unless
    /// a leader has written placements after this revision.
    pub(crate) last_write: Option<Revision>,
}

/// Effect of a changed placement on its unit.
pub(super) struct PlacementMove {
    /// Machine of the placement that the snapshot shows, before and after the change.
    pub(super) machines: [Option<MachineId>; 2],
    /// Whether the unit had or has an unreadable placement.
    pub(super) had_fault: bool,
}

impl StoredPlacements {
    /// Applies a stored placement. If the placement is unreadable, its last readable version stays.
    /// That version is in `self` or `snapshot`. If a whole listing is loaded, it can also be in the
    /// earlier snapshot `known`.
    pub(super) fn put(
        &mut self,
        snapshot: &mut Snapshot,
        (unit, machine): (&UnitName, MachineId),
        read: Result<Epoch, Fault>,
        known: Option<&Snapshot>,
    ) -> PlacementMove {
        if let Ok(epoch) = read
            && self.has_no_other(snapshot, unit, &machine)
        {
            let before = snapshot.placement(unit.as_str()).map(|_| machine.clone());
            snapshot.place(unit.clone(), machine.clone(), epoch);
            return PlacementMove { machines: [before, Some(machine)], had_fault: false };
        }
        let before = self.take_fault(unit, &machine);
        let mut all = self.readable(snapshot, unit);
        let had_fault = before || read.is_err();
        match read {
            Ok(epoch) => drop(all.insert(machine, epoch)),
            Err(fault) => {
                let stays = known.and_then(|known| known.placement(unit.as_str()));
                if let Some(stays) = stays.filter(|stays| stays.machine == machine) {
                    all.entry(machine.clone()).or_insert(stays.epoch);
                }
                self.unreadable.entry(unit.clone()).or_default().insert(machine, fault);
            }
        }
        PlacementMove { machines: self.recount(snapshot, unit, all), had_fault }
    }

    /// Applies the deletion of a placement.
    pub(super) fn remove(
        &mut self,
        snapshot: &mut Snapshot,
        unit: &UnitName,
        machine: &MachineId,
    ) -> PlacementMove {
        let had_fault = self.take_fault(unit, machine);
        let mut all = self.readable(snapshot, unit);
        all.remove(machine);
        PlacementMove { machines: self.recount(snapshot, unit, all), had_fault }
    }

    /// Records the last write of placements by a leader.
    pub(super) fn note_last_write(&mut self, last_write: Option<Revision>) {
        self.last_write = last_write;
    }

    /// Returns the last write of placements by a leader.
    pub(super) fn last_write(&self) -> Option<Revision> {
        self.last_write
    }

    /// Returns the fault of an unreadable placement of the unit, if any.
    pub(super) fn fault(&self, unit: &UnitName) -> Option<&Fault> {
        self.unreadable.get(unit)?.values().next()
    }

    /// Returns the placements of a unit.
    pub(super) fn of(&self, snapshot: &Snapshot, unit: &UnitName) -> UnitPlacements {
        let preferred = snapshot.placement(unit.as_str()).map(|placement| &placement.machine);
        let others = self.others.get(unit).into_iter().flat_map(BTreeMap::keys);
        let unreadable = self.unreadable.get(unit).into_iter().flat_map(BTreeMap::keys);
        let mut machines: Vec<_> = preferred.into_iter().chain(others).chain(unreadable).collect();
        machines.sort();
        machines.dedup();
        let machines = machines.into_iter().cloned().collect();
        UnitPlacements { machines, last_write: self.last_write }
    }

    /// Returns the superseded placements. Units with unreadable placements are left out.
    pub(super) fn superseded(&self) -> Vec<RemovePlacement> {
        let is_known = |unit: &UnitName| !self.unreadable.contains_key(unit);
        let of = |(unit, superseded): (&UnitName, &BTreeMap<MachineId, Epoch>)| {
            let unplace = |(machine, epoch): (&MachineId, &Epoch)| RemovePlacement {
                unit: unit.clone(),
                previous: Placement { machine: machine.clone(), epoch: *epoch },
            };
            superseded.iter().map(unplace).collect::<Vec<_>>()
        };
        self.others.iter().filter(|(unit, _)| is_known(unit)).flat_map(of).collect()
    }

    /// Returns whether the unit has no placement, or only a readable one on this machine. This is
    /// the normal case, in which the placement needs no memory besides the snapshot.
    fn has_no_other(&self, snapshot: &Snapshot, unit: &UnitName, machine: &MachineId) -> bool {
        let preferred = snapshot.placement(unit.as_str());
        preferred.is_none_or(|preferred| preferred.machine == *machine)
            && !self.others.contains_key(unit)
            && !self.unreadable.contains_key(unit)
    }

    fn take_fault(&mut self, unit: &UnitName, machine: &MachineId) -> bool {
        let Some(faults) = self.unreadable.get_mut(unit) else { return false };
        faults.remove(machine);
        if faults.is_empty() {
            self.unreadable.remove(unit);
        }
        true
    }

    /// Returns the unit's placement in the snapshot, together with those in `self.others`, which
    /// are removed from there. The placement in the snapshot may be the last readable version of a
    /// placement that is now unreadable.
    fn readable(&mut self, snapshot: &Snapshot, unit: &UnitName) -> BTreeMap<MachineId, Epoch> {
        let mut all = self.others.remove(unit).unwrap_or_default();
        let preferred = snapshot.placement(unit.as_str());
        all.extend(preferred.map(|placement| (placement.machine.clone(), placement.epoch)));
        all
    }

    /// Chooses from `all` the placement of the unit that takes precedence, shows it in the
    /// snapshot, and keeps the other readable ones in `self`. If a placement on another machine is
    /// unreadable, shows none, because that one might take precedence. Returns the machine of the
    /// shown placement before and after.
    fn recount(
        &mut self,
        snapshot: &mut Snapshot,
        unit: &UnitName,
        mut all: BTreeMap<MachineId, Epoch>,
    ) -> [Option<MachineId>; 2] {
        let before = snapshot.placement(unit.as_str()).map(|placement| placement.machine.clone());
        let preferred = all.iter().max_by_key(|(machine, epoch)| (**epoch, Reverse(*machine)));
        let preferred = preferred.map(|(machine, epoch)| (machine.clone(), *epoch));
        let unreadable = self.unreadable.get(unit);
        let mut may_be_preferred = unreadable.into_iter().flat_map(BTreeMap::keys);
        let preferred =
            preferred.filter(|(machine, _)| may_be_preferred.all(|other| other == machine));
        match &preferred {
            Some((machine, epoch)) => {
                all.remove(machine);
                snapshot.place(unit.clone(), machine.clone(), *epoch);
            }
            None => snapshot.unplace(unit.as_str()),
        }
        all.retain(|machine, _| unreadable.is_none_or(|faults| !faults.contains_key(machine)));
        if !all.is_empty() {
            self.others.insert(unit.clone(), all);
        }
        [before, preferred.map(|(machine, _)| machine)]
    }
}
