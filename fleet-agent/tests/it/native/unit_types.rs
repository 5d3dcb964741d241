//! Each unit type of a stanza, with real processes: readiness, exits, and reloads.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;

use fleet_core::graph::{Activity, DerivedState, Exit, FailureCause, Retry};

use super::graph::{SLEEP, Stand, supervised, target};
use super::helper::{command_with_steps, spawn_helper, stanza_with_steps};
use crate::support::{Home, runs, signal, wait_until};

fn unit(name: &str, kind: &str, more: &str) -> String {
    format!("unit: {name}\ntype: {kind}\nprovides: {name}\nrestart: never\n{more}\n")
}

fn all_of(units: &[&str]) -> String {
    format!("unit: all\ntype: virtual\nprovides: all\nwaits-for: {}\n", units.join(", "))
}

/// Returns the failure cause of a unit.
fn failed(what: &DerivedState) -> Option<FailureCause> {
    match what {
        DerivedState::Failed { cause, retry: Retry::Never, stuck: false } => Some(*cause),
        _ => None,
    }
}

// Holds: T-1, T-4, T-5
#[tokio::test]
async fn readiness_of_each_unit_type() {
    let home = Home::new();
    let path = |name: &str| home.path(name).display().to_string();
    let (pid, on) = (path("pid"), path("on"));
    let background = format!("leave 0|pidfile {pid}|sleep");
    let stanzas = [
        unit("says", "foreground-notified", &stanza_with_steps("say READY=1,STATUS=well|sleep")),
        unit(
            "writes",
            "foreground-supervised",
            "ready-grep: ^up$\nexec-start: /bin/sh -c 'echo up; exec sleep 1000'",
        ),
        unit("lives", "foreground-supervised", &format!("ready-wait: 20ms\n{SLEEP}")),
        unit(
            "forks",
            "background-pidfile",
            &format!("pidfile: {pid}\n{}", stanza_with_steps(&background)),
        ),
        unit(
            "script",
            "background-scripted",
            &format!("exec-start: /bin/touch {on}\nexec-stop: /bin/rm {on}"),
        ),
        unit("once", "oneshot", "exec-start: /bin/true"),
        unit("passes", "oneshot", "remain: no\nexec-start: /bin/true"),
    ];
    let names = ["says", "writes", "lives", "forks", "script", "once", "passes"];
    let stand = Stand::new(&(stanzas.concat() + &all_of(&names)), "all").await;
    for name in ["says", "writes", "lives", "forks"] {
        assert!(runs(stand.running(name).await), "{name}");
    }
    assert_eq!(stand.unit("says").await.status.as_deref(), Some("well"));
    let is = |wanted: DerivedState| {
        move |unit: &fleet_agent::native::UnitSnapshot| unit.report.state == wanted
    };
    stand.wait_for("script", is(DerivedState::Active(Activity::Running))).await;
    assert!(home.path("on").exists());
    stand.wait_for("once", is(DerivedState::Active(Activity::Exited))).await;
    stand.wait_for("passes", is(DerivedState::Completed(Retry::Never))).await;
    stand.wait_for("all", is(DerivedState::Active(Activity::Running))).await;
    assert!(!stand.unit("all").await.report.degraded);
    stand.clean_up().await;
    assert!(!home.path("on").exists(), "its command has ended it");
}

#[tokio::test]
async fn rejected_readiness_sender_is_named() {
    let steps = "child|say READY=1|barrier|sleep";
    let more = format!("start-timeout: 2s\n{}", stanza_with_steps(steps));
    // A permitted process sends it later.
    let home = Home::new();
    let command = |steps: &str| command_with_steps(steps, Path::new(&home.mark()));
    let after_all =
        format!("{}; exec {}", command("say READY=1|barrier"), command("say READY=1|sleep"));
    let after_all = format!("exec-start: /bin/sh -c '{after_all}'");
    let stanzas = unit("vain", "foreground-notified", &more)
        + &unit("heard", "foreground-notified", &format!("notify-access: all\n{more}"))
        + &unit("after-all", "foreground-notified", &after_all)
        + &all_of(&["vain", "heard", "after-all"]);
    let stand = Stand::new(&stanzas, "all").await;
    for name in ["heard", "after-all"] {
        stand.running(name).await;
        assert_eq!(stand.unit(name).await.problem, None, "{name}");
    }
    let over = |unit: &fleet_agent::native::UnitSnapshot| failed(&unit.report.state).is_some();
    let problem = stand.wait_for("vain", over).await.problem.unwrap_or_default();
    let expected = " sent READY=1, but only the main process may send it: see notify-access";
    assert!(problem.ends_with(expected), "{problem}");
    stand.clean_up().await;
}

