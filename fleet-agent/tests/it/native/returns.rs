//! What a manager has begun and not ended when it is killed, and what the next one does about it.
//! Each moment is brought about, where those of random kills are hardly ever hit.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use fleet_agent::ServiceError;
use fleet_core::graph::Shown;
use fleet_core::{Generation, TargetState};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use super::chosen::{Chosen, RUNNING, decided, is_over, lines, stubborn, tells};
use super::helper::does;
use crate::support::{hasty, runs, signal, signal_group, wait_until};

async fn a_stop_is_finished_once(plain: bool) {
    let chosen = Chosen::new(plain).await;
    chosen.unit("a.service", &stubborn(&chosen, ""));
    chosen.unit("all.target", "[Unit]\nWants=a.service\n");
    let asks = ["start a.service", "start all.target", "await go", "begin stop a.service"];
    let mut living = chosen.begin(&asks).await;
    living.wait_for_lines("begun", 1).await;
    living.make("go");
    living.wait_for_phase("a.service", "stop-sigterm").await;
    let bench = living.strike().revive().await;
    let found = bench.get("a.service").await;
    assert_eq!((found.known.asked, &*found.state.sub), (TargetState::Loaded, "stop-sigterm"));
    assert!(matches!(decided(&bench, "a.service").await, Shown::Stopping(_)));
    let pid = found.state.main_pid.expect("it has one");
    signal_group(pid, "KILL");
    bench.wait_for("a.service", is_over).await;
    assert!(!runs(pid));
    let bench = bench.kill().await.revive().await;
    assert!(is_over(&bench.state("a.service").await), "who wants it does not start it");
    assert_eq!(decided(&bench, "a.service").await, Shown::Masked);
    assert_eq!(bench.state("all.target").await.sub, "active");
    assert_eq!((lines(&bench, "begun").len(), lines(&bench, "over").len()), (1, 1));
    bench.clean_up().await;
}

#[tokio::test]
async fn a_stop_that_a_kill_came_into_is_finished_once() {
    a_stop_is_finished_once(false).await;
    a_stop_is_finished_once(true).await;
}

async fn a_restart_is_finished_once(plain: bool) {
    let chosen = Chosen::new(plain).await;
    chosen.unit("a.service", &stubborn(&chosen, ""));
    let asks = ["start a.service", "await go", "begin restart a.service"];
    let mut living = chosen.begin(&asks).await;
    living.wait_for_lines("begun", 1).await;
    living.make("go");
    living.wait_for_phase("a.service", "stop-sigterm").await;
    let bench = living.strike().revive().await;
    let before = bench.pid("a.service").await;
    assert_eq!(lines(&bench, "begun"), [before.to_string()], "it stops first");
    // It has failed to stop, and nothing says that it is started again after a failure.
    signal_group(before, "KILL");
    let begun = bench.wait_for_lines("begun", 2).await;
    let state = bench.wait_for_sub("a.service", "running").await;
    assert_eq!(state.main_pid.map(|pid| pid.to_string()).as_ref(), begun.last());
    assert_eq!(bench.get("a.service").await.known.generation, Generation(3));
    assert!(!runs(before), "it ran twice");
    let bench = bench.kill().await.revive().await;
    assert_eq!(decided(&bench, "a.service").await, RUNNING);
    assert_eq!(lines(&bench, "begun"), begun, "it was restarted twice");
    assert_eq!(lines(&bench, "over").len(), 1);
    signal_group(bench.pid("a.service").await, "KILL");
    bench.wait_for("a.service", is_over).await;
    bench.clean_up().await;
}

#[tokio::test]
async fn a_restart_that_a_kill_came_into_before_its_start_is_finished_once() {
    a_restart_is_finished_once(false).await;
    a_restart_is_finished_once(true).await;
}

/// A service that fails when it begins for the first time, and leaves a process that minds no
/// `SIGTERM`.
fn fails_once(chosen: &Chosen) -> String {
    let (begun, left) = (chosen.path("begun"), chosen.path("left"));
    let (begun, left) = (begun.display(), left.display());
    format!(
        "[Service]\nTimeoutStopSec=1h\nExecStart=/bin/sh -c 'echo $$$$ >>{begun}; \
         test -e {left} && exec sleep 1000; (trap \"\" TERM; echo 1 >{left}; exec sleep 1001) & \
         until test -e {left}; do sleep 0.01; done; exit 1'\n"
    )
}

