//! Edge cases of starting and stopping processes, with real ones.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use fleet_agent::native::UnitSnapshot;
use fleet_core::graph::{Activity, DerivedState, Exit, FailureCause, Settings};

use super::event_table::{does, failed, is, meet, tell, unit, want, with_cause};
use super::graph::{SLEEP, Stand, supervised, target};
use super::helper::spawn_helper;
use crate::support::{DEADLINE, Home, hasty, runs, signal, wait_until};

/// A goal that needs nothing.
const NOTHING: &str = "unit: nothing\ntype: virtual\nprovides: nothing\n";

/// A process of the test, which is killed with it.
struct TestProcess(Child);

impl Drop for TestProcess {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it is our child");
    }
}

/// Starts a supervisor for `a`, with control groups or without.
async fn stand_for(stanzas: &str, control_groups: bool) -> Stand {
    let settings = Settings { goal: Some(target("a")), ..Settings::default() };
    Stand::with(stanzas, settings, |config| config.control_groups = control_groups).await
}

fn stuck(unit: &UnitSnapshot) -> bool {
    matches!(unit.report.state, DerivedState::Failed { stuck: true, .. })
}

/// Writes a script that forks itself this many times, in new sessions, and ignores signals. Each
/// process writes its process ID.
fn doubling(home: &Home, times: u32) -> String {
    let [script, pids] = ["double", "pids"].map(|name| home.path(name).display().to_string());
    let text = format!(
        "trap '' TERM HUP\necho $$ >>{pids}\nsleep 0.01\n\
         if [ $1 -gt 0 ]; then for _ in 1 2; do setsid sh {script} $(($1-1)) & done; fi\n\
         exec sleep 1000\n"
    );
    std::fs::write(&script, text).expect("it can be written");
    format!("/bin/sh {script} {times}")
}

