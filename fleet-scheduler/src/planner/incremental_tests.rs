//! Tests that the plan after a change recomputes everything that the change affects.

use std::fmt::Write as _;

use fleet_core::{Epoch, Machine, Pattern, Reason, Requirements, Resources};

use super::queue::{AttemptCounter, AttemptQueue};
use crate::demand::Demand;
use crate::index::Cluster;
use crate::plan::Plan;
use crate::planner::decide;

fn put(index: &mut Cluster, name: &str, requirements: Requirements) {
    index.add(Demand::with_requirements(name.parse().unwrap(), requirements));
}

fn place(index: &mut Cluster, unit: &str, machine: &str) {
    index.place(unit.parse().unwrap(), machine.parse().unwrap(), Epoch(1));
}

fn machine(id: &str) -> Machine {
    Machine::new(id.parse().unwrap())
}

fn carry_out(index: &mut Cluster) -> Plan {
    let plan = index.plan_affected();
    index.apply(&plan);
    plan
}

fn replacing(patterns: &[&str]) -> Requirements {
    let replaces: Vec<Pattern> = patterns.iter().map(|text| text.parse().unwrap()).collect();
    Requirements::default().with_replaces(replaces)
}

fn on_host(host: &str) -> Requirements {
    let metadata = [(String::from("host"), [String::from(host)].into())].into();
    Requirements::default().with_metadata(metadata)
}

/// Returns the steps and the reasons of a plan as text.
fn printed(plan: &Plan) -> String {
    let mut text = String::new();
    for step in &plan.steps {
        writeln!(text, "{step}").unwrap();
    }
    for (unit, reason) in &plan.unplaced {
        writeln!(text, "{unit}: {reason}").unwrap();
    }
    text
}

#[test]
fn duplicate_replaces_pattern_counts_once() {
    let mut index = Cluster::new();
    index.add_machine(machine("m3"));
    index.add_machine(machine("m5"));
    put(&mut index, "d@1.service", Requirements::default());
    put(&mut index, "d@2.service", replacing(&["d@*.service", "d@*.service"]));
    place(&mut index, "d@1.service", "m3");
    place(&mut index, "d@2.service", "m3");
    assert_eq!(index.plan().steps[0].unit.as_str(), "d@1.service");
}

#[test]
fn immovable_replaced_unit_moves_once_a_machine_fits() {
    let mut index = Cluster::new();
    index.add_machine(machine("m1"));
    put(&mut index, "new.service", replacing(&["old.service"]));
    put(&mut index, "old.service", on_host("b"));
    index.add_machine(machine("m1").with_metadata("host", "b"));
    place(&mut index, "new.service", "m1");
    place(&mut index, "old.service", "m1");
    assert!(carry_out(&mut index).is_empty());
    // Neither of the two has changed since.
    put(&mut index, "other.service", Requirements::default());
    assert_eq!(carry_out(&mut index).steps.len(), 1);
    index.add_machine(machine("m2").with_metadata("host", "b"));
    assert_eq!(
        printed(&carry_out(&mut index)),
        "move old.service from m1 to m2: new.service replaces it\n"
    );
}

#[test]
fn pinned_unit_is_placed_when_its_machine_changes() {
    let mut index = Cluster::new();
    for at in 0..40 {
        index.add_machine(machine(&format!("m{at}")).with_metadata("host", &format!("h{at}")));
    }
    put(&mut index, "a.service", on_host("h40"));
    put(&mut index, "b.service", on_host("h7"));
    let first = carry_out(&mut index);
    index.add_machine(machine("m5").with_metadata("host", "h40"));
    index.add_machine(Machine { cordoned: true, ..machine("m6") });
    put(&mut index, "c.service", on_host("h5"));
    let second = carry_out(&mut index);
    let first = printed(&first);
    assert!(
        first.starts_with("place b.service on m7: it is wanted\na.service: none of"),
        "{first}"
    );
    let second = printed(&second);
    let (place, reason) = second.split_once('\n').unwrap();
    assert_eq!(place, "place a.service on m5: it is wanted");
    let expected = "c.service: none of 40 machines fits: \
        Cordon refuses 1 (m6: it is cordoned and accepts no new units); \
        MachineMetadata refuses 39 (such as m0: the unit requires host=h5, the machine has \
        host=h0); \
        nearest is m0: the unit requires host=h5, the machine has host=h0\n";
    assert_eq!(reason, expected);
}

#[test]
fn later_pattern_matches_existing_units() {
    let mut index = Cluster::new();
    index.add_machine(machine("m1"));
    index.add_machine(machine("m2"));
    for name in ["db-1.service", "db-2.service"] {
        put(&mut index, name, Requirements::default());
    }
    carry_out(&mut index);
    let machine_of = vec!["*b-2.service".parse().unwrap()];
    put(&mut index, "side.service", Requirements::default().with_machine_of(machine_of));
    assert_eq!(printed(&carry_out(&mut index)), "place side.service on m2: it is wanted\n");
    index.remove("db-2.service");
    let text = printed(&carry_out(&mut index));
    assert!(text.contains("remove side.service from m2: MachineOf refuses it"), "{text}");
}

