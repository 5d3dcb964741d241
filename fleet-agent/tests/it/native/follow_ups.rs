//! Units that start because of the result of another unit: `OnFailure=` and `OnSuccess=`.

use fleet_agent::ServiceManager;
use fleet_core::{ActiveState, SystemdState, TargetState};

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
