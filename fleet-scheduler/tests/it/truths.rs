//! Reasons and explanations are true: what they say is found again by looking.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Epoch, Machine, Reason, Snapshot};
use fleet_scheduler::strategies::clusters;
use fleet_scheduler::{PlacementVerdict, Policy, apply, explain, naive, plan};
use proptest::prelude::*;

use crate::config::cases;
use crate::known::KNOWN;
use crate::language::unit;

proptest! {
    #![proptest_config(cases(2))]

    // Holds: I-22
    #[test]
    fn every_reason_is_true(cluster in clusters(KNOWN)) {
        let plan = plan(&cluster);
        let after = apply(&cluster, &plan);
        for (name, reason) in &plan.unplaced {
            let judged = naive::check_reason(&after, &Policy::default(), name, reason);
            prop_assert_eq!(judged.map_err(|untrue| untrue.to_string()), Ok(()), "{}", plan);
        }
    }

    #[test]
    fn whom_no_machine_takes_is_told_which_one_comes_nearest(cluster in clusters(KNOWN)) {
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
    fn a_unit_that_could_have_a_machine_has_one(cluster in clusters(KNOWN)) {
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
    fn an_explanation_says_what_the_plan_says(cluster in clusters(KNOWN)) {
        let plan = plan(&cluster);
        let after = apply(&cluster, &plan);
        for unit in after.units().filter(|unit| unit.is_wanted() && !unit.is_global()) {
            let told = explain(&after, &unit.name).unwrap();
            prop_assert_eq!(told.reason.as_ref(), plan.unplaced.get(&unit.name).map(AsRef::as_ref));
            let here = told.machines.iter().filter(|(_, verdict)| *verdict == PlacementVerdict::Here);
            let here: Vec<_> = here.map(|(machine, _)| machine).collect();
            let placed = after.placement(unit.name.as_str()).map(|placement| &placement.machine);
            let present = placed.filter(|machine| after.machine(machine.as_str()).is_some());
            prop_assert_eq!(here, present.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_machine_says_to_a_waiting_unit_what_the_letter_says(cluster in clusters(KNOWN)) {
        let after = apply(&cluster, &plan(&cluster));
        let waiting = after.units().filter(|unit| {
            let nowhere = after.placement(unit.name.as_str()).is_none();
            unit.is_wanted() && !unit.is_global() && nowhere
        });
        for unit in waiting {
            for (machine, verdict) in explain(&after, &unit.name).unwrap().machines {
                let machine = after.machine(machine.as_str()).unwrap();
                let rule_set = naive::first_refusal(&after, &Policy::default(), &unit.name, machine);
                let told = match verdict {
                    PlacementVerdict::Refused(refusal) => Some(refusal.rule()),
                    _ => None,
                };
                let told_of = format!("{} on {}", unit.name, machine.id);
                prop_assert_eq!(told, rule_set.map(|(_, rule)| rule), "{}", told_of);
            }
        }
    }

    #[test]
    fn a_machine_says_in_an_explanation_what_it_says_in_the_reason(cluster in clusters(KNOWN)) {
        let plan = plan(&cluster);
        let after = apply(&cluster, &plan);
        for (name, reason) in &plan.unplaced {
            let (Reason::NoMachineFits { tallies, nearest, .. }
            | Reason::NoMachineFitsGroup { tallies, nearest, .. }) = reason.as_ref()
            else {
                continue;
            };
            let machines = explain(&after, name).unwrap().machines;
            let told: BTreeMap<_, _> = machines.into_iter().collect();
            let examples = tallies.iter().map(|tally| (&tally.example, &tally.refusal));
            let nearest = nearest.iter().map(|nearest| (&nearest.machine, &nearest.refusal));
            for (machine, refusal) in examples.chain(nearest) {
                let expected = PlacementVerdict::Refused(Arc::new(refusal.clone()));
                prop_assert_eq!(&told[machine], &expected, "{} on {}", name, machine);
            }
        }
    }
}

/// Of several who keep a unit away from a machine the first by name is told, be it a global one.
#[test]
fn whoever_comes_first_by_name_is_said_to_keep_a_unit_away() {
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
        let told = explain(&cluster, &"shy.service".parse().unwrap()).unwrap();
        for ((machine, verdict), expected) in told.machines.iter().zip(expected) {
            let told = verdict.to_string();
            assert!(told.contains(&format!(": {expected} is on it")), "{machine}: {told}");
        }
    }
}
