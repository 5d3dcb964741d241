//! Crashes, partitions and returns of machines.

use std::collections::BTreeSet;

use crate::cluster::{Cluster, MACHINES, SLEEP, STORE};
use crate::observe::wait_for;

/// Lifetime of presence leases in these scenarios.
const TTL: &str = "5s";

/// Returns the names of `count` instances of a template.
fn instances(template: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{template}@{number}.service")).collect()
}

/// Writes a template and starts `count` instances of it.
fn start_instances(cluster: &Cluster, template: &str, text: &str, count: usize) -> Vec<String> {
    cluster.write(&format!("{template}@.service"), text);
    let names = instances(template, count);
    let start: Vec<_> = ["start"].into_iter().chain(names.iter().map(|name| &**name)).collect();
    cluster.succeed(&start);
    names
}

/// Waits until each unit is active on exactly one of these machines.
fn wait_spread(cluster: &Cluster, names: &[String], machines: &[&str]) {
    wait_for(&format!("all units are active on {machines:?}"), || {
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
#[ignore = "boots machines: run by scripts/test --full"]
fn crashed_machine_loses_its_units_and_rejoins() {
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
            assert_eq!(after.get(unit), Some(run), "a unit of another machine was disturbed");
        }
    }

    cluster.kit.run(&["boot", "m2"]);
    cluster.wait_present(&MACHINES);
    cluster.wait_exactly("global.service", &MACHINES);
    cluster.wait_exactly("bound.service", &["m2"]);
    let back = cluster.runs_on("m2", "moving@*");
    assert!(back.values().all(|run| run.active != "active"), "a moved unit must stay: {back:?}");
    let new = format!("{SLEEP}[X-Fleet]\nMachineMetadata=name=m2\n");
    cluster.start("new.service", &new);
    cluster.wait_exactly("new.service", &["m2"]);
}

#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn cluster_runs_the_same_units_after_power_loss() {
    let cluster = Cluster::boot(TTL);
    let names = start_instances(&cluster, "steady", SLEEP, 6);
    for machine in MACHINES.into_iter().chain([STORE]) {
        cluster.kit.run(&["crash", machine]);
    }
    // The store boots last. Machines may consider each other lost, but every unit must run exactly
    // once.
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
    wait_for("each unit runs once", || {
        let mut runs = cluster.runs("steady@*");
        runs.retain(|_, run| run.active == "active");
        let units: BTreeSet<_> = runs.keys().map(|(_, unit)| unit).collect();
        (runs.len() == names.len() && units.len() == names.len()).then_some(())
    });
}

/// Returns a unit that records the machine of each start and stop.
fn noting(rules: &str) -> String {
    let write = |word| format!("/bin/sh -c 'echo {word} %H >>/srv/share/results/%p'");
    let (begin, end) = (write("begin"), write("end"));
    format!("{SLEEP}TimeoutStopSec=1\nExecStartPre={begin}\nExecStopPost={end}\n[X-Fleet]\n{rules}")
}

#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn partitioned_machine_follows_on_partition_and_rejoins() {
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
    wait_for("the OnPartition=stop unit ends on the isolated machine", || {
        (cluster.show("m2", "stop.service", "ActiveState") == "inactive").then_some(())
    });
    cluster.wait_present(&["m1", "m3"]);
    let kept = wait_for("the OnPartition=keep unit also runs elsewhere", || {
        cluster.active_on("keep.service").first().copied().filter(|machine| *machine != "m2")
    });
    assert_eq!(cluster.runs_on("m2", "keep.service")["keep.service"], before["keep.service"]);
    let stopped = wait_for("the OnPartition=stop unit runs elsewhere", || {
        cluster.active_on("stop.service").first().copied().filter(|machine| *machine != "m2")
    });
    let expected = format!("begin m2\nend m2\nbegin {stopped}\n");
    assert_eq!(cluster.result_file("stop"), expected);

    cluster.kit.run(&["heal", "m2"]);
    cluster.wait_present(&MACHINES);
    cluster.wait_exactly("keep.service", &[kept]);
    cluster.wait_exactly("stop.service", &[stopped]);
    cluster.wait_exactly("bound.service", &["m2"]);
    assert_eq!(cluster.result_file("keep"), format!("begin m2\nbegin {kept}\nend m2\n"));
    assert_eq!(cluster.result_file("stop"), expected, "the unit ran twice");
    assert_eq!(cluster.result_file("bound"), "begin m2\n", "the bound unit was disturbed");
}
