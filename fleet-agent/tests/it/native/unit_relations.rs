//! Relations between units: common starts, stops and failures.

use fleet_agent::native::External;
use fleet_agent::{ManagedUnit, ServiceError, ServiceManager};
use fleet_core::{ActiveState, Generation, SystemdState, TargetState};

use crate::support::{Bench, DEADLINE, name, runs, signal, signal_group, wait_until};

const SLEEP: &str = "[Service]\nExecStart=/bin/sleep 1000\n";

async fn load(bench: &Bench, unit: &str, options: &str) {
    let text = match unit.ends_with(".target") {
        true => format!("[Unit]\n{options}\n"),
        false => format!("[Unit]\n{options}\n{SLEEP}"),
    };
    bench.try_load(unit, &text).await.expect("it can be loaded");
}

fn is_down(state: &SystemdState) -> bool {
    state.active == ActiveState::Inactive
}

#[tokio::test]
async fn requirement_starts_first_and_its_stop_stops_both() {
    let bench = Bench::new().await;
    // The required unit is loaded after the unit that requires it.
    load(&bench, "web.service", "Requires=db.service\nAfter=db.service").await;
    load(&bench, "db.service", "").await;
    bench.start("web.service").await.expect("it starts");
    let (web, db) = (bench.pid("web.service").await, bench.pid("db.service").await);
    assert_eq!(bench.get("db.service").await.known.requested, TargetState::Loaded, "not requested");

    bench.stop("db.service").await;
    bench.wait_for("web.service", is_down).await;
    assert!(!runs(web) && !runs(db));
    assert_eq!(bench.get("web.service").await.known.requested, TargetState::Launched);

    bench.start("db.service").await.expect("it starts");
    assert!(is_down(&bench.state("web.service").await), "it was not started again");
    bench.start("web.service").await.expect("it starts");
    assert!(runs(bench.pid("web.service").await));
    bench.clean_up().await;
}

#[tokio::test]
async fn bound_unit_stops_and_starts_with_its_unit() {
    let bench = Bench::new().await;
    let restarts = "[Service]\nExecStart=/bin/sleep 1000\nRestart=always\nRestartSec=10ms\n";
    bench.try_load("db.service", restarts).await.expect("it can be loaded");
    load(&bench, "web.service", "BindsTo=db.service\nAfter=db.service").await;
    bench.start("db.service").await.expect("it starts");
    bench.start("web.service").await.expect("it starts");
    let web = bench.pid("web.service").await;
    signal(bench.pid("db.service").await, "KILL");
    let is_restarted = |state: &SystemdState| state.main_pid.is_some_and(|pid| pid != web);
    bench.wait_for("web.service", is_restarted).await;
    assert!(!runs(web));
    bench.clean_up().await;
}

#[tokio::test]
async fn automatic_restart_includes_the_units_that_require_it() {
    let bench = Bench::new().await;
    let restarts = "[Service]\nExecStart=/bin/sleep 1000\nRestart=always\nRestartSec=10ms\n";
    bench.try_load("db.service", restarts).await.expect("it can be loaded");
    load(&bench, "web.service", "Requires=db.service\nAfter=db.service").await;
    load(&bench, "part.service", "PartOf=db.service").await;
    load(&bench, "wants.service", "Wants=db.service\nAfter=db.service").await;
    load(&bench, "idle.service", "Requires=db.service\nAfter=db.service").await;
    for unit in ["web.service", "part.service", "wants.service"] {
        bench.start(unit).await.expect("it starts");
    }
    let wants = bench.pid("wants.service").await;
    for _ in 0..2 {
        let before = [bench.pid("web.service").await, bench.pid("part.service").await];
        signal(bench.pid("db.service").await, "KILL");
        for (unit, pid) in ["web.service", "part.service"].into_iter().zip(before) {
            let is_restarted = |state: &SystemdState| state.main_pid.is_some_and(|it| it != pid);
            bench.wait_for(unit, is_restarted).await;
            assert!(!runs(pid), "{unit}");
        }
    }
    assert_eq!(bench.pid("wants.service").await, wants, "it only wants the other");
    assert!(is_down(&bench.state("idle.service").await), "only running units are restarted");
    bench.clean_up().await;
}

