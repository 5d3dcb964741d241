//! Rows of the event table, each with real processes.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;

use fleet_agent::native::UnitSnapshot;
use fleet_core::graph::{Activity, DerivedState, Exit, FailureCause, Retry, Settings};

use super::graph::{SLEEP, Stand, supervised, target};
use super::helper::{command_with_steps, stanza_with_steps};
use crate::support::{Home, runs, signal, wait_until};

pub(super) fn unit(name: &str, kind: &str, more: &str) -> String {
    format!("unit: {name}\ntype: {kind}\nprovides: {name}\nrestart: never\n{more}\n")
}

pub(super) fn is(wanted: DerivedState) -> impl Fn(&UnitSnapshot) -> bool {
    move |unit| unit.report.state == wanted
}

pub(super) fn failed(unit: &UnitSnapshot) -> bool {
    matches!(unit.report.state, DerivedState::Failed { .. })
}

pub(super) fn with_cause(cause: FailureCause) -> impl Fn(&UnitSnapshot) -> bool {
    is(DerivedState::Failed { cause, retry: Retry::Never, stuck: false })
}

/// Lets a command of a unit continue, or exit with a status.
pub(super) fn tell(home: &Home, name: &str, word: &str) {
    let half = home.path(&format!("{name}.word"));
    std::fs::write(&half, word).expect("it can be written");
    std::fs::rename(half, home.path(&format!("{name}.go"))).expect("it can be named");
}

/// Waits until a command of a unit runs, and returns its process ID.
pub(super) async fn meet(home: &Home, name: &str) -> u32 {
    let file = home.path(name);
    wait_until(name, async || file.exists()).await;
    std::fs::read_to_string(file).expect("it is there").parse().expect("a number")
}

pub(super) fn does(steps: &str, home: &Home) -> String {
    let words = stanza_with_steps(steps);
    format!("{words}env: HELPER_AT={}\n", home.path("").display())
}

pub(super) async fn want(stand: &Stand, goal: &str) {
    stand.supervisor.set_goal(Some(target(goal)), BTreeSet::new()).await.expect("it is provided");
}

// Holds: T-14, T-16
#[tokio::test]
async fn exit_of_an_active_unit() {
    let home = Home::new();
    let more = |name: &str| format!("success-exit: 3\n{}", does(&format!("hold {name}"), &home));
    let stanzas = [
        unit("well", "foreground-supervised", &more("well")),
        unit("badly", "foreground-supervised", &more("badly")),
        unit("killed", "foreground-supervised", &more("killed")),
        unit("all", "virtual", "waits-for: well, badly, killed").replace("restart: never\n", ""),
    ];
    let stand = Stand::new(&stanzas.concat(), "all").await;
    for name in ["well", "badly", "killed"] {
        stand.running(name).await;
        meet(&home, name).await;
    }
    tell(&home, "well", "3");
    tell(&home, "badly", "0");
    signal(stand.running("killed").await, "KILL");
    stand.wait_for("well", is(DerivedState::Active(Activity::Exited))).await;
    stand.wait_for("badly", with_cause(FailureCause::Exit(Exit::Status(0)))).await;
    stand.wait_for("killed", with_cause(FailureCause::Exit(Exit::Signal(9)))).await;
    // An exited unit has nothing to stop and is inactive at once.
    want(&stand, "badly").await;
    stand.wait_for("well", is(DerivedState::Disabled)).await;
    stand.wait_for("all", is(DerivedState::Disabled)).await;
    stand.clean_up().await;
}

// Holds: T-10
#[tokio::test]
async fn stop_command_is_skipped_before_readiness() {
    let home = Home::new();
    let stop_ran = home.path("stop-ran");
    let more = format!(
        "exec-stop: /bin/touch {}\n{}",
        stop_ran.display(),
        does("trap TERM|hold a|hear|hold b", &home)
    );
    let stanzas = unit("a", "foreground-notified", &more) + &supervised("b", SLEEP);
    let stand = Stand::new(&stanzas, "a").await;
    let pid = meet(&home, "a").await;
    tell(&home, "a", "go");
    want(&stand, "b").await;
    stand.wait_for("a", |unit| matches!(unit.report.state, DerivedState::Stopping(_))).await;
    meet(&home, "b").await;
    assert!(runs(pid), "it is still running");
    tell(&home, "b", "0");
    stand.wait_for("a", is(DerivedState::Disabled)).await;
    assert!(!stop_ran.exists());
    stand.clean_up().await;
}

