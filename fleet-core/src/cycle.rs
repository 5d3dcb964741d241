//! Circles of units that name each other in `MachineOf=` or `Replaces=`.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use fleet_unitfile::UnitName;

use crate::{FleetOption, Peer, Snapshot, Unit};

/// Units that lead to each other in a circle, so that none of them can be placed as it asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    /// The option by which they do: `MachineOf` or `Replaces`.
    pub option: FleetOption,
    /// The units of the circle, each leading to the next and the last one to the first.
    pub units: Vec<UnitName>,
}

impl std::error::Error for Cycle {}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} leads in a circle: {}", self.option, spell_out(&self.units))
    }
}

/// Spells a circle out, coming back to where it began: `a -> b -> a`.
pub(crate) fn spell_out(units: &[UnitName]) -> String {
    let round = units.iter().chain(units.first());
    round.map(UnitName::as_str).collect::<Vec<_>>().join(" -> ")
}

/// The circle of `MachineOf=` that `unit` would close if it joined the known units, or took the
/// place of the known unit of its name.
///
/// Of several circles it is a shortest one, and the first of these in the order of the units'
/// options. Templates never run, so no circle leads through one; and a pattern of `MachineOf=`
/// leads nowhere here, since any unit that matches it will do.
#[must_use]
pub fn machine_of_cycle(known: &Snapshot, unit: &Unit) -> Option<Cycle> {
    let units = circle(known, unit, |from| {
        from.requirements.machine_of.iter().filter_map(Peer::name).cloned().collect()
    })?;
    Some(Cycle { option: FleetOption::MachineOf, units })
}

/// The circle of `Replaces=` that `unit` would close if it joined the known units, or took the
/// place of the known unit of its name.
///
/// A unit leads to every other unit whose name one of its patterns covers; that it covers its own
/// name means nothing. Of several circles it is a shortest one, and the first of these in the order
/// of names.
#[must_use]
pub fn replaces_cycle(known: &Snapshot, unit: &Unit) -> Option<Cycle> {
    // Only a unit that replaces others itself can lead on.
    let replaces = |unit: &&Arc<Unit>| !unit.requirements.replaces.is_empty();
    let mut links: Vec<&UnitName> = known.units().filter(replaces).map(|unit| &unit.name).collect();
    links.push(&unit.name);
    links.sort_unstable();
    links.dedup();
    let units = circle(known, unit, |from| {
        let covered = |name: &&&UnitName| {
            **name != &from.name && from.requirements.replaces.iter().any(|p| p.matches(name))
        };
        links.iter().filter(covered).map(|name| (*name).clone()).collect()
    })?;
    Some(Cycle { option: FleetOption::Replaces, units })
}

/// Searches outwards from `start` for the shortest way back to it.
fn circle(
    known: &Snapshot,
    start: &Unit,
    leads_to: impl Fn(&Unit) -> Vec<UnitName>,
) -> Option<Vec<UnitName>> {
    // Each unit that was met, with the one that led to it.
    let mut met: BTreeMap<UnitName, UnitName> = BTreeMap::new();
    let mut queue = VecDeque::from([start.name.clone()]);
    while let Some(name) = queue.pop_front() {
        let unit =
            if name == start.name { Some(start) } else { known.unit(name.as_str()).map(|u| &**u) };
        let Some(unit) = unit.filter(|unit| !unit.name.is_template()) else {
            continue;
        };
        for next in leads_to(unit) {
            if next == start.name {
                return Some(way_back(&met, name));
            }
            if !met.contains_key(&next) {
                met.insert(next.clone(), name.clone());
                queue.push_back(next);
            }
        }
    }
    None
}

/// The units from the start of the search to `last`, in the order in which they led on.
fn way_back(met: &BTreeMap<UnitName, UnitName>, last: UnitName) -> Vec<UnitName> {
    let mut way = vec![last];
    while let Some(before) = way.last().and_then(|name| met.get(name)) {
        way.push(before.clone());
    }
    way.reverse();
    way
}
