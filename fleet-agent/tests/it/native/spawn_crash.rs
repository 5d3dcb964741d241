//! Processes that a manager was spawning when it was killed: the next manager identifies the
//! process, or finds that there is none.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use fleet_agent::ServiceError;
use fleet_core::graph::DerivedState;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use super::helper::does;
use super::kill_point::{CrashScenario, RUNNING, decided, is_over, lines, tells};
use super::tracking::left_out;
use crate::support::{hasty, runs, signal, wait_until};

async fn forked_process_is_not_the_launcher(plain: bool) {
    let chosen = CrashScenario::new(plain).await;
    let path = |name: &str| chosen.path(name).display().to_string();
    let (pid, gate) = (path("pid"), path("gate"));
    let steps = format!("await {gate}|pidfile {pid}|sleep");
    let launch = does(&steps).replace("ExecStart=", "ExecStart=/usr/bin/setsid -f ");
    let restart = "Restart=on-failure\nRestartSec=0\n";
    chosen.unit("a.service", &format!("[Service]\nType=forking\nPIDFile={pid}\n{restart}{launch}"));
    let mut living = chosen.begin(&["begin start a.service"]).await;
    living.wait_for_record("a.service", "run.json", "\"awaits_main\":true").await;
    let dead = living.kill();
    rewind_spawn(&dead.path("native/units/a.service/run.json"), "control");
    std::fs::write(&gate, "").expect("it can be created");
    wait_until("the daemon identifies itself", async || Path::new(&pid).exists()).await;
    let before = std::fs::read_to_string(&pid).expect("it is there");
    let before: u32 = before.trim().parse().expect("a number");
    // The exit status of its launcher is unknown, which counts as a failure.
    let bench = dead.revive().await;
    let state = bench.wait_for_sub("a.service", "running").await;
    assert!(!runs(before), "it runs twice");
    assert_eq!(
        bench.wait_for_lines("pid", 1).await,
        [state.main_pid.expect("it has one").to_string()]
    );
    bench.clean_up().await;
}

/// The forked process belongs to the run and leads a process group, as its launcher did, and is the
/// only one left.
// Holds: R-7
#[tokio::test]
async fn forked_process_is_not_mistaken_for_its_launcher() {
    forked_process_is_not_the_launcher(false).await;
    forked_process_is_not_the_launcher(true).await;
}

/// Lets a process continue that reads from a pipe.
async fn open_pipe(pipe: &Path) {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).expect("it is small");
    let mut open = OpenOptions::new();
    open.write(true).custom_flags(nonblocking);
    wait_until("the reader exists", async || {
        open.open(pipe).is_ok_and(|mut writer| writer.write_all(b"go\n").is_ok())
    })
    .await;
}

