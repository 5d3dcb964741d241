//! Crashes of a unit's process and of the daemon.

use rustix::process::{Signal, kill_process};

use crate::daemon::{Cluster, is_alive, main_pid};

const RESTARTED: &str = "[Service]\nExecStart=/bin/sleep infinity\nRestart=always\n";

#[test]
fn killed_process_is_restarted() {
    let cluster = Cluster::start(&[]);
    let path = cluster.write("phoenix.service", RESTARTED);
    cluster.succeed(&["start".as_ref(), path.as_os_str()]);
    let before = main_pid(&cluster.wait_active("phoenix.service"));
    kill_process(before, Signal::KILL).unwrap();
    let row = cluster.wait_for("the unit has a new process", |cluster| {
        let row = cluster.rows("phoenix.service").pop()?;
        (row["active"] == "active" && row["mainPID"] != before.as_raw_nonzero().get())
            .then_some(row)
    });
    assert_eq!(row["restarts"], 1);
    assert!(row["exit"].as_str().unwrap().contains('9'), "the signal must be reported: {row}");
}

#[test]
fn process_without_restart_is_failed() {
    let cluster = Cluster::start(&[]);
    let path = cluster.write("once.service", "[Service]\nExecStart=/bin/sleep infinity\n");
    cluster.succeed(&["start".as_ref(), path.as_os_str()]);
    let pid = main_pid(&cluster.wait_active("once.service"));
    kill_process(pid, Signal::KILL).unwrap();
    let row = cluster.wait_for("the unit has failed", |cluster| {
        cluster.rows("once.service").into_iter().find(|row| row["active"] == "failed")
    });
    assert_eq!(row["result"], "signal");
}

#[test]
fn killed_daemon_adopts_running_units() {
    let mut cluster = Cluster::start(&[]);
    let units = ["one.service", "two.service", "three.service"];
    for unit in units {
        let path = cluster.write(unit, RESTARTED);
        cluster.succeed(&["start".as_ref(), path.as_os_str()]);
    }
    let before = units.map(|unit| cluster.wait_active(unit));
    let killed_meanwhile = main_pid(&before[2]);

    cluster.end_daemon(Signal::KILL);
    assert!(before.iter().all(|row| is_alive(main_pid(row))), "units must outlive their daemon");
    kill_process(killed_meanwhile, Signal::KILL).unwrap();
    cluster.start_daemon(&[]);

    for row in &before[..2] {
        let after = cluster.wait_active(row["unit"].as_str().unwrap());
        assert_eq!(after["mainPID"], row["mainPID"], "a running unit was restarted");
        assert_eq!(after["machine"], row["machine"], "a running unit was moved");
        assert_eq!(after["restarts"], 0);
    }
    // Until the machine reports again, its last report is shown.
    cluster.wait_for("the killed unit has a new process", |cluster| {
        let row = cluster.rows(units[2]).pop()?;
        let new = row["active"] == "active" && row["mainPID"] != before[2]["mainPID"];
        new.then_some(())
    });
    assert_eq!(cluster.units(), ["one.service", "three.service", "two.service"]);

    let path = cluster.write("four.service", RESTARTED);
    cluster.succeed(&["start".as_ref(), path.as_os_str()]);
}
