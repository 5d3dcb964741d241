//! Regressions of long-lived indexes.

use fleet_core::{Epoch, Machine, Snapshot};
use fleet_scheduler::policy::{Candidate, HardRule, Policy, RetryOn, View};
use fleet_scheduler::{Change, Cluster, Demand, StepAction, apply, plan};

use crate::language::unit;

/// A unit waited for the first waiting unit that its pattern matched. It was once not retried when
/// a matching global unit came to a machine.
#[test]
fn new_global_unit_requeues_units_with_a_matching_pattern() {
    let mut cluster = Snapshot::default();
    let mut index = Cluster::load(Policy::default(), &cluster);
    let units = [
        ("a1.service", "Global=true"),
        ("a2.service", "MachineOf=a*"),
        ("a3.service", "MachineOf=c2.socket"),
    ];
    for (name, option) in units {
        let unit = unit(name, "launched", &format!("[X-Fleet]\n{option}\n"));
        index.add(&unit);
        cluster.put_unit(unit);
    }
    assert!(index.plan().is_empty());
    cluster.put_machine(Machine::new("m1".parse().unwrap()));
    index.add_machine(Machine::new("m1".parse().unwrap()));
    assert_eq!(index.plan().steps, plan(&cluster).steps);
}

/// Units with equal requirements waited together. A new unit then tied all of them by a pattern
/// that was known already. For the next machine, only the first of them was once retried.
#[test]
fn units_tied_by_a_known_pattern_are_all_retried() {
    let mut cluster = Snapshot::default();
    for (name, option) in [
        ("a@1.service", "MaxPerMachine=1"),
        ("a@2.service", "MachineMetadataExpr=not exists retired"),
        ("a@3.service", "MachineMetadataExpr=not exists retired"),
        ("a@4.service", "Conflicts=a@*"),
    ] {
        cluster.put_unit(unit(name, "launched", &format!("[X-Fleet]\n{option}\n")));
    }
    cluster.put_machine(Machine::new("m1".parse().unwrap()));
    let mut index = Cluster::load(Policy::default(), &cluster);
    let decided = index.plan();
    index.apply(&decided);
    cluster = apply(&cluster, &decided);
    let namer = unit("b.service", "launched", "[X-Fleet]\nMachineOf=a@*\n");
    index.add(&namer);
    cluster.put_unit(namer);
    cluster.put_machine(Machine::new("m2".parse().unwrap()));
    index.add_machine(Machine::new("m2".parse().unwrap()));
    assert_eq!(index.plan().steps, plan(&cluster).steps);
}

/// Units that every machine filters out are retried when a machine changes.
#[test]
fn filtered_out_unit_is_retried_when_a_machine_changes() {
    let mut index = Cluster::new();
    let zone = |zone: &str| Machine::new("m1".parse().unwrap()).with_metadata("zone", zone);
    index.add_machine(zone("a"));
    for (name, zone) in [("one.service", "b"), ("two.service", "c")] {
        index.add(&unit(name, "launched", &format!("[X-Fleet]\nMachineMetadata=zone={zone}\n")));
    }
    for (now, placed) in [("a", None), ("d", None), ("b", Some("one")), ("c", Some("two"))] {
        index.add_machine(zone(now));
        let decided = index.plan();
        let came =
            decided.steps.iter().find(|step| matches!(step.action, StepAction::Place { .. }));
        let came = came.map(|step| step.unit.prefix());
        assert_eq!(came, placed, "in zone {now}: {decided}");
        index.apply(&decided);
    }
}

