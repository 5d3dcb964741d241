//! "Participants": the global units of a machine.

use std::collections::BTreeSet;

use fleet_core::{Machine, Snapshot};
use fleet_unitfile::UnitName;

use super::RuleSet;
use super::rules::RuleQuery;

/// Returns the global units that fit on a machine. They are added by name; each must pass the rules
/// together with the placed units and the earlier global units.
pub(super) fn fit_in(
    rule_set: &RuleSet,
    cluster: &Snapshot,
    machine: &Machine,
    placed: &BTreeSet<UnitName>,
) -> BTreeSet<UnitName> {
    let mut there = placed.clone();
    let mut fitted = BTreeSet::new();
    let leaving = &BTreeSet::new();
    for unit in cluster.units().filter(|unit| unit.is_wanted() && unit.is_global()) {
        let question = RuleQuery { cluster, unit, machine, there: &there, leaving };
        if rule_set.refusal_by(&rule_set.global_rules, question).is_none() {
            there.insert(unit.name.clone());
            fitted.insert(unit.name.clone());
        }
    }
    fitted
}
