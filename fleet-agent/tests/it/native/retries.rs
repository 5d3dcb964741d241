//! Restart policies, and the part of them that survives a daemon.

use std::time::Duration;

use fleet_agent::native::UnitSnapshot;
use fleet_agent::{ServiceManager, UnitDetails};
use fleet_core::graph::{DerivedState, Retry};
use fleet_core::{ActiveState, SystemdState};

use super::graph::{SLEEP, Stand, supervised, target};
use super::kill_point::{CrashScenario, lines};
use crate::support::{Bench, Home, hasty, name, signal};

fn gave_up(unit: &UnitSnapshot) -> bool {
    matches!(unit.report.state, DerivedState::Failed { retry: Retry::GaveUp, .. })
}

#[tokio::test]
async fn forced_restart_applies_to_a_success() {
    let bench = Bench::new().await;
    let unit = "ExecStart=/bin/true\nRestart=no\nRestartForceExitStatus=0\nRestartSec=10ms\n\
                StartLimitBurst=3\nStartLimitInterval=1h\n";
    bench.run("a.service", unit).await;
    let state = bench.wait_for_sub("a.service", "failed").await;
    assert_eq!((state.result.as_deref(), state.restarts), (Some("start-limit-hit"), 3));
    bench.clean_up().await;
}

// Holds: I-9, R-11
#[tokio::test]
async fn start_limit_hit_survives_a_crash() {
    let mut bench = Bench::new().await;
    let unit = format!(
        "ExecStart=/bin/sh -c 'echo >>{}; exit 1'\nRestart=on-failure\nRestartSec=0\n\
         StartLimitBurst=2\nStartLimitInterval=1h\n",
        bench.path("starts").display()
    );
    bench.run("a.service", &unit).await;
    let state = bench.wait_for_sub("a.service", "failed").await;
    assert_eq!(state.result.as_deref(), Some("exit-code"));
    let after = "[Unit]\nAfter=a.service\n[Service]\nType=oneshot\nExecStart=/bin/true\n";
    for _ in 0..3 {
        bench = bench.kill().await.revive().await;
        // It is ordered after each start of the other unit.
        bench.try_load("b.service", after).await.expect("it can be loaded");
        bench.start("b.service").await.expect("it starts");
        assert_eq!(lines(&bench, "starts").len(), 2, "it was started again");
        let after = SystemdState { since: state.since, ..bench.state("a.service").await };
        assert_eq!(after, state);
    }
    bench.clean_up().await;
}

#[tokio::test]
async fn start_limit_hit_lasts_until_a_reset_or_a_new_definition() {
    for limit in ["2", "3 in 1h"] {
        let home = Home::new();
        let file = home.path("starts");
        let starts = || std::fs::read_to_string(&file).expect("it ran").lines().count();
        let more = format!(
            "restart-delay: 1ms\nrestart-limit: {limit}\n\
             exec-start: /bin/sh -c 'echo >>{}; exit 1'",
            file.display()
        );
        let stanzas = supervised("a", &more);
        let mut stand = Stand::new(&stanzas, "a").await;
        let before = stand.wait_for("a", gave_up).await.report;
        for _ in 0..3 {
            stand = stand.again(&stanzas).await;
            let after = stand.unit("a").await.report;
            assert_eq!((&after.state, after.attempts), (&before.state, before.attempts), "{limit}");
        }
        assert_eq!(starts(), 3, "{limit}");
        assert!(stand.supervisor.reset_failed(&target("a")).await.expect("the call succeeds"));
        stand.wait_for("a", |unit| gave_up(unit) && starts() == 6).await;
        stand = stand.again(&stanzas.replace("exit 1", "exec sleep 1000")).await;
        stand.running("a").await;
        stand.clean_up().await;
    }
}

#[tokio::test]
async fn reset_of_a_blocked_unit_survives_a_restart() {
    let more = "depends-on: gate\nexec-start: /bin/false\nrestart-delay: 1ms\nrestart-limit: 1";
    let stanzas = supervised("a", more) + &supervised("gate", &SLEEP.replace("10ms", "1h"));
    let stand = Stand::new(&stanzas, "a").await;
    stand.wait_for("a", gave_up).await;
    signal(stand.running("gate").await, "KILL");
    stand.wait_for("gate", |unit| matches!(unit.report.state, DerivedState::Failed { .. })).await;
    assert!(stand.supervisor.reset_failed(&target("a")).await.expect("the call succeeds"));
    let before = stand.unit("a").await.report.state;
    assert!(matches!(before, DerivedState::Waiting(_)), "{before:?}");
    let stand = stand.again(&stanzas).await;
    assert_eq!(stand.unit("a").await.report.state, before);
    stand.clean_up().await;
}

#[tokio::test]
async fn exited_oneshot_reloads_by_its_commands() {
    let bench = Bench::new().await;
    let trace = bench.path("trace");
    let unit = format!(
        "Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\nExecReload=/usr/bin/touch {}\n",
        trace.display()
    );
    bench.run("a.service", &unit).await;
    bench.manager.reload_unit(&name("a.service")).await.expect("the reload succeeds");
    assert!(trace.exists());
    let state = bench.state("a.service").await;
    assert_eq!((state.active, state.sub.as_str()), (ActiveState::Active, "exited"));
    bench.clean_up().await;
}

// Holds: R-11
#[tokio::test]
async fn pending_retry_survives_a_kill_and_counts() {
    let chosen = CrashScenario::new(false).await;
    let (begun, good) = (chosen.path("begun"), chosen.path("good"));
    let (begun, good) = (begun.display(), good.display());
    let script = format!("echo 1 >>{begun}; test -e {good} && exec sleep 1000; exit 1");
    let again = "Restart=on-failure\nRestartSec=100s\n";
    chosen.unit("a.service", &format!("[Service]\n{again}ExecStart=/bin/sh -c '{script}'\n"));
    let mut living = chosen.begin(&["begin start a.service"]).await;
    living.wait_for_phase("a.service", "failed").await;
    living.make("good");
    let bench = living.kill().with(|config| config.clock = hasty()).revive().await;
    let state = bench.wait_for_sub("a.service", "running").await;
    assert_eq!(state.restarts, 1);
    assert_eq!(bench.wait_for_lines("begun", 2).await.len(), 2);
    bench.clean_up().await;
}

#[tokio::test]
async fn details_show_next_retry_and_degrading_units() {
    let bench = Bench::new().await;
    bench.load("db.service", "ExecStart=/bin/false\nRestart=always\nRestartSec=1h\n").await;
    let web = "[Unit]\nWants=db.service\nAfter=db.service\n[Service]\nExecStart=/bin/sleep 1000\n";
    bench.try_load("web.service", web).await.expect("it can be loaded");
    bench.start("web.service").await.expect("a failed wanted unit does not block it");
    bench.wait_for_sub("db.service", "auto-restart").await;
    let tracking = Some(bench.manager.tracking().to_string());
    let details = bench.manager.details(&name("web.service")).await.expect("it is loaded");
    let degraded_by = vec!["db.service".to_owned()];
    let expected =
        UnitDetails::default().with_degraded_by(degraded_by).with_tracking(tracking.clone());
    assert_eq!(details, expected);
    let details = bench.manager.details(&name("db.service")).await.expect("it is loaded");
    let left = details.retry_in.expect("a retry is scheduled");
    assert!(left > Duration::ZERO && left <= Duration::from_secs(3600), "{left:?}");
    assert_eq!((details.degraded_by.len(), details.tracking), (0, tracking));
    bench.manager.details(&name("no.service")).await.expect_err("it is not loaded");
    bench.clean_up().await;
}
