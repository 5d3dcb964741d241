//! Dependent units, units refused by systemd, slow units and changing units.

use std::path::PathBuf;

use crate::cluster::{Cluster, MACHINES, SLEEP};
use crate::observe::wait_for;

#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn sidekick_starts_with_its_main_unit() {
    let cluster = Cluster::boot("30s");
    let side = format!(
        "[Unit]\nPartOf=main.service\n{SLEEP}[Install]\nWantedBy=main.service\n\
         [X-Fleet]\nMachineOf=main.service\n"
    );
    cluster.write("main.service", SLEEP);
    cluster.write("side.service", &side);
    cluster.succeed(&["load", "main.service", "side.service"]);
    cluster.succeed(&["start", "main.service"]);
    let machine = cluster.wait_single_machine("main.service");
    assert_eq!(
        cluster.wait_single_machine("side.service"),
        machine,
        "both units must be on one machine"
    );
    cluster.succeed(&["stop", "main.service"]);
    wait_for("the sidekick stops with its main unit", || {
        cluster.active_on("side.service").is_empty().then_some(())
    });

    // A sidekick that is loaded later starts with the next start of its main unit.
    cluster.succeed(&["destroy", "side.service"]);
    cluster.succeed(&["start", "main.service"]);
    cluster.succeed(&["load", "side.service"]);
    cluster.succeed(&["restart", "main.service"]);
    assert_eq!(
        cluster.wait_single_machine("side.service"),
        cluster.wait_single_machine("main.service")
    );
    cluster.succeed(&["destroy", "main.service", "side.service"]);
    let left = cluster.kit.exec(machine, "find /run/systemd/system /etc/systemd -name '*main*'");
    assert_eq!(left, "", "unit files remain on the machine");
}

// Holds: I-12
#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn units_refused_by_systemd_do_not_affect_others() {
    let cluster = Cluster::boot("30s");
    cluster.start("good@1.service", SLEEP);
    let before = cluster.runs("good@*");
    let bad = "[Service]\nType=oneshot\nExecStart=no/such/place\n[X-Fleet]\nConflicts=%p@*\n";
    for number in 1..=3 {
        cluster.write(&format!("bad@{number}.service"), bad);
        cluster.write(&format!("good@{}.service", number + 1), SLEEP);
    }
    cluster.succeed(&["start", "--no-block", "bad@1.service", "bad@2.service", "bad@3.service"]);
    cluster.succeed(&["start", "good@2.service", "good@3.service", "good@4.service"]);
    let printed = cluster.refused(1, &["start", "bad@2.service"]);
    assert!(printed.contains("bad@2.service"), "{printed}");
    for number in 1..=3 {
        let unit = format!("bad@{number}.service");
        wait_for(&format!("{unit} is listed with its load error"), || {
            let rows = cluster.rows(&unit);
            rows.iter().any(|row| row["load"] == "bad-setting").then_some(())
        });
        let shown = cluster.refused(3, &["status", &unit]);
        assert!(shown.contains("bad"), "{shown}");
    }
    let mut after = cluster.runs("good@*");
    assert_eq!(after.len(), 4);
    after.retain(|key, _| before.contains_key(key));
    assert_eq!(after, before);
    cluster.write("bad@1.service", SLEEP);
    cluster.succeed(&["start", "--replace", "bad@1.service"]);
    cluster.wait_single_machine("bad@1.service");
    cluster.succeed(&["destroy", "bad@1.service", "bad@2.service", "bad@3.service"]);
}

// Holds: I-14
#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn recreated_unit_runs_its_new_content() {
    const UNIT: &str = "changing.service";
    const HOLDER: &str = "[Unit]\nAfter=changing.service\n[Service]\nType=oneshot\n\
        RemainAfterExit=yes\nExecStart=/bin/true\n[X-Fleet]\nGlobal=true\n";
    let cluster = Cluster::boot("30s");
    for round in 0..100 {
        if round == 50 {
            // From now on the holder keeps the unit loaded in systemd, so it must be reloaded.
            cluster.start("holder.service", HOLDER);
        }
        // Moves the unit between machines.
        let elsewhere = MACHINES[round % 3];
        let text = format!(
            "[Service]\nType=oneshot\nRemainAfterExit=yes\n\
             ExecStart=/bin/sh -c 'echo %H {round} >/srv/share/results/changing'\n\
             [X-Fleet]\nMachineMetadataExpr=name != {elsewhere}\n"
        );
        cluster.start(UNIT, &text);
        let result = cluster.result_file("changing");
        let (machine, content) = result.trim_end().split_once(' ').expect("a machine and a round");
        assert_eq!(content, round.to_string(), "stale content on {machine}");
        assert_ne!(machine, elsewhere);
        cluster.succeed(&["destroy", UNIT]);
    }
    for machine in MACHINES {
        assert_eq!(cluster.show(machine, UNIT, "LoadState"), "not-found", "{machine}");
    }
}

/// File that lets the slow unit stop. It is written on drop, even if the scenario fails.
struct Gate(PathBuf);