#[tokio::test]
async fn stopped_unit_stays_down_until_a_dependent_starts() {
    let bench = Bench::new().await;
    load(&bench, "cache.service", "").await;
    load(&bench, "web.service", "Wants=cache.service\nAfter=cache.service").await;
    bench.start("web.service").await.expect("it starts");
    let web = bench.pid("web.service").await;
    bench.stop("cache.service").await;
    assert!(is_down(&bench.state("cache.service").await));
    let bench = bench.kill().await.revive().await;
    assert!(is_down(&bench.state("cache.service").await), "the next daemon keeps it");
    assert_eq!(bench.pid("web.service").await, web, "a unit that only wants it keeps running");
    bench.stop("web.service").await;
    bench.start("web.service").await.expect("it starts");
    assert!(runs(bench.pid("cache.service").await));
    bench.clean_up().await;
}

#[tokio::test]
async fn target_without_a_run_file_starts_no_stopped_unit() {
    let bench = Bench::new().await;
    load(&bench, "a.service", "").await;
    load(&bench, "b.service", "").await;
    load(&bench, "all.target", "Wants=a.service b.service").await;
    bench.start("all.target").await.expect("it starts");
    let b = bench.pid("b.service").await;
    bench.stop("a.service").await;
    let dead = bench.kill().await;
    // An operator may remove this file.
    std::fs::remove_file(dead.path("native/units/all.target/run.json")).expect("it is there");
    let bench = dead.revive().await;
    bench.wait_for("all.target", |state| state.active == ActiveState::Active).await;
    assert!(is_down(&bench.state("a.service").await), "it was stopped and not started since");
    assert_eq!(bench.pid("b.service").await, b);
    bench.start("all.target").await.expect("it starts");
    bench.wait_for_sub("a.service", "running").await;
    bench.clean_up().await;
}

/// Regression: a target has no run to recover. It counted as inactive, so units bound to it were
/// stopped before it was active again.
// Holds: I-9
#[tokio::test]
async fn unit_bound_to_a_target_survives_a_crash() {
    let bench = Bench::new().await;
    load(&bench, "net.target", "Wants=link.service").await;
    load(&bench, "link.service", "").await;
    load(&bench, "web.service", "BindsTo=net.target\nAfter=net.target").await;
    bench.start("web.service").await.expect("it starts");
    assert_eq!(bench.get("web.service").await.waits_for, None);
    let web = bench.pid("web.service").await;
    let bench = bench.kill().await.revive().await;
    bench.wait_for("net.target", |state| state.active == ActiveState::Active).await;
    bench.wait_for_sub("web.service", "running").await;
    assert_eq!(bench.pid("web.service").await, web);
    bench.stop("net.target").await;
    bench.wait_for("web.service", is_down).await;
    bench.clean_up().await;
}

#[tokio::test]
async fn target_is_active_after_its_wants() {
    let bench = Bench::new().await;
    load(&bench, "all.target", "Wants=a.service b.service").await;
    load(&bench, "a.service", "PartOf=all.target").await;
    load(&bench, "b.service", "PartOf=all.target").await;
    bench.start("all.target").await.expect("it starts");
    let state = bench.state("all.target").await;
    assert_eq!((state.active, state.sub.as_str()), (ActiveState::Active, "active"));
    let before = [bench.pid("a.service").await, bench.pid("b.service").await];
    bench.manager.restart(&name("all.target"), Generation(2)).await.expect("it restarts");
    for (unit, pid) in ["a.service", "b.service"].into_iter().zip(before) {
        bench.wait_for(unit, |state| state.main_pid.is_some_and(|now| now != pid)).await;
    }
    bench.stop("all.target").await;
    for unit in ["all.target", "a.service", "b.service"] {
        bench.wait_for(unit, is_down).await;
    }
    bench.clean_up().await;
}

// Holds: I-12
#[tokio::test]
async fn missing_requirement_affects_its_unit_alone() {
    let bench = Bench::new().await;
    load(&bench, "a.service", "").await;
    load(&bench, "b.service", "Requires=c.service").await;
    bench.start("a.service").await.expect("it starts");
    let error = bench.start("b.service").await.expect_err("c is not there").to_string();
    assert!(error.contains("line 2: Requires= names c.service"), "{error}");
    assert_eq!(bench.get("b.service").await.known.requested, TargetState::Launched);
    load(&bench, "c.service", "").await;
    bench.start("b.service").await.expect("now it is there");
    bench.clean_up().await;
}