async fn what_fails_is_restarted(plain: bool) {
    let chosen = Chosen::new(plain).await;
    chosen.unit("a.service", &fails_once(&chosen));
    let asks = ["begin start a.service", "await go", "begin restart a.service"];
    let mut living = chosen.begin(&asks).await;
    living.wait_for_phase("a.service", "stop-sigterm").await;
    living.make("go");
    living.wait_for_record("a.service", "asked.json", "\"generation\":3").await;
    let bench = living.strike().revive().await;
    let first: u32 = lines(&bench, "begun")[0].parse().expect("a number");
    assert_eq!(bench.state("a.service").await.sub, "stop-sigterm");
    signal_group(first, "KILL");
    let begun = bench.wait_for_lines("begun", 2).await;
    let state = bench.wait_for_sub("a.service", "running").await;
    assert_eq!(state.main_pid.map(|pid| pid.to_string()).as_ref(), begun.last());
    bench.clean_up().await;
}

#[tokio::test]
async fn what_was_failing_at_the_kill_is_started_again_if_that_was_asked() {
    what_fails_is_restarted(false).await;
    what_fails_is_restarted(true).await;
}

#[tokio::test]
async fn what_a_restart_has_stopped_along_starts_again_with_the_next_manager() {
    let chosen = Chosen::new(false).await;
    chosen.unit("a.service", &tells(&chosen, "a", ""));
    chosen.unit("b.service", &stubborn(&chosen, "PartOf=a.service\nAfter=a.service"));
    let asks = ["start a.service", "start b.service", "await go", "begin restart a.service"];
    let mut living = chosen.begin(&asks).await;
    living.wait_for_lines("begun", 1).await;
    living.make("go");
    living.wait_for_phase("b.service", "stop-sigterm").await;
    let bench = living.strike().revive().await;
    let before = bench.pid("b.service").await;
    signal_group(before, "KILL");
    bench.wait_for_lines("a", 2).await;
    bench.wait_for_lines("begun", 2).await;
    let b = bench.wait_for_sub("b.service", "running").await.main_pid.expect("it has one");
    assert!(!runs(before) && b != before);
    assert_eq!((lines(&bench, "a").len(), lines(&bench, "over").len()), (2, 1));
    signal_group(b, "KILL");
    bench.wait_for("b.service", is_over).await;
    bench.clean_up().await;
}

async fn a_daemon_is_awaited_on(plain: bool) {
    let chosen = Chosen::new(plain).await;
    let path = |name: &str| chosen.path(name).display().to_string();
    let (pid, gate) = (path("pid"), path("gate"));
    let steps = format!("leave 0|await {gate}|pidfile {pid}|sleep");
    let launch = format!("ExecStartPre=/bin/sh -c 'echo 1 >>{}'\n", path("launched"));
    let service = format!("[Service]\nType=forking\nPIDFile={pid}\n{launch}{}", does(&steps));
    chosen.unit("a.service", &service);
    let mut living = chosen.begin(&["begin start a.service"]).await;
    living.wait_for_record("a.service", "run.json", "\"awaits_main\":true").await;
    let bench = living.strike().revive().await;
    let state = bench.state("a.service").await;
    assert_eq!((&*state.sub, state.main_pid), ("start", None), "nobody is named yet");
    std::fs::write(&gate, "").expect("it can be made");
    let state = bench.wait_for_sub("a.service", "running").await;
    let written = bench.wait_for_lines("pid", 1).await;
    assert_eq!(written, [state.main_pid.expect("it has one").to_string()]);
    assert_eq!(lines(&bench, "launched").len(), 1, "it was launched twice");
    bench.clean_up().await;
}

#[tokio::test]
async fn a_daemon_whose_file_had_not_come_at_the_kill_is_awaited_on() {
    a_daemon_is_awaited_on(false).await;
    a_daemon_is_awaited_on(true).await;
}

