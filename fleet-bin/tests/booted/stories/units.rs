//! Units that depend on each other, that systemd refuses, that are slow, and that change.

use std::path::PathBuf;

use crate::cluster::{Cluster, MACHINES, SLEEP};
use crate::look::wait_for;

#[test]
#[ignore = "boots machines: run by scripts/test"]
fn systemd_starts_a_sidekick_with_its_main_unit() {
    let cluster = Cluster::boot("30s");
    let side = format!(
        "[Unit]\nPartOf=main.service\n{SLEEP}[Install]\nWantedBy=main.service\n\
         [X-Fleet]\nMachineOf=main.service\n"
    );
    cluster.write("main.service", SLEEP);
    cluster.write("side.service", &side);
    cluster.succeed(&["load", "main.service", "side.service"]);
    cluster.succeed(&["start", "main.service"]);
    let machine = cluster.wait_one("main.service");
    assert_eq!(cluster.wait_one("side.service"), machine, "both are on one machine");
    cluster.succeed(&["stop", "main.service"]);
    wait_for("it ends with its main unit", || {
        cluster.active_on("side.service").is_empty().then_some(())
    });

    // The other way round: who comes later is started with the next start of its main unit.
    cluster.succeed(&["destroy", "side.service"]);
    cluster.succeed(&["start", "main.service"]);
    cluster.succeed(&["load", "side.service"]);
    cluster.succeed(&["restart", "main.service"]);
    assert_eq!(cluster.wait_one("side.service"), cluster.wait_one("main.service"));
    cluster.succeed(&["destroy", "main.service", "side.service"]);
    let left = cluster.kit.exec(machine, "find /run/systemd/system /etc/systemd -name '*main*'");
    assert_eq!(left, "", "nothing is left on the machine");
}

// Holds: I-12
#[test]
#[ignore = "boots machines: run by scripts/test"]
fn a_unit_that_systemd_refuses_is_shown_and_harms_no_other() {
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
    let said = cluster.refused(1, &["start", "bad@2.service"]);
    assert!(said.contains("bad@2.service"), "{said}");
    for number in 1..=3 {
        let unit = format!("bad@{number}.service");
        wait_for(&format!("{unit} is shown as what it is"), || {
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
    cluster.wait_one("bad@1.service");
    cluster.succeed(&["destroy", "bad@1.service", "bad@2.service", "bad@3.service"]);
}

// Holds: I-14
#[test]
#[ignore = "boots machines: run by scripts/test"]
fn what_is_destroyed_and_started_again_a_hundred_times_runs_the_new_content() {
    const UNIT: &str = "changing.service";
    const HOLDER: &str = "[Unit]\nAfter=changing.service\n[Service]\nType=oneshot\n\
        RemainAfterExit=yes\nExecStart=/bin/true\n[X-Fleet]\nGlobal=true\n";
    let cluster = Cluster::boot("30s");
    for round in 0..100 {
        if round == 50 {
            // From now on systemd keeps in mind how the last run ended, and has to read anew.
            cluster.start("holder.service", HOLDER);
        }
        // Now and then another machine is the one to take it.
        let elsewhere = MACHINES[round % 3];
        let text = format!(
            "[Service]\nType=oneshot\nRemainAfterExit=yes\n\
             ExecStart=/bin/sh -c 'echo %H {round} >/srv/share/seen/changing'\n\
             [X-Fleet]\nMachineMetadataExpr=name != {elsewhere}\n"
        );
        cluster.start(UNIT, &text);
        let seen = cluster.seen("changing");
        let (machine, content) = seen.trim_end().split_once(' ').expect("it has written both");
        assert_eq!(content, round.to_string(), "it ran its content before on {machine}");
        assert_ne!(machine, elsewhere);
        cluster.succeed(&["destroy", UNIT]);
    }
    for machine in MACHINES {
        assert_eq!(cluster.show(machine, UNIT, "LoadState"), "not-found", "{machine}");
    }
}

/// Lets the slow unit end at last, also when a story breaks off.
struct Gate(PathBuf);

impl Drop for Gate {
    fn drop(&mut self) {
        std::fs::write(&self.0, "").expect("the shared folder can be written to");
    }
}

// Holds: I-26, D-34
#[test]
#[ignore = "boots machines: run by scripts/test"]
fn a_hundred_units_start_while_one_takes_twenty_seconds_to_stop() {
    let cluster = Cluster::boot("30s");
    let slow = format!(
        "{SLEEP}TimeoutStopSec=300\nExecStop=/bin/sleep 20\n\
         ExecStop=/bin/sh -c 'until [ -e /srv/share/seen/gate ]; do sleep 0.1; done'\n"
    );
    cluster.start("slow.service", &slow);
    let machine = cluster.wait_one("slow.service");
    let gate = Gate(cluster.kit.share("seen/gate"));
    cluster.succeed(&["stop", "--no-block", "slow.service"]);
    let state = || cluster.show(machine, "slow.service", "ActiveState");
    wait_for("it begins to stop", || (state() == "deactivating").then_some(()));
    cluster.write("quick@.service", SLEEP);
    let names: Vec<_> = (0..100).map(|number| format!("quick@{number}.service")).collect();
    let start: Vec<_> = ["start"].into_iter().chain(names.iter().map(|name| &**name)).collect();
    cluster.succeed(&start);
    let quick = cluster.runs("quick@*");
    assert_eq!(quick.values().filter(|run| run.active == "active").count(), 100);
    assert!(quick.keys().any(|(on, _)| *on == machine), "the machine of the slow one took some");
    assert_eq!(state(), "deactivating", "the slow one still stops");
    let shown = cluster.rows("slow.service");
    assert!(shown.iter().any(|row| row["active"] == "deactivating"), "{shown:?}");
    drop(gate);
    cluster.succeed(&["stop", "slow.service"]);
    assert_eq!(state(), "inactive");
}
