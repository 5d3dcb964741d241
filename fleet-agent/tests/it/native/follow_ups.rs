//! Units that start because of the result of another unit: `OnFailure=` and `OnSuccess=`.

use fleet_agent::ServiceManager;
use fleet_core::{ActiveState, Generation, SystemdState, TargetState};

use crate::support::{Bench, name, signal};

/// Loads `handler.service`, which appends a line with its variables to the file `handled`.
async fn load_handler(bench: &Bench, unit: &str) {
    let line = "echo $${MONITOR_UNIT:-none} $$MONITOR_SERVICE_RESULT $$MONITOR_EXIT_CODE \
                $$MONITOR_EXIT_STATUS $${#MONITOR_INVOCATION_ID}";
    let handled = bench.path("handled");
    let start = format!("/bin/sh -c '{line} >> {}'", handled.display());
    bench.load(unit, &format!("Type=oneshot\nExecStart={start}\n")).await;
}

fn handled(bench: &Bench) -> usize {
    let text = std::fs::read_to_string(bench.path("handled")).unwrap_or_default();
    text.matches('\n').count()
}

fn has_ended(state: &SystemdState) -> bool {
    matches!(state.active, ActiveState::Failed | ActiveState::Inactive) && state.result.is_some()
}

#[tokio::test]
async fn failure_starts_its_unit_with_the_result() {
    let bench = Bench::new().await;
    load_handler(&bench, "handler.service").await;
    let cases = [
        ("a.service", "ExecStart=/bin/sh -c 'exit 3'", "exit-code exited 3"),
        ("b.service", "ExecStart=/bin/sh -c 'kill -KILL $$$$'", "signal killed KILL"),
        ("c.service", "ExecStart=/none", "exit-code exited 203"),
    ];
    for (count, (unit, start, result)) in (1..).zip(cases) {
        let text = format!("[Unit]\nOnFailure=handler.service\n[Service]\nType=oneshot\n{start}\n");
        bench.try_load(unit, &text).await.expect("it can be loaded");
        bench.start(unit).await.expect_err("it fails");
        let lines = bench.wait_for_lines("handled", count).await;
        assert_eq!(lines.last(), Some(&format!("{unit} {result} 32")));
        bench.wait_for("handler.service", has_ended).await;
        bench.manager.unload(&name(unit)).await.expect("it is unloaded");
    }
    let handler = bench.get("handler.service").await;
    assert_eq!(handler.known.requested, TargetState::Loaded, "fleet did not launch it");
    bench.clean_up().await;
}

#[tokio::test]
async fn failure_counts_once_no_restart_follows() {
    let bench = Bench::new().await;
    load_handler(&bench, "handler.service").await;
    let text = "[Unit]\nOnFailure=handler.service\nStartLimitBurst=3\nStartLimitIntervalSec=1h\n\
                [Service]\nExecStart=/bin/false\nRestart=on-failure\nRestartSec=5ms\n";
    bench.try_load("a.service", text).await.expect("it can be loaded");
    drop(bench.start("a.service").await);
    bench.wait_for_sub("a.service", "failed").await;
    let lines = bench.wait_for_lines("handled", 1).await;
    bench.wait_for("handler.service", has_ended).await;
    assert_eq!((lines[0].as_str(), handled(&bench)), ("a.service exit-code exited 1 32", 1));
    bench.clean_up().await;
}

#[tokio::test]
async fn success_follows_each_end_that_is_no_failure() {
    let bench = Bench::new().await;
    load_handler(&bench, "handler.service").await;
    let load = async |unit: &str, service: &str| {
        let text = format!("[Unit]\nOnSuccess=handler.service\n[Service]\n{service}\n");
        bench.try_load(unit, &text).await.expect("it can be loaded");
    };
    load("a.service", "Type=oneshot\nExecStart=/bin/true").await;
    bench.start("a.service").await.expect("it succeeds");
    assert_eq!(bench.wait_for_lines("handled", 1).await, ["a.service success exited 0 32"]);
    bench.wait_for("handler.service", has_ended).await;
    bench.manager.unload(&name("a.service")).await.expect("it is unloaded");
    // A stop by request too.
    load("b.service", "ExecStart=/bin/sleep 1000").await;
    bench.start("b.service").await.expect("it starts");
    bench.stop("b.service").await;
    let lines = bench.wait_for_lines("handled", 2).await;
    assert_eq!(lines[1], "b.service success killed TERM 32");
    bench.clean_up().await;
}

