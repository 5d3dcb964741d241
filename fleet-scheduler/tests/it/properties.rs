//! What holds of every plan for every cluster.

use std::collections::BTreeSet;

use fleet_core::{Machine, Reason, Refusal, Snapshot};
use fleet_scheduler::{Action, Cause, Plan, Step, apply, check, plan, share};
use proptest::prelude::*;

use crate::clusters::{Features, clusters, with_unit};
use crate::naive;

const SIMPLE: Features = Features { groups: false, replaces: false, ..Features::ALL };

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn a_plan_breaks_no_rule(cluster in clusters(Features::ALL)) {
        let plan = plan(&cluster);
        prop_assert_eq!(check(&cluster, &plan), [], "{}", plan);
    }

    #[test]
    fn when_a_plan_is_carried_out_nothing_is_left_to_do(cluster in clusters(Features::ALL)) {
        let first = plan(&cluster);
        let second = plan(&apply(&cluster, &first));
        prop_assert!(second.is_empty(), "{first}\nthen {second}");
        prop_assert_eq!(second.unplaced, first.unplaced);
    }

    #[test]
    fn the_order_in_which_a_cluster_came_about_makes_no_difference(
        cluster in clusters(Features::ALL),
    ) {
        let (one, other) = (plan(&cluster), plan(&rebuilt_backwards(&cluster)));
        prop_assert_eq!(format!("{one:?}"), format!("{other:?}"));
    }

    #[test]
    fn nothing_moves_that_need_not(cluster in clusters(Features::ALL)) {
        let plan = plan(&cluster);
        let after = apply(&cluster, &plan);
        for step in &plan.steps {
            // Who follows itself, by whatever way, cannot come back to where it was.
            let in_circle = matches!(plan.unplaced.get(&step.unit).map(AsRef::as_ref), Some(Reason::Cycle { .. }));
            let must = in_circle
                || lacked_a_peer(&cluster, step)
                || is_in_a_chain(&plan, step)
                || must_leave(&cluster, &after, step);
            prop_assert!(must, "{step}, in {plan}");
        }
    }

    #[test]
    fn a_plan_is_that_of_a_naive_scheduler(cluster in clusters(SIMPLE)) {
        let plan = plan(&cluster);
        prop_assert_eq!(
            naive::places(&apply(&cluster, &plan)), naive::schedule(&cluster), "{}", plan
        );
    }

    #[test]
    fn a_machine_that_fits_ends_the_waiting((cluster, unit) in with_unit(Features::NONE)) {
        let unit = cluster.unit(unit.as_str()).unwrap();
        let id = unit.requirements.machine_id.clone();
        let mut machine = Machine::new(id.unwrap_or_else(|| "m9".parse().unwrap()));
        for (key, values) in &unit.requirements.metadata {
            machine = machine.with_metadata(key, values.first().unwrap());
        }
        let mut cluster = cluster.clone();
        cluster.put_machine(machine);
        let plan = plan(&cluster);
        prop_assert!(!plan.unplaced.contains_key(&unit.name), "{plan}");
    }

    #[test]
    fn a_share_is_what_is_placed_and_what_fits_in(cluster in clusters(Features::ALL)) {
        let places = naive::places(&cluster);
        for machine in cluster.machines() {
            let share = share(&cluster, &machine.id);
            let placed = naive::placed_on(&places, machine).into_iter();
            let mut expected: BTreeSet<_> = placed.collect();
            expected.extend(naive::globals_on(&cluster, &places, machine));
            expected.retain(|name| cluster.fault(name.as_str()).is_none());
            prop_assert_eq!(share.units.keys().cloned().collect::<BTreeSet<_>>(), expected);
            for unit in cluster.units().filter(|unit| unit.is_wanted() && unit.is_global()) {
                let taken = share.units.contains_key(&unit.name);
                prop_assert_ne!(taken, share.refused.contains_key(&unit.name), "{}", unit.name);
            }
        }
    }
}

/// The same cluster, put together the other way round.
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

/// Whether a unit left for the sake of another one that later made room itself. That could not be
/// known when the first was decided.
fn is_in_a_chain(plan: &Plan, step: &Step) -> bool {
    let (Cause::ReplacedBy(other) | Cause::Refused(Refusal::Conflicts { with: other, .. })) =
        &step.cause
    else {
        return false;
    };
    let mut steps = plan.steps.iter().filter(|step| step.unit == *other);
    steps.any(|step| matches!(step.cause, Cause::ReplacedBy(_) | Cause::FollowsPeer(_)))
}

/// Whether a unit was without a unit that it must be beside, and so could not stay whatever comes.
fn lacked_a_peer(before: &Snapshot, step: &Step) -> bool {
    let placement = before.placement(step.unit.as_str());
    let machine = placement.and_then(|placed| before.machine(placed.machine.as_str()));
    let (Some(unit), Some(machine)) = (before.unit(step.unit.as_str()), machine) else {
        return false;
    };
    let places = naive::places(before);
    let mut there = naive::placed_on(&places, machine);
    there.extend(naive::globals_on(before, &places, machine));
    !unit.requirements.machine_of.iter().all(|peer| there.iter().any(|it| peer.covers(it)))
}

/// Whether a unit that leaves its machine could not have stayed there, all else being as it is
/// after the plan.
fn must_leave(before: &Snapshot, after: &Snapshot, step: &Step) -> bool {
    let (Action::Move { from, .. } | Action::Remove { from }) = &step.action else {
        return true;
    };
    let Some(unit) = naive::singles(before).find(|unit| unit.name == step.unit) else {
        return true;
    };
    let Some(machine) = before.machine(from.as_str()) else {
        return true;
    };
    let mut places = naive::places(after);
    places.insert(unit.name.clone(), from.clone());
    // Placed units come before global ones, so the latter are no ground to leave.
    let mut there = naive::placed_on(&places, machine);
    let globals = naive::globals_on(after, &places, machine);
    let named = |g: &_| unit.requirements.machine_of.iter().any(|peer| peer.covers(g));
    there.extend(globals.into_iter().filter(|global| named(global)));
    // Nor can it come back beside one that it would have to make leave.
    let evicts = there.iter().any(|other| naive::replaces(after, &unit.name, other));
    evicts || naive::rule(after, &there, unit, machine).is_some()
}
