//! Timers, and the units that they start.

use std::path::Path;
use std::process::{Command, Stdio};

use fleet_agent::{JournalQuery, NativeConfig, NativeManager, ServiceError, ServiceManager};
use fleet_core::{ActiveState, Epoch, Generation, TargetState};
use fleet_unitfile::UnitFile;
use futures_util::FutureExt as _;

use crate::support::{Bench, DEADLINE, name, wait_until};

const NO_LIMIT: &str = "[Unit]\nStartLimitIntervalSec=0\n";

impl Bench {
    /// Loads `a.service`, which adds a line to a file each time it runs, and `a.timer`.
    async fn load_timer(&self, timer: &str) {
        let script = format!("echo run >>{}", self.path("ran").display());
        let service = format!("Type=oneshot\nExecStart=/bin/sh -c '{script}'\n{NO_LIMIT}");
        self.load("a.service", &service).await;
        self.load_timer_alone(timer).await;
    }

    async fn load_timer_alone(&self, timer: &str) {
        let text = format!("[Timer]\n{timer}\n");
        self.try_load("a.timer", &text).await.expect("it can be loaded");
    }

    async fn wait_for_runs(&self, count: usize) {
        wait_until("the unit runs", async || runs(&self.path("ran")) >= count).await;
    }
}

fn runs(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn a_timer_starts_its_unit_again_and_again() {
    let bench = Bench::new().await;
    bench.load_timer("OnActiveSec=50ms\nOnUnitInactiveSec=20ms").await;
    assert_eq!(bench.state("a.timer").await.sub, "dead");
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_runs(4).await;
    let (timer, unit) = (bench.get("a.timer").await, bench.get("a.service").await);
    assert_eq!(timer.state.active, ActiveState::Active);
    assert_eq!(timer.known.asked, TargetState::Launched);
    assert_eq!(unit.known.asked, TargetState::Loaded, "nobody asked for more");
    bench.stop("a.timer").await;
    assert_eq!(bench.state("a.timer").await.sub, "dead");
    bench.wait_for_sub("a.service", "dead").await;
    let ran = runs(&bench.path("ran"));
    bench.start("a.service").await.expect("it starts");
    assert_eq!(runs(&bench.path("ran")), ran + 1, "the timer does not start it any more");
    bench.clean_up().await;
}

/// It says nothing and is no end, or whoever follows it would ask for it again and again.
#[tokio::test]
async fn a_journal_of_a_timer_that_is_followed_ends_with_the_timer() {
    let bench = Bench::new().await;
    bench.load_timer("OnActiveSec=1h").await;
    let (timer, query) = (name("a.timer"), JournalQuery::default());
    let mut all = bench.journal("a.timer", query).await;
    assert_eq!(all.next().await, None, "a timer writes nothing");
    let query = JournalQuery { follow: true, ..query };
    let mut followed = bench.journal("a.timer", query).await;
    let after = bench.manager.journal_after(&timer, "nowhere", true).await;
    let mut after = after.expect("it can be followed");
    // What changes of the timer, or is loaded anew, ends nothing.
    bench.start("a.timer").await.expect("it starts");
    bench.load_timer_alone("OnActiveSec=2h").await;
    bench.stop("a.timer").await;
    for journal in [&mut followed, &mut after] {
        assert_eq!(journal.next().now_or_never(), None, "it goes on");
    }
    bench.manager.unload(&timer).await.expect("it unloads");
    for mut journal in [followed, after] {
        let end = tokio::time::timeout(DEADLINE, journal.next()).await;
        assert_eq!(end.expect("it ends in time"), None);
    }
    bench.clean_up().await;
}

#[tokio::test]
async fn its_states_are_those_of_systemd() {
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
async fn without_its_unit_a_timer_is_not_started() {
    let bench = Bench::new().await;
    bench.load_timer_alone("OnActiveSec=50ms\nUnit=b.service").await;
    let refused = bench.start("a.timer").await.expect_err("there is nothing to start");
    assert!(matches!(refused, ServiceError::NothingToTrigger { .. }), "{refused}");
    assert_eq!(bench.get("a.timer").await.known.asked, TargetState::Loaded);
    bench.load("b.service", "ExecStart=/bin/sleep 1000\n").await;
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_sub("b.service", "running").await;
    bench.stop("a.timer").await;
    bench.load_timer_alone("OnActiveSec=1h\nUnit=b.service").await;
    bench.start("a.timer").await.expect("it starts");
    bench.manager.unload(&name("b.service")).await.expect("it goes");
    bench.load_timer_alone("OnActiveSec=1ms\nUnit=b.service").await;
    bench.wait_for_sub("a.timer", "failed").await;
    assert_eq!(bench.state("a.timer").await.result.as_deref(), Some("resources"));
    bench.clean_up().await;
}

#[tokio::test]
async fn a_start_that_was_only_written_down_is_made_by_the_next_daemon() {
    let bench = Bench::new().await;
    bench.load_timer("OnActiveSec=1h").await;
    let dead = bench.kill().await;
    let asked = dead.path("native/units/a.timer/asked.json");
    let text = std::fs::read_to_string(&asked).expect("it is written down");
    let launched = text.replace("\"launched\":false", "\"launched\":true");
    assert_ne!(launched, text);
    std::fs::write(&asked, launched).expect("it can be written");
    let bench = dead.revive().await;
    assert_eq!(bench.state("a.timer").await.sub, "waiting");
    bench.clean_up().await;
}

#[tokio::test]
async fn the_calendar_starts_units_too() {
    let bench = Bench::new().await;
    bench.load_timer("OnCalendar=*:*:* UTC").await;
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_runs(1).await;
    bench.clean_up().await;
}

#[tokio::test]
async fn a_persistent_timer_makes_up_for_what_it_missed() {
    let bench = Bench::new().await;
    let stamp = bench.path("native/timers/a.timer");
    bench.load_timer("OnCalendar=yearly\nPersistent=yes").await;
    bench.start("a.timer").await.expect("it starts");
    wait_until("its first start is remembered", async || stamp.exists()).await;
    bench.stop("a.timer").await;
    assert_eq!(runs(&bench.path("ran")), 0, "it has missed nothing");
    std::fs::write(&stamp, "1000").expect("it can be written");
    bench.manager.unload(&name("a.timer")).await.expect("it goes");
    bench.load_timer_alone("OnCalendar=yearly\nPersistent=yes").await;
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_runs(1).await;
    bench.wait_for_sub("a.timer", "waiting").await;
    let read = || std::fs::read_to_string(&stamp).expect("it can be read");
    wait_until("that is remembered", async || read() != "1000").await;
    assert_eq!(runs(&bench.path("ran")), 1);
    bench.clean_up().await;
}

#[tokio::test]
async fn a_timer_keeps_to_the_limit_of_starts() {
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
async fn a_timer_is_found_as_it_was() {
    let bench = Bench::new().await;
    bench.load_timer("OnActiveSec=1h").await;
    bench.manager.start(&name("a.timer"), Generation(3)).await.expect("it starts");
    let before = bench.get("a.timer").await;
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.get("a.timer").await, before);
    bench.stop("a.timer").await;
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.state("a.timer").await.sub, "dead");
    assert_eq!(bench.get("a.timer").await.known.asked, TargetState::Loaded);
    bench.manager.unload(&name("a.timer")).await.expect("it goes");
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.manager.get(&name("a.timer")).await.expect("it answers"), None);
    bench.clean_up().await;
}