#[tokio::test]
async fn skipped_start_and_other_result_start_nothing() {
    let bench = Bench::new().await;
    load_handler(&bench, "handler.service").await;
    let both = "OnSuccess=handler.service\nOnFailure=handler.service";
    let cases = [
        ("a.service", format!("{both}\nConditionPathExists=/none"), "/bin/true"),
        ("b.service", format!("{both}\nAssertPathExists=/none"), "/bin/true"),
        ("c.service", "OnFailure=handler.service".to_owned(), "/bin/true"),
        ("d.service", "OnSuccess=handler.service".to_owned(), "/bin/false"),
        // A missing unit is only reported.
        ("e.service", "OnFailure=none.service".to_owned(), "/bin/false"),
        ("last.service", both.to_owned(), "/bin/true"),
    ];
    for (unit, options, start) in &cases {
        let text = format!("[Unit]\n{options}\n[Service]\nType=oneshot\nExecStart={start}\n");
        bench.try_load(unit, &text).await.expect("it can be loaded");
        drop(bench.start(unit).await);
        bench.wait_for(unit, has_ended).await;
    }
    let lines = bench.wait_for_lines("handled", 1).await;
    assert_eq!(lines, ["none 0"], "several units name the handler");
    bench.clean_up().await;
}

#[tokio::test]
async fn failure_of_a_required_unit_counts_as_failure() {
    let bench = Bench::new().await;
    load_handler(&bench, "handler.service").await;
    bench.load("db.service", "Type=oneshot\nExecStart=/bin/false\n").await;
    let text = "[Unit]\nRequires=db.service\nAfter=db.service\nOnFailure=handler.service\n\
                [Service]\nExecStart=/bin/sleep 1000\n";
    bench.try_load("web.service", text).await.expect("it can be loaded");
    bench.start("web.service").await.expect_err("its requirement fails");
    bench.wait_for_lines("handled", 1).await;
    bench.clean_up().await;
}

#[tokio::test]
async fn instance_of_a_template_is_named_by_specifiers() {
    let bench = Bench::new().await;
    load_handler(&bench, "notify@web.service.service").await;
    let text = "[Unit]\nOnFailure=notify@%n.service\n[Service]\nExecStart=/bin/sleep 1000\n";
    bench.try_load("web.service", text).await.expect("it can be loaded");
    bench.start("web.service").await.expect("it starts");
    signal(bench.pid("web.service").await, "KILL");
    let lines = bench.wait_for_lines("handled", 1).await;
    assert_eq!(lines, ["web.service signal killed KILL 32"]);
    bench.clean_up().await;
}

#[tokio::test]
async fn failure_while_no_daemon_runs_counts_later() {
    let bench = Bench::new().await;
    load_handler(&bench, "handler.service").await;
    let text = "[Unit]\nOnFailure=handler.service\n[Service]\nExecStart=/bin/sleep 1000\n";
    bench.try_load("a.service", text).await.expect("it can be loaded");
    bench.start("a.service").await.expect("it starts");
    let pid = bench.pid("a.service").await;
    let dead = bench.kill().await;
    signal(pid, "KILL");
    let bench = dead.revive().await;
    let lines = bench.wait_for_lines("handled", 1).await;
    assert!(lines[0].starts_with("a.service "), "{lines:?}");
    bench.clean_up().await;
}

#[tokio::test]
async fn target_that_stops_starts_its_unit() {
    let bench = Bench::new().await;
    load_handler(&bench, "handler.service").await;
    bench.try_load("a.target", "[Unit]\nOnSuccess=handler.service\n").await.expect("it loads");
    bench.start("a.target").await.expect("it starts");
    bench.stop("a.target").await;
    bench.wait_for_lines("handled", 1).await;
    bench.clean_up().await;
}

const SLEEP: &str = "[Service]\nExecStart=/bin/sleep 1000\n";

async fn load(bench: &Bench, unit: &str, options: &str, service: &str) {
    let text = format!("[Unit]\n{options}\n[Service]\n{service}\n");
    bench.try_load(unit, &text).await.expect("it can be loaded");
}

