//! Machines crash, are cut off, and come back.

use std::collections::BTreeSet;

use crate::cluster::{Cluster, MACHINES, SLEEP, STORE};
use crate::look::wait_for;

/// How long a silent machine counts as present in these stories.
const TTL: &str = "5s";

/// The names of `count` instances of a template.
fn instances(template: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{template}@{number}.service")).collect()
}

/// Writes a template, and starts instances of it.
fn start_instances(cluster: &Cluster, template: &str, text: &str, count: usize) -> Vec<String> {
    cluster.write(&format!("{template}@.service"), text);
    let names = instances(template, count);
    let start: Vec<_> = ["start"].into_iter().chain(names.iter().map(|name| &**name)).collect();
    cluster.succeed(&start);
    names
}

/// Waits until each unit is active on one machine, and on none that is not among these.
fn wait_spread(cluster: &Cluster, names: &[String], machines: &[&str]) {
    wait_for(&format!("all are active on {machines:?}"), || {
        let rows = cluster.listed("list-units");
        let good = names.iter().all(|name| {
            let mut of = rows.iter().filter(|row| row["unit"] == **name);
            let first = of.next();
            let machine = first.and_then(|row| cluster.name_of(row["machine"].as_str()?));
            let is_active = first.is_some_and(|row| row["active"] == "active");
            is_active && machine.is_some_and(|it| machines.contains(&it)) && of.next().is_none()
        });
        good.then_some(())
    });
}

#[test]
#[ignore = "boots machines: run by scripts/test"]
fn a_machine_that_crashes_is_replaced_and_taken_in_again() {
    let cluster = Cluster::boot(TTL);
    let moving = start_instances(&cluster, "moving", SLEEP, 9);
    cluster.start("global.service", &format!("{SLEEP}[X-Fleet]\nGlobal=true\n"));
    let bound = format!("{SLEEP}[X-Fleet]\nMachineMetadata=name=m2\nReschedule=never\n");
    cluster.start("bound.service", &bound);
    let before = cluster.runs("moving@*");
    assert!(before.keys().any(|(machine, _)| *machine == "m2"), "{before:?}");

    cluster.kit.run(&["crash", "m2"]);
    cluster.wait_present(&["m1", "m3"]);
    wait_spread(&cluster, &moving, &["m1", "m3"]);
    cluster.wait_active("global.service", 2);
    for machine in ["m1", "m3"] {
        let after = cluster.runs_on(machine, "moving@*");
        for ((_, unit), run) in before.iter().filter(|((on, _), _)| *on == machine) {
            assert_eq!(after.get(unit), Some(run), "who was elsewhere is not disturbed");
        }
    }

    cluster.kit.run(&["boot", "m2"]);
    cluster.wait_present(&MACHINES);
    cluster.wait_exactly("global.service", &MACHINES);
    cluster.wait_exactly("bound.service", &["m2"]);
    let back = cluster.runs_on("m2", "moving@*");
    assert!(back.values().all(|run| run.active != "active"), "who has moved stays: {back:?}");
    let new = format!("{SLEEP}[X-Fleet]\nMachineMetadata=name=m2\n");
    cluster.start("new.service", &new);
    cluster.wait_exactly("new.service", &["m2"]);
}

#[test]
#[ignore = "boots machines: run by scripts/test"]
fn a_cluster_that_loses_its_power_runs_what_it_ran() {
    let cluster = Cluster::boot(TTL);
    let names = start_instances(&cluster, "steady", SLEEP, 6);
    for machine in MACHINES.into_iter().chain([STORE]) {
        cluster.kit.run(&["crash", machine]);
    }
    // The store comes last. Machines may find each other missing, but no unit is lost, and none
    // runs twice.
    std::thread::scope(|scope| {
        for machine in MACHINES {
            let kit = &cluster.kit;
            scope.spawn(move || kit.run(&["boot", machine]));
        }
    });
    cluster.kit.run(&["boot", STORE]);
    cluster.kit.exec(STORE, "systemctl start etcd.service");
    cluster.wait_present(&MACHINES);
    wait_spread(&cluster, &names, &MACHINES);
    wait_for("each runs once", || {
        let mut runs = cluster.runs("steady@*");
        runs.retain(|_, run| run.active == "active");
        let units: BTreeSet<_> = runs.keys().map(|(_, unit)| unit).collect();
        (runs.len() == names.len() && units.len() == names.len()).then_some(())
    });
}

/// A unit that writes down where it begins and ends.
fn noting(rules: &str) -> String {
    let write = |word| format!("/bin/sh -c 'echo {word} %H >>/srv/share/seen/%p'");
    let (begin, end) = (write("begin"), write("end"));
    format!("{SLEEP}TimeoutStopSec=1\nExecStartPre={begin}\nExecStopPost={end}\n[X-Fleet]\n{rules}")
}

#[test]
#[ignore = "boots machines: run by scripts/test"]
fn a_machine_is_cut_off_and_healed() {
    let cluster = Cluster::boot(TTL);
    let (first, second) = (cluster.id("m1"), cluster.id("m3"));
    cluster.succeed(&["machine", "cordon", first]);
    cluster.succeed(&["machine", "cordon", second]);
    cluster.start("keep.service", &noting("OnPartition=keep\n"));
    cluster.start("stop.service", &noting("OnPartition=stop\n"));
    cluster.start("bound.service", &noting("MachineMetadata=name=m2\n"));
    cluster.succeed(&["machine", "uncordon", first]);
    cluster.succeed(&["machine", "uncordon", second]);
    let before = cluster.runs_on("m2", "*e*.service");

    cluster.kit.run(&["cut", "m2"]);
    wait_for("what must not run twice ends on the machine that is cut off", || {
        (cluster.show("m2", "stop.service", "ActiveState") == "inactive").then_some(())
    });
    cluster.wait_present(&["m1", "m3"]);
    let kept = wait_for("who may run twice runs elsewhere", || {
        cluster.active_on("keep.service").first().copied().filter(|machine| *machine != "m2")
    });
    assert_eq!(cluster.runs_on("m2", "keep.service")["keep.service"], before["keep.service"]);
    let stopped = wait_for("who must not runs elsewhere, now that it has ended", || {
        cluster.active_on("stop.service").first().copied().filter(|machine| *machine != "m2")
    });
    let story = format!("begin m2\nend m2\nbegin {stopped}\n");
    assert_eq!(cluster.seen("stop"), story);

    cluster.kit.run(&["heal", "m2"]);
    cluster.wait_present(&MACHINES);
    cluster.wait_exactly("keep.service", &[kept]);
    cluster.wait_exactly("stop.service", &[stopped]);
    cluster.wait_exactly("bound.service", &["m2"]);
    assert_eq!(cluster.seen("keep"), format!("begin m2\nbegin {kept}\nend m2\n"));
    assert_eq!(cluster.seen("stop"), story, "it did not run twice");
    assert_eq!(cluster.seen("bound"), "begin m2\n", "whose machine it is was not disturbed");
}
