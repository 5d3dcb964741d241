//! Loss and recovery of daemons, connections and files.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::{ServiceError, ServiceManager as _};
use fleet_core::{ActiveState, Generation, TargetState};

use crate::bench::{Bench, SLEEP, name, print_line, shell, show, wait_until};
use crate::machine::CASE;

/// Part of the next case: a daemon to kill, which never ends by itself.
pub(crate) async fn helper_daemon_to_kill() {
    let bench = Bench::new().await;
    bench.run("kept.service", SLEEP).await;
    bench.load(&[("loaded.service", SLEEP)]).await;
    print_line("ready");
    std::future::pending::<()>().await;
}

// Holds: I-9
pub(crate) async fn killed_daemon_leaves_units_running() {
    let mut child = Command::new("/srv/share/booted")
        .args(["--ignored", "--exact", "inside", "--nocapture"])
        .env(CASE, "helper_daemon_to_kill")
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be run");
    let output = BufReader::new(child.stderr.take().expect("it is there"));
    let mut lines = output.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("ready")), "it does its part");
    let pid = show("kept.service", "MainPID");
    child.kill().expect("it can be killed");
    child.wait().expect("it is dead");

    let bench = Bench::new().await;
    let kept = bench.get("kept.service").await;
    assert_eq!(kept.known.requested, TargetState::Launched);
    assert_eq!(kept.known.generation, Generation(1));
    assert_eq!(kept.state.active, ActiveState::Active);
    assert_eq!(kept.state.main_pid.map(|pid| pid.to_string()), Some(pid.clone()));
    assert_eq!(kept.state.restarts, 0);
    assert_eq!(bench.get("loaded.service").await.known.requested, TargetState::Loaded);
    bench.start("kept.service").await.expect("a start changes nothing");
    assert_eq!(show("kept.service", "MainPID"), pid, "it was not restarted");
    bench.unload("kept.service").await;
    bench.unload("loaded.service").await;
}

/// Makes a request that gets no response, because the bus is paused.
async fn request(call: impl Future<Output = Result<(), ServiceError>>) {
    let ended = tokio::time::timeout(Duration::from_millis(300), call).await;
    assert!(ended.is_err(), "the bus is paused: {ended:?}");
}

/// Regression: a daemon that ended between a request and its record left a unit that was never
/// started again, or never stopped.
pub(crate) async fn request_without_response_is_not_forgotten() {
    let bench = Bench::new().await;
    for unit in ["stopped.service", "kept.service"] {
        bench.run(unit, SLEEP).await;
    }
    bench.load(&[("started.service", SLEEP), ("idle.service", SLEEP)]).await;
    let pid = show("kept.service", "MainPID");
    shell("systemctl kill -s STOP dbus.service");
    for unit in ["stopped.service", "kept.service"] {
        request(bench.manager.stop(&name(unit))).await;
    }
    for unit in ["started.service", "idle.service"] {
        request(bench.start(unit)).await;
    }
    drop(bench.manager);
    // All requests are lost. systemd then gets two of them over its private socket.
    shell("systemctl kill -s KILL dbus.service; systemctl stop stopped.service");
    shell("systemctl start started.service; systemctl start dbus.service");
    let opens =
        async || fleet_agent::SystemdManager::open(fleet_agent::SystemdConfig::system()).await;
    wait_until("systemd is on the bus", async || opens().await.is_ok()).await;

    let bench = Bench::new().await;
    for (unit, requested) in [
        ("stopped.service", TargetState::Loaded),
        ("kept.service", TargetState::Launched),
        ("started.service", TargetState::Launched),
        ("idle.service", TargetState::Loaded),
    ] {
        assert_eq!(bench.get(unit).await.known.requested, requested, "{unit}");
    }
    assert_eq!(show("kept.service", "MainPID"), pid, "it was not restarted");
    let started = show("started.service", "MainPID");
    for unit in ["stopped.service", "started.service", "idle.service"] {
        bench.start(unit).await.expect("it starts");
        assert_eq!(show(unit, "ActiveState"), "active", "{unit}");
    }
    assert_eq!(show("started.service", "MainPID"), started, "it was not started twice");
    for unit in ["stopped.service", "kept.service", "started.service", "idle.service"] {
        bench.unload(unit).await;
    }
    assert_eq!(shell("cd /run/fleet/units; ls"), "boot\nlock");
}