#[tokio::test]
async fn what_elapses_while_no_daemon_runs_is_made_up_for() {
    let bench = Bench::new().await;
    bench.load_timer("OnActiveSec=300ms").await;
    bench.start("a.timer").await.expect("it starts");
    let dead = bench.kill().await;
    let due = std::time::Instant::now() + std::time::Duration::from_millis(300);
    wait_until("it is due", async || std::time::Instant::now() >= due).await;
    let bench = dead.revive().await;
    bench.wait_for_runs(1).await;
    bench.wait_for_sub("a.timer", "elapsed").await;
    let bench = bench.kill().await.revive().await;
    bench.wait_for_sub("a.timer", "elapsed").await;
    assert_eq!(runs(&bench.path("ran")), 1);
    bench.clean_up().await;
}

/// Where the daemon that is to be killed works; set for its process alone.
const DAEMON: &str = "FLEET_TEST_TIMER_DAEMON";

/// The daemon of the test below, in a process of its own. By itself it does nothing.
#[tokio::test]
async fn timer_daemon_to_be_killed() {
    let Some(directory) = std::env::var_os(DAEMON) else { return };
    let ran = Path::new(&directory).with_file_name("ran").display().to_string();
    let manager = NativeManager::open(NativeConfig::new(directory)).await.expect("it opens");
    let script = format!("echo run >>{ran}");
    let service = format!("[Service]\nType=oneshot\nExecStart=/bin/sh -c '{script}'\n{NO_LIMIT}");
    let timer = "[Timer]\nOnActiveSec=1ms\nOnUnitActiveSec=20ms\n".to_owned();
    for (unit, text) in [("a.service", service), ("a.timer", timer)] {
        let file = UnitFile::parse(text).expect("it is well formed");
        manager.load(&name(unit), &file, Epoch(2)).await.expect("it loads");
    }
    manager.start(&name("a.timer"), Generation(5)).await.expect("it starts");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_daemon_that_is_killed_leaves_its_timers_to_the_next() {
    let dead = Bench::new().await.kill().await;
    let mut daemon = Command::new(std::env::current_exe().expect("it has a path"))
        .args(["--exact", "native::timers::timer_daemon_to_be_killed"])
        .env(DAEMON, dead.path("native"))
        .stdout(Stdio::null())
        .spawn()
        .expect("the daemon starts");
    wait_until("the timer elapses", async || runs(&dead.path("ran")) >= 3).await;
    daemon.kill().expect("it can be killed");
    daemon.wait().expect("it ends");
    let bench = dead.revive().await;
    assert_eq!(bench.state("a.timer").await.active, ActiveState::Active);
    assert_eq!(bench.get("a.timer").await.known.generation, Generation(5));
    bench.wait_for_runs(runs(&bench.path("ran")) + 3).await;
    bench.clean_up().await;
}

#[tokio::test]
async fn a_target_starts_the_timers_that_it_wants() {
    let bench = Bench::new().await;
    bench.load_timer("OnActiveSec=1h\n[Install]\nWantedBy=timers.target").await;
    bench.try_load("timers.target", "[Unit]\nDescription=All\n").await.expect("it loads");
    let text = "[Unit]\nWants=timers.target b.timer\n";
    bench.try_load("all.target", text).await.expect("it loads");
    // What it wants may have nothing to start.
    let text = "[Timer]\nOnActiveSec=1h\nUnit=gone.service\n";
    bench.try_load("b.timer", text).await.expect("it loads");
    assert_eq!(bench.state("a.timer").await.sub, "dead");
    bench.start("all.target").await.expect("it starts");
    assert_eq!(bench.state("a.timer").await.sub, "waiting");
    assert_eq!(bench.get("a.timer").await.known.asked, TargetState::Loaded, "nobody asked");
    assert_eq!(bench.state("b.timer").await.sub, "dead");
    bench.stop("timers.target").await;
    assert_eq!(bench.state("a.timer").await.sub, "waiting", "who is wanted goes on");
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.state("a.timer").await.sub, "waiting");
    bench.stop("a.timer").await;
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.state("a.timer").await.sub, "dead");
    bench.start("timers.target").await.expect("it starts");
    assert_eq!(bench.state("a.timer").await.sub, "waiting", "the next daemon knows who wants it");
    bench.clean_up().await;
}

