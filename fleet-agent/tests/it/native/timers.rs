//! Timers, and the units that they start.

use std::path::Path;

use fleet_agent::journal::JournalReader as _;
use fleet_agent::{ServiceError, ServiceManager};
use fleet_core::journal::JournalQuery;
use fleet_core::{ActiveState, Generation, TargetState};
use futures_util::FutureExt as _;

use super::timers_crash::last_record;
use crate::support::{Bench, DEADLINE, name, wait_until};

pub(super) const NO_LIMIT: &str = "[Unit]\nStartLimitIntervalSec=0\n";

impl Bench {
    /// Loads `a.service`, which adds a line to a file on each run, and `a.timer`.
    pub(super) async fn load_timer(&self, timer: &str) {
        let script = format!("echo run >>{}", self.path("ran").display());
        let service = format!("Type=oneshot\nExecStart=/bin/sh -c '{script}'\n{NO_LIMIT}");
        self.load("a.service", &service).await;
        self.load_timer_alone(timer).await;
    }

    pub(super) async fn load_timer_alone(&self, timer: &str) {
        let text = format!("[Timer]\n{timer}\n");
        self.try_load("a.timer", &text).await.expect("it can be loaded");
    }

    pub(super) async fn wait_for_runs(&self, count: usize) {
        wait_until("the unit runs", async || runs(&self.path("ran")) >= count).await;
    }
}

