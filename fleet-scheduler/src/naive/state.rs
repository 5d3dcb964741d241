//! Who takes part, and who is where at some moment of planning.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use fleet_core::{Machine, MachineId, Peer, Requirements, Snapshot, Unit};
use fleet_unitfile::UnitName;

use super::RuleSet;
use super::globals::fit_in;
use crate::Policy;

/// What an unreadable unit requirements.
static NOTHING: LazyLock<Requirements> = LazyLock::new(Requirements::default);

/// Which single and unreadable units are on which present machine. Nothing else is kept: whatever
/// is asked is found by looking at the whole cluster again.
#[derive(Debug, Clone)]
pub struct PlacementState<'a> {
    /// The clauses that are followed.
    pub rule_set: &'a RuleSet,
    /// Units, machines and the placements at the start.
    pub cluster: &'a Snapshot,
    /// What the embedder chose.
    pub policy: &'a Policy,
    /// Where each unit is that is on a machine; global units are not listed.
    pub placements: BTreeMap<UnitName, MachineId>,
}

impl PlacementState<'_> {
    /// All that are on a machine: single units, unreadable ones, and the global units that fit.
    #[must_use]
    pub fn units_on(&self, machine: &Machine) -> BTreeSet<UnitName> {
        let mut there = self.placed_on(machine);
        there.extend(fit_in(self.rule_set, self.cluster, machine, &there));
        there
    }

    /// The single and the unreadable units on a machine.
    #[must_use]
    pub fn placed_on(&self, machine: &Machine) -> BTreeSet<UnitName> {
        let here = self.placements.iter().filter(|(_, at)| **at == machine.id);
        here.map(|(name, _)| name.clone()).collect()
    }

    /// Whether the unit is on any machine, be it as a global unit.
    #[must_use]
    pub fn is_anywhere(&self, name: &UnitName) -> bool {
        self.cluster.machines().any(|machine| self.units_on(machine).contains(name))
    }

    /// The units that wait for a machine, by name.
    #[must_use]
    pub fn waiting(&self) -> BTreeSet<UnitName> {
        let waits = |unit: &&Unit| {
            !self.placements.contains_key(&unit.name)
                && !is_stranded(self.rule_set, self.cluster, unit)
        };
        singles(self.cluster).filter(waits).map(|unit| unit.name.clone()).collect()
    }

    /// The units, other than `from`, that a peer of its `MachineOf=` can mean: all that take part.
    #[must_use]
    pub fn peer_candidates(&self, from: &UnitName, peer: &Peer) -> BTreeSet<UnitName> {
        let wanted = self.cluster.units().filter(|unit| unit.is_wanted());
        let mut all: BTreeSet<UnitName> = wanted.map(|unit| unit.name.clone()).collect();
        all.extend(self.placements.keys().cloned()); // the unreadable ones
        all.retain(|name| match peer {
            Peer::Named(wanted) => name == wanted,
            Peer::Matching(pattern) => name != from && pattern.matches(name),
        });
        all
    }

    /// The machine of that ID, which must be present.
    pub(super) fn machine(&self, id: &MachineId) -> Option<&Machine> {
        self.cluster.machine(id.as_str()).map(AsRef::as_ref)
    }
}

/// The wanted units that are placed on one machine each.
pub(super) fn singles(cluster: &Snapshot) -> impl Iterator<Item = &Unit> {
    let units = cluster.units().map(AsRef::as_ref);
    units.filter(|unit: &&Unit| unit.is_wanted() && !unit.is_global())
}

/// The single unit of that name, if it is one.
pub(super) fn single<'a>(cluster: &'a Snapshot, name: &UnitName) -> Option<&'a Unit> {
    singles(cluster).find(|unit| unit.name == *name)
}

/// Whether the unit's record cannot be read.
pub(super) fn is_unreadable(cluster: &Snapshot, name: &UnitName) -> bool {
    cluster.fault(name.as_str()).is_some()
}

/// What a unit requirements; an unreadable one requirements nothing.
pub(super) fn requirements<'a>(cluster: &'a Snapshot, name: &UnitName) -> &'a Requirements {
    cluster.unit(name.as_str()).map_or(&NOTHING, |unit| &unit.requirements)
}

/// Whether the unit keeps its placement on a machine that is not present.
pub(super) fn is_stranded(rule_set: &RuleSet, cluster: &Snapshot, unit: &Unit) -> bool {
    let Some(placement) = cluster.placement(unit.name.as_str()) else { return false };
    cluster.machine(placement.machine.as_str()).is_none() && (rule_set.keeps_lost_placement)(unit)
}

/// Whether what a peer means is among those who are there.
pub(super) fn is_there(from: &UnitName, peer: &Peer, there: &BTreeSet<UnitName>) -> bool {
    match peer {
        Peer::Named(wanted) => there.contains(wanted),
        Peer::Matching(pattern) => there.iter().any(|name| name != from && pattern.matches(name)),
    }
}

/// Whether a unit lacks one that its `MachineOf=` names, if those are beside it.
pub(super) fn lacks_a_peer(
    cluster: &Snapshot,
    name: &UnitName,
    there: &BTreeSet<UnitName>,
) -> bool {
    requirements(cluster, name).machine_of.iter().any(|peer| !is_there(name, peer, there))
}