#[tokio::test]
async fn foreign_readiness_sender_is_named() {
    let home = Home::new();
    let at = home.path("at");
    let command =
        format!("/bin/sh -c 'echo -n $$NOTIFY_SOCKET >{}; exec sleep 1000'", at.display());
    let more = format!("notify-access: all\nexec-start: {command}");
    let stand = Stand::new(&unit("a", "foreground-notified", &more), "a").await;
    let written = || std::fs::read_to_string(&at).is_ok_and(|text| !text.is_empty());
    wait_until("its address is known", async || written()).await;
    let main = stand.wait_for("a", |unit| unit.main_pid.is_some()).await.main_pid;
    let mut stranger = spawn_helper(&format!("call {} READY=1", at.display()));
    let sender = stranger.id();
    assert!(stranger.wait().expect("it is a child").success());
    // The earlier message counted, but did not make the unit ready.
    signal(main.expect("it runs"), "KILL");
    let over = |unit: &fleet_agent::native::UnitSnapshot| failed(&unit.report.state).is_some();
    let problem = stand.wait_for("a", over).await.problem.unwrap_or_default();
    let why = "only processes of the unit may send it, until they are reaped: see notify-access";
    assert_eq!(problem, format!("process {sender} sent READY=1, but {why}"));
    stand.clean_up().await;
}

#[tokio::test]
async fn status_text_ends_with_its_run() {
    let steps = "say READY=1,STATUS=at work|exit 0";
    let stanzas = unit("a", "foreground-notified", &stanza_with_steps(steps)) + &all_of(&["a"]);
    let stand = Stand::new(&stanzas, "all").await;
    let over = |unit: &fleet_agent::native::UnitSnapshot| failed(&unit.report.state).is_some();
    assert_eq!(stand.wait_for("a", over).await.status, None);
    stand.clean_up().await;
}

#[tokio::test]
async fn unsupported_unit_fails_alone_with_a_reason() {
    let stanzas = unit("a", "oneshot", "memory-max: 50M\nexec-start: /bin/true")
        + &unit("b", "oneshot", "exec-start: /bin/true")
        + &all_of(&["a", "b"]);
    let stand = Stand::without_control_groups(&stanzas, "all").await;
    let over = |unit: &fleet_agent::native::UnitSnapshot| failed(&unit.report.state).is_some();
    let problem = stand.wait_for("a", over).await.problem.unwrap_or_default();
    assert!(problem.contains("memory-max needs control groups"), "{problem}");
    stand.wait_for("b", |unit| unit.report.state == DerivedState::Active(Activity::Exited)).await;
    stand.clean_up().await;
}

/// Stanzas of units that end in one way each.
fn stanzas_with_ends() -> String {
    let sleeper = "ready-grep: never\nexec-start: /bin/sleep 1000\nstart-timeout: 20ms";
    let background = format!("pidfile: /nowhere/pid\n{}", stanza_with_steps("exit 3"));
    [
        unit("early", "foreground-notified", &stanza_with_steps("exit 0")),
        // A successful exit before readiness is a failure, too.
        unit(
            "promise",
            "foreground-notified",
            &format!("success-exit: 0\n{}", stanza_with_steps("exit 0")),
        ),
        unit("lack", "oneshot", "env-file: /no/such\nexec-start: /bin/true"),
        unit(
            "lack-before",
            "oneshot",
            "env-file: /no/such\nexec-start-pre: /bin/true\nexec-start: /bin/true",
        ),
        unit("late", "foreground-supervised", sleeper),
        unit("good", "foreground-supervised", "success-exit: 3\nexec-start: /bin/sh -c 'exit 3'"),
        unit("bad", "foreground-supervised", "exec-start: /bin/sh -c 'exit 4'"),
        // Two of them are ready at once, and these never are.
        unit(
            "good-early",
            "foreground-supervised",
            "ready-grep: never\nsuccess-exit: 3\nexec-start: /bin/sh -c 'exit 3'",
        ),
        unit(
            "bad-early",
            "foreground-supervised",
            "ready-grep: never\nsuccess-exit: 3\nexec-start: /bin/sh -c 'exit 4'",
        ),
        unit("command", "background-pidfile", &background),
        unit("script", "background-scripted", "exec-start: /bin/false\nexec-stop: /bin/true"),
        unit("assert", "oneshot", "assert: path-exists /no/such\nexec-start: /bin/true"),
        unit("unmet", "oneshot", "condition: path-exists /no/such\nexec-start: /bin/true"),
        unit(
            "dog",
            "foreground-notified",
            &format!("watchdog: 20ms\n{}", stanza_with_steps("say READY=1|sleep")),
        ),
    ]
    .concat()
}

