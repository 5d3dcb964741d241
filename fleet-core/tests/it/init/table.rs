//! Transition table: effect of each event in each phase.

use std::collections::BTreeSet;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{
    ActionKind, EventKind, Exit, FailureCause, Graph, InitState, InitUnit, ObservedUnit,
    OnCleanExit, Phase, RestartWhen, Settings, StopOutcome, UnitAction, UnitEvent,
};

use super::config::{name, target, unit};

/// A state of one unit, which is its goal and was started.
pub(super) struct SingleUnit {
    pub(super) system: InitState,
    pub(super) now: Timestamp,
    pub(super) start: UnitAction,
}

impl SingleUnit {
    pub(super) fn new(unit: &InitUnit) -> Self {
        let settings = Settings { goal: Some(target("a")), ..Settings::default() };
        let graph = Graph::strict([unit.clone()], &settings).unwrap();
        let mut system = InitState::new(graph, &settings).unwrap();
        let now = Timestamp::from_millis(0);
        let start = system.next_actions(now).remove(0);
        Self { system, now, start }
    }

    pub(super) fn send(&mut self, kind: EventKind) -> bool {
        let UnitAction { unit, incarnation, .. } = self.start.clone();
        self.system.on_event(&UnitEvent { unit, incarnation, kind }, self.now)
    }

    pub(super) fn seen(&self) -> ObservedUnit {
        self.system.observation().units.remove(&name("a")).unwrap_or_default()
    }

