//! Reasons and explanations hold: an independent check confirms them.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Epoch, Machine, Reason, Snapshot};
use fleet_scheduler::testing::naive;
use fleet_scheduler::testing::strategies::clusters;
use fleet_scheduler::{Cluster, Demand, PlacementVerdict, Policy, apply, explain, plan};
use proptest::prelude::*;

use crate::config::cases;
use crate::features::FEATURES;
use crate::language::unit;

proptest! {
    #![proptest_config(cases(2))]

    // Holds: I-22
    #[test]
    fn every_reason_holds(cluster in clusters(FEATURES)) {
        let plan = plan(&cluster);
        let after = apply(&cluster, &plan);
        for (name, reason) in &plan.unplaced {
            let checked = naive::check_reason(&after, &Policy::default(), name, reason);
            prop_assert_eq!(checked.map_err(|wrong| wrong.to_string()), Ok(()), "{}", plan);
        }
    }

    #[test]
    fn refusal_reason_names_the_nearest_machine(cluster in clusters(FEATURES)) {
        for reason in plan(&cluster).unplaced.values() {
            if let Reason::NoMachineFits { nearest, .. }
            | Reason::NoMachineFitsGroup { nearest, .. } = reason.as_ref()
            {
                prop_assert!(nearest.is_some(), "{reason}");
            }
        }
    }

    // Holds: I-22
    #[test]
    fn placeable_unit_is_placed(cluster in clusters(FEATURES)) {
        let plan = plan(&cluster);
        let after = apply(&cluster, &plan);
        let waiting = plan.unplaced.keys().filter(|name| after.placement(name.as_str()).is_none());
        for name in waiting {
            for machine in after.machines() {
                let refused = naive::first_refusal(&after, &Policy::default(), name, machine);
                prop_assert!(refused.is_some(), "{name} on {}", machine.id);
            }
        }
    }

    #[test]
    fn explanation_agrees_with_the_plan(cluster in clusters(FEATURES)) {
        let plan = plan(&cluster);
        let after = apply(&cluster, &plan);
        for unit in after.units().filter(|unit| unit.is_wanted() && !unit.is_global()) {
            let result = explain(&after, unit.name.as_str()).unwrap();
            let reason = plan.unplaced.get(&unit.name).map(AsRef::as_ref);
            prop_assert_eq!(result.reason.as_ref(), reason);
            let is_here = |verdict: &PlacementVerdict| *verdict == PlacementVerdict::Here;
            let here = result.machines.iter().filter(|(_, verdict)| is_here(verdict));
            let here: Vec<_> = here.map(|(machine, _)| machine).collect();
            let placed = after.placement(unit.name.as_str()).map(|placement| &placement.machine);
            let present = placed.filter(|machine| after.machine(machine.as_str()).is_some());
            prop_assert_eq!(here, present.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn verdicts_match_the_specification(cluster in clusters(FEATURES)) {
        let after = apply(&cluster, &plan(&cluster));
        let waiting = after.units().filter(|unit| {
            let nowhere = after.placement(unit.name.as_str()).is_none();
            unit.is_wanted() && !unit.is_global() && nowhere
        });
        for unit in waiting {
            for (machine, verdict) in explain(&after, unit.name.as_str()).unwrap().machines {
                let machine = after.machine(machine.as_str()).unwrap();
                let policy = Policy::default();
                let expected = naive::first_refusal(&after, &policy, &unit.name, machine);
                let result = match verdict {
                    PlacementVerdict::Refused(refusal) => Some(refusal.rule()),
                    _ => None,
                };
                let context = format!("{} on {}", unit.name, machine.id);
                prop_assert_eq!(result, expected.map(|(_, rule)| rule), "{}", context);
            }
        }
    }

    #[test]
    fn explanation_agrees_with_the_reason(cluster in clusters(FEATURES)) {
        let plan = plan(&cluster);
        let after = apply(&cluster, &plan);
        for (name, reason) in &plan.unplaced {
            let (Reason::NoMachineFits { tallies, nearest, .. }
            | Reason::NoMachineFitsGroup { tallies, nearest, .. }) = reason.as_ref()
            else {
                continue;
            };
            let machines = explain(&after, name.as_str()).unwrap().machines;
            let result: BTreeMap<_, _> = machines.into_iter().collect();
            let examples = tallies.iter().map(|tally| (&tally.example, &tally.refusal));
            let nearest = nearest.iter().map(|nearest| (&nearest.machine, &nearest.refusal));
            for (machine, refusal) in examples.chain(nearest) {
                let expected = PlacementVerdict::Refused(Arc::new(refusal.clone()));
                prop_assert_eq!(&result[machine], &expected, "{} on {}", name, machine);
            }
        }
    }
}

/// If several units keep a unit away, the first of them by name is reported, even if it is global.
#[test]
fn first_blocker_by_name_is_reported() {
    let cases = [
        ("Conflicts=shy*", "", "", ["b.service", "d.service"]),
        ("", "", "Conflicts=*.service", ["b.service", "d.service"]),
        ("Replaces=shy*", "", "", ["b.service", "d.service"]),
        ("Conflicts=shy*", "Global=true\nConflicts=shy*", "", ["a.service", "a.service"]),
        ("", "Global=true", "Conflicts=*.service", ["a.service", "a.service"]),
        ("Conflicts=shy*", "Global=true", "", ["b.service", "d.service"]),
    ];
    for (theirs, of_a, ours, expected) in cases {
        let mut cluster = Snapshot::default();
        let mut launch = |name: &str, option: &str| {
            cluster.put_unit(unit(name, "launched", &format!("[X-Fleet]\n{option}\n")));
        };
        launch("a.service", if of_a.is_empty() { "MachineID=none" } else { of_a });
        launch("shy.service", ours);
        for name in ["b.service", "c.service", "d.service"] {
            launch(name, theirs);
        }
        for (name, machine) in [("c.service", "m1"), ("b.service", "m1"), ("d.service", "m2")] {
            cluster.put_machine(Machine::new(machine.parse().unwrap()));
            cluster.place(name.parse().unwrap(), machine.parse().unwrap(), Epoch(1));
        }
        let result = explain(&cluster, "shy.service").unwrap();
        for ((machine, verdict), expected) in result.machines.iter().zip(expected) {
            let result = verdict.to_string();
            assert!(result.contains(&format!(": {expected} is on it")), "{machine}: {result}");
        }
    }
}

#[test]
fn plan_affected_leaves_out_reasons_that_stay() {
    let mut cluster = Cluster::new();
    cluster.add_machine(Machine::named("m1").unwrap());
    cluster.add(Demand::new("a").unwrap().requires("disk", "ssd"));
    assert_eq!(cluster.plan().unplaced.len(), 1);
    cluster.add(Demand::new("b").unwrap().requires("disk", "nvme"));
    assert_eq!(cluster.plan_affected().unplaced.len(), 1);
    assert_eq!(cluster.plan().unplaced.len(), 2);
}