/// Regression: after a stop that could not be recorded, a start reported success, and no process
/// ran.
pub(crate) async fn start_after_stop_on_full_disk_runs_the_unit() {
    let bench = Bench::new().await;
    let unit = name("a.service");
    bench.run("a.service", SLEEP).await;
    // Records are written to this file first.
    shell("mkdir /run/fleet/units/a.service.json.new");
    let error = bench.manager.stop(&unit).await.expect_err("it cannot be recorded");
    assert!(matches!(error, ServiceError::Io { .. }), "{error:?}");
    assert_eq!(show("a.service", "ActiveState"), "inactive", "it is stopped nevertheless");
    assert_eq!(bench.get("a.service").await.known.requested, TargetState::Loaded);
    let error = bench.start("a.service").await.expect_err("it cannot be recorded");
    assert!(matches!(error, ServiceError::Io { .. }), "{error:?}");
    assert_eq!(bench.get("a.service").await.known.requested, TargetState::Loaded, "no success");
    assert_eq!(show("a.service", "ActiveState"), "inactive");
    shell("rmdir /run/fleet/units/a.service.json.new");
    bench.start("a.service").await.expect("it starts");
    assert_eq!(show("a.service", "ActiveState"), "active");
    bench.unload("a.service").await;
}

/// Starts a unit that hangs, interrupts the connection, and checks that everything continues.
async fn survives(bench: Bench, loss: &str) {
    let hanging = "[Service]\nType=oneshot\nRemainAfterExit=yes\n\
                   ExecStart=/bin/sh -c 'until [ -e /run/gate ]; do sleep 0.1; done'\n";
    bench.run("kept.service", SLEEP).await;
    bench.load(&[("hanging.service", hanging)]).await;
    let pid = show("kept.service", "MainPID");
    let manager = Arc::clone(&bench.manager);
    let start =
        tokio::spawn(async move { manager.start(&name("hanging.service"), Generation(1)).await });
    bench.wait_for("hanging.service", |it| it.active == ActiveState::Activating).await;
    shell(loss);
    wait_until("the loss is seen or over", async || {
        let answer = bench.manager.list().await;
        assert!(matches!(answer, Ok(_) | Err(ServiceError::Unavailable(_))), "{answer:?}");
        shell("systemctl is-system-running || true") == "running" || answer.is_err()
    })
    .await;
    bench.wait_for_connection().await;
    assert_eq!(show("kept.service", "MainPID"), pid, "no unit was touched");
    assert!(!start.is_finished(), "the caller keeps waiting");
    shell("touch /run/gate");
    start.await.expect("no panic").expect("it starts in the end");
    // Later changes are observed again.
    shell("systemctl stop kept.service");
    bench.wait_for("kept.service", |it| it.active == ActiveState::Inactive).await;
    bench.run("later.service", SLEEP).await;
    for unit in ["kept.service", "hanging.service", "later.service"] {
        bench.unload(unit).await;
    }
}

pub(crate) async fn systemd_may_reexecute() {
    survives(Bench::new().await, "systemctl daemon-reexec").await;
}

pub(crate) async fn bus_may_restart() {
    survives(Bench::new().await, "systemctl restart dbus.service").await;
}

pub(crate) async fn exit_during_bus_outage_is_noticed() {
    let bench = Bench::new().await;
    let task = |code: u8| {
        format!(
            "[Service]\nType=oneshot\nRemainAfterExit=yes\n\
             ExecStart=/bin/sh -c 'until [ -e /run/gate ]; do sleep 0.1; done; exit {code}'\n"
        )
    };
    bench.load(&[("good.service", &task(0)), ("bad.service", &task(3))]).await;
    bench.run("kept.service", SLEEP).await;
    let start = |unit: &'static str| {
        let manager = Arc::clone(&bench.manager);
        tokio::spawn(async move { manager.start(&name(unit), Generation(1)).await })
    };
    let (good, bad) = (start("good.service"), start("bad.service"));
    bench.wait_for("good.service", |it| it.active == ActiveState::Activating).await;
    bench.wait_for("bad.service", |it| it.active == ActiveState::Activating).await;
    shell("systemctl stop dbus.socket dbus.service");
    let away = async || matches!(bench.manager.list().await, Err(ServiceError::Unavailable(_)));
    wait_until("systemd is away", away).await;
    let unknown = bench.manager.get(&name("kept.service")).await;
    assert!(unknown.is_err(), "unknown is not absent: {unknown:?}");
    shell("touch /run/gate; systemctl stop kept.service");
    wait_until("both have ended", async || {
        show("good.service", "ActiveState") == "active"
            && show("bad.service", "ActiveState") == "failed"
    })
    .await;
    shell("systemctl start dbus.socket dbus.service");
    good.await.expect("no panic").expect("it has started meanwhile");
    let error = bad.await.expect("no panic").expect_err("it has failed meanwhile");
    assert!(error.to_string().contains("exited with status 3"), "{error}");
    bench.wait_for_connection().await;
    assert_eq!(bench.state("kept.service").await.active, ActiveState::Inactive);
    for unit in ["good.service", "bad.service", "kept.service"] {
        bench.unload(unit).await;
    }
}