// Holds: T-17
#[tokio::test]
async fn stop_command_runs_for_an_active_unit() {
    let home = Home::new();
    let stop = command_with_steps("hold stop", &home.path(""));
    let steps = "trap TERM|say READY=1|hear|hold last";
    let more = format!("exec-stop: {stop}\n{}", does(steps, &home));
    let stanzas = unit("a", "foreground-notified", &more) + &supervised("b", SLEEP);
    let stand = Stand::new(&stanzas, "a").await;
    let pid = stand.running("a").await;
    want(&stand, "b").await;
    meet(&home, "stop").await;
    assert!(!home.path("last").exists(), "the signal comes after the command");
    tell(&home, "stop", "0");
    assert_eq!(meet(&home, "last").await, pid, "it was signalled instead");
    tell(&home, "last", "1");
    stand.wait_for("a", is(DerivedState::Disabled)).await;
    stand.clean_up().await;
}

// Holds: T-13
#[tokio::test]
async fn unit_announcing_its_stop_gets_no_signal() {
    let home = Home::new();
    let steps = "trap TERM|say READY=1|hold a|say STOPPING=1|hold b";
    let stanzas = unit("a", "foreground-notified", &does(steps, &home));
    let stand = Stand::new(&stanzas, "a").await;
    stand.running("a").await;
    meet(&home, "a").await;
    tell(&home, "a", "go");
    stand.wait_for("a", is(DerivedState::Stopping(None))).await;
    meet(&home, "b").await;
    tell(&home, "b", "0");
    // Without a stop request it counts as any other exit.
    stand.wait_for("a", with_cause(FailureCause::Exit(Exit::Status(0)))).await;
    stand.clean_up().await;
}

// Holds: T-8
#[tokio::test]
async fn leftovers_of_a_failed_unit_are_stopped_first() {
    // A unit that is ready at once, and one that never is.
    for (ready, before) in [
        ("", DerivedState::Active(Activity::Running)),
        ("ready-grep: never\n", DerivedState::Starting),
    ] {
        let home = Home::new();
        let more = does("hold main|child|trap TERM|hold kid", &home);
        let stanzas = unit("a", "foreground-supervised", &format!("{ready}{more}"));
        let stand = Stand::new(&stanzas, "a").await;
        let main = meet(&home, "main").await;
        tell(&home, "main", "go");
        let kid = meet(&home, "kid").await;
        stand.wait_for("a", is(before)).await;
        signal(main, "KILL");
        let ends = |unit: &UnitSnapshot| {
            assert!(!failed(unit) || !runs(kid), "{ready}it has failed before its end");
            matches!(unit.report.state, DerivedState::Stopping(_))
        };
        stand.wait_for("a", ends).await;
        assert!(runs(kid), "{ready}it is not done");
        tell(&home, "kid", "0");
        let unit = stand.wait_for("a", failed).await;
        assert!(!runs(kid), "{ready}it was left");
        assert!(with_cause(FailureCause::Exit(Exit::Signal(9)))(&unit), "{ready}{unit:?}");
        stand.clean_up().await;
    }
}

// Holds: T-12
#[tokio::test]
async fn reload_timeout_keeps_the_unit_active() {
    let home = Home::new();
    let reload = command_with_steps("hold reload", &home.path(""));
    let more = format!("reload-timeout: 100ms\nexec-reload: {reload}\n{SLEEP}");
    let stand = Stand::new(&supervised("a", &more), "a").await;
    let pid = stand.running("a").await;
    stand.supervisor.reload_unit(&target("a")).await.expect("the reload succeeds");
    let unit = stand.wait_for("a", |unit| unit.report.reload_failed).await;
    assert_eq!(unit.report.state, DerivedState::Active(Activity::Running));
    assert_eq!(stand.running("a").await, pid);
    stand.clean_up().await;
}

