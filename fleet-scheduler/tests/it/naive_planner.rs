//! The naive planner alone: the specification does not contradict itself.

use std::collections::BTreeMap;

use fleet_core::{MachineId, Reason, Snapshot};
use fleet_scheduler::testing::naive;
use fleet_scheduler::testing::strategies::{Features, clusters};
use fleet_scheduler::{Plan, Policy, Step, StepAction, StepCause, apply, check};
use fleet_unitfile::UnitName;
use proptest::prelude::*;

use crate::config::cases;

/// The machine of each placed unit.
pub(crate) type Placements = BTreeMap<UnitName, MachineId>;

/// Returns the placements of a cluster.
pub(crate) fn placements(cluster: &Snapshot) -> Placements {
    let placements = cluster.placements();
    placements.map(|(name, placement)| (name.clone(), placement.machine.clone())).collect()
}

/// Returns a plan that leads to these placements. The order of its steps, the causes and the
/// reasons are arbitrary.
pub(crate) fn plan_to(cluster: &Snapshot, placements: &Placements) -> Plan {
    let mut plan = Plan::new(cluster.revision);
    let before = self::placements(cluster);
    for (unit, from) in before.iter().filter(|(unit, _)| !placements.contains_key(*unit)) {
        plan.steps.push(step(unit, StepAction::Remove { from: from.clone() }));
    }
    for (unit, to) in placements {
        let (from, to) = (before.get(unit).cloned(), to.clone());
        match from {
            Some(from) if from == to => {}
            Some(from) => plan.steps.push(step(unit, StepAction::Move { from, to })),
            None => plan.steps.push(step(unit, StepAction::Place { machine: to })),
        }
    }
    let singles = cluster.units().filter(|unit| unit.is_wanted() && !unit.is_global());
    for unit in singles {
        let machine = placements.get(&unit.name);
        if machine.is_none_or(|machine| cluster.machine(machine.as_str()).is_none()) {
            plan.unplaced.insert(unit.name.clone(), Reason::NoMachines.into());
        }
    }
    plan
}

fn step(unit: &UnitName, action: StepAction) -> Step {
    Step::new(unit.clone(), action, StepCause::Wanted)
}

proptest! {
    #![proptest_config(cases(2))]

    #[test]
    fn naive_plan_breaks_no_rule(cluster in clusters(Features::ALL)) {
        let placements = naive::plan(&cluster, &Policy::default());
        prop_assert_eq!(check(&cluster, &plan_to(&cluster, &placements)), [], "{:?}", placements);
    }

    #[test]
    fn applied_naive_plan_leaves_nothing_to_do(cluster in clusters(Features::ALL)) {
        let placements = naive::plan(&cluster, &Policy::default());
        let after = apply(&cluster, &plan_to(&cluster, &placements));
        prop_assert_eq!(naive::plan(&after, &Policy::default()), placements);
    }
}
