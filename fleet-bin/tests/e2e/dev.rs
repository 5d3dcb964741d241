//! `fleetd dev` with the unit files that come with the project.

use std::collections::BTreeSet;
use std::path::Path;

use rustix::process::Signal;

use crate::daemon::{Cluster, is_alive, main_pid, told};

const SLEEPER: &str = "[Service]\nExecStart=/bin/sleep infinity\n";

fn example_units() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/units"))
}

#[test]
fn the_example_units_run_as_their_requirements_say() {
    let cluster = Cluster::start(&[example_units()]);
    let machine = |unit: &str| cluster.wait_active(unit)["machine"].clone();

    let workers = ["worker@1.service", "worker@2.service", "worker@3.service"].map(machine);
    let apart: BTreeSet<String> = workers.iter().map(ToString::to_string).collect();
    assert_eq!(apart.len(), 3, "workers conflict, yet share a machine: {workers:?}");

    assert_eq!(machine("web-announce.service"), machine("web.service"));

    cluster.wait_for("the heartbeat is on every machine", |cluster| {
        let rows = cluster.rows("heartbeat.service");
        (rows.iter().filter(|row| row["active"] == "active").count() == 3).then_some(())
    });

    let unplaced = cluster.rows("needs-gpu.service");
    assert_eq!(unplaced.len(), 1);
    let reason = unplaced[0]["reason"].as_str().unwrap();
    assert!(reason.contains("MachineMetadata refuses 3") && reason.contains("gpu=yes"), "{reason}");
}

#[test]
fn a_unit_without_a_place_ends_start_with_its_reason() {
    let cluster = Cluster::start(&[]);
    let unit = "[Service]\nExecStart=/bin/true\n[X-Fleet]\nMachineMetadata=zone=mars\n";
    let path = cluster.write("lost.service", unit);
    let output = cluster.fleetctl(&["start".as_ref(), path.as_os_str()]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(
        errors.contains("zone=mars") && errors.contains("MachineMetadata refuses 3"),
        "{errors}"
    );
    assert_eq!(cluster.rows("lost.service").len(), 1, "the unit stays wanted");
}

#[test]
fn commands_lead_a_unit_through_all_its_states() {
    let cluster = Cluster::start(&[]);
    let path = cluster.write("walk.service", SLEEPER);
    let state = || {
        let listed = cluster.succeed(&["list-unit-files", "-o", "json"]);
        let files: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let field = |name: &str| files[0][name].as_str().unwrap_or("-").to_owned();
        (field("desired"), field("current"))
    };
    let states = |desired: &str, current: &str| (desired.to_owned(), current.to_owned());

    cluster.succeed(&["submit".as_ref(), path.as_os_str()]);
    assert_eq!(state(), states("inactive", "inactive"));
    cluster.succeed(&["load", "walk.service"]);
    assert_eq!(state(), states("loaded", "loaded"));
    cluster.succeed(&["start", "walk.service"]);
    assert_eq!(state(), states("launched", "launched"));
    let first = main_pid(&cluster.wait_active("walk.service"));

    cluster.succeed(&["restart", "walk.service"]);
    let second = main_pid(&cluster.wait_active("walk.service"));
    assert_ne!(first, second, "a restart makes a new process");
    assert!(!is_alive(first));

    cluster.succeed(&["stop", "walk.service"]);
    assert_eq!(state(), states("loaded", "loaded"));
    assert!(!is_alive(second));
    cluster.succeed(&["unload", "walk.service"]);
    assert_eq!(state(), states("inactive", "inactive"));
    assert_eq!(cluster.succeed(&["cat", "walk.service"]), SLEEPER);
    cluster.succeed(&["destroy", "walk.service"]);
    assert!(cluster.units().is_empty());
}

#[test]
fn the_end_of_the_daemon_by_ctrl_c_ends_its_units() {
    let mut cluster = Cluster::start(&[]);
    let path = cluster.write("sleeper.service", SLEEPER);
    cluster.succeed(&["start".as_ref(), path.as_os_str()]);
    let pid = main_pid(&cluster.wait_active("sleeper.service"));
    assert!(cluster.end_daemon(Signal::INT).success());
    assert!(!is_alive(pid), "a unit outlived the cluster");

    cluster.start_daemon(&[]);
    cluster.wait_active("sleeper.service");
}
