//! The table of transitions: what each event makes of a unit in each phase.

use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{
    ActionKind, EventKind, Exit, FailureCause, Graph, InitState, InitUnit, ObservedUnit,
    OnCleanExit, Phase, RestartWhen, Settings, StopOutcome, UnitAction, UnitEvent,
};

use super::config::{name, target, unit};

/// A system of one unit, which is its goal, and was started.
pub(super) struct One {
    pub(super) system: InitState,
    pub(super) now: Timestamp,
    pub(super) start: UnitAction,
}

impl One {
    pub(super) fn new(unit: &InitUnit) -> Self {
        let settings = Settings { goal: Some(target("a")), ..Settings::default() };
        let graph = Graph::strict([unit.clone()], &settings).unwrap();
        let mut system = InitState::new(graph, &settings).unwrap();
        let now = Timestamp::from_millis(0);
        let start = system.next_actions(now).remove(0);
        Self { system, now, start }
    }

    pub(super) fn tell(&mut self, kind: EventKind) -> bool {
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

pub(super) fn told(one: &One) -> String {
    let seen = one.seen();
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
fn each_event_makes_of_a_unit_what_the_table_says() {
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
fn what_fails_at_its_end_has_failed() {
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
        let mut one = One::new(&unit);
        events.iter().for_each(|event| {
            one.tell(*event);
            one.plan();
        });
        assert_eq!(told(&one), *expected, "{text}, {events:?}");
    }
}

// Holds: G-23, T-25
#[test]
fn what_cannot_happen_changes_nothing_and_what_is_late_is_counted() {
    let mut one = One::new(&unit("a notified"));
    for what in [RELOADING, EventKind::ReloadEnded { well: true }] {
        assert!(!one.tell(what), "{what:?} of a unit that starts");
    }
    assert!(one.tell(READY));
    assert!(!one.tell(READY) && !one.tell(EventKind::Skipped));
    assert_eq!(one.system.stale_events(), 0);
    one.tell(exits(1));
    one.tell(GONE);
    one.plan();
    assert_eq!(one.pass(1), "start a");
    for what in [READY, exits(0), GONE] {
        assert!(!one.tell(what), "{what:?} of the start before");
    }
    assert_eq!(
        (one.system.stale_events(), told(&one).as_str()),
        (3, "starting: its main process ended with status 1")
    );
}

// Holds: G-3, T-24, X-22
#[test]
fn what_takes_too_long_is_ended_then_killed_then_given_up() {
    let mut one = One::new(&unit("a notified"));
    assert_eq!(one.pass(89), "");
    assert_eq!(one.pass(1), "stop a: its start timed out");
    assert!(!one.tell(READY), "it is too late");
    assert_eq!(one.pass(90), "kill a");
    assert_eq!(one.pass(10), "");
    assert_eq!(told(&one), "failed: processes are left after SIGKILL");
    assert_eq!(one.pass(1000), "", "it is not started while it is there");
    one.tell(GONE);
    assert_eq!(one.plan(), "start a");
}

#[test]
fn what_was_killed_by_whom_ever_is_a_failed_stop_and_nothing_else_is_that_was_asked_for() {
    let mut one = One::new(&unit("a notified"));
    one.tell(READY);
    one.system.restart(&target("a"));
    assert_eq!(one.plan(), "stop a: a restart was requested");
    assert!(!one.tell(SCRIPT), "it was asked for");
    assert!(one.tell(LATE));
    assert_eq!(one.pass(9), "", "nobody else kills it");
    one.pass(1);
    assert_eq!(told(&one), "failed: processes are left after SIGKILL");
}

#[test]
fn what_is_run_after_a_kill_has_a_time_of_its_own() {
    let mut one = One::new(&unit("a notified"));
    one.tell(READY);
    one.system.restart(&target("a"));
    assert_eq!(one.plan(), "stop a: a restart was requested");
    assert_eq!(one.pass(90), "kill a");
    assert!(one.tell(EventKind::Extend(Duration::from_secs(60))));
    assert_eq!(one.pass(59), "");
    assert_eq!(told(&one), "stopping: its stop timed out");
    // It did not end by itself either, so that it is killed like what was there before it.
    assert!(one.tell(LATE));
    assert_eq!(one.pass(9), "", "it is killed already");
    assert_eq!(told(&one), "stopping: its stop timed out");
    one.pass(1);
    assert_eq!(told(&one), "failed: processes are left after SIGKILL");
}

#[test]
fn a_kill_that_works_is_a_failed_stop() {
    let mut one = One::new(&unit("a notified"));
    one.tell(READY);
    one.system.restart(&target("a"));
    assert_eq!(one.plan(), "stop a: a restart was requested");
    assert_eq!(one.pass(90), "kill a");
    one.tell(GONE);
    assert_eq!(told(&one), "failed: its stop timed out");
    assert_eq!(one.plan(), "start a");
}

#[test]
fn more_time_is_given_where_it_is_asked_for() {
    let mut one = One::new(&unit("a notified"));
    assert!(one.tell(EventKind::Extend(Duration::from_secs(1))));
    assert_eq!(one.pass(80), "", "no time is taken away");
    assert!(one.tell(EventKind::Extend(Duration::from_secs(60))));
    assert_eq!(one.pass(59), "");
    assert_eq!(one.pass(1), "stop a: its start timed out");
}

#[test]
fn a_unit_that_runs_for_too_long_has_failed() {
    let mut unit = unit("a notified");
    unit.run.runtime_max = Some(Duration::from_secs(5));
    unit.timeouts.reload = None;
    let mut one = One::new(&unit);
    one.tell(READY);
    one.pass(4);
    one.tell(RELOADING);
    assert_eq!(one.pass(1), "stop a: it exceeded its maximum runtime");
}

#[test]
fn a_reload_that_takes_too_long_is_told_and_harms_nobody() {
    let mut one = One::new(&unit("a supervised"));
    one.tell(READY);
    one.plan();
    one.system.request_reload(&target("a")).unwrap();
    assert_eq!(one.plan(), "reload a");
    one.system.request_reload(&target("a")).unwrap();
    assert_eq!(one.plan(), "", "one at a time");
    assert_eq!(one.pass(30), "reload a", "the one that was asked for meanwhile");
    one.tell(EventKind::ReloadEnded { well: false });
    assert!(one.system.status(&name("a")).unwrap().reload_failed);
    assert_eq!((one.plan().as_str(), told(&one).as_str()), ("", "running"));
}

#[test]
fn a_unit_that_has_exited_reloads_by_its_commands_and_stays_exited() {
    for (well, late) in [(true, false), (false, false), (false, true)] {
        let mut oneshot = unit("a oneshot");
        oneshot.run.reload = unit("a supervised").run.reload;
        let mut one = One::new(&oneshot);
        one.tell(exits(0));
        one.system.request_reload(&target("a")).unwrap();
        assert_eq!((one.plan().as_str(), told(&one).as_str()), ("reload a", "reloading"));
        if late {
            assert_eq!(one.pass(30), "");
        } else {
            one.tell(EventKind::ReloadEnded { well });
        }
        assert_eq!(told(&one), "exited");
        assert_eq!(one.system.status(&name("a")).unwrap().reload_failed, !well);
    }
}

#[test]
fn a_unit_of_systemd_that_ends_well_is_down_and_may_come_back() {
    for (when, expected) in [(RestartWhen::OnFailure, ""), (RestartWhen::Always, "start a")] {
        let mut unit = unit("a supervised");
        unit.run.on_clean_exit = OnCleanExit::Complete;
        unit.restart.when = when;
        let mut one = One::new(&unit);
        one.tell(READY);
        one.tell(EventKind::MainExited(Exit::Signal(15)));
        assert_eq!(one.plan(), "stop a: its main process exited successfully");
        one.tell(GONE);
        assert_eq!((one.plan().as_str(), one.seen().phase), ("", Phase::Completed));
        assert_eq!(one.pass(1), expected);
    }
}

/// It counted as done, and whoever depends on it was started.
#[test]
fn a_oneshot_that_is_told_to_end_has_not_done_its_work() {
    let mut unit = unit("a oneshot");
    unit.run.on_clean_exit = OnCleanExit::Complete;
    unit.restart.when = RestartWhen::Never;
    let mut one = One::new(&unit);
    one.tell(EventKind::MainExited(Exit::Signal(15)));
    one.tell(GONE);
    one.plan();
    assert_eq!(told(&one), "failed: its main process ended with SIGTERM");
}

/// A scripted unit may be up with no process; what ends it is a process again.
// Holds: G-3
#[test]
fn what_a_unit_runs_to_end_is_waited_for_too() {
    let mut one = One::new(&unit("a scripted"));
    one.tell(READY);
    one.tell(GONE);
    assert!(!one.seen().processes);
    one.tell(EventKind::Stopping);
    assert!(one.seen().processes);
    assert_eq!(one.pass(90), "kill a");
    assert_eq!(one.pass(10), "");
    one.system.reset_failed(&target("a"), one.now);
    assert_eq!(one.plan(), "", "it is not started while its commands run");
}

#[test]
fn who_never_was_up_is_not_asked_by_its_commands_to_stop() {
    for (events, expected) in [(&[][..], false), (&[READY][..], true)] {
        let mut one = One::new(&unit("a notified"));
        events.iter().for_each(|event| assert!(one.tell(*event)));
        one.system.set_goal(None, Default::default(), one.now).unwrap();
        let actions = one.system.next_actions(one.now);
        assert!(
            matches!(actions[0].kind, ActionKind::Stop { was_active, .. } if was_active == expected)
        );
    }
}
