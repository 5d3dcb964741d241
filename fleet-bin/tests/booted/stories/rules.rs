//! What units ask of machines by `[X-Fleet]`, and where they run for it.

use crate::cluster::{Cluster, MACHINES, SLEEP};

/// A unit that sleeps where it may.
fn asking(rules: &str) -> String {
    format!("{SLEEP}[X-Fleet]\n{rules}\n")
}

#[test]
#[ignore = "boots machines: run by scripts/test"]
fn units_run_where_their_rules_allow() {
    let cluster = Cluster::boot("30s");
    a_machine_is_named(&cluster);
    units_keep_together_and_apart(&cluster);
    global_units_are_everywhere(&cluster);
    a_unit_makes_room(&cluster);
}

fn a_machine_is_named(cluster: &Cluster) {
    for machine in MACHINES {
        cluster.start("by-id.service", &asking(&format!("MachineID={}", cluster.id(machine))));
        cluster.wait_exactly("by-id.service", &[machine]);
        cluster.start("by-name.service", &asking(&format!("MachineMetadata=name={machine}")));
        cluster.wait_exactly("by-name.service", &[machine]);
        cluster.succeed(&["destroy", "by-id.service", "by-name.service"]);
    }
    for (unit, rules, reason) in [
        ("no-id.service", "MachineID=0123456789abcdef0123456789abcdef", "0123456789abcdef"),
        ("no-name.service", "MachineMetadata=name=m4", "name=m4"),
    ] {
        cluster.write(unit, &asking(rules));
        let said = cluster.refused(1, &["start", unit]);
        assert!(said.contains(reason), "{said}");
        cluster.wait_exactly(unit, &[]);
        cluster.succeed(&["destroy", unit]);
    }
}

fn units_keep_together_and_apart(cluster: &Cluster) {
    cluster.write("apart@.service", &asking("Conflicts=%p@*"));
    cluster.succeed(&["start", "apart@1.service", "apart@2.service", "apart@3.service"]);
    let mut all: Vec<_> =
        (1..=3).map(|it| cluster.wait_one(&format!("apart@{it}.service"))).collect();
    let second = all[1];
    cluster.start("beside.service", &asking("MachineOf=apart@2.service"));
    cluster.wait_exactly("beside.service", &[second]);
    all.sort_unstable();
    assert_eq!(all, MACHINES);
    let said = cluster.refused(1, &["start", "apart@4.service"]);
    assert!(said.contains("apart@") && said.contains("Conflicts"), "{said}");
    cluster.wait_exactly("apart@4.service", &[]);
    cluster.succeed(&["destroy", "beside.service", "apart@2.service"]);
    cluster.wait_exactly("apart@4.service", &[second]);
    cluster.succeed(&["destroy", "apart@1.service", "apart@3.service", "apart@4.service"]);
}

fn global_units_are_everywhere(cluster: &Cluster) {
    cluster.start("everywhere.service", &asking("Global=true"));
    cluster.wait_exactly("everywhere.service", &MACHINES);
    cluster.start("some.service", &asking("Global=true\nMachineMetadata=\"name=m1\" \"name=m3\""));
    cluster.wait_exactly("some.service", &["m1", "m3"]);
    cluster.start("alone.service", &asking("MachineMetadata=name=m2\nConflicts=global-*"));
    cluster.start("global-shy.service", &asking("Global=true"));
    cluster.wait_exactly("global-shy.service", &["m1", "m3"]);
    cluster.succeed(&["destroy", "alone.service"]);
    cluster.wait_exactly("global-shy.service", &MACHINES);
    cluster.succeed(&["destroy", "everywhere.service", "some.service", "global-shy.service"]);
    cluster.wait_exactly("everywhere.service", &[]);
}

fn a_unit_makes_room(cluster: &Cluster) {
    cluster.start("old.service", SLEEP);
    let machine = cluster.wait_one("old.service");
    let new = format!("MachineMetadata=name={machine}\nReplaces=old.service");
    cluster.start("new.service", &asking(&new));
    cluster.wait_exactly("new.service", &[machine]);
    let other = cluster.wait_one("old.service");
    assert_ne!(other, machine, "it moved away");
    cluster.wait_exactly("old.service", &[other]);
    cluster.succeed(&["destroy", "old.service", "new.service"]);

    // Nothing moves where the old one could not go elsewhere.
    cluster.start("old.service", &asking("MachineMetadata=name=m2"));
    let before = cluster.runs("old.service");
    cluster.write("new.service", &asking("MachineMetadata=name=m2\nReplaces=old.service"));
    let said = cluster.refused(1, &["start", "new.service"]);
    assert!(said.contains("old.service"), "{said}");
    cluster.wait_exactly("new.service", &[]);
    assert_eq!(cluster.runs("old.service"), before, "it was not disturbed");
    cluster.succeed(&["destroy", "old.service", "new.service"]);
}