pub(super) fn runs(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn timer_starts_its_unit_repeatedly() {
    let bench = Bench::new().await;
    bench.load_timer("OnActiveSec=50ms\nOnUnitInactiveSec=20ms").await;
    assert_eq!(bench.state("a.timer").await.sub, "dead");
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_runs(4).await;
    let (timer, unit) = (bench.get("a.timer").await, bench.get("a.service").await);
    assert_eq!(timer.state.active, ActiveState::Active);
    assert_eq!(timer.known.requested, TargetState::Launched);
    assert_eq!(unit.known.requested, TargetState::Loaded, "no further request was made");
    bench.stop("a.timer").await;
    assert_eq!(bench.state("a.timer").await.sub, "dead");
    // The last elapse before the stop may still be starting the unit.
    let record = bench.path("native/units/a.timer/run.json");
    let is_done = async || last_record(&record)["timer"]["starting"].is_null();
    wait_until("no elapse is pending", is_done).await;
    bench.wait_for_sub("a.service", "dead").await;
    let ran = runs(&bench.path("ran"));
    bench.start("a.service").await.expect("it starts");
    assert_eq!(runs(&bench.path("ran")), ran + 1, "the timer does not start it any more");
    bench.clean_up().await;
}

/// Regression: timers with conditions were refused.
#[tokio::test]
async fn timer_with_an_unmet_condition_does_not_start() {
    let bench = Bench::new().await;
    let switch = bench.path("switch");
    let timer =
        |trigger: &str| format!("{trigger}\n[Unit]\nConditionPathExists={}", switch.display());
    bench.load_timer(&timer("OnActiveSec=1ms")).await;
    let error = bench.start("a.timer").await.expect_err("it is skipped").to_string();
    let expected = format!(
        "a.timer did not start: its ConditionPathExists={} does not hold",
        switch.display()
    );
    assert_eq!(error, expected);
    let skipped = bench.get("a.timer").await;
    assert_eq!((skipped.known.requested, &*skipped.state.sub), (TargetState::Launched, "dead"));
    std::fs::write(&switch, "").expect("it can be written");
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_runs(1).await;
    // The condition counts only for the start.
    std::fs::remove_file(&switch).expect("it can be removed");
    bench.start("a.timer").await.expect("it is active");
    bench.clean_up().await;
}

/// Regression: the timer still counted as launched, so that no later start was requested.
#[tokio::test]
async fn timer_stopped_on_full_disk_is_not_launched() {
    let bench = Bench::new().await;
    bench.load_timer("OnActiveSec=1h").await;
    bench.start("a.timer").await.expect("it starts");
    // The requested state is written to this file first.
    let aside = bench.path("native/units/a.timer/requested.json.new");
    std::fs::create_dir(&aside).expect("it can be created");
    // The stop takes effect although it cannot be stored, like that of a service.
    bench.stop("a.timer").await;
    let timer = bench.get("a.timer").await;
    assert_eq!((timer.known.requested, &*timer.state.sub), (TargetState::Loaded, "dead"));
    std::fs::remove_dir(&aside).expect("it can be removed");
    bench.start("a.timer").await.expect("it starts");
    assert_eq!(bench.state("a.timer").await.sub, "waiting");
    bench.clean_up().await;
}

/// The journal is empty without ending; otherwise a follower would reconnect repeatedly.
#[tokio::test]
async fn followed_timer_journal_ends_with_the_timer() {
    let bench = Bench::new().await;
    bench.load_timer("OnActiveSec=1h").await;
    let (timer, query) = (name("a.timer"), JournalQuery::default());
    let mut all = bench.journal("a.timer", query.clone()).await;
    assert_eq!(all.next().await, None, "a timer writes nothing");
    let query = query.with_follow(true);
    let mut followed = bench.journal("a.timer", query.clone()).await;
    let after = bench.manager.journal(&timer, query.with_after("nowhere".to_owned())).await;
    let mut after = after.expect("it can be followed");
    // A change or another load of the timer does not end the journal.
    bench.start("a.timer").await.expect("it starts");
    bench.load_timer_alone("OnActiveSec=2h").await;
    bench.stop("a.timer").await;
    for journal in [&mut followed, &mut after] {
        assert_eq!(journal.next().now_or_never(), None, "it continues");
    }
    bench.manager.unload(&timer).await.expect("it unloads");
    for mut journal in [followed, after] {
        let end = tokio::time::timeout(DEADLINE, journal.next()).await;
        assert_eq!(end.expect("it ends in time"), None);
    }
    bench.clean_up().await;
}

#[tokio::test]
async fn timer_states_are_those_of_systemd() {
    let bench = Bench::new().await;
    bench.load("a.service", "ExecStart=/bin/sleep 1000\n").await;
    bench.load_timer_alone("OnActiveSec=100ms").await;
    bench.start("a.timer").await.expect("it starts");
    assert_eq!(bench.state("a.timer").await.sub, "waiting");
    bench.wait_for_sub("a.service", "running").await;
    bench.wait_for_sub("a.timer", "running").await;
    bench.stop("a.service").await;
    bench.wait_for_sub("a.timer", "elapsed").await;
    assert_eq!(bench.state("a.timer").await.active, ActiveState::Active);
    bench.manager.restart(&name("a.timer"), Generation(2)).await.expect("it restarts");
    bench.wait_for_sub("a.service", "running").await;
    bench.stop("a.timer").await;
    bench.load_timer_alone("OnActiveSec=1ms\nRemainAfterElapse=no").await;
    bench.stop("a.service").await;
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_sub("a.service", "running").await;
    bench.stop("a.service").await;
    bench.wait_for_sub("a.timer", "dead").await;
    bench.clean_up().await;
}

#[tokio::test]
async fn timer_without_its_unit_is_refused() {
    let bench = Bench::new().await;
    bench.load_timer_alone("OnActiveSec=50ms\nUnit=b.service").await;
    let refused = bench.start("a.timer").await.expect_err("there is nothing to start");
    assert!(matches!(refused, ServiceError::NothingToTrigger { .. }), "{refused}");
    let message = refused.to_string();
    assert!(
        message.contains("MachineOf=b.service in the [X-Fleet] section of a.timer"),
        "{message}"
    );
    assert_eq!(bench.get("a.timer").await.known.requested, TargetState::Loaded);
    bench.load("b.service", "ExecStart=/bin/sleep 1000\n").await;
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_sub("b.service", "running").await;
    bench.stop("a.timer").await;
    bench.load_timer_alone("OnActiveSec=1h\nUnit=b.service").await;
    bench.start("a.timer").await.expect("it starts");
    bench.manager.unload(&name("b.service")).await.expect("it is unloaded");
    bench.load_timer_alone("OnActiveSec=1ms\nUnit=b.service").await;
    bench.wait_for_sub("a.timer", "failed").await;
    assert_eq!(bench.state("a.timer").await.result.as_deref(), Some("resources"));
    bench.clean_up().await;
}

#[tokio::test]
async fn calendar_event_starts_a_unit() {
    let bench = Bench::new().await;
    bench.load_timer("OnCalendar=*:*:* UTC").await;
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_runs(1).await;
    bench.clean_up().await;
}

#[tokio::test]
async fn persistent_timer_catches_up() {
    let bench = Bench::new().await;
    let stamp = bench.path("native/timers/a.timer");
    bench.load_timer("OnCalendar=yearly\nPersistent=yes").await;
    bench.start("a.timer").await.expect("it starts");
    wait_until("its first start is recorded", async || stamp.exists()).await;
    bench.stop("a.timer").await;
    assert_eq!(runs(&bench.path("ran")), 0, "it has missed nothing");
    bench.manager.unload(&name("a.timer")).await.expect("it is unloaded");
    // The same daemon may still remember the time that it has just written.
    let dead = bench.kill().await;
    std::fs::write(&stamp, "1000").expect("it can be written");
    let bench = dead.revive().await;
    bench.load_timer_alone("OnCalendar=yearly\nPersistent=yes").await;
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_runs(1).await;
    bench.wait_for_sub("a.timer", "waiting").await;
    let read = || std::fs::read_to_string(&stamp).expect("it can be read");
    wait_until("the elapse is recorded", async || read() != "1000").await;
    assert_eq!(runs(&bench.path("ran")), 1);
    bench.clean_up().await;
}

#[tokio::test]
async fn timer_respects_the_start_limit() {
    let bench = Bench::new().await;
    let text = "[Unit]\nStartLimitBurst=2\nStartLimitIntervalSec=1h\n[Service]\nType=oneshot\n\
                ExecStart=/bin/true\n";
    bench.try_load("a.service", text).await.expect("it loads");
    bench.load_timer_alone("OnActiveSec=1ms\nOnUnitInactiveSec=50ms").await;
    bench.start("a.timer").await.expect("it starts");
    let hit = async || bench.state("a.service").await.result.as_deref() == Some("start-limit-hit");
    wait_until("it was started too often", hit).await;
    bench.clean_up().await;
}

#[tokio::test]
async fn target_starts_its_timers() {
    let bench = Bench::new().await;
    bench.load_timer("OnActiveSec=1h\n[Install]\nWantedBy=timers.target").await;
    bench.try_load("timers.target", "[Unit]\nDescription=All\n").await.expect("it loads");
    let text = "[Unit]\nWants=timers.target b.timer\n";
    bench.try_load("all.target", text).await.expect("it loads");
    // The wanted timer may have no unit to start.
    let text = "[Timer]\nOnActiveSec=1h\nUnit=gone.service\n";
    bench.try_load("b.timer", text).await.expect("it loads");
    assert_eq!(bench.state("a.timer").await.sub, "dead");
    bench.start("all.target").await.expect("it starts");
    assert_eq!(bench.state("a.timer").await.sub, "waiting");
    assert_eq!(bench.get("a.timer").await.known.requested, TargetState::Loaded, "not requested");
    assert_eq!(bench.state("b.timer").await.sub, "dead");
    bench.stop("timers.target").await;
    assert_eq!(bench.state("a.timer").await.sub, "waiting", "a wanted unit keeps running");
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.state("a.timer").await.sub, "waiting");
    bench.stop("a.timer").await;
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.state("a.timer").await.sub, "dead");
    bench.start("timers.target").await.expect("it starts");
    assert_eq!(bench.state("a.timer").await.sub, "waiting", "the next daemon knows its dependents");
    bench.clean_up().await;
}