// Holds: I-12
#[tokio::test]
async fn last_unit_of_a_dependency_cycle_is_refused() {
    let bench = Bench::new().await;
    load(&bench, "a.service", "Wants=b.service\nAfter=b.service").await;
    bench.start("a.service").await.expect("it starts");
    let pid = bench.pid("a.service").await;
    load(&bench, "b.service", "Wants=a.service\nAfter=a.service").await;
    let error = bench.start("b.service").await.expect_err("the start would wait for itself");
    assert!(matches!(error, ServiceError::StartFailed { .. }), "{error}");
    assert!(error.to_string().contains("-waits-for->"), "{error}");
    assert_eq!(bench.pid("a.service").await, pid);
    bench.manager.unload(&name("b.service")).await.expect("it is unloaded");
    bench.clean_up().await;
}

#[tokio::test]
async fn failed_requirement_is_reported() {
    let bench = Bench::new().await;
    let mended = bench.path("mended");
    let service = format!(
        "Type=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/test -e {}\n",
        mended.display()
    );
    bench.load("bad.service", &service).await;
    load(&bench, "a.service", "Requires=bad.service\nAfter=bad.service").await;
    let error = bench.start("a.service").await.expect_err("it cannot start").to_string();
    assert!(error.contains("it needs bad.service, which has failed"), "{error}");
    let state = bench.state("a.service").await;
    assert_eq!((state.sub.as_str(), state.result.as_deref()), ("dead", Some("dependency")));
    std::fs::write(mended, "").expect("it can be created");
    bench.start("a.service").await.expect("its dependency is retried with it");
    bench.clean_up().await;
}

#[tokio::test]
async fn external_unit_is_awaited_and_survives_a_crash() {
    let home = tempfile::tempdir().expect("a directory can be made");
    let socket = home.path().join("docker.sock");
    let docker = External::Path(socket.clone());
    let bench = Bench::with(|config| {
        config.external.insert(name("docker.service"), docker);
        config.external.insert(name("network-online.target"), External::Up);
    })
    .await;
    let options = "BindsTo=docker.service\nRequires=network-online.target\n\
                After=docker.service network-online.target";
    load(&bench, "web.service", options).await;
    let start = bench.begin_start("web.service");
    let is_requested = |unit: &ManagedUnit| unit.known.requested == TargetState::Launched;
    wait_until("it is requested", async || is_requested(&bench.get("web.service").await)).await;
    assert!(is_down(&bench.state("web.service").await), "docker is not there");
    let reason = async || bench.get("web.service").await.waits_for;
    wait_until("the reason is shown", async || reason().await.is_some()).await;
    let expected = format!(
        "waits for docker.service: nothing is at {}; start docker.service on the machine, or set \
         when it counts as up: native_external in the configuration, or \
         --native-external of \"fleetd dev\"",
        socket.display()
    );
    assert_eq!(reason().await, Some(expected));

    std::fs::write(&socket, "").expect("it can be written");
    start.await.expect("it does not panic").expect("it starts");
    let web = bench.pid("web.service").await;
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.pid("web.service").await, web, "docker is there, as it was");

    bench.stop("web.service").await;
    std::fs::remove_file(&socket).expect("it can be removed");
    let start = bench.begin_start("web.service");
    wait_until("it is requested", async || is_requested(&bench.get("web.service").await)).await;
    bench.stop("web.service").await;
    let refused = start.await.expect("it does not panic").expect_err("no waiter is left");
    assert!(matches!(refused, ServiceError::StartFailed { .. }), "{refused}");
    bench.clean_up().await;
}

#[tokio::test]
async fn external_unit_is_up_once_it_accepts_connections() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there are ports");
    let address = listener.local_addr().expect("it has one").to_string();
    let bench = Bench::with(|config| {
        config.external.insert(name("db.service"), External::Tcp(address));
    })
    .await;
    load(&bench, "web.service", "Requires=db.service\nAfter=db.service").await;
    bench.start("web.service").await.expect("it starts");
    // A unit loaded under the name replaces the external one.
    load(&bench, "db.service", "").await;
    bench.start("db.service").await.expect("it starts");
    assert!(runs(bench.pid("db.service").await));
    bench.clean_up().await;
}

/// Returns a service that ignores `SIGTERM` for longer than its stop timeout.
fn stubborn(options: &str, ready: &std::path::Path, stop_timeout: &str) -> String {
    format!(
        "[Unit]\n{options}\n[Service]\nTimeoutStopSec={stop_timeout}\nExecReload=/bin/true\n\
         ExecStart=/bin/sh -c 'trap \"\" TERM; echo 1 >>{}; while :; do sleep 1000; done'\n",
        ready.display()
    )
}

