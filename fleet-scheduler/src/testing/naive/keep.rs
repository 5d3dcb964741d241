//! Sections 1 and 2: removed and kept placements.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Machine, MachineId, Snapshot};
use fleet_unitfile::UnitName;

use super::RuleSet;
use super::rules::RuleQuery;
use super::state::{fit_in, is_unreadable, lacks_a_peer, single};

/// Returns the kept placements of all present machines.
pub(super) fn keep(rule_set: &RuleSet, cluster: &Snapshot) -> BTreeMap<UnitName, MachineId> {
    let mut placements = BTreeMap::new();
    for machine in cluster.machines() {
        let kept = kept_on(rule_set, cluster, machine).into_iter();
        placements.extend(kept.map(|name| (name, machine.id.clone())));
    }
    placements
}

fn kept_on(rule_set: &RuleSet, cluster: &Snapshot, machine: &Machine) -> BTreeSet<UnitName> {
    let mut candidates = candidates(rule_set, cluster, machine);
    loop {
        let kept = by_seniority(rule_set, cluster, machine, &candidates);
        let mut present = kept.clone();
        present.extend(fit_in(rule_set, cluster, machine, &kept));
        let lost: BTreeSet<_> =
            kept.iter().filter(|name| lacks_a_peer(cluster, name, &present)).cloned().collect();
        if lost.is_empty() {
            return kept;
        }
        candidates.retain(|name| !lost.contains(name));
    }
}

/// Returns the first candidates, called C in section 2 of the specification. These are the units
/// placed on the machine that pass the lasting rules other than `Cordon`.
fn candidates(rule_set: &RuleSet, cluster: &Snapshot, machine: &Machine) -> BTreeSet<UnitName> {
    let no_units = &BTreeSet::new();
    let placed = cluster.placements().filter(|(_, placement)| placement.machine == machine.id);
    let names = placed.map(|(name, _)| name).filter(|name| match single(cluster, name) {
        Some(unit) => {
            let query = RuleQuery { cluster, unit, machine, present: no_units, leaving: no_units };
            rule_set.refusal_by(&rule_set.lasting_rules, query).is_none()
        }
        None => is_unreadable(cluster, name),
    });
    names.cloned().collect()
}

/// Returns the candidates that stay. Goes through the candidates by seniority, and keeps each that
/// passes the rules together with those kept before it.
fn by_seniority(
    rule_set: &RuleSet,
    cluster: &Snapshot,
    machine: &Machine,
    candidates: &BTreeSet<UnitName>,
) -> BTreeSet<UnitName> {
    let mut order: Vec<&UnitName> = candidates.iter().collect();
    order.sort_by_key(|name| (rule_set.seniority)(cluster, name));
    let mut kept = BTreeSet::new();
    for name in order {
        let refused = single(cluster, name).is_some_and(|unit| {
            let leaving = &BTreeSet::new();
            let query = RuleQuery { cluster, unit, machine, present: &kept, leaving };
            rule_set.refusal_by(&rule_set.retention_rules, query).is_some()
        });
        if !refused {
            kept.insert(name.clone());
        }
    }
    kept
}