impl Drop for Gate {
    fn drop(&mut self) {
        std::fs::write(&self.0, "").expect("the shared folder can be written to");
    }
}

// Holds: I-26, D-34
#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn slow_stop_does_not_delay_other_starts() {
    let cluster = Cluster::boot("30s");
    let slow = format!(
        "{SLEEP}TimeoutStopSec=300\nExecStop=/bin/sleep 20\n\
         ExecStop=/bin/sh -c 'until [ -e /srv/share/results/gate ]; do sleep 0.1; done'\n"
    );
    cluster.start("slow.service", &slow);
    let machine = cluster.wait_single_machine("slow.service");
    let gate = Gate(cluster.kit.share("results/gate"));
    cluster.succeed(&["stop", "--no-block", "slow.service"]);
    let state = || cluster.show(machine, "slow.service", "ActiveState");
    wait_for("the slow unit is stopping", || (state() == "deactivating").then_some(()));
    cluster.write("quick@.service", SLEEP);
    let names: Vec<_> = (0..100).map(|number| format!("quick@{number}.service")).collect();
    let start: Vec<_> = ["start"].into_iter().chain(names.iter().map(|name| &**name)).collect();
    cluster.succeed(&start);
    let quick = cluster.runs("quick@*");
    assert_eq!(quick.values().filter(|run| run.active == "active").count(), 100);
    assert!(quick.keys().any(|(on, _)| *on == machine), "no unit on the slow unit's machine");
    assert_eq!(state(), "deactivating", "the slow unit must still be stopping");
    let shown = cluster.rows("slow.service");
    assert!(shown.iter().any(|row| row["active"] == "deactivating"), "{shown:?}");
    drop(gate);
    cluster.succeed(&["stop", "slow.service"]);
    assert_eq!(state(), "inactive");
}

/// A start that never ends by itself: a oneshot, and a service that never reports readiness.
const NEVER_STARTED: [(&str, &str); 2] = [
    ("job.service", "[Service]\nType=oneshot\nExecStart=/bin/sleep infinity\n"),
    ("mute.service", "[Service]\nType=notify\nExecStart=/bin/sleep infinity\n"),
];

/// Regression: each command waited for the end of the start, which never came.
#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn starting_unit_is_stopped_replaced_drained_and_destroyed() {
    let cluster = Cluster::boot("30s");
    for (unit, text) in NEVER_STARTED {
        let wait_starting = || {
            wait_for(&format!("{unit} is starting"), || {
                let starts = |on: &&&str| cluster.show(on, unit, "ActiveState") == "activating";
                let on: Vec<_> = MACHINES.iter().filter(starts).copied().collect();
                (on.len() == 1).then(|| on[0])
            })
        };
        cluster.write(unit, text);
        cluster.succeed(&["start", "--no-block", unit]);
        let machine = wait_starting();
        cluster.succeed(&["stop", unit]);
        let state = cluster.show(machine, unit, "ActiveState");
        assert!(["inactive", "failed"].contains(&&*state), "{unit} is {state}");

        cluster.succeed(&["start", "--no-block", unit]);
        wait_starting();
        // The replaced start ends, and the new unit starts in its place.
        cluster.write(unit, SLEEP);
        cluster.succeed(&["start", "--replace", unit]);
        cluster.wait_single_machine(unit);
        cluster.write(unit, text);
        cluster.succeed(&["start", "--no-block", "--replace", unit]);

        let machine = wait_starting();
        cluster.succeed(&["machine", "drain", cluster.id(machine)]);
        let other = wait_for(&format!("{unit} starts on another machine"), || {
            let on = wait_starting();
            (on != machine).then_some(on)
        });
        let left = cluster.show(machine, unit, "ActiveState");
        assert!(["inactive", "failed"].contains(&&*left), "{unit} is {left} on {machine}");
        cluster.succeed(&["machine", "uncordon", cluster.id(machine)]);

        cluster.succeed(&["destroy", unit]);
        wait_for(&format!("{unit} is gone"), || {
            (cluster.show(other, unit, "LoadState") == "not-found").then_some(())
        });
    }
}

/// Regression: the command waited in vain, because the unit was wanted as loaded only.
#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn stop_ends_what_a_timer_or_another_unit_started() {
    let cluster = Cluster::boot("30s");
    let placed = "[X-Fleet]\nMachineOf=job.service\n";
    cluster.write("job.service", SLEEP);
    cluster.write("job.timer", &format!("[Timer]\nOnActiveSec=1s\n{placed}"));
    let needs = "[Unit]\nRequires=job.service\nAfter=job.service\n";
    cluster.write("needs.service", &format!("{needs}{SLEEP}{placed}"));
    cluster.succeed(&["load", "job.service"]);
    for starter in ["job.timer", "needs.service"] {
        cluster.succeed(&["start", starter]);
        let machine = cluster.wait_single_machine("job.service");
        cluster.succeed(&["stop", "job.service"]);
        assert_eq!(cluster.show(machine, "job.service", "ActiveState"), "inactive", "{starter}");
        cluster.succeed(&["destroy", starter]);
    }
}
