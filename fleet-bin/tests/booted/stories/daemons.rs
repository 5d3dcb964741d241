//! Daemons end, in every way, and their units notice nothing.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, MACHINES, SLEEP};
use crate::look::wait_for;

/// Ends the daemon of a machine, and waits until another one does its work.
fn replace(cluster: &Cluster, machine: &str, script: &str) {
    let before = cluster.show(machine, "fleet.service", "MainPID");
    cluster.kit.exec(machine, script);
    wait_for("another daemon is ready", || {
        let runs = cluster.runs_on(machine, "fleet.service");
        let now = runs.get("fleet.service")?;
        (now.main_pid != before && now.active == "active").then_some(())
    });
}

// Holds: I-9
#[test]
#[ignore = "boots machines: run by scripts/test"]
fn a_daemon_that_is_killed_or_ended_restarts_no_unit() {
    let cluster = Cluster::boot("30s");
    let crashing = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=100ms\n\
                    ExecStart=/bin/sh -c '[ -e /run/kept-up ] && exec sleep infinity; \
                    touch /run/kept-up'\n";
    cluster.write("kept@.service", SLEEP);
    let instances: Vec<_> = (0..9).map(|number| format!("kept@{number}.service")).collect();
    let started: Vec<_> = ["start"].into_iter().chain(instances.iter().map(|it| &**it)).collect();
    cluster.succeed(&started);
    cluster.start("kept-global.service", &format!("{SLEEP}[X-Fleet]\nGlobal=true\n"));
    cluster.write("kept-crashed.service", crashing);
    cluster.succeed(&["start", "--no-block", "kept-crashed.service"]);
    wait_for("it runs the second time", || {
        let runs = cluster.runs("kept-crashed.service");
        runs.values().any(|run| run.restarts == "1" && run.active == "active").then_some(())
    });

    let running = || -> BTreeMap<_, _> {
        let mut runs = cluster.runs("kept*");
        runs.retain(|_, run| run.active == "active");
        runs
    };
    let before = running();
    assert_eq!(before.len(), 9 + 3 + 1, "{before:#?}");
    for end in ["systemctl kill -s KILL --kill-whom=main fleet", "systemctl restart fleet"] {
        for machine in MACHINES {
            replace(&cluster, machine, end);
            assert_eq!(running(), before, "{end} in {machine}");
        }
    }
    std::thread::scope(|scope| {
        for machine in MACHINES {
            let cluster = &cluster;
            scope.spawn(move || replace(cluster, machine, "systemctl kill -s KILL fleet"));
        }
    });
    cluster.wait_present(&MACHINES);
    // What follows orders has looked at all that was there.
    cluster.start("later.service", &format!("{SLEEP}[X-Fleet]\nGlobal=true\n"));
    assert_eq!(running(), before, "all three at once");
    cluster.succeed(&["restart", "kept@3.service"]);
    assert_ne!(running(), before, "who is asked for a restart does it");
    cluster.succeed(&["destroy", "kept-global.service", "kept-crashed.service"]);
    assert_eq!(running().len(), 9, "what was taken back can be ended");
}

#[test]
#[ignore = "boots machines: run by scripts/test"]
fn a_reload_takes_new_metadata() {
    let cluster = Cluster::boot("30s");
    let asking = |rules: &str| format!("{SLEEP}[X-Fleet]\n{rules}\n");
    cluster.start("steady.service", &asking("MachineMetadata=name=m2"));
    cluster.start("named.service", &asking("Global=true\nMachineMetadataExpr=exists name"));
    cluster.write("racked.service", &asking("MachineMetadata=rack=7"));
    cluster.refused(1, &["start", "racked.service"]);
    let steady = cluster.runs("steady.service");
    let daemon = cluster.show("m2", "fleet.service", "MainPID");

    cluster.kit.exec("m2", "echo 'rack = \"7\"' >>/etc/fleet/fleet.conf; systemctl reload fleet");
    cluster.wait_exactly("racked.service", &["m2"]);
    let script = "sed -i 's/^name = .*//' /etc/fleet/fleet.conf; systemctl kill -s HUP fleet";
    cluster.kit.exec("m3", script);
    cluster.wait_exactly("named.service", &["m1", "m2"]);
    cluster.kit.exec("m3", "echo 'name \"m3\"' >>/etc/fleet/fleet.conf; systemctl reload fleet");
    wait_for("a bad file is told of", || {
        let status = cluster.show("m3", "fleet.service", "StatusText");
        (status.contains("not reloaded") && status.contains("fleet.conf:")).then_some(())
    });
    assert_eq!(cluster.present(), MACHINES);
    assert_eq!(cluster.runs("steady.service"), steady, "no unit was disturbed");
    assert_eq!(cluster.show("m2", "fleet.service", "MainPID"), daemon, "nor a daemon");
}
