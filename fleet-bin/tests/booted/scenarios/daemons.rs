//! Ends of daemons, which must not disturb their units.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, MACHINES, SLEEP};
use crate::observe::wait_for;

/// Ends a machine's daemon with a script, and waits until its successor is ready.
fn replace(cluster: &Cluster, machine: &str, script: &str) {
    let before = cluster.show(machine, "fleet.service", "MainPID");
    cluster.kit.exec(machine, script);
    wait_for("the next daemon is ready", || {
        let runs = cluster.runs_on(machine, "fleet.service");
        let now = runs.get("fleet.service")?;
        (now.main_pid != before && now.active == "active").then_some(())
    });
}

// Holds: I-9
#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn replaced_daemons_restart_no_unit() {
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
    wait_for("the crashing unit has been restarted once", || {
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
    // Once a later unit runs everywhere, each agent has examined its units.
    cluster.start("later.service", &format!("{SLEEP}[X-Fleet]\nGlobal=true\n"));
    assert_eq!(running(), before, "all three daemons at once");
    cluster.succeed(&["restart", "kept@3.service"]);
    assert_ne!(running(), before, "a restart must replace the run");
    cluster.succeed(&["destroy", "kept-global.service", "kept-crashed.service"]);
    assert_eq!(running().len(), 9, "adopted units must be stoppable");
}

#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn reload_applies_new_metadata() {
    let cluster = Cluster::boot("30s");
    let with_rules = |rules: &str| format!("{SLEEP}[X-Fleet]\n{rules}\n");
    cluster.start("steady.service", &with_rules("MachineMetadata=name=m2"));
    cluster.start("named.service", &with_rules("Global=true\nMachineMetadataExpr=exists name"));
    cluster.write("racked.service", &with_rules("MachineMetadata=rack=7"));
    cluster.refused(1, &["start", "racked.service"]);
    let steady = cluster.runs("steady.service");
    let daemon = cluster.show("m2", "fleet.service", "MainPID");

    cluster.kit.exec("m2", "echo 'rack = \"7\"' >>/etc/fleet/fleet.conf; systemctl reload fleet");
    cluster.wait_exactly("racked.service", &["m2"]);
    let script = "sed -i 's/^name = .*//' /etc/fleet/fleet.conf; systemctl kill -s HUP fleet";
    cluster.kit.exec("m3", script);
    cluster.wait_exactly("named.service", &["m1", "m2"]);
    cluster.kit.exec("m3", "echo 'name \"m3\"' >>/etc/fleet/fleet.conf; systemctl reload fleet");
    wait_for("the invalid file is reported", || {
        let status = cluster.show("m3", "fleet.service", "StatusText");
        (status.contains("not reloaded") && status.contains("fleet.conf:")).then_some(())
    });
    assert_eq!(cluster.present(), MACHINES);
    assert_eq!(cluster.runs("steady.service"), steady, "a unit was disturbed");
    assert_eq!(cluster.show("m2", "fleet.service", "MainPID"), daemon, "the daemon was restarted");
}

/// Regression: a daemon with another service manager started every running unit a second time.
#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn other_service_manager_waits_for_running_units() {
    let cluster = Cluster::boot("30s");
    let text = "[Service]\nExecStartPre=/bin/sh -c 'echo started >>/srv/share/results/starts'\n\
                ExecStart=/bin/sleep infinity\n[X-Fleet]\nMachineMetadata=name=m2\n";
    cluster.start("once.service", text);
    let before = cluster.runs_on("m2", "once.service");
    let starts = || cluster.result_file("starts").lines().count();
    let script = "sed -i 's/\"systemd\"/\"native\"/' /etc/fleet/fleet.conf
                  systemctl restart --no-block fleet";
    cluster.kit.exec("m2", script);
    wait_for("the daemon refuses to start", || {
        let log = cluster.kit.exec("m2", "journalctl --no-pager -o cat -u fleet.service");
        let refusal = log.lines().find(|line| line.contains("units still run under"))?;
        refusal.contains("(once.service)").then_some(())
    });
    assert_eq!(cluster.runs_on("m2", "once.service"), before, "the unit was disturbed");
    assert_eq!(starts(), 1);

    cluster.kit.exec("m2", "systemctl stop once.service");
    wait_for("the native service manager starts the unit", || (starts() == 2).then_some(()));
    cluster.kit.exec("m2", "sed -i 's/\"native\"/\"systemd\"/' /etc/fleet/fleet.conf");
    cluster.kit.exec("m2", "systemctl restart --no-block fleet");
    wait_for("the daemon refuses to change back", || {
        let log = cluster.kit.exec("m2", "journalctl --no-pager -o cat -u fleet.service");
        log.contains("under service_manager = \"native\"").then_some(())
    });
    cluster.kit.exec("m2", "sed -i 's/\"systemd\"/\"native\"/' /etc/fleet/fleet.conf");
    cluster.wait_present(&MACHINES);
    cluster.succeed(&["destroy", "once.service"]);
    assert_eq!(starts(), 2, "the unit was started again");
}