/// If a plan was made twice, only the first one once reported a unit that waits for its own
/// machine.
#[test]
fn repeated_plan_reports_unrescheduled_units_again() {
    let mut index = Cluster::new();
    index.add(&unit("a.service", "launched", "[X-Fleet]\nReschedule=never\n"));
    index.place("a.service".parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    index.place("b.service".parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    let (one, other) = (index.plan(), index.plan());
    assert_eq!((one.steps.len(), one.unplaced.len()), (1, 1));
    assert_eq!(one, other);
}

/// The spread values were numbered while there were no machines. These numbers were once also used
/// for the first machine.
#[test]
fn returning_machine_counts_for_spread() {
    let mut cluster = Snapshot::default();
    let spread = unit("d@2.service", "launched", "[X-Fleet]\nSpread=zone\n");
    cluster.put_unit(spread);
    cluster.put_unit(unit("d@3.service", "launched", ""));
    cluster.place("d@3.service".parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    let mut index = Cluster::load(Policy::default(), &cluster);
    assert_eq!(index.plan().steps, plan(&cluster).steps);
    cluster.put_machine(Machine::new("m1".parse().unwrap()));
    index.add_machine(Machine::new("m1".parse().unwrap()));
    assert_eq!(index.plan().steps, plan(&cluster).steps);
}

fn put(index: &mut Cluster, name: &str, text: &str) {
    index.add(Demand::from_unit(name, text).unwrap());
}

/// A unit waited because its pattern matched only a unit that could not be placed. It was once not
/// retried when a matching global unit came to a machine.
#[test]
fn new_global_unit_requeues_followers_of_its_pattern() {
    let mut index = Cluster::new();
    put(&mut index, "d@2.service", "[X-Fleet]\nMachineOf=a.service\n");
    put(&mut index, "d@3.service", "[X-Fleet]\nGlobal=true\n");
    put(&mut index, "e.service", "[X-Fleet]\nMachineOf=d@*\n");
    assert!(index.plan().is_empty());
    index.add_machine(Machine::new("m1".parse().unwrap()));
    assert_eq!(index.plan().steps[0].to_string(), "place e.service on m1: it is wanted");
}

/// A machine returned after the values of a spread key were numbered, so its value had no number.
/// Its instances were once counted nevertheless.
#[test]
fn instances_on_a_returning_machine_are_counted() {
    let mut index = Cluster::new();
    let spread = "[X-Fleet]\nSpread=zone\n";
    put(&mut index, "a@1.service", spread);
    put(&mut index, "a@2.service", spread);
    index.place("a@1.service".parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    assert_eq!(index.plan().steps.len(), 1, "a@1 is removed");
    let machine = |id: &str, zone| Machine::new(id.parse().unwrap()).with_metadata("zone", zone);
    index.add_machine(machine("m1", "one"));
    index.add_machine(machine("m2", "two"));
    let plan = index.plan();
    let steps: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
    assert_eq!(steps, ["place a@2.service on m2: it is wanted"]);
}

/// Adds a unit that fits nowhere, and returns its reason.
fn unplaceable(index: &mut Cluster, turn: usize) -> String {
    let demand = Demand::new(&format!("unplaceable-{turn}")).unwrap().requires("disk", "ssd");
    index.add(demand.clone());
    index.plan().unplaced[demand.name()].to_string()
}

#[test]
fn machines_readded_in_another_order_keep_their_ids() {
    let machine = |id: &str| Machine::new(id.parse().unwrap());
    let mut index = Cluster::new();
    for id in ["m1", "m2"] {
        index.add_machine(machine(id));
    }
    let result = unplaceable(&mut index, 0);
    assert_eq!(unplaceable(&mut index, 1), result);
    for id in ["m1", "m2"] {
        index.remove_machine(id);
    }
    for id in ["m1", "m2"] {
        index.add_machine(machine(id));
    }
    assert_eq!(unplaceable(&mut index, 2), result);
}

/// Accepts only machines with a recent daemon.
#[derive(Debug)]
struct Modern;

impl HardRule for Modern {
    fn name(&self) -> &str {
        "Modern"
    }

    fn retry_on(&self) -> RetryOn {
        RetryOn::MachineChange
    }

    fn refuse(&self, _: &View<'_>, _: Candidate<'_>, machine: &Machine) -> Option<String> {
        (machine.version == "1").then(|| "its daemon is too old".to_owned())
    }
}

/// A machine that changed only its version was once treated as unchanged. But a custom rule may
/// look at the version.
#[test]
fn custom_rule_is_rechecked_after_any_machine_change() {
    let machine =
        |version: &str| Machine { version: version.into(), ..Machine::new("m1".parse().unwrap()) };
    let mut index = Cluster::with_policy(Policy::new().with_rule(Modern));
    index.add_machine(machine("1"));
    put(&mut index, "a.service", "");
    assert!(index.plan().is_empty());
    index.add_machine(machine("2"));
    assert_eq!(index.plan().steps[0].to_string(), "place a.service on m1: it is wanted");
}

/// Number of units in a group whose trials exceed the length of the index's change logs.
const LARGE_GROUP: usize = 1500;

/// Adds units of which all but the first follow the first one.
fn put_large_group(index: &mut Cluster, last: &str) {
    for at in 0..LARGE_GROUP {
        let follows = if at > 0 { "MachineOf=u0000.service\n" } else { "" };
        let extra = if at + 1 == LARGE_GROUP { last } else { "" };
        put(index, &format!("u{at:04}.service"), &format!("[X-Fleet]\n{follows}{extra}"));
    }
}

fn three_machines() -> Cluster {
    let mut index = Cluster::new();
    for id in ["m1", "m2", "m3"] {
        index.add_machine(Machine::new(id.parse().unwrap()));
    }
    index
}

/// The failed trial of such a group overflowed a change log, so that the group counted as affected
/// by a change and the plan never ended.
#[test]
fn large_group_that_fits_nowhere_gets_a_reason() {
    let mut index = three_machines();
    put_large_group(&mut index, "MachineMetadata=gpu=yes\n");
    put(&mut index, "other.service", "");
    let plan = index.plan();
    assert_eq!(plan.steps.len(), 1, "only other.service fits: {plan}");
    assert_eq!(plan.unplaced.len(), LARGE_GROUP);
    index.apply(&plan);
    assert!(index.plan().is_empty());
}

#[test]
fn large_group_whose_machine_is_lost_gets_a_reason() {
    let mut index = three_machines();
    let gpu = Machine::new("m4".parse().unwrap()).with_metadata("gpu", "yes");
    index.add_machine(gpu);
    put_large_group(&mut index, "MachineMetadata=gpu=yes\n");
    let plan = index.plan();
    assert_eq!(plan.steps.len(), LARGE_GROUP);
    index.apply(&plan);
    let lost = Change::RemoveMachine("m4".parse().unwrap());
    assert_eq!(index.what_if(std::slice::from_ref(&lost)).unplaced.len(), LARGE_GROUP);
    index.change(&lost);
    assert_eq!(index.plan().unplaced.len(), LARGE_GROUP);
}

#[test]
fn replacer_of_a_large_group_that_cannot_move_gets_a_reason() {
    let mut index = Cluster::new();
    let host = |id: &str| Machine::new(id.parse().unwrap()).with_metadata("host", id);
    index.add_machine(host("m1"));
    put_large_group(&mut index, "MachineMetadata=host=m1\n");
    let plan = index.plan();
    index.apply(&plan);
    index.add_machine(host("m2"));
    put(&mut index, "new.service", "[X-Fleet]\nReplaces=u0000.service\nMachineMetadata=host=m1\n");
    let plan = index.plan();
    assert!(plan.steps.is_empty(), "{plan}");
    assert_eq!(plan.unplaced.len(), 1);
}
