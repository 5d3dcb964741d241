//! Properties of every plan for every cluster.

use std::collections::BTreeSet;

use fleet_core::refusal::Rule;
use fleet_core::{Machine, MachineId, Snapshot, Unit};
use fleet_scheduler::policy::{Policy, Ranking};
use fleet_scheduler::testing::naive;
use fleet_scheduler::testing::strategies::{Features, clusters, clusters_with_unit};
use fleet_scheduler::{
    Cluster, Plan, RemovalReason, Step, StepAction, StepCause, Violation, apply, check, plan, share,
};
use fleet_unitfile::UnitName;
use proptest::prelude::*;

use crate::config::cases;
use crate::features::FEATURES;
use crate::naive_planner::placements;

proptest! {
    #![proptest_config(cases(2))]

    // Holds: I-4, D-33
    #[test]
    fn plan_matches_the_naive_planner(cluster in clusters(FEATURES)) {
        let plan = plan(&cluster);
        let expected = naive::plan(&cluster, &Policy::default());
        prop_assert_eq!(placements(&apply(&cluster, &plan)), expected, "{}", plan);
    }

    #[test]
    fn plan_of_other_rankings_matches_the_specification(
        cluster in clusters(FEATURES),
        ranking in prop_oneof![Just(Ranking::BinPacking), Just(Ranking::Spread)],
    ) {
        let policy = Policy::new().with_ranking(ranking);
        let expected = naive::plan(&cluster, &policy);
        let plan = Cluster::load(policy, &cluster).plan();
        prop_assert_eq!(placements(&apply(&cluster, &plan)), expected, "{}", plan);
    }

    // Holds: I-4, I-5
    #[test]
    fn plan_breaks_no_rule(cluster in clusters(FEATURES)) {
        let plan = plan(&cluster);
        prop_assert_eq!(check(&cluster, &plan), [], "{}", plan);
    }

    // Holds: I-10, D-33
    #[test]
    fn applied_plan_leaves_nothing_to_do(cluster in clusters(FEATURES)) {
        let first = plan(&cluster);
        let second = plan(&apply(&cluster, &first));
        prop_assert!(second.is_empty(), "{first}\nthen {second}");
        prop_assert_eq!(second.unplaced, first.unplaced);
    }

    // Holds: I-17, D-40
    #[test]
    fn plan_is_independent_of_insertion_order(cluster in clusters(FEATURES)) {
        let (one, other) = (plan(&cluster), plan(&rebuilt_backwards(&cluster)));
        prop_assert_eq!(format!("{one:?}"), format!("{other:?}"));
    }

    // Holds: I-10
    #[test]
    fn every_move_has_a_true_cause(cluster in clusters(FEATURES)) {
        let plan = plan(&cluster);
        for step in &plan.steps {
            prop_assert!(is_true(&cluster, step), "{step}, in {plan}");
        }
    }

    // Holds: I-22
    #[test]
    fn suitable_machine_ends_the_waiting(
        (cluster, unit) in clusters_with_unit(Features { metadata: true, ..Features::NONE }),
    ) {
        let unit = cluster.unit(unit.as_str()).unwrap();
        let mut machine = Machine::new("m9".parse().unwrap());
        for (key, values) in &unit.requirements.metadata {
            machine = machine.with_metadata(key, values.first().unwrap());
        }
        let mut cluster = cluster.clone();
        cluster.0.put_machine(machine);
        let plan = plan(&cluster);
        prop_assert!(!plan.unplaced.contains_key(&unit.name), "{plan}");
    }

    // Holds: I-23
    #[test]
    fn share_is_placed_units_and_fitting_globals(cluster in clusters(FEATURES)) {
        for machine in cluster.machines() {
            let share = share(&cluster, &machine.id);
            let mut expected: BTreeSet<UnitName> = naive::globals_on(&cluster, machine);
            let here = cluster.placements().filter(|(_, at)| at.machine == machine.id);
            let here = here.filter(|(name, _)| single(&cluster, name).is_some());
            expected.extend(here.map(|(name, _)| name.clone()));
            prop_assert_eq!(share.units.keys().cloned().collect::<BTreeSet<_>>(), expected);
            for unit in cluster.units().filter(|unit| unit.is_wanted() && unit.is_global()) {
                let taken = share.units.contains_key(&unit.name);
                prop_assert_ne!(taken, share.refused.contains_key(&unit.name), "{}", unit.name);
            }
        }
    }
}