/// Creates a cluster in which `old.service` fills the machine `m1`, and `new.service` waits to
/// replace `old.service`. `metadata` is the host that `new.service` requires.
fn waiting_replacer(metadata: &str) -> Cluster {
    let full = Resources { cpu: 10, ..Resources::default() };
    let mut index = Cluster::new();
    let m1 = machine("m1").with_metadata("host", "a");
    index.add_machine(Machine { offers: full, ..m1 });
    index.add_machine(machine("m2").with_metadata("host", "b"));
    put(&mut index, "old.service", Requirements::default().with_reserve(full));
    assert_eq!(carry_out(&mut index).steps.len(), 1);
    let new = replacing(&["old.service"]).with_reserve(full);
    put(&mut index, "new.service", new.with_metadata(on_host(metadata).metadata));
    assert!(carry_out(&mut index).steps.is_empty());
    // A change that does not help.
    put(&mut index, "x.service", Requirements::default());
    assert_eq!(carry_out(&mut index).steps.len(), 1);
    index
}

#[test]
fn waiting_replacer_is_placed_on_a_grown_machine() {
    let mut index = waiting_replacer("b");
    let full = Resources { cpu: 10, ..Resources::default() };
    index.add_machine(Machine { offers: full, ..machine("m2").with_metadata("host", "b") });
    assert_eq!(printed(&carry_out(&mut index)), "place new.service on m2: it is wanted\n");
}

// Holds: D-33
#[test]
fn waiting_replacer_comes_once_the_other_can_move() {
    let mut index = waiting_replacer("a");
    let full = Resources { cpu: 10, ..Resources::default() };
    index.add_machine(Machine { offers: full, ..machine("m2").with_metadata("host", "b") });
    let expected = "move old.service from m1 to m2: new.service replaces it\n\
        place new.service on m1: it is wanted\n";
    assert_eq!(printed(&carry_out(&mut index)), expected);
}

#[test]
fn waiting_replacer_comes_once_a_peer_is_elsewhere() {
    let mut index = Cluster::new();
    index.add_machine(machine("m1").with_metadata("host", "a"));
    index.add_machine(machine("m2").with_metadata("host", "b"));
    let machine_of = vec!["peer-*.service".parse().unwrap()];
    put(&mut index, "old.service", Requirements::default().with_machine_of(machine_of));
    put(&mut index, "peer-1.service", on_host("a"));
    carry_out(&mut index);
    let new = replacing(&["old.service"]).with_metadata(on_host("a").metadata);
    put(&mut index, "new.service", new);
    assert!(carry_out(&mut index).steps.is_empty());
    // It is observed there, without a plan.
    put(&mut index, "peer-2.service", on_host("b"));
    place(&mut index, "peer-2.service", "m2");
    let expected = "move old.service from m1 to m2: new.service replaces it\n\
        place new.service on m1: it is wanted\n";
    assert_eq!(printed(&carry_out(&mut index)), expected);
}

#[test]
fn new_class_does_not_inherit_cached_refusals() {
    let mut index = Cluster::new();
    index.add_machine(machine("m1").with_metadata("disk", "ssd"));
    index.add_machine(machine("m2"));
    let full = Resources { cpu: 10, ..Resources::default() };
    let wants = |expression: Option<&str>| {
        Requirements::default()
            .with_metadata_expr(expression.map(|text| text.parse().unwrap()))
            .with_reserve(full)
    };
    // Refusals are cached from the second count on.
    for name in ["a.service", "b.service"] {
        put(&mut index, name, wants(None));
        carry_out(&mut index);
    }
    for name in ["a.service", "b.service"] {
        index.remove(name);
    }
    put(&mut index, "c.service", wants(Some("exists disk")));
    let first = printed(&carry_out(&mut index));
    assert!(first.contains("MachineMetadataExpr refuses 1 (m2:"), "{first}");
    put(&mut index, "d.service", wants(Some("exists disk")));
    assert_eq!(printed(&carry_out(&mut index)), first.replace("c.service", "d.service"));
}

#[test]
fn exhausted_plan_ends_with_a_reason() {
    let mut index = Cluster::new();
    index.add_machine(machine("m1"));
    put(&mut index, "a.service", Requirements::default());
    put(&mut index, "b.service", replacing(&["a.service"]));
    let machine_of = vec!["a.service".parse().unwrap()];
    put(&mut index, "c.service", Requirements::default().with_machine_of(machine_of));
    let mut queue = AttemptQueue::default();
    queue.counter = AttemptCounter::exhausted();
    decide::place_and_separate(&mut index, &mut queue);
    assert_eq!(queue.given_up.len(), 3);
    // The next plan tries all of them again.
    put(&mut index, "d.service", Requirements::default());
    let plan = carry_out(&mut index);
    assert_eq!(plan.steps.len() + plan.unplaced.len(), 4, "{}", printed(&plan));
    assert!(!plan.unplaced.values().any(|reason| **reason == Reason::AttemptLimit));
}
