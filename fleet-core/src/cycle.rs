//! Dependency cycles in `MachineOf=`, `Replaces=` and `StartAfter=`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use fleet_unitfile::UnitName;

use crate::pattern::Peer;
use crate::requirements::FleetOption;
use crate::{Snapshot, Unit};

/// A dependency cycle of units, none of which can be placed or started as required.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cycle {
    /// The option that forms the cycle: `MachineOf`, `Replaces` or `StartAfter`.
    pub option: FleetOption,
    /// The units of the cycle. Each unit refers to the next one, and the last unit to the first.
    pub units: Vec<UnitName>,
}

impl std::error::Error for Cycle {}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} forms a dependency cycle: {}", self.option, format_cycle(&self.units))
    }
}

/// Formats a cycle. Repeats its first unit at the end: `a -> b -> a`.
pub(crate) fn format_cycle(units: &[UnitName]) -> String {
    let round = units.iter().chain(units.first());
    round.map(UnitName::as_str).collect::<Vec<_>>().join(" -> ")
}

/// Returns the cycle that `MachineOf=` options would form if `unit` were added to the known units,
/// or replaced the known unit with the same name.
///
/// The result is a shortest cycle through `unit`. If there are several, the order of the units'
/// options decides. Templates never run, so they are never part of a cycle. Patterns in
/// `MachineOf=` are ignored, because any matching unit satisfies them.
#[must_use]
pub fn machine_of_cycle(known: &Snapshot, unit: &Unit) -> Option<Cycle> {
    let units = find_cycle(known, unit, |from| {
        from.requirements.machine_of.iter().filter_map(Peer::name).cloned().collect()
    })?;
    Some(Cycle { option: FleetOption::MachineOf, units })
}

/// Returns the cycle that `Replaces=` options would form if `unit` were added to the known units,
/// or replaced the known unit with the same name.
///
/// A unit refers to every unit that one of its patterns matches, except itself. The result is a
/// shortest cycle through `unit`. If there are several, the order of the unit names decides.
#[must_use]
pub fn replaces_cycle(known: &Snapshot, unit: &Unit) -> Option<Cycle> {
    // Only units with a `Replaces=` of their own can be part of a cycle.
    let replaces = |unit: &&Arc<Unit>| !unit.requirements.replaces.is_empty();
    let mut links: Vec<&UnitName> = known.units().filter(replaces).map(|unit| &unit.name).collect();
    links.push(&unit.name);
    links.sort_unstable();
    links.dedup();
    let units = find_cycle(known, unit, |from| {
        let covered = |name: &&&UnitName| {
            **name != &from.name && from.requirements.replaces.iter().any(|p| p.matches(name))
        };
        links.iter().filter(covered).map(|name| (*name).clone()).collect()
    })?;
    Some(Cycle { option: FleetOption::Replaces, units })
}

/// Returns a cycle of `StartAfter=` options that the units called `from` are part of, or wait for.
///
/// Unlike the other searches, this one looks for the units in the snapshot, and for many of them at
/// once. Its cost depends on the number of options among the units that it reaches. Templates are
/// never started, so they are never part of a cycle.
#[must_use]
pub fn start_after_cycle<'a>(
    known: &'a Snapshot,
    from: impl IntoIterator<Item = &'a UnitName>,
) -> Option<Cycle> {
    let unit = |name: &UnitName| known.unit(name.as_str()).filter(|it| !it.name.is_template());
    let mut done: BTreeSet<&UnitName> = BTreeSet::new();
    for start in from {
        let mut path: Vec<(&Unit, usize)> = Vec::new();
        let mut positions: BTreeMap<&UnitName, usize> = BTreeMap::new();
        let mut next = Some(start);
        while let Some(name) = next {
            if let Some(position) = positions.get(name) {
                let units = path[*position..].iter().map(|(unit, _)| unit.name.clone()).collect();
                return Some(Cycle { option: FleetOption::StartAfter, units });
            }
            if let Some(unit) = unit(name).filter(|it| !done.contains(&it.name)) {
                positions.insert(&unit.name, path.len());
                path.push((unit, 0));
            }
            next = next_on_path(&mut path, |left| {
                positions.remove(left);
                done.insert(left);
            });
        }
    }
    None
}

/// Returns the next name to visit, after leaving each unit at the end of the path that has none.
fn next_on_path<'a>(
    path: &mut Vec<(&'a Unit, usize)>,
    mut on_leave: impl FnMut(&'a UnitName),
) -> Option<&'a UnitName> {
    while let Some((unit, visited)) = path.last_mut() {
        *visited += 1;
        match unit.requirements.start_after.get(*visited - 1) {
            Some(name) => return Some(name),
            None => on_leave(&unit.name),
        }
        path.pop();
    }
    None
}

/// Finds a shortest path from `start` back to it by breadth-first search.
fn find_cycle(
    known: &Snapshot,
    start: &Unit,
    successors: impl Fn(&Unit) -> Vec<UnitName>,
) -> Option<Vec<UnitName>> {
    // Maps each visited unit to its predecessor on a shortest path.
    let mut predecessors: BTreeMap<UnitName, UnitName> = BTreeMap::new();
    let mut queue = VecDeque::from([start.name.clone()]);
    while let Some(name) = queue.pop_front() {
        let unit =
            if name == start.name { Some(start) } else { known.unit(name.as_str()).map(|u| &**u) };
        let Some(unit) = unit.filter(|unit| !unit.name.is_template()) else {
            continue;
        };
        for next in successors(unit) {
            if next == start.name {
                return Some(path_to(&predecessors, name));
            }
            if !predecessors.contains_key(&next) {
                predecessors.insert(next.clone(), name.clone());
                queue.push_back(next);
            }
        }
    }
    None
}

/// Returns the path from the start of the search to `last`.
fn path_to(predecessors: &BTreeMap<UnitName, UnitName>, last: UnitName) -> Vec<UnitName> {
    let mut path = vec![last];
    while let Some(before) = path.last().and_then(|name| predecessors.get(name)) {
        path.push(before.clone());
    }
    path.reverse();
    path
}