// Holds: T-16, X-15
#[tokio::test]
async fn processes_of_an_active_oneshot_keep_running() {
    let home = Home::new();
    let stanzas = unit("a", "oneshot", &does("leave 0|hold kid", &home)) + &supervised("b", SLEEP);
    let stand = Stand::new(&stanzas, "a").await;
    stand.wait_for("a", is(DerivedState::Active(Activity::Exited))).await;
    let kid = meet(&home, "kid").await;
    assert!(runs(kid));
    want(&stand, "b").await;
    stand.wait_for("a", is(DerivedState::Disabled)).await;
    assert!(!runs(kid));
    stand.clean_up().await;
}

// Holds: X-15
#[tokio::test]
async fn leftovers_of_a_completed_oneshot_are_stopped() {
    let home = Home::new();
    let kid = home.path("kid");
    let leaves = format!("/bin/sh -c 'setsid sleep 1000 & echo $$! >{}'", kid.display());
    let stanzas = unit("a", "oneshot", &format!("remain: no\nexec-start: {leaves}"));
    let stand = Stand::new(&stanzas, "a").await;
    stand.wait_for("a", is(DerivedState::Completed(Retry::Never))).await;
    let kid = std::fs::read_to_string(kid).expect("it was written");
    assert!(!runs(kid.trim().parse().expect("a number")));
    stand.clean_up().await;
}

// Holds: T-19
#[tokio::test]
async fn unit_needed_again_while_stopping_stops_first() {
    let home = Home::new();
    let more = does("trap TERM|hold a|hear|hold b", &home);
    let stanzas = unit("a", "foreground-supervised", &more) + &supervised("b", SLEEP);
    let stand = Stand::new(&stanzas, "a").await;
    let first = meet(&home, "a").await;
    tell(&home, "a", "go");
    want(&stand, "b").await;
    meet(&home, "b").await;
    want(&stand, "a").await;
    let unit = stand.unit("a").await;
    assert!(matches!(unit.report.state, DerivedState::Stopping(_)), "{unit:?}");
    std::fs::remove_file(home.path("a")).expect("it is there");
    tell(&home, "b", "0");
    assert_ne!(meet(&home, "a").await, first);
    assert!(!runs(first), "never twice");
    tell(&home, "a", "0");
    stand.wait_for("a", failed).await;
    stand.clean_up().await;
}

const LOG_LIMIT: u64 = 16 << 10;

/// Size of the last output of a unit, which must not make it ready. Far more than its log keeps.
const LAST: usize = 1_000_000;

/// Waits until most of the last output is discarded. A log that is searched for a line keeps
/// unsearched output.
async fn wait_for_the_search(stand: &Stand, name: &str) {
    let log = stand.home.path(&format!("native/logs/{name}"));
    wait_until(&format!("the output of {name} is searched"), async || {
        let left = std::fs::metadata(&log).expect("it is there").blocks() * 512;
        left < LAST as u64 / 2
    })
    .await;
}

// Holds: T-4, X-19
#[tokio::test]
async fn only_a_matching_line_signals_readiness() {
    let home = Home::new();
    let does = |steps: &str| command_with_steps(steps, &home.path(""));
    let script = |name: &str, pattern: &str, text: &str| {
        let script = home.path(&format!("{name}.sh"));
        std::fs::write(&script, text).expect("it can be written");
        let more = format!("ready-grep: {pattern}\nexec-start: /bin/sh {}", script.display());
        unit(name, "foreground-supervised", &more)
    };
    let a = format!(
        "head -c 32000000 /dev/zero | tr '\\0' x\n\
         printf '\\377\\n\\n\\377up\\nnot up\\nup to\\n'\nexec {}\n",
        does(&format!("flood {}|hold a|print up|sleep", LAST / 100))
    );
    let hold = does("hold empty");
    let empty = format!("yes | head -c {LAST}\n{hold} >/dev/null\necho\nexec sleep 1000\n");
    let all = unit("all", "virtual", "waits-for: a, empty").replace("restart: never\n", "");
    let stanzas = [script("a", "^up$", &a), script("empty", "^$", &empty), all].concat();
    let settings = Settings { goal: Some(target("all")), ..Settings::default() };
    let stand = Stand::with(&stanzas, settings, |config| config.log_limit = LOG_LIMIT).await;
    for name in ["a", "empty"] {
        meet(&home, name).await;
        wait_for_the_search(&stand, name).await;
        assert_eq!(stand.unit(name).await.report.state, DerivedState::Starting, "{name}");
        tell(&home, name, "go");
        stand.running(name).await;
    }
    stand.clean_up().await;
}