#[tokio::test]
async fn unit_requiring_a_timer_starts_with_it_or_fails() {
    let bench = Bench::new().await;
    let text = "[Unit]\nRequires=a.timer\nAfter=a.timer\n";
    bench.try_load("hard.target", text).await.expect("it can be loaded");
    let refused = bench.start("hard.target").await.expect_err("its required timer cannot start");
    let chain = std::iter::successors(Some(&refused as &dyn std::error::Error), |it| it.source());
    let messages: Vec<String> = chain.map(ToString::to_string).collect();
    assert!(messages.join(": ").contains("a.timer"), "{messages:?}");
    bench.load_timer_alone("OnActiveSec=1h").await;
    let refused = bench.start("hard.target").await.expect_err("the timer has nothing to start");
    assert!(matches!(refused, ServiceError::NothingToTrigger { .. }), "{refused}");
    bench.load_timer("OnActiveSec=1h").await;
    bench.start("hard.target").await.expect("it starts");
    assert_eq!(bench.state("hard.target").await.active, ActiveState::Active);
    assert_eq!(bench.state("a.timer").await.sub, "waiting");
    bench.clean_up().await;
}

#[tokio::test]
async fn timer_restarts_after_its_unit_was_replaced() {
    let bench = Bench::new().await;
    bench.load("b.service", "ExecStart=/bin/sleep 1000\n").await;
    bench.load_timer_alone("OnActiveSec=1h\nUnit=b.service").await;
    bench.start("a.timer").await.expect("it starts");
    bench.manager.unload(&name("b.service")).await.expect("it is unloaded");
    bench.load_timer_alone("OnActiveSec=1ms\nUnit=b.service").await;
    bench.wait_for_sub("a.timer", "failed").await;
    bench.load("b.service", "ExecStart=/bin/sleep 1001\n").await;
    bench.wait_for_sub("b.service", "running").await;
    bench.wait_for_sub("a.timer", "running").await;
    bench.clean_up().await;
}
