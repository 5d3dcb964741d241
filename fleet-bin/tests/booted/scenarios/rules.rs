//! Placement by the rules in `[X-Fleet]`.

use crate::cluster::{Cluster, MACHINES, SLEEP};

/// Returns a sleeping unit with these rules.
fn with_rules(rules: &str) -> String {
    format!("{SLEEP}[X-Fleet]\n{rules}\n")
}

#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn placement_rules_are_followed() {
    let cluster = Cluster::boot("30s");
    check_named_machines(&cluster);
    check_affinity_and_conflicts(&cluster);
    check_global_units(&cluster);
    check_replacement(&cluster);
}

fn check_named_machines(cluster: &Cluster) {
    for machine in MACHINES {
        cluster.start("by-id.service", &with_rules(&format!("MachineID={}", cluster.id(machine))));
        cluster.wait_exactly("by-id.service", &[machine]);
        cluster.start("by-name.service", &with_rules(&format!("MachineMetadata=name={machine}")));
        cluster.wait_exactly("by-name.service", &[machine]);
        cluster.succeed(&["destroy", "by-id.service", "by-name.service"]);
    }
    for (unit, rules, reason) in [
        ("no-id.service", "MachineID=0123456789abcdef0123456789abcdef", "0123456789abcdef"),
        ("no-name.service", "MachineMetadata=name=m4", "name=m4"),
    ] {
        cluster.write(unit, &with_rules(rules));
        let printed = cluster.refused(1, &["start", unit]);
        assert!(printed.contains(reason), "{printed}");
        cluster.wait_exactly(unit, &[]);
        cluster.succeed(&["destroy", unit]);
    }
}

fn check_affinity_and_conflicts(cluster: &Cluster) {
    cluster.write("apart@.service", &with_rules("Conflicts=%p@*"));
    cluster.succeed(&["start", "apart@1.service", "apart@2.service", "apart@3.service"]);
    let mut all: Vec<_> =
        (1..=3).map(|it| cluster.wait_single_machine(&format!("apart@{it}.service"))).collect();
    let second = all[1];
    cluster.start("beside.service", &with_rules("MachineOf=apart@2.service"));
    cluster.wait_exactly("beside.service", &[second]);
    all.sort_unstable();
    assert_eq!(all, MACHINES);
    let printed = cluster.refused(1, &["start", "apart@4.service"]);
    assert!(printed.contains("apart@") && printed.contains("Conflicts"), "{printed}");
    cluster.wait_exactly("apart@4.service", &[]);
    cluster.succeed(&["destroy", "beside.service", "apart@2.service"]);
    cluster.wait_exactly("apart@4.service", &[second]);
    cluster.succeed(&["destroy", "apart@1.service", "apart@3.service", "apart@4.service"]);
}

fn check_global_units(cluster: &Cluster) {
    cluster.start("everywhere.service", &with_rules("Global=true"));
    cluster.wait_exactly("everywhere.service", &MACHINES);
    cluster
        .start("some.service", &with_rules("Global=true\nMachineMetadata=\"name=m1\" \"name=m3\""));
    cluster.wait_exactly("some.service", &["m1", "m3"]);
    cluster.start("alone.service", &with_rules("MachineMetadata=name=m2\nConflicts=global-*"));
    cluster.start("global-shy.service", &with_rules("Global=true"));
    cluster.wait_exactly("global-shy.service", &["m1", "m3"]);
    cluster.succeed(&["destroy", "alone.service"]);
    cluster.wait_exactly("global-shy.service", &MACHINES);
    cluster.succeed(&["destroy", "everywhere.service", "some.service", "global-shy.service"]);
    cluster.wait_exactly("everywhere.service", &[]);
}

fn check_replacement(cluster: &Cluster) {
    cluster.start("old.service", SLEEP);
    let machine = cluster.wait_single_machine("old.service");
    let new = format!("MachineMetadata=name={machine}\nReplaces=old.service");
    cluster.start("new.service", &with_rules(&new));
    cluster.wait_exactly("new.service", &[machine]);
    let other = cluster.wait_single_machine("old.service");
    assert_ne!(other, machine, "the replaced unit must move");
    cluster.wait_exactly("old.service", &[other]);
    cluster.succeed(&["destroy", "old.service", "new.service"]);

    // No unit moves if the replaced one fits on no other machine.
    cluster.start("old.service", &with_rules("MachineMetadata=name=m2"));
    let before = cluster.runs("old.service");
    cluster.write("new.service", &with_rules("MachineMetadata=name=m2\nReplaces=old.service"));
    let printed = cluster.refused(1, &["start", "new.service"]);
    assert!(printed.contains("old.service"), "{printed}");
    cluster.wait_exactly("new.service", &[]);
    assert_eq!(cluster.runs("old.service"), before, "the old unit was disturbed");
    cluster.succeed(&["destroy", "old.service", "new.service"]);
}