#[tokio::test]
async fn what_requires_a_timer_starts_with_it_or_not_at_all() {
    let bench = Bench::new().await;
    let text = "[Unit]\nRequires=a.timer\nAfter=a.timer\n";
    bench.try_load("hard.target", text).await.expect("it can be loaded");
    let refused = bench.start("hard.target").await.expect_err("it needs a timer");
    let chain = std::iter::successors(Some(&refused as &dyn std::error::Error), |it| it.source());
    let told: Vec<String> = chain.map(ToString::to_string).collect();
    assert!(told.join(": ").contains("a.timer"), "{told:?}");
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
async fn a_timer_whose_unit_was_replaced_in_its_moment_begins_again() {
    let bench = Bench::new().await;
    bench.load("b.service", "ExecStart=/bin/sleep 1000\n").await;
    bench.load_timer_alone("OnActiveSec=1h\nUnit=b.service").await;
    bench.start("a.timer").await.expect("it starts");
    bench.manager.unload(&name("b.service")).await.expect("it goes");
    bench.load_timer_alone("OnActiveSec=1ms\nUnit=b.service").await;
    bench.wait_for_sub("a.timer", "failed").await;
    bench.load("b.service", "ExecStart=/bin/sleep 1001\n").await;
    bench.wait_for_sub("b.service", "running").await;
    bench.wait_for_sub("a.timer", "running").await;
    bench.clean_up().await;
}

#[tokio::test]
async fn a_persistent_timer_that_is_restarted_before_its_stamp_is_written_elapses_once() {
    let bench = Bench::new().await;
    let stamp = bench.path("native/timers/a.timer");
    std::fs::write(&stamp, "1000").expect("it can be written");
    // Nothing can be written aside, so the stamp stays what it was.
    std::fs::create_dir(bench.path("native/timers/a.timer.new")).expect("it can be made");
    bench.load_timer("OnCalendar=yearly\nPersistent=yes").await;
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_runs(1).await;
    bench.wait_for_sub("a.timer", "waiting").await;
    bench.manager.restart(&name("a.timer"), Generation(2)).await.expect("it restarts");
    assert_eq!(bench.state("a.timer").await.sub, "waiting");
    let bench = bench.kill().await.revive().await;
    bench.wait_for_sub("a.timer", "waiting").await;
    assert_eq!(runs(&bench.path("ran")), 1, "what was made up for is not made up for again");
    bench.clean_up().await;
}

/// Loads `a.service`, which waits for a gate each time that it is to run.
async fn load_behind_gate(bench: &Bench) {
    let script = format!("until [ -e {} ]; do sleep 0.01; done", bench.path("gate").display());
    let gate = format!("Type=oneshot\nExecStart=/bin/sh -c '{script}'\n");
    bench.load("gate.service", &gate).await;
    let script = format!("echo run >>{}", bench.path("ran").display());
    let text = format!(
        "[Unit]\nStartLimitIntervalSec=0\nWants=gate.service\nAfter=gate.service\n\
         [Service]\nType=oneshot\nExecStart=/bin/sh -c '{script}'\n"
    );
    bench.try_load("a.service", &text).await.expect("it can be loaded");
}

#[tokio::test]
async fn an_elapse_is_not_lost_with_the_daemon_while_its_unit_waits_for_another() {
    let bench = Bench::new().await;
    load_behind_gate(&bench).await;
    bench.load_timer_alone("OnActiveSec=1ms").await;
    std::fs::write(bench.path("gate"), "").expect("it can be written");
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_runs(1).await;
    bench.wait_for_sub("a.timer", "elapsed").await;
    std::fs::remove_file(bench.path("gate")).expect("it is there");
    bench.manager.restart(&name("a.timer"), Generation(2)).await.expect("it restarts");
    bench.wait_for_sub("gate.service", "start").await;
    assert_eq!(bench.state("a.service").await.sub, "dead", "it waits");
    let bench = bench.kill().await.revive().await;
    std::fs::write(bench.path("gate"), "").expect("it can be written");
    bench.wait_for_runs(2).await;
    bench.wait_for_sub("a.timer", "elapsed").await;
    let bench = bench.kill().await.revive().await;
    bench.wait_for_sub("a.timer", "elapsed").await;
    bench.wait_for_sub("a.service", "dead").await;
    assert_eq!(runs(&bench.path("ran")), 2, "it is made once");
    bench.clean_up().await;
}

#[tokio::test]
async fn an_elapse_that_was_only_written_down_is_made_by_the_next_daemon() {
    let bench = Bench::new().await;
    bench.load_timer("OnActiveSec=1h").await;
    bench.start("a.timer").await.expect("it starts");
    let dead = bench.kill().await;
    // The record as it is between the moment and the start of the unit.
    let path = dead.path("native/units/a.timer/timer.json");
    let mut record = read_json(&path);
    record["phase"] = "running".into();
    record["last"] = record["since"].clone();
    record["starting"] = 7.into();
    std::fs::write(&path, record.to_string()).expect("it can be written");
    let bench = dead.revive().await;
    bench.wait_for_runs(1).await;
    bench.wait_for_sub("a.timer", "waiting").await;
    assert_eq!(runs(&bench.path("ran")), 1, "it is made once");
    bench.clean_up().await;
}

#[tokio::test]
async fn an_elapse_that_is_told_twice_starts_nothing_that_was_stopped_since() {
    let bench = Bench::new().await;
    bench.load("b.service", "ExecStart=/bin/sleep 1000\n").await;
    bench.load_timer_alone("OnActiveSec=1ms\nUnit=b.service").await;
    bench.start("a.timer").await.expect("it starts");
    bench.wait_for_sub("b.service", "running").await;
    bench.stop("b.service").await;
    bench.wait_for_sub("a.timer", "elapsed").await;
    let dead = bench.kill().await;
    // The records as they are before the timer knows what came of its elapse.
    let asked = dead.path("native/units/b.service/asked.json");
    let before = read_json(&asked);
    let timer = dead.path("native/units/a.timer/timer.json");
    let mut record = read_json(&timer);
    (record["phase"], record["starting"]) = ("running".into(), before["trigger"].clone());
    std::fs::write(&timer, record.to_string()).expect("it can be written");
    let bench = dead.revive().await;
    bench.wait_for_sub("a.timer", "elapsed").await;
    assert_eq!(read_json(&asked), before, "nothing is asked anew");
    bench.load("b.service", "ExecStart=/bin/sleep 1001\n").await;
    assert_eq!(bench.state("b.service").await.sub, "dead");
    bench.clean_up().await;
}

fn read_json(path: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).expect("it is written down");
    serde_json::from_str(&text).expect("it is JSON")
}