/// Returns the same cluster, built in reverse order.
fn rebuilt_backwards(cluster: &Snapshot) -> Snapshot {
    let mut copy = Snapshot::default();
    copy.revision = cluster.revision;
    let placements: Vec<_> = cluster.placements().collect();
    for (unit, placement) in placements.into_iter().rev() {
        copy.place(unit.clone(), placement.machine.clone(), placement.epoch);
    }
    let units: Vec<_> = cluster.units().collect();
    units.into_iter().rev().for_each(|unit| copy.put_unit(unit.as_ref().clone()));
    let faults: Vec<_> = cluster.faults().collect();
    let faults = faults.into_iter().rev();
    faults.for_each(|(unit, fault)| copy.put_fault(unit.clone(), fault.as_ref().clone()));
    let machines: Vec<_> = cluster.machines().collect();
    machines.into_iter().rev().for_each(|machine| copy.put_machine(machine.as_ref().clone()));
    copy
}

/// Returns the unit of a name, if it is wanted and not global.
fn single<'a>(cluster: &'a Snapshot, name: &UnitName) -> Option<&'a Unit> {
    let unit = cluster.unit(name.as_str()).map(AsRef::as_ref);
    unit.filter(|unit: &&Unit| unit.is_wanted() && !unit.is_global())
}

/// Returns whether the cause of a step is true, which shows that the unit does not move without
/// need.
fn is_true(before: &Snapshot, step: &Step) -> bool {
    let unit = &step.unit;
    let from = match &step.action {
        StepAction::Place { .. } => {
            return single(before, unit).is_some_and(|unit| {
                let times = unit.requirements.failed_on.values().sum();
                step.cause
                    == if times > 0 { StepCause::Failed { times } } else { StepCause::Wanted }
            });
        }
        StepAction::Move { from, .. } | StepAction::Remove { from } => from,
    };
    let gone = before.machine(from.as_str()).is_none();
    match &step.cause {
        StepCause::NotWanted(reason) => is_unwanted(before, unit, *reason),
        StepCause::MachineGone => gone,
        StepCause::Refused(refusal) => {
            // The peer may have left and come back.
            let rule = refusal.rule();
            let was_so = rule == Rule::MachineOf || was_broken(before, from, rule);
            !gone && was_so && !naive::kept_placements(before).contains_key(unit)
        }
        StepCause::FollowsPeer(peer) => requires_machine_of(before, unit, peer) && !gone,
        StepCause::ReplacedBy(by) => {
            let by = single(before, by).map(|unit| &unit.requirements.replaces);
            by.is_some_and(|patterns| patterns.iter().any(|pattern| pattern.matches(unit)))
        }
        _ => false,
    }
}

fn is_unwanted(before: &Snapshot, name: &UnitName, reason: RemovalReason) -> bool {
    let unit = before.unit(name.as_str());
    match reason {
        RemovalReason::Destroyed => unit.is_none() && before.fault(name.as_str()).is_none(),
        RemovalReason::Template => unit.is_some() && name.is_template(),
        RemovalReason::Inactive => unit.is_some_and(|unit| !unit.is_wanted()),
        RemovalReason::Global => unit.is_some_and(|unit| unit.is_global()),
        _ => false,
    }
}

/// Whether a unit on the machine broke the rule before the plan.
fn was_broken(before: &Snapshot, on: &MachineId, rule: Rule) -> bool {
    let nothing = Plan::new(before.revision);
    check(before, &nothing).iter().any(|violation| match violation {
        Violation::Broken { machine, refusal, .. } => machine == on && refusal.rule() == rule,
        _ => false,
    })
}

/// Whether a unit's `MachineOf=` names another unit.
fn requires_machine_of(before: &Snapshot, unit: &UnitName, other: &UnitName) -> bool {
    let unit = single(before, unit);
    unit.is_some_and(|unit| unit.requirements.machine_of.iter().any(|peer| peer.matches(other)))
}