fn is_down(state: &SystemdState) -> bool {
    state.active == ActiveState::Inactive
}

/// Loads units whose reload appends their name to the file `reloaded`.
async fn load_reloading(bench: &Bench, units: &[(&str, &str)]) {
    for (unit, options) in units {
        let reload = format!("/bin/sh -c 'echo {unit} >> {}'", bench.path("reloaded").display());
        let service = format!("ExecStart=/bin/sleep 1000\nExecReload={reload}");
        load(bench, unit, options, &service).await;
    }
}

#[tokio::test]
async fn reload_is_propagated_to_active_units() {
    let bench = Bench::new().await;
    let units = [
        ("a.service", "PropagatesReloadTo=b.service inactive.service plain.service"),
        ("b.service", "PropagatesReloadTo=c.service a.service"),
        ("c.service", ""),
        ("d.service", "ReloadPropagatedFrom=a.service\nPropagateReloadTo=none.service"),
        ("inactive.service", "PropagatesReloadTo=e.service"),
        ("e.service", ""),
    ];
    load_reloading(&bench, &units).await;
    bench.try_load("plain.service", SLEEP).await.expect("it can be loaded");
    let target = "[Unit]\nPropagatesReloadTo=c.service\n";
    bench.try_load("all.target", target).await.expect("it can be loaded");
    for unit in ["a.service", "b.service", "c.service", "d.service", "e.service", "plain.service"] {
        bench.start(unit).await.expect("it starts");
    }
    let reload = async |unit: &str| bench.manager.reload_unit(&name(unit)).await;
    reload("a.service").await.expect("it reloads");
    let mut lines = bench.wait_for_lines("reloaded", 4).await;
    lines.sort();
    assert_eq!(lines, ["a.service", "b.service", "c.service", "d.service"]);
    // systemd does so too.
    reload("inactive.service").await.expect_err("it is not active");
    assert_eq!(bench.wait_for_lines("reloaded", 5).await[4], "e.service");
    reload("plain.service").await.expect_err("it cannot be reloaded");
    reload("all.target").await.expect_err("it is not active");
    assert_eq!(bench.wait_for_lines("reloaded", 6).await[5], "c.service");
    bench.start("all.target").await.expect("it starts");
    reload("all.target").await.expect("a target passes a reload on");
    assert_eq!(bench.wait_for_lines("reloaded", 7).await[6], "c.service");
    bench.clean_up().await;
}

/// The same commands under systemd 252 leave the same units running.
#[tokio::test]
async fn stop_and_end_are_propagated_but_no_restart() {
    let bench = Bench::new().await;
    load(&bench, "a.service", "PropagatesStopTo=b.service", "ExecStart=/bin/sleep 1000").await;
    load(&bench, "b.service", "", "ExecStart=/bin/sleep 1000").await;
    load(&bench, "c.service", "StopPropagatedFrom=b.service", "ExecStart=/bin/sleep 1000").await;
    let start = async || {
        for unit in ["a.service", "b.service", "c.service"] {
            bench.start(unit).await.expect("it starts");
        }
        bench.pid("b.service").await
    };
    let wait_for_stop = async |cause: &str| {
        for unit in ["b.service", "c.service"] {
            bench.wait_for(unit, is_down).await;
            let requested = bench.get(unit).await.known.requested;
            assert_eq!(requested, TargetState::Launched, "{unit} after {cause}");
        }
    };
    start().await;
    bench.stop("a.service").await;
    wait_for_stop("a stop").await;
    let b = start().await;
    bench.manager.restart(&name("a.service"), Generation(2)).await.expect("it restarts");
    assert_eq!(bench.pid("b.service").await, b, "it keeps running");
    signal(bench.pid("a.service").await, "KILL");
    wait_for_stop("a crash").await;
    start().await;
    signal(bench.pid("a.service").await, "TERM");
    wait_for_stop("a good end").await;
    let service = "ExecStart=/bin/sleep 1000\nRestart=always\nRestartSec=5ms";
    load(&bench, "a.service", "PropagatesStopTo=b.service", service).await;
    start().await;
    signal(bench.pid("a.service").await, "KILL");
    wait_for_stop("an automatic restart").await;
    bench.wait_for_sub("a.service", "running").await;
    assert!(is_down(&bench.state("b.service").await), "it was not started again");
    bench.clean_up().await;
}