// Holds: T-6, T-7, T-9, T-15, T-20, X-9
#[tokio::test]
async fn each_end_has_its_cause() {
    let names = [
        ["early", "late", "good", "bad", "good-early", "bad-early"].as_slice(),
        &["promise", "lack", "lack-before", "command", "script", "assert", "unmet", "dog"],
    ];
    let stand = Stand::new(&(stanzas_with_ends() + &all_of(&names.concat())), "all").await;
    for (name, cause) in [
        ("early", FailureCause::Exit(Exit::Status(0))),
        ("promise", FailureCause::Protocol),
        ("lack", FailureCause::Resources),
        ("lack-before", FailureCause::Resources),
        ("late", FailureCause::StartTimeout),
        ("bad", FailureCause::Exit(Exit::Status(4))),
        ("bad-early", FailureCause::Exit(Exit::Status(4))),
        ("command", FailureCause::Script(Exit::Status(3))),
        ("script", FailureCause::Script(Exit::Status(1))),
        ("assert", FailureCause::Assertion),
        ("dog", FailureCause::Watchdog),
    ] {
        let over = |unit: &fleet_agent::native::UnitSnapshot| {
            matches!(unit.report.state, DerivedState::Failed { .. })
        };
        let unit = stand.wait_for(name, over).await;
        assert_eq!(failed(&unit.report.state), Some(cause), "{name}");
    }
    for name in ["good", "good-early"] {
        stand
            .wait_for(name, |unit| unit.report.state == DerivedState::Active(Activity::Exited))
            .await;
    }
    stand
        .wait_for("unmet", |unit| unit.report.state == DerivedState::Completed(Retry::Never))
        .await;
    stand.clean_up().await;
}

/// Regression: such a unit was shown as inactive, without a reason. Later, the next supervisor
/// forgot the reason.
#[tokio::test]
async fn failed_stop_commands_are_failures() {
    let scripted = |name, stop| {
        let more = format!("exec-start: /bin/true\nstop-timeout: 200ms\n{stop}\n");
        unit(name, "background-scripted", &more)
    };
    let units = [
        scripted("slow", "exec-stop: /bin/sleep 1000"),
        scripted("bad", "exec-stop: /bin/false"),
        scripted("bad-post", "exec-stop: /bin/true\nexec-stop-post: /bin/false"),
        supervised("none", SLEEP),
        all_of(&["slow", "bad", "bad-post"]),
    ];
    let stanzas = units.concat();
    let stand = Stand::new(&stanzas, "all").await;
    for name in ["slow", "bad", "bad-post"] {
        let is_up = |unit: &fleet_agent::native::UnitSnapshot| {
            unit.report.state == DerivedState::Active(Activity::Running)
        };
        stand.wait_for(name, is_up).await;
    }
    stand.supervisor.set_goal(Some(target("none")), BTreeSet::new()).await.expect("it is provided");
    for (name, cause) in [
        ("slow", FailureCause::StopCommandTimeout),
        ("bad", FailureCause::StopCommand(Exit::Status(1))),
        ("bad-post", FailureCause::StopCommand(Exit::Status(1))),
    ] {
        let is_failed = |unit: &fleet_agent::native::UnitSnapshot| {
            matches!(unit.report.state, DerivedState::Failed { .. } | DerivedState::Disabled)
        };
        let unit = stand.wait_for(name, is_failed).await;
        assert_eq!(failed(&unit.report.state), Some(cause), "{name}");
    }
    let mut stand = stand.again(&stanzas).await;
    for name in ["bad", "bad-post"] {
        let cause = FailureCause::StopCommand(Exit::Status(1));
        assert_eq!(failed(&stand.unit(name).await.report.state), Some(cause), "{name}");
        assert!(stand.supervisor.reset_failed(&target(name)).await.expect("the call succeeds"));
        stand = stand.again(&stanzas).await;
        assert_eq!(stand.unit(name).await.report.state, DerivedState::Disabled, "{name}");
    }
    stand.clean_up().await;
}