/// Returns a unit whose `ExecStartPre=` waits for a pipe. Its exit must not be observed.
fn unit_waiting_for_pipe(chosen: &CrashScenario) -> String {
    let pipe = chosen.path("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("it can be created");
    let script =
        format!("echo 1 >>{}; read word <{}", chosen.path("pre").display(), pipe.display());
    format!("{}ExecStartPre=-/bin/sh -c '{script}'\n", tells(chosen, "begun", ""))
}

async fn start_continues(plain: bool, is_written: bool) {
    let chosen = CrashScenario::new(plain).await;
    chosen.unit("a.service", &unit_waiting_for_pipe(&chosen));
    let says = "Requires=a.service\nAfter=a.service";
    chosen.unit("b.service", &tells(&chosen, "begun", says));
    let asks = ["begin start a.service", "await pre", "begin start b.service"];
    let mut living = chosen.begin(&asks).await;
    living.wait_for_record("a.service", "run.json", "\"spawning\":null").await;
    living.wait_for_record("b.service", "requested.json", "\"launched\":true").await;
    let dead = living.kill();
    if !is_written {
        rewind_spawn(&dead.path("native/units/a.service/run.json"), "control");
    }
    let bench = dead.revive().await;
    let record = bench.path("native/units/a.service/run.json");
    wait_until("the main process is known", async || {
        last_of(&record)["run_state"]["spawning"].is_null()
    })
    .await;
    assert_eq!(bench.state("a.service").await.sub, "start-pre");
    assert!(matches!(decided(&bench, "b.service").await, DerivedState::Waiting(_)));
    open_pipe(&bench.path("pipe")).await;
    bench.wait_for_sub("b.service", "running").await;
    let pids = [bench.pid("a.service").await, bench.pid("b.service").await];
    let begun = bench.wait_for_lines("begun", 2).await.into_iter().collect();
    assert_eq!(BTreeSet::from(pids.map(|pid| pid.to_string())), begun);
    assert_eq!(lines(&bench, "pre").len(), 1, "its command was run twice");
    // The requests are known to be applied.
    let bench = bench.kill().await.revive().await;
    for (unit, pid) in ["a.service", "b.service"].into_iter().zip(pids) {
        assert_eq!(decided(&bench, unit).await, RUNNING);
        assert_eq!(bench.pid(unit).await, pid);
    }
    bench.clean_up().await;
}

/// Returns the last record of a run file.
fn last_of(record: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(record).expect("there is a record");
    let last = text.lines().rfind(|line| !line.is_empty()).expect("it has a record");
    serde_json::from_str(last).expect("it is JSON")
}

/// Rewrites a run file as it was before the last process was spawned.
fn rewind_spawn(record: &Path, role: &str) {
    let mut run = last_of(record);
    run["leaders"] = serde_json::json!([]);
    run["run_state"][role] = serde_json::Value::Null;
    run["run_state"]["awaits_main"] = false.into();
    run["run_state"]["spawning"] = role.into();
    if role == "main" {
        run["run_state"]["phase"] = "start".into();
    }
    std::fs::write(record, format!("{run}\n")).expect("it can be written");
}

// Holds: R-6
#[tokio::test]
async fn killed_start_continues_at_its_command() {
    start_continues(false, true).await;
    start_continues(true, true).await;
}

// Holds: R-7
#[tokio::test]
async fn command_spawned_at_the_kill_runs_once() {
    start_continues(false, false).await;
    start_continues(true, false).await;
}

/// In a frozen control group a process has been forked, but has not executed its program.
// Holds: R-7
#[tokio::test]
async fn process_spawned_at_the_kill_is_adopted() {
    let chosen = CrashScenario::new(false).await;
    // Only its control group identifies it.
    let text = tells(&chosen, "begun", "");
    chosen.unit("a.service", &text.replace("/bin/sh", "/usr/bin/env -u INVOCATION_ID /bin/sh"));
    let living = chosen.begin(&["await frozen", "begin start a.service"]).await;
    // Nothing else delays a process between fork and exec for long enough.
    let Some(frost) = living.freeze() else { return left_out("none was made") };
    living.make("frozen");
    frost.wait_for_frozen_process().await;
    let dead = living.kill();
    // It cannot be told apart from the manager that forked it, and holds the manager's lock.
    let too_early = dead.try_to_open(|config| config.clock = hasty()).await;
    assert!(matches!(too_early, Err(ServiceError::Unavailable(_))), "it is in use by another");
    drop(frost);
    let begun = dead.path("begun");
    wait_until("its program runs", async || begun.exists()).await;
    let bench = dead.revive().await;
    let state = bench.wait_for_sub("a.service", "running").await;
    let begun = bench.wait_for_lines("begun", 1).await;
    assert_eq!(begun, [state.main_pid.expect("it has one").to_string()], "it runs twice");
    bench.stop("a.service").await;
    assert!(is_over(&bench.state("a.service").await));
    bench.clean_up().await;
}

/// Without control groups a hiding process is found by the process group of its leader.
// Holds: R-7
#[tokio::test]
async fn leftovers_of_a_process_spawned_at_the_kill_are_stopped() {
    let chosen = CrashScenario::new(true).await;
    let script = format!(
        "env -u INVOCATION_ID sleep 1001 & echo $$! >>{}; exec sleep 1000",
        chosen.path("begun").display()
    );
    chosen.unit("a.service", &format!("[Service]\nExecStart=/bin/sh -c '{script}'\n"));
    let mut living = chosen.begin(&["start a.service"]).await;
    living.wait_for_lines("begun", 1).await;
    living.wait_for_phase("a.service", "running").await;
    let dead = living.kill();
    rewind_spawn(&dead.path("native/units/a.service/run.json"), "main");
    let bench = dead.revive().await;
    let left: u32 = lines(&bench, "begun")[0].parse().expect("a number");
    bench.wait_for_sub("a.service", "running").await;
    signal(bench.pid("a.service").await, "KILL");
    bench.wait_for_sub("a.service", "failed").await;
    assert!(!runs(left), "it is left behind");
    bench.clean_up().await;
}
