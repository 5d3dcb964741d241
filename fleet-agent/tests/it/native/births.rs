//! What a manager was beginning when it is killed: the next one finds out which process that is, or
//! that there is none.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use fleet_agent::ServiceError;
use fleet_core::graph::DerivedState;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use super::chosen::{Chosen, RUNNING, decided, is_over, lines, tells};
use super::helper::does;
use super::tracking::left_out;
use crate::support::{hasty, runs, signal, wait_until};

async fn a_daemon_is_no_launcher(plain: bool) {
    let chosen = Chosen::new(plain).await;
    let path = |name: &str| chosen.path(name).display().to_string();
    let (pid, gate) = (path("pid"), path("gate"));
    let steps = format!("await {gate}|pidfile {pid}|sleep");
    let launch = does(&steps).replace("ExecStart=", "ExecStart=/usr/bin/setsid -f ");
    let restart = "Restart=on-failure\nRestartSec=0\n";
    chosen.unit("a.service", &format!("[Service]\nType=forking\nPIDFile={pid}\n{restart}{launch}"));
    let mut living = chosen.begin(&["begin start a.service"]).await;
    living.wait_for_record("a.service", "run.json", "\"awaits_main\":true").await;
    let dead = living.strike();
    as_before_its_birth(&dead.path("native/units/a.service/run.json"), "control");
    std::fs::write(&gate, "").expect("it can be made");
    wait_until("the daemon says who it is", async || Path::new(&pid).exists()).await;
    let before = std::fs::read_to_string(&pid).expect("it is there");
    let before: u32 = before.trim().parse().expect("a number");
    // How its launcher ended nobody knows, which counts as a failure.
    let bench = dead.revive().await;
    let state = bench.wait_for_sub("a.service", "running").await;
    assert!(!runs(before), "it runs twice");
    assert_eq!(
        bench.wait_for_lines("pid", 1).await,
        [state.main_pid.expect("it has one").to_string()]
    );
    bench.clean_up().await;
}

/// It is in the run and leads a group, as a launcher does, and is the only one that is left.
// Holds: R-7
#[tokio::test]
async fn a_daemon_whose_launcher_ended_at_the_kill_is_not_taken_for_it() {
    a_daemon_is_no_launcher(false).await;
    a_daemon_is_no_launcher(true).await;
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
    living.wait_for_record("b.service", "requested.json", "\"launched\":true").await;
    let dead = living.strike();
    if !is_written {
        as_before_its_birth(&dead.path("native/units/a.service/run.json"), "control");
    }
    let bench = dead.revive().await;
    let record = bench.path("native/units/a.service/run.json");
    wait_until("it is known who it is", async || {
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
async fn a_start_that_a_kill_came_into_goes_on_where_it_was() {
    a_start_goes_on(false, true).await;
    a_start_goes_on(true, true).await;
}

// Holds: R-7
#[tokio::test]
async fn a_command_that_was_being_begun_at_the_kill_is_run_once() {
    a_start_goes_on(false, false).await;
    a_start_goes_on(true, false).await;
}

/// What is born when control groups are frozen has begun, and its program has not.
// Holds: R-7
#[tokio::test]
async fn a_process_that_was_born_at_the_kill_is_the_one_of_the_next_manager() {
    let chosen = Chosen::new(false).await;
    // It carries nothing by which it would be known but for its control group.
    let text = tells(&chosen, "begun", "");
    chosen.unit("a.service", &text.replace("/bin/sh", "/usr/bin/env -u INVOCATION_ID /bin/sh"));
    let living = chosen.begin(&["await frozen", "begin start a.service"]).await;
    // Nothing else holds one there for as long as it takes.
    let Some(frost) = living.freeze() else { return left_out("none was made") };
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
// Holds: R-7
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