// Holds: T-21
#[tokio::test]
async fn unit_ignoring_its_stop_is_killed() {
    let steps = "trap TERM|say READY=1|sleep";
    let more = format!("stop-timeout: 30ms\n{}", stanza_with_steps(steps));
    // A unit with retries.
    let tried = unit("a", "foreground-notified", &more).replace("restart: never\n", "");
    let stanzas = tried + &supervised("b", SLEEP);
    let stand = Stand::new(&stanzas, "a").await;
    let pid = stand.running("a").await;
    stand.supervisor.set_goal(Some(target("b")), BTreeSet::new()).await.expect("it is provided");
    let not_stopped = DerivedState::Failed {
        cause: FailureCause::StopTimeout,
        retry: Retry::Never,
        stuck: false,
    };
    stand.wait_for("a", |unit| unit.report.state == not_stopped).await;
    assert!(!runs(pid));
    let stand = stand.again(&stanzas).await;
    assert_eq!(
        stand.unit("a").await.report.state,
        not_stopped,
        "the next supervisor knows it, too"
    );
    stand.supervisor.set_goal(Some(target("a")), BTreeSet::new()).await.expect("it is provided");
    stand.running("a").await;
    stand.clean_up().await;
}

// Holds: T-11
#[tokio::test]
async fn reload_result_is_reported() {
    let steps = "trap HUP|say READY=1|hear|say RELOADING=1|say READY=1,STATUS=new|sleep";
    let more = format!("reload-signal: SIGHUP\n{}", stanza_with_steps(steps));
    let stanzas = [
        unit("says", "foreground-notified", &more),
        supervised("bad", &format!("exec-reload: /bin/false\n{SLEEP}")),
        supervised("never", SLEEP),
        all_of(&["says", "bad", "never"]),
    ];
    let stand = Stand::new(&stanzas.concat(), "all").await;
    let pids = [stand.running("says").await, stand.running("bad").await];
    stand.running("never").await;
    stand.supervisor.reload_unit(&target("says")).await.expect("the reload succeeds");
    stand.wait_for("says", |unit| unit.status.as_deref() == Some("new")).await;
    stand.supervisor.reload_unit(&target("bad")).await.expect("the reload succeeds");
    stand.wait_for("bad", |unit| unit.report.reload_failed).await;
    assert_eq!([stand.running("says").await, stand.running("bad").await], pids);
    let refused =
        stand.supervisor.reload_unit(&target("never")).await.expect_err("the reload fails");
    assert_eq!(refused.to_string(), "never cannot be reloaded");
    stand.clean_up().await;
}

// Holds: G-2, T-2
#[tokio::test]
async fn max_starting_is_respected() {
    let home = Home::new();
    let file = home.path("turns").display().to_string();
    let names: Vec<String> = (0..8).map(|number| format!("u{number}")).collect();
    let one = |name: &String| {
        let script = format!("echo begin >>{file}; sleep 0.01; echo end >>{file}");
        unit(name, "oneshot", &format!("exec-start: /bin/sh -c '{script}'\nafter: gate"))
    };
    let gate = unit("gate", "oneshot", "exec-start: /bin/sleep 0.3");
    let mut wanted: Vec<&str> = names.iter().map(String::as_str).collect();
    wanted.push("gate");
    let stanzas = names.iter().map(one).collect::<String>() + &gate + &all_of(&wanted);
    let stand = Stand::new(&stanzas, "all").await;
    stand.supervisor.set_max_starting(NonZeroU32::new(1)).await.expect("the call succeeds");
    stand
        .wait_for("all", |unit| unit.report.state == DerivedState::Active(Activity::Running))
        .await;
    stand.clean_up().await;
    let turns = std::fs::read_to_string(home.path("turns")).expect("they ran");
    assert_eq!(turns, "begin\nend\n".repeat(8));
}

// Holds: T-22
#[tokio::test]
async fn repeated_failures_hit_the_restart_limit() {
    let more = "exec-start: /bin/false\nrestart-delay: 1ms\nrestart-limit: 3";
    let stanzas = supervised("a", more) + &supervised("b", &format!("waits-for: a\n{SLEEP}"));
    let stand = Stand::new(&stanzas, "b").await;
    let over = |unit: &fleet_agent::native::UnitSnapshot| {
        matches!(unit.report.state, DerivedState::Failed { retry: Retry::GaveUp, .. })
    };
    assert_eq!(stand.wait_for("a", over).await.report.attempts, 4);
    // The waiting unit has started nevertheless, and shows its missing dependency.
    let pid = stand.running("b").await;
    assert_eq!(stand.unit("b").await.degraded_by, [target("a")]);
    signal(pid, "KILL");
    stand.wait_for("b", |unit| unit.main_pid.is_some_and(|new| new != pid)).await;
    stand.clean_up().await;
}