    pub(super) fn plan(&mut self) -> String {
        let actions = self.system.next_actions(self.now);
        actions.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    pub(super) fn pass(&mut self, seconds: u64) -> String {
        self.now = self.now.after(Duration::from_secs(seconds));
        self.plan()
    }
}

pub(super) fn describe(single: &SingleUnit) -> String {
    let seen = single.seen();
    match seen.outcome {
        Some(StopOutcome::Failed(cause)) => format!("{}: {cause}", seen.phase),
        Some(ending) => format!("{}: {ending:?}", seen.phase),
        None => match seen.cause {
            Some(cause) => format!("{}: {cause}", seen.phase),
            None => seen.phase.to_string(),
        },
    }
}

pub(super) const READY: EventKind = EventKind::Ready;
pub(super) const GONE: EventKind = EventKind::AllGone;
pub(super) const SCRIPT: EventKind = EventKind::Failed(FailureCause::Script(Exit::Status(2)));
const LATE: EventKind = EventKind::Failed(FailureCause::StopTimeout);
const RELOADING: EventKind = EventKind::Reloading;

pub(super) fn exits(status: u8) -> EventKind {
    EventKind::MainExited(Exit::Status(status))
}

// Holds: G-23
#[test]
fn events_follow_the_transition_table() {
    let rows: &[(&str, &[EventKind], &str)] = &[
        ("a notified", &[], "starting"),
        ("a notified", &[READY], "running"),
        (
            "a notified",
            &[EventKind::Failed(FailureCause::Spawn), GONE],
            "failed: a process could not be started",
        ),
        ("a notified", &[exits(0)], "stopping: its main process ended with status 0"),
        ("a notified", &[exits(0), GONE], "failed: its main process ended with status 0"),
        ("a notified", &[GONE], "failed: its main process ended with an unknown status"),
        ("a notified", &[EventKind::Skipped], "stopping: Skipped"),
        ("a notified", &[EventKind::Skipped, GONE], "completed"),
        ("a notified", &[READY, RELOADING], "reloading"),
        ("a notified", &[READY, RELOADING, READY], "running"),
        ("a notified", &[READY, RELOADING, EventKind::ReloadEnded { well: false }], "running"),
        ("a notified", &[READY, EventKind::Stopping], "stopping: SelfInitiated"),
        (
            "a notified",
            &[READY, EventKind::Stopping, exits(0)],
            "stopping: its main process ended with status 0",
        ),
        (
            "a notified",
            &[READY, EventKind::Stopping, GONE],
            "failed: its main process ended with an unknown status",
        ),
        ("a notified", &[READY, exits(1), GONE], "failed: its main process ended with status 1"),
        (
            "a notified",
            &[READY, EventKind::Failed(FailureCause::Watchdog)],
            "stopping: its watchdog timed out",
        ),
        ("a supervised", &[exits(0), GONE], "failed: its main process ended with status 0"),
        ("a supervised", &[exits(3)], "exited"),
        ("a supervised", &[READY, exits(3)], "exited"),
        ("a supervised", &[READY, exits(3), GONE], "exited"),
        ("a pidfile", &[exits(3)], "stopping: its main process ended with status 3"),
        ("a pidfile", &[READY, exits(3)], "exited"),
        ("a scripted", &[READY, GONE], "running"),
        ("a scripted", &[SCRIPT, GONE], "failed: one of its commands ended with status 2"),
        ("a oneshot", &[READY], "starting"),
        ("a oneshot", &[exits(0)], "exited"),
        ("a oneshot", &[exits(0), GONE], "exited"),
        ("a oneshot", &[exits(1), GONE], "failed: its main process ended with status 1"),
        ("a passing", &[exits(0)], "stopping: Completed(Some(Status(0)))"),
        ("a passing", &[exits(0), GONE], "completed"),
    ];
    check(rows);
}

#[test]
fn failure_while_completing_is_a_failure() {
    check(&[
        ("a passing", &[exits(0), SCRIPT], "stopping: one of its commands ended with status 2"),
        ("a passing", &[exits(0), SCRIPT, GONE], "failed: one of its commands ended with status 2"),
        ("a passing", &[exits(0), LATE, GONE], "failed: its stop timed out"),
        (
            "a passing",
            &[exits(1), SCRIPT, LATE, GONE],
            "failed: its main process ended with status 1",
        ),
        ("a passing", &[EventKind::Skipped, SCRIPT, GONE], "completed"),
        (
            "a notified",
            &[EventKind::Failed(FailureCause::Assertion), GONE],
            "failed: one of its assertions does not hold",
        ),
    ]);
}

fn check(rows: &[(&str, &[EventKind], &str)]) {
    for (text, events, expected) in rows {
        let mut unit = unit(text);
        unit.run.success.codes = [3].into();
        unit.restart.when = RestartWhen::Never;
        let mut single = SingleUnit::new(&unit);
        events.iter().for_each(|event| {
            single.send(*event);
            single.plan();
        });
        assert_eq!(describe(&single), *expected, "{text}, {events:?}");
    }
}

// Holds: G-23, T-25
#[test]
fn impossible_events_are_ignored_and_stale_ones_counted() {
    let mut single = SingleUnit::new(&unit("a notified"));
    for what in [RELOADING, EventKind::ReloadEnded { well: true }] {
        assert!(!single.send(what), "{what:?} of a starting unit");
    }
    assert!(single.send(READY));
    assert!(!single.send(READY) && !single.send(EventKind::Skipped));
    assert_eq!(single.system.stale_events(), 0);
    single.send(exits(1));
    single.send(GONE);
    single.plan();
    assert_eq!(single.pass(1), "start a");
    for what in [READY, exits(0), GONE] {
        assert!(!single.send(what), "{what:?} of an earlier start");
    }
    assert_eq!(
        (single.system.stale_events(), describe(&single).as_str()),
        (3, "starting: its main process ended with status 1")
    );
}

// Holds: G-3, T-24, X-22
#[test]
fn timeouts_escalate_from_stop_to_kill_to_unkillable() {
    let mut single = SingleUnit::new(&unit("a notified"));
    assert_eq!(single.pass(89), "");
    assert_eq!(single.pass(1), "stop a: its start timed out");
    assert!(!single.send(READY), "it is too late");
    assert_eq!(single.pass(90), "kill a");
    assert_eq!(single.pass(10), "");
    assert_eq!(describe(&single), "failed: processes are left after SIGKILL");
    assert_eq!(single.pass(1000), "", "it is not started while it is there");
    single.send(GONE);
    assert_eq!(single.plan(), "start a");
}

/// Regression: the unit became inactive without a reason.
#[test]
fn failed_stop_command_of_an_unneeded_unit_is_shown() {
    let stop_commands = [
        (
            FailureCause::StopCommand(Exit::Status(1)),
            "one of its stop commands ended with status 1",
        ),
        (FailureCause::StopCommandTimeout, "one of its stop commands timed out"),
    ];
    for (cause, text) in stop_commands {
        let mut single = SingleUnit::new(&unit("a scripted"));
        single.send(READY);
        single.system.set_goal(None, BTreeSet::new(), single.now).unwrap();
        assert_eq!(single.plan(), "stop a: nothing needs it");
        assert!(single.send(EventKind::Failed(cause)));
        single.send(GONE);
        assert_eq!(single.pass(1000), "", "it is not retried");
        assert_eq!(describe(&single), format!("failed: {text}"));
        single.system.set_goal(Some(target("a")), BTreeSet::new(), single.now).unwrap();
        assert_eq!(single.plan(), "start a");
    }
}

#[test]
fn only_a_kill_turns_a_restart_into_a_failure() {
    let mut single = SingleUnit::new(&unit("a notified"));
    single.send(READY);
    single.system.restart(&target("a"));
    assert_eq!(single.plan(), "stop a: a restart was requested");
    assert!(!single.send(SCRIPT), "it was asked for");
    let failed_command = EventKind::Failed(FailureCause::StopCommand(Exit::Status(1)));
    assert!(!single.send(failed_command), "it starts again");
    assert!(single.send(LATE));
    assert_eq!(single.pass(9), "", "it is killed once");
    single.pass(1);
    assert_eq!(describe(&single), "failed: processes are left after SIGKILL");
}

#[test]
fn commands_after_a_kill_have_their_own_timeout() {
    let mut single = SingleUnit::new(&unit("a notified"));
    single.send(READY);
    single.system.restart(&target("a"));
    assert_eq!(single.plan(), "stop a: a restart was requested");
    assert_eq!(single.pass(90), "kill a");
    assert!(single.send(EventKind::Extend(Duration::from_secs(60))));
    assert_eq!(single.pass(59), "");
    assert_eq!(describe(&single), "stopping: its stop timed out");
    // It did not exit by itself either, so it is killed like the processes before.
    assert!(single.send(LATE));
    assert_eq!(single.pass(9), "", "it is killed already");
    assert_eq!(describe(&single), "stopping: its stop timed out");
    single.pass(1);
    assert_eq!(describe(&single), "failed: processes are left after SIGKILL");
}

#[test]
fn successful_kill_is_a_failed_stop() {
    let mut single = SingleUnit::new(&unit("a notified"));
    single.send(READY);
    single.system.restart(&target("a"));
    assert_eq!(single.plan(), "stop a: a restart was requested");
    assert_eq!(single.pass(90), "kill a");
    single.send(GONE);
    assert_eq!(describe(&single), "failed: its stop timed out");
    assert_eq!(single.plan(), "start a");
}

#[test]
fn timeout_extensions_are_granted() {
    let mut single = SingleUnit::new(&unit("a notified"));
    assert!(single.send(EventKind::Extend(Duration::from_secs(1))));
    assert_eq!(single.pass(80), "", "no time is taken away");
    assert!(single.send(EventKind::Extend(Duration::from_secs(60))));
    assert_eq!(single.pass(59), "");
    assert_eq!(single.pass(1), "stop a: its start timed out");
}

#[test]
fn maximum_runtime_is_a_failure() {
    let mut unit = unit("a notified");
    unit.run.runtime_max = Some(Duration::from_secs(5));
    unit.timeouts.reload = None;
    let mut single = SingleUnit::new(&unit);
    single.send(READY);
    single.pass(4);
    single.send(RELOADING);
    assert_eq!(single.pass(1), "stop a: it exceeded its maximum runtime");
}

#[test]
fn reload_timeout_is_reported_and_stops_nothing() {
    let mut single = SingleUnit::new(&unit("a supervised"));
    single.send(READY);
    single.plan();
    single.system.request_reload(&target("a")).unwrap();
    assert_eq!(single.plan(), "reload a");
    single.system.request_reload(&target("a")).unwrap();
    assert_eq!(single.plan(), "", "reloads do not overlap");
    assert_eq!(single.pass(30), "reload a", "the request made meanwhile");
    single.send(EventKind::ReloadEnded { well: false });
    assert!(single.system.status(&name("a")).unwrap().reload_failed);
    assert_eq!((single.plan().as_str(), describe(&single).as_str()), ("", "running"));
}

#[test]
fn exited_unit_reloads_by_its_commands() {
    for (well, late) in [(true, false), (false, false), (false, true)] {
        let mut oneshot = unit("a oneshot");
        oneshot.run.reload = unit("a supervised").run.reload;
        let mut single = SingleUnit::new(&oneshot);
        single.send(exits(0));
        single.system.request_reload(&target("a")).unwrap();
        assert_eq!((single.plan().as_str(), describe(&single).as_str()), ("reload a", "reloading"));
        if late {
            assert_eq!(single.pass(30), "");
        } else {
            single.send(EventKind::ReloadEnded { well });
        }
        assert_eq!(describe(&single), "exited");
        assert_eq!(single.system.status(&name("a")).unwrap().reload_failed, !well);
    }
}

#[test]
fn completed_systemd_unit_may_restart() {
    for (when, expected) in [(RestartWhen::OnFailure, ""), (RestartWhen::Always, "start a")] {
        let mut unit = unit("a supervised");
        unit.run.on_clean_exit = OnCleanExit::Complete;
        unit.restart.when = when;
        let mut single = SingleUnit::new(&unit);
        single.send(READY);
        single.send(EventKind::MainExited(Exit::Signal(15)));
        assert_eq!(single.plan(), "stop a: its main process exited successfully");
        single.send(GONE);
        assert_eq!((single.plan().as_str(), single.seen().phase), ("", Phase::Completed));
        assert_eq!(single.pass(1), expected);
    }
}

/// Regression: it counted as completed, and its dependents started.
#[test]
fn terminated_oneshot_is_a_failure() {
    let mut unit = unit("a oneshot");
    unit.run.on_clean_exit = OnCleanExit::Complete;
    unit.restart.when = RestartWhen::Never;
    let mut single = SingleUnit::new(&unit);
    single.send(EventKind::MainExited(Exit::Signal(15)));
    single.send(GONE);
    single.plan();
    assert_eq!(describe(&single), "failed: its main process ended with SIGTERM");
}

/// A scripted unit may be active without processes; its stop command is a process.
// Holds: G-3
#[test]
fn stop_commands_are_awaited() {
    let mut single = SingleUnit::new(&unit("a scripted"));
    single.send(READY);
    single.send(GONE);
    assert!(!single.seen().processes);
    single.send(EventKind::Stopping);
    assert!(single.seen().processes);
    assert_eq!(single.pass(90), "kill a");
    assert_eq!(single.pass(10), "");
    single.system.reset_failed(&target("a"), single.now);
    assert_eq!(single.plan(), "", "it is not started while its commands run");
}

#[test]
fn inactive_unit_stops_without_its_stop_commands() {
    for (events, expected) in [(&[][..], false), (&[READY][..], true)] {
        let mut single = SingleUnit::new(&unit("a notified"));
        events.iter().for_each(|event| assert!(single.send(*event)));
        single.system.set_goal(None, Default::default(), single.now).unwrap();
        let actions = single.system.next_actions(single.now);
        assert!(
            matches!(actions[0].kind, ActionKind::Stop { was_active, .. } if was_active == expected)
        );
    }
}
