//! What a unit's own restart policy makes of its ends, and what of that outlives a daemon.

use std::time::Duration;

use fleet_agent::{Particulars, ServiceManager};
use fleet_core::ActiveState;

use super::chosen::Chosen;
use crate::support::{Bench, hasty, name};

#[tokio::test]
async fn a_status_that_forces_a_restart_does_so_after_a_good_end_too() {
    let bench = Bench::new().await;
    let unit = "ExecStart=/bin/true\nRestart=no\nRestartForceExitStatus=0\nRestartSec=10ms\n\
                StartLimitBurst=3\nStartLimitInterval=1h\n";
    bench.run("a.service", unit).await;
    let state = bench.wait_for_sub("a.service", "failed").await;
    assert_eq!((state.result.as_deref(), state.restarts), (Some("start-limit-hit"), 3));
    bench.clean_up().await;
}

#[tokio::test]
async fn a_unit_that_was_given_up_stays_so_for_the_next_daemon() {
    let bench = Bench::new().await;
    let unit = "ExecStart=/bin/false\nRestart=on-failure\nRestartSec=0\n\
                StartLimitBurst=2\nStartLimitInterval=1h\n";
    bench.run("a.service", unit).await;
    let state = bench.wait_for_sub("a.service", "failed").await;
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.state("a.service").await, state);
    assert_eq!(state.result.as_deref(), Some("start-limit-hit"));
    bench.clean_up().await;
}

#[tokio::test]
async fn a_task_that_is_done_and_counts_as_up_reloads_by_its_commands() {
    let bench = Bench::new().await;
    let trace = bench.path("trace");
    let unit = format!(
        "Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\nExecReload=/usr/bin/touch {}\n",
        trace.display()
    );
    bench.run("a.service", &unit).await;
    bench.manager.reload_unit(&name("a.service")).await.expect("it can");
    assert!(trace.exists());
    let state = bench.state("a.service").await;
    assert_eq!((state.active, state.sub.as_str()), (ActiveState::Active, "exited"));
    bench.clean_up().await;
}

#[tokio::test]
async fn what_was_to_be_tried_again_at_the_kill_is_and_it_counts() {
    let chosen = Chosen::new(false).await;
    let (begun, good) = (chosen.path("begun"), chosen.path("good"));
    let (begun, good) = (begun.display(), good.display());
    let script = format!("echo 1 >>{begun}; test -e {good} && exec sleep 1000; exit 1");
    let again = "Restart=on-failure\nRestartSec=100s\n";
    chosen.unit("a.service", &format!("[Service]\n{again}ExecStart=/bin/sh -c '{script}'\n"));
    let mut living = chosen.begin(&["begin start a.service"]).await;
    living.wait_for_phase("a.service", "failed").await;
    living.make("good");
    let bench = living.strike().with(|config| config.clock = hasty()).revive().await;
    let state = bench.wait_for_sub("a.service", "running").await;
    assert_eq!(state.restarts, 1);
    assert_eq!(bench.wait_for_lines("begun", 2).await.len(), 2);
    bench.clean_up().await;
}

#[tokio::test]
async fn it_is_told_when_a_unit_is_tried_again_and_what_keeps_another_degraded() {
    let bench = Bench::new().await;
    bench.load("db.service", "ExecStart=/bin/false\nRestart=always\nRestartSec=1h\n").await;
    let web = "[Unit]\nWants=db.service\nAfter=db.service\n[Service]\nExecStart=/bin/sleep 1000\n";
    bench.try_load("web.service", web).await.expect("it can be loaded");
    bench.start("web.service").await.expect("it waits for nothing that is lost");
    bench.wait_for_sub("db.service", "auto-restart").await;
    let tracking = Some(bench.manager.tracking().to_string());
    let told = bench.manager.particulars(&name("web.service")).await.expect("it is loaded");
    let degraded_by = vec!["db.service".to_owned()];
    let expected = Particulars { degraded_by, tracking: tracking.clone(), retry_in: None };
    assert_eq!(told, expected);
    let told = bench.manager.particulars(&name("db.service")).await.expect("it is loaded");
    let left = told.retry_in.expect("it is tried again");
    assert!(left > Duration::ZERO && left <= Duration::from_secs(3600), "{left:?}");
    assert_eq!((told.degraded_by.len(), told.tracking), (0, tracking));
    bench.manager.particulars(&name("no.service")).await.expect_err("nobody knows it");
    bench.clean_up().await;
}