fn numbers(file: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

// Holds: X-25
#[tokio::test]
async fn forking_storm_is_stopped_completely() {
    for control_groups in [true, false] {
        let home = Home::new();
        let more = format!("stop-timeout: 20ms\nexec-start: {}", doubling(&home, 6));
        let stanzas = unit("a", "foreground-supervised", &more) + NOTHING;
        let stand = stand_for(&stanzas, control_groups).await;
        let pids = home.path("pids");
        wait_until("it has doubled", async || numbers(&pids).len() > 3).await;
        want(&stand, "nothing").await;
        stand.wait_for("a", with_cause(FailureCause::StopTimeout)).await;
        assert_eq!(stand.home.processes(), [0; 0], "it was not ended as a whole");
        assert!(!numbers(&pids).into_iter().any(runs));
        stand.clean_up().await;
    }
}

/// A traced process survives SIGKILL until its tracer detaches.
async fn trace(home: &Home, pid: u32) -> TestProcess {
    let held = home.path("held");
    let tracer = TestProcess(spawn_helper(&format!("trace {pid}|make {}|sleep", held.display())));
    wait_until("it is traced", async || held.exists()).await;
    tracer
}

// Holds: T-24, X-18
#[tokio::test]
async fn stuck_unit_delays_no_other_and_starts_once_gone() {
    for control_groups in [true, false] {
        let home = Home::new();
        let more = format!("depends-on: base\n{}", does("traceable|hold a|sleep", &home));
        let stanzas = unit("a", "foreground-supervised", &more);
        let stanzas = stanzas + "unit: base\ntype: virtual\nprovides: base\n" + NOTHING;
        let settings = Settings { goal: Some(target("a")), ..Settings::default() };
        let stand = Stand::with(&stanzas, settings, |config| {
            (config.clock, config.control_groups) = (hasty(), control_groups);
        })
        .await;
        let pid = meet(&home, "a").await;
        let tracer = trace(&home, pid).await;
        want(&stand, "nothing").await;
        stand.wait_for("a", stuck).await;
        stand.wait_for("base", is(DerivedState::Disabled)).await;
        std::fs::remove_file(home.path("a")).expect("it is there");
        want(&stand, "a").await;
        stand.wait_for("base", is(DerivedState::Active(Activity::Running))).await;
        stand.supervisor.reset_failed(&target("a")).await.expect("the call succeeds");
        let left = stand.unit("a").await;
        assert!(left.main_pid.is_none_or(|main| main == pid), "it never runs twice at once");
        assert!(!home.path("a").exists());
        drop(tracer);
        assert_ne!(meet(&home, "a").await, pid);
        tell(&home, "a", "go");
        stand.clean_up().await;
    }
}

// Holds: T-24
#[tokio::test]
async fn shutdown_waits_for_all_but_stuck_units() {
    let home = Home::new();
    let more = format!("depends-on: base\n{}", does("traceable|hold a|sleep", &home));
    let stanzas = supervised("a", &more) + &supervised("base", SLEEP);
    let settings = Settings { goal: Some(target("a")), ..Settings::default() };
    let stand = Stand::with(&stanzas, settings, |config| config.clock = hasty()).await;
    let pid = meet(&home, "a").await;
    let tracer = trace(&home, pid).await;
    let shutdown = tokio::time::timeout(DEADLINE, stand.supervisor.shutdown()).await;
    shutdown.expect("it returns").expect("it stops the others");
    assert!(stuck(&stand.unit("a").await));
    assert_eq!(stand.unit("base").await.report.state, DerivedState::Disabled, "it is waited for");
    drop(tracer);
    stand.wait_for("a", |unit| !stuck(unit)).await;
    stand.clean_up().await;
}

// Holds: T-25
#[tokio::test]
async fn leftovers_of_a_run_cannot_notify_for_the_next() {
    for control_groups in [true, false] {
        let home = Home::new();
        let [address, called] = ["address", "called"].map(|name| home.path(name));
        let steps = format!(
            "hold main|say READY=1,STATUS=main|child|hold kid|call {} READY=1,STATUS=kid|make {}|\
             sleep",
            address.display(),
            called.display()
        );
        let more = format!("notify-access: all\nstop-mode: process\n{}", does(&steps, &home));
        let stanzas = unit("a", "foreground-notified", &more);
        let stand = stand_for(&stanzas, control_groups).await;
        meet(&home, "main").await;
        tell(&home, "main", "go");
        stand.running("a").await;
        let kid = meet(&home, "kid").await;
        std::fs::remove_file(home.path("main")).expect("it is there");
        assert!(stand.supervisor.restart(&target("a")).await.expect("the call succeeds"));
        let main = meet(&home, "main").await;
        assert!(runs(kid), "the stop was for another unit");
        std::fs::write(&address, socket_of(main)).expect("it can be written");
        tell(&home, "kid", "go");
        wait_until("the message is sent", async || called.exists()).await;
        // A later message would arrive later.
        assert_eq!(stand.unit("a").await.report.state, DerivedState::Starting);
        std::fs::remove_file(home.path("kid")).expect("it is there");
        tell(&home, "main", "go");
        let unit = stand.wait_for("a", |unit| unit.status.is_some()).await;
        assert_eq!(unit.status.as_deref(), Some("main"));
        let second = meet(&home, "kid").await;
        [kid, second].into_iter().for_each(|left| signal(left, "KILL"));
        wait_until("they have ended", async || !runs(kid) && !runs(second)).await;
        stand.clean_up().await;
    }
}

/// Returns the notification socket of a process.
fn socket_of(pid: u32) -> String {
    let variables = std::fs::read(format!("/proc/{pid}/environ")).expect("it runs");
    let mut variables = variables.split(|&byte| byte == 0);
    let name = variables.find_map(|it| it.strip_prefix(b"NOTIFY_SOCKET="));
    String::from_utf8_lossy(name.expect("it has one")).into_owned()
}

// Holds: X-8
#[tokio::test]
async fn readiness_at_the_deadline_is_too_late() {
    let home = Home::new();
    let up = home.path("up");
    let steps = "trap TERM|hold a|hear|say READY=1|barrier|hold b";
    let more = format!(
        "start-timeout: 2s\nexec-start-post: /bin/touch {}\n{}",
        up.display(),
        does(steps, &home)
    );
    let stand = Stand::new(&unit("a", "foreground-notified", &more), "a").await;
    meet(&home, "a").await;
    tell(&home, "a", "go");
    meet(&home, "b").await;
    let unit = stand.unit("a").await;
    assert!(matches!(unit.report.state, DerivedState::Stopping(_)), "{unit:?}");
    tell(&home, "b", "0");
    stand.wait_for("a", with_cause(FailureCause::StartTimeout)).await;
    assert!(!up.exists(), "it counted as ready");
    stand.clean_up().await;
}

/// Blocks until a process has exited and the time has passed, so that the supervisor handles both
/// in one turn.
fn wait_blocking_until_exit(pid: u32, span: Duration) {
    let from = Instant::now();
    while runs(pid) || from.elapsed() < span {
        std::thread::sleep(Duration::from_millis(5));
    }
}

// Holds: X-20
#[tokio::test]
async fn exit_wins_over_simultaneous_readiness() {
    const WAIT: Duration = Duration::from_millis(800);
    let home = Home::new();
    let up = home.path("up");
    let more = format!(
        "ready-wait: 800ms\nexec-start-post: /bin/touch {}\nexec-start: /bin/sleep 1000",
        up.display()
    );
    let stand = Stand::new(&unit("a", "foreground-supervised", &more), "a").await;
    for _ in 0..5 {
        let begun = stand.wait_for("a", |unit| unit.main_pid.is_some()).await;
        let pid = begun.main_pid.expect("it has a main process");
        signal(pid, "KILL");
        wait_blocking_until_exit(pid, WAIT);
        stand.wait_for("a", with_cause(FailureCause::Exit(Exit::Signal(9)))).await;
        assert!(!up.exists(), "it counted as ready");
        assert!(stand.supervisor.reset_failed(&target("a")).await.expect("the call succeeds"));
    }
    stand.clean_up().await;
}

// Holds: X-16
#[tokio::test]
async fn hanging_stop_command_is_killed() {
    let hangs = "trap \"\" TERM; while :; do sleep 1000; done";
    let more = format!("stop-timeout: 100ms\nexec-stop: /bin/sh -c '{hangs}'\n{SLEEP}");
    let stand = Stand::new(&(supervised("a", &more) + NOTHING), "a").await;
    let pid = stand.running("a").await;
    want(&stand, "nothing").await;
    let unit = stand.wait_for("a", failed).await;
    assert!(
        matches!(
            unit.report.state,
            DerivedState::Failed { cause: FailureCause::StopCommandTimeout, .. }
        ),
        "{unit:?}"
    );
    assert!(!runs(pid));
    assert_eq!(stand.home.processes(), [0; 0], "a process of the command is left");
    stand.clean_up().await;
}

// Holds: X-17
#[tokio::test]
async fn stop_needing_a_lost_dependency_runs_into_its_timeout() {
    let home = Home::new();
    let up = home.path("up").display().to_string();
    let db = format!("exec-start-pre: /bin/touch {up}\nexec-stop-post: /bin/rm {up}\n{SLEEP}");
    let asks = format!("exec-stop: /bin/sh -c 'until [ -e {up} ]; do sleep 0.01; done'");
    let app = format!("depends-on: db\nstop-timeout: 1s\n{asks}\n{SLEEP}");
    let stanzas = unit("db", "foreground-supervised", &db) + &supervised("app", &app) + NOTHING;
    let stand = Stand::new(&stanzas, "app").await;
    stand.running("app").await;
    signal(stand.running("db").await, "KILL");
    let waits = |unit: &UnitSnapshot| matches!(unit.report.state, DerivedState::Waiting(_));
    stand.wait_for("app", waits).await;
    stand.wait_for("db", failed).await;
    assert_eq!(stand.home.processes(), [0; 0], "a process of the command is left");
    assert!(stand.supervisor.reset_failed(&target("db")).await.expect("the call succeeds"));
    stand.running("app").await;
    want(&stand, "nothing").await;
    stand.wait_for("db", is(DerivedState::Disabled)).await;
    assert_eq!(
        stand.unit("app").await.report.state,
        DerivedState::Disabled,
        "its stop was no failure"
    );
    stand.clean_up().await;
}

// Holds: X-14
#[tokio::test]
async fn unnamed_successor_does_not_continue_the_service() {
    let home = Home::new();
    let pid = home.path("pid").display().to_string();
    let steps = format!("leave 0|pidfile {pid}|hold main|leave 0|hold kid");
    // The child ignores this signal.
    let more = format!("stop-signal: SIGCONT\npidfile: {pid}\n{}", does(&steps, &home));
    let stand = Stand::new(&unit("a", "background-pidfile", &more), "a").await;
    let main = stand.running("a").await;
    assert_eq!(meet(&home, "main").await, main);
    tell(&home, "main", "go");
    let kid = meet(&home, "kid").await;
    stand.wait_for("a", |unit| matches!(unit.report.state, DerivedState::Stopping(_))).await;
    assert!(runs(kid), "the stop has not timed out");
    tell(&home, "kid", "0");
    stand.wait_for("a", failed).await;
    assert!(!runs(kid));
    stand.clean_up().await;
}

// Holds: X-11
#[tokio::test]
async fn pid_file_naming_its_writer_is_wrong() {
    let home = Home::new();
    let pid = home.path("pid").display().to_string();
    let steps = format!("pidfile {pid}|leave 0|hold kid");
    let more = format!("start-timeout: 2s\npidfile: {pid}\n{}", does(&steps, &home));
    let stand = Stand::new(&unit("a", "background-pidfile", &more), "a").await;
    let kid = meet(&home, "kid").await;
    let unit = stand.wait_for("a", failed).await;
    assert!(with_cause(FailureCause::Pidfile)(&unit), "{unit:?}");
    assert!(
        unit.problem.is_some_and(|why| why.starts_with("pidfile: /")),
        "the problem is reported"
    );
    assert!(!runs(kid));
    stand.clean_up().await;
}
