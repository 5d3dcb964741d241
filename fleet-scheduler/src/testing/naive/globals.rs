//! "Participants": the global units of a machine.

use std::collections::BTreeSet;

use fleet_core::{Machine, Snapshot};
use fleet_unitfile::UnitName;

use super::RuleSet;
use super::rules::RuleQuery;

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
