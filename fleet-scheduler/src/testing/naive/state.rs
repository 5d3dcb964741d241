//! "Participants", with the global units of a machine, and the assignment of units at
//! some point of planning.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use fleet_core::pattern::Peer;
use fleet_core::{Machine, MachineId, Requirements, Snapshot, Unit};
use fleet_unitfile::UnitName;

use super::RuleSet;
use super::rules::RuleQuery;
use crate::Policy;

/// The requirements of an unreadable unit.
static NOTHING: LazyLock<Requirements> = LazyLock::new(Requirements::default);

/// The state of the naive planner: the machine of each single and each unreadable unit. Everything
/// else is computed from the whole cluster on demand.
#[derive(Debug, Clone)]
pub struct PlacementState<'a> {
    /// The clauses in use.
    pub rule_set: &'a RuleSet,
    /// Units, machines and the placements at the start.
    pub cluster: &'a Snapshot,
    /// The embedder's policy.
    pub policy: &'a Policy,
    /// The machine of each assigned unit, without global units.
    pub placements: BTreeMap<UnitName, MachineId>,
}

impl PlacementState<'_> {
    /// Returns all units on a machine: the single and unreadable units there, and the global units
    /// that fit.
    #[must_use]
    pub fn units_on(&self, machine: &Machine) -> BTreeSet<UnitName> {
        let mut present = self.placed_on(machine);
        present.extend(fit_in(self.rule_set, self.cluster, machine, &present));
        present
    }

    /// Returns the single and unreadable units on a machine.
    #[must_use]
    pub fn placed_on(&self, machine: &Machine) -> BTreeSet<UnitName> {
        let here = self.placements.iter().filter(|(_, at)| **at == machine.id);
        here.map(|(name, _)| name.clone()).collect()
    }

    /// Returns whether the unit is on any machine, possibly as a global unit.
    #[must_use]
    pub fn is_anywhere(&self, name: &UnitName) -> bool {
        self.cluster.machines().any(|machine| self.units_on(machine).contains(name))
    }

    /// Returns the units that wait for a machine, sorted by name.
    #[must_use]
    pub fn waiting(&self) -> BTreeSet<UnitName> {
        let waits = |unit: &&Unit| {
            !self.placements.contains_key(&unit.name)
                && !is_stranded(self.rule_set, self.cluster, unit)
        };
        singles(self.cluster).filter(waits).map(|unit| unit.name.clone()).collect()
    }

    /// Returns the participating units that satisfy a peer in the `MachineOf=` of `from`, wherever
    /// they are. A unit participates if it is wanted, or if it is unreadable and has a machine. If
    /// the peer is a pattern, `from` itself does not satisfy it.
    #[must_use]
    pub fn peer_candidates(&self, from: &UnitName, peer: &Peer) -> BTreeSet<UnitName> {
        let wanted = self.cluster.units().filter(|unit| unit.is_wanted());
        let mut all: BTreeSet<UnitName> = wanted.map(|unit| unit.name.clone()).collect();
        all.extend(self.placements.keys().cloned()); // includes the unreadable units
        all.retain(|name| match peer {
            Peer::Named(wanted) => name == wanted,
            Peer::Matching(pattern) => name != from && pattern.matches(name),
        });
        all
    }

    /// Returns the machine of an ID, if it is present.
    pub(super) fn machine(&self, id: &MachineId) -> Option<&Machine> {
        self.cluster.machine(id.as_str()).map(AsRef::as_ref)
    }
}

/// Returns the wanted units that are placed on one machine each.
pub(super) fn singles(cluster: &Snapshot) -> impl Iterator<Item = &Unit> {
    let units = cluster.units().map(AsRef::as_ref);
    units.filter(|unit: &&Unit| unit.is_wanted() && !unit.is_global())
}

/// Returns the single unit of a name.
pub(super) fn single<'a>(cluster: &'a Snapshot, name: &UnitName) -> Option<&'a Unit> {
    singles(cluster).find(|unit| unit.name == *name)
}

/// Returns whether the unit's record cannot be read.
pub(super) fn is_unreadable(cluster: &Snapshot, name: &UnitName) -> bool {
    cluster.fault(name.as_str()).is_some()
}

/// Returns the requirements of a unit; an unreadable unit has none.
pub(super) fn requirements<'a>(cluster: &'a Snapshot, name: &UnitName) -> &'a Requirements {
    cluster.unit(name.as_str()).map_or(&NOTHING, |unit| &unit.requirements)
}

/// Returns whether the unit keeps its placement on a machine that is not present.
pub(super) fn is_stranded(rule_set: &RuleSet, cluster: &Snapshot, unit: &Unit) -> bool {
    let Some(placement) = cluster.placement(unit.name.as_str()) else { return false };
    cluster.machine(placement.machine.as_str()).is_none() && (rule_set.keeps_lost_placement)(unit)
}

/// Returns whether a unit that the peer means is in the set.
pub(super) fn is_there(from: &UnitName, peer: &Peer, present: &BTreeSet<UnitName>) -> bool {
    match peer {
        Peer::Named(wanted) => present.contains(wanted),
        Peer::Matching(pattern) => present.iter().any(|name| name != from && pattern.matches(name)),
    }
}

/// Returns whether a unit lacks a peer of its `MachineOf=` in the set.
pub(super) fn lacks_a_peer(
    cluster: &Snapshot,
    name: &UnitName,
    present: &BTreeSet<UnitName>,
) -> bool {
    requirements(cluster, name).machine_of.iter().any(|peer| !is_there(name, peer, present))
}

/// Returns the global units that fit on a machine beside its placed units. They are added in the
/// order of their names. Each must pass the rules together with the placed units and the global
/// units added before it.
pub(super) fn fit_in(
    rule_set: &RuleSet,
    cluster: &Snapshot,
    machine: &Machine,
    placed: &BTreeSet<UnitName>,
) -> BTreeSet<UnitName> {
    let mut present = placed.clone();
    let mut fitted = BTreeSet::new();
    let leaving = &BTreeSet::new();
    for unit in cluster.units().filter(|unit| unit.is_wanted() && unit.is_global()) {
        let query = RuleQuery { cluster, unit, machine, present: &present, leaving };
        if rule_set.refusal_by(&rule_set.global_rules, query).is_none() {
            present.insert(unit.name.clone());
            fitted.insert(unit.name.clone());
        }
    }
    fitted
}
