//! Custom rules and scores, applied to a state.

use std::collections::BTreeSet;

use fleet_core::{Machine, MachineId, Unit};
use fleet_unitfile::UnitName;

use super::state::{PlacementState, requirements};
use crate::policy::Candidate;
use crate::policy::{View, ViewSource};

/// A state without some units that are about to leave.
#[derive(Debug)]
struct WithoutLeaving<'a> {
    state: &'a PlacementState<'a>,
    leaving: &'a BTreeSet<UnitName>,
}

impl ViewSource for WithoutLeaving<'_> {
    fn units_on(&self, machine: &MachineId) -> Vec<Candidate<'_>> {
        let PlacementState { cluster, placements, .. } = self.state;
        let Some(machine) = cluster.machine(machine.as_str()) else { return Vec::new() };
        let present = self.state.units_on(machine);
        let global = |name: &&UnitName| present.contains(*name) && !placements.contains_key(*name);
        let mut all: BTreeSet<&UnitName> =
            cluster.units().map(|unit| &unit.name).filter(global).collect();
        all.extend(placements.keys().filter(|name| present.contains(*name)));
        all.retain(|name| !self.leaving.contains(*name));
        all.into_iter()
            .map(|name| Candidate { name, requirements: requirements(cluster, name) })
            .collect()
    }

    fn machines(&self) -> Box<dyn Iterator<Item = &Machine> + '_> {
        Box::new(self.state.cluster.machines().map(AsRef::as_ref))
    }

    fn machine_of(&self, unit: &UnitName) -> Option<&Machine> {
        let stays = !self.leaving.contains(unit);
        self.state.machine(self.state.placements.get(unit).filter(|_| stays)?)
    }
}

/// Returns the index of the first custom rule by which a machine refuses a unit. The rules do not
/// see the units in `leaving`, which leave the machine when the unit comes.
pub(super) fn refusal(
    state: &PlacementState<'_>,
    unit: &Unit,
    machine: &Machine,
    leaving: &BTreeSet<UnitName>,
) -> Option<usize> {
    let source = WithoutLeaving { state, leaving };
    let (view, candidate) = (View::new(&source), candidate(unit));
    let mut rules = state.policy.rules.iter();
    rules.position(|rule| rule.refuse(&view, candidate, machine).is_some())
}

/// Returns the sum of the custom scores of a machine.
pub(super) fn score(state: &PlacementState<'_>, unit: &Unit, machine: &Machine) -> i64 {
    let source = WithoutLeaving { state, leaving: &BTreeSet::new() };
    let (view, candidate) = (View::new(&source), candidate(unit));
    state.policy.scores.iter().map(|score| score.score(&view, candidate, machine)).sum()
}

fn candidate(unit: &Unit) -> Candidate<'_> {
    Candidate { name: &unit.name, requirements: &unit.requirements }
}