/// Regression: everything is refreshed after a reload, including jobs. A job that had just ended
/// counted as one with a missed end, and its unit as one that has not failed.
pub(crate) async fn exit_during_reload_is_noticed() {
    let bench = Bench::new().await;
    let text = "[Service]\nType=oneshot\nExecStart=/bin/false\n";
    bench.load(&[("failing.service", text)]).await;
    for round in 0..100 {
        let again = tokio::task::spawn_blocking(|| shell("systemctl daemon-reload"));
        while !again.is_finished() {
            bench.start("failing.service").await.expect_err(&format!("it fails, round {round}"));
        }
        again.await.expect("no panic");
    }
    bench.unload("failing.service").await;
}

pub(crate) async fn half_written_units_are_recovered() {
    let bench = Bench::new().await;
    for unit in ["a.service", "b.service", "c.service"] {
        bench.run(unit, SLEEP).await;
    }
    let pid = show("a.service", "MainPID");
    drop(bench.manager);
    shell(
        "cd /run/fleet/units; rm a.service.json b.service; \
         printf '[Service]\\nExecStart=/bin/true\\n' >never.service",
    );
    let bench = Bench::new().await;
    for unit in ["a.service", "b.service", "never.service"] {
        let found = bench.get(unit).await;
        assert_eq!(found.known.requested, TargetState::Inactive, "{unit}: the request is unknown");
    }
    assert_eq!(bench.get("c.service").await.known.requested, TargetState::Launched);
    bench.load(&[("a.service", SLEEP), ("b.service", SLEEP)]).await;
    bench.start("a.service").await.expect("it runs");
    assert_eq!(show("a.service", "MainPID"), pid, "it was not restarted");
    for unit in ["a.service", "b.service", "c.service", "never.service"] {
        bench.unload(unit).await;
    }
    assert_eq!(shell("cd /run/fleet/units; ls"), "boot\nlock");
}

/// Regression: units of a removed directory were unknown to the next daemon. They ran on beside
/// their successors on other machines.
pub(crate) async fn units_of_a_removed_directory_are_recovered() {
    let bench = Bench::new().await;
    let units = ["wanted.service", "other.service"];
    for unit in units {
        bench.run(unit, SLEEP).await;
    }
    let pid = show("wanted.service", "MainPID");
    drop(bench.manager);
    shell("rm -rf /run/fleet; systemctl daemon-reload");
    assert_eq!(show("wanted.service", "LoadState"), "not-found");
    let bench = Bench::new().await;
    for unit in units {
        let found = bench.get(unit).await;
        assert_eq!(found.known.requested, TargetState::Inactive, "{unit}: the request is unknown");
        assert_eq!(found.state.active, ActiveState::Active, "{unit}");
    }
    bench.load(&[("wanted.service", SLEEP)]).await;
    bench.start("wanted.service").await.expect("it runs");
    assert_eq!(show("wanted.service", "MainPID"), pid, "it was not restarted");
    bench.unload("other.service").await;
    assert_eq!(show("other.service", "ActiveState"), "inactive");
    bench.unload("wanted.service").await;
    assert_eq!(shell("cd /run/fleet/units; ls"), "boot\nlock");
    assert_eq!(shell("cd /run/systemd/system; ls | grep -e wanted -e other || true"), "");
}