/// Lets a process that reads from a pipe go on.
async fn open_pipe(pipe: &Path) {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).expect("it is small");
    let mut open = OpenOptions::new();
    open.write(true).custom_flags(nonblocking);
    wait_until("somebody reads", async || {
        open.open(pipe).is_ok_and(|mut writer| writer.write_all(b"go\n").is_ok())
    })
    .await;
}

/// A unit whose start waits for a pipe in a command before its own. How that ends nobody may see.
fn that_waits(chosen: &Chosen) -> String {
    let pipe = chosen.path("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("it can be made");
    let script =
        format!("echo 1 >>{}; read word <{}", chosen.path("pre").display(), pipe.display());
    format!("{}ExecStartPre=-/bin/sh -c '{script}'\n", tells(chosen, "begun", ""))
}

async fn a_start_goes_on(plain: bool, is_written: bool) {
    let chosen = Chosen::new(plain).await;
    chosen.unit("a.service", &that_waits(&chosen));
    let says = "Requires=a.service\nAfter=a.service";
    chosen.unit("b.service", &tells(&chosen, "begun", says));
    let asks = ["begin start a.service", "await pre", "begin start b.service"];
    let mut living = chosen.begin(&asks).await;
    living.wait_for_record("a.service", "run.json", "\"spawning\":null").await;
    living.wait_for_record("b.service", "asked.json", "\"launched\":true").await;
    let dead = living.strike();
    if !is_written {
        as_before_its_birth(&dead.path("native/units/a.service/run.json"), "control");
    }
    let bench = dead.revive().await;
    let record = bench.path("native/units/a.service/run.json");
    wait_until("it is known who it is", async || last_of(&record)["memory"]["spawning"].is_null())
        .await;
    assert_eq!(bench.state("a.service").await.sub, "start-pre");
    assert!(matches!(decided(&bench, "b.service").await, Shown::Waiting(_)));
    open_pipe(&bench.path("pipe")).await;
    bench.wait_for_sub("b.service", "running").await;
    let pids = [bench.pid("a.service").await, bench.pid("b.service").await];
    let begun = bench.wait_for_lines("begun", 2).await.into_iter().collect();
    assert_eq!(BTreeSet::from(pids.map(|pid| pid.to_string())), begun);
    assert_eq!(lines(&bench, "pre").len(), 1, "its command was run twice");
    // That they were asked for is known to be done.
    let bench = bench.kill().await.revive().await;
    for (unit, pid) in ["a.service", "b.service"].into_iter().zip(pids) {
        assert_eq!(decided(&bench, unit).await, RUNNING);
        assert_eq!(bench.pid(unit).await, pid);
    }
    bench.clean_up().await;
}

/// What a record says.
fn last_of(record: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(record).expect("there is a record");
    let last = text.lines().rfind(|line| !line.is_empty()).expect("it has a record");
    serde_json::from_str(last).expect("it is JSON")
}

/// Makes of a record the one that was there before the last process was begun.
fn as_before_its_birth(record: &Path, role: &str) {
    let mut run = last_of(record);
    run["leaders"] = serde_json::json!([]);
    run["memory"][role] = serde_json::Value::Null;
    run["memory"]["spawning"] = role.into();
    if role == "main" {
        run["memory"]["phase"] = "start".into();
    }
    std::fs::write(record, format!("{run}\n")).expect("it can be written");
}

#[tokio::test]
async fn a_start_that_a_kill_came_into_goes_on_where_it_was() {
    a_start_goes_on(false, true).await;
    a_start_goes_on(true, true).await;
}

#[tokio::test]
async fn a_command_that_was_being_begun_at_the_kill_is_run_once() {
    a_start_goes_on(false, false).await;
    a_start_goes_on(true, false).await;
}

/// What is born when control groups are frozen has begun, and its program has not.
#[tokio::test]
async fn a_process_that_was_born_at_the_kill_is_the_one_of_the_next_manager() {
    let chosen = Chosen::new(false).await;
    // It carries nothing by which it would be known but for its control group.
    let text = tells(&chosen, "begun", "");
    chosen.unit("a.service", &text.replace("/bin/sh", "/usr/bin/env -u INVOCATION_ID /bin/sh"));
    let living = chosen.begin(&["await frozen", "begin start a.service"]).await;
    // Nothing else holds one there for as long as it takes.
    let Some(frost) = living.freeze() else { return };
    living.make("frozen");
    frost.wait_for_somebody().await;
    let dead = living.strike();
    // By nothing could it be told from the manager that made it, and it holds what that one held.
    let too_early = dead.try_to_open(|config| config.clock = hasty()).await;
    assert!(matches!(too_early, Err(ServiceError::Unavailable(_))), "it is in use by another");
    drop(frost);
    let begun = dead.path("begun");
    wait_until("its program begins", async || begun.exists()).await;
    let bench = dead.revive().await;
    let state = bench.wait_for_sub("a.service", "running").await;
    let begun = bench.wait_for_lines("begun", 1).await;
    assert_eq!(begun, [state.main_pid.expect("it has one").to_string()], "it runs twice");
    bench.stop("a.service").await;
    assert!(is_over(&bench.state("a.service").await));
    bench.clean_up().await;
}

/// Without control groups a process that hides is known by the group that its leader began.
#[tokio::test]
async fn what_a_process_leaves_that_was_being_begun_at_the_kill_is_ended() {
    let chosen = Chosen::new(true).await;
    let script = format!(
        "env -u INVOCATION_ID sleep 1001 & echo $$! >>{}; exec sleep 1000",
        chosen.path("begun").display()
    );
    chosen.unit("a.service", &format!("[Service]\nExecStart=/bin/sh -c '{script}'\n"));
    let mut living = chosen.begin(&["start a.service"]).await;
    living.wait_for_lines("begun", 1).await;
    living.wait_for_phase("a.service", "running").await;
    let dead = living.strike();
    as_before_its_birth(&dead.path("native/units/a.service/run.json"), "main");
    let bench = dead.revive().await;
    let left: u32 = lines(&bench, "begun")[0].parse().expect("a number");
    bench.wait_for_sub("a.service", "running").await;
    signal(bench.pid("a.service").await, "KILL");
    bench.wait_for_sub("a.service", "failed").await;
    assert!(!runs(left), "it is left behind");
    bench.clean_up().await;
}

/// Time-outs begin anew with the next manager, for which a second is a hundred.
#[tokio::test]
async fn a_stop_that_hangs_is_ended_by_the_next_manager_in_its_time() {
    let chosen = Chosen::new(false).await;
    let script = format!("echo 1 >>{}; exec sleep 1000", chosen.path("stops").display());
    let stop = format!("TimeoutStopSec=100s\nExecStop=/bin/sh -c '{script}'\n");
    chosen.unit("a.service", &(tells(&chosen, "begun", "") + &stop));
    let asks = ["start a.service", "await begun", "begin stop a.service"];
    let mut living = chosen.begin(&asks).await;
    living.wait_for_lines("stops", 1).await;
    living.wait_for_record("a.service", "run.json", "\"spawning\":null").await;
    let bench = living.strike().with(|config| config.clock = hasty()).revive().await;
    let state = bench.wait_for("a.service", is_over).await;
    assert_eq!(state.result.as_deref(), Some("timeout"));
    assert_eq!(lines(&bench, "stops").len(), 1);
    bench.clean_up().await;
}

#[tokio::test]
async fn who_says_nothing_any_more_is_ended_by_the_next_manager() {
    let chosen = Chosen::new(false).await;
    let steps = does("say READY=1|sleep");
    chosen.unit("a.service", &format!("[Service]\nType=notify\nWatchdogSec=100s\n{steps}"));
    let mut living = chosen.begin(&["start a.service"]).await;
    living.wait_for_phase("a.service", "running").await;
    let bench = living.strike().with(|config| config.clock = hasty()).revive().await;
    let state = bench.wait_for("a.service", is_over).await;
    assert_eq!(state.result.as_deref(), Some("watchdog"));
    bench.clean_up().await;
}