#[tokio::test]
async fn dependents_of_a_restart_start_again() {
    let bench = Bench::new().await;
    load(&bench, "a.service", "").await;
    let text = stubborn("PartOf=a.service\nAfter=a.service", &bench.path("ready"), "20ms");
    bench.try_load("b.service", &text).await.expect("it can be loaded");
    bench.start("a.service").await.expect("it starts");
    bench.start("b.service").await.expect("it starts");
    bench.wait_for_lines("ready", 1).await;
    bench.manager.restart(&name("a.service"), Generation(2)).await.expect("it restarts");
    bench.wait_for_lines("ready", 2).await;
    bench.wait_for("b.service", |state| state.sub == "running").await;
    bench.clean_up().await;
}

#[tokio::test]
async fn reload_cancelled_by_a_stop_is_reported() {
    let bench = Bench::new().await;
    let text = format!("{SLEEP}ExecReload=/bin/touch {}\n", bench.path("trace").display());
    bench.try_load("a.service", &text).await.expect("it can be loaded");
    let options = "Requires=a.service\nAfter=a.service";
    let text = stubborn(options, &bench.path("ready"), "1h");
    bench.try_load("b.service", &text).await.expect("it can be loaded");
    bench.start("b.service").await.expect("it starts");
    bench.wait_for_lines("ready", 1).await;
    let b = bench.pid("b.service").await;
    let manager = std::sync::Arc::clone(&bench.manager);
    let stop = tokio::spawn(async move { manager.stop(&name("a.service")).await });
    bench.wait_for_sub("b.service", "stop-sigterm").await;
    let manager = std::sync::Arc::clone(&bench.manager);
    let reload = tokio::spawn(async move { manager.reload_unit(&name("a.service")).await });
    // The request was sent before this is answered.
    bench.load("c.service", "ExecStart=/bin/true\n").await;
    bench.start("c.service").await.expect("it starts");
    signal_group(b, "KILL");
    let refused = reload.await.expect("it does not panic").expect_err("the unit stops first");
    assert!(matches!(refused, ServiceError::ReloadFailed { .. }), "{refused}");
    assert!(!bench.path("trace").exists());
    stop.await.expect("it does not panic").expect("it stops");
    bench.clean_up().await;
}

#[tokio::test]
async fn external_unit_takes_no_start_slot() {
    let bench = Bench::with(|config| {
        let docker = External::Path(config.directory.join("docker.sock"));
        config.external.insert(name("docker.service"), docker);
        config.max_starting = std::num::NonZeroU32::new(1);
    })
    .await;
    load(&bench, "web.service", "BindsTo=docker.service\nAfter=docker.service").await;
    load(&bench, "other.service", "").await;
    let start = bench.begin_start("web.service");
    let is_requested = |unit: &ManagedUnit| unit.known.requested == TargetState::Launched;
    wait_until("it is requested", async || is_requested(&bench.get("web.service").await)).await;
    let other = tokio::time::timeout(DEADLINE, bench.start("other.service")).await;
    other.expect("there is room").expect("it starts");
    bench.stop("web.service").await;
    start.await.expect("it does not panic").expect_err("it was stopped");
    bench.clean_up().await;
}

#[tokio::test]
async fn shutdown_follows_the_order_of_the_graph() {
    let bench = Bench::new().await;
    let order = bench.path("order");
    let ends = |unit: &str| {
        let order = order.display();
        // Without an ordering it would stop before the other unit.
        format!("ExecStopPost=/bin/sh -c 'sleep 0.05; echo {unit} >>{order}'\n")
    };
    for (unit, options) in
        [("a.service", ""), ("b.service", "After=a.service"), ("c.service", "After=b.service")]
    {
        let text = format!("[Unit]\n{options}\n{SLEEP}{}", ends(unit));
        bench.try_load(unit, &text).await.expect("it can be loaded");
        bench.start(unit).await.expect("it starts");
    }
    bench.manager.shutdown().await.expect("all stop");
    let late = bench.start("a.service").await.expect_err("the units are shutting down").to_string();
    assert!(late.contains("a.service"), "{late}");
    assert!(is_down(&bench.state("a.service").await), "{late}");
    let order = bench.wait_for_lines("order", 3).await;
    assert_eq!(order, ["c.service", "b.service", "a.service"]);
    assert_eq!(bench.get("b.service").await.known.requested, TargetState::Loaded);
    let bench = bench.kill().await.revive().await;
    assert!(is_down(&bench.state("b.service").await), "it was not requested since");
    bench.clean_up().await;
}
