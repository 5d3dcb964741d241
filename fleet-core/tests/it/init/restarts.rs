//! Restarts of units that ended, and their limits.

use std::time::Duration;

use fleet_core::graph::{
    EventKind, Exit, FailureCause, OnCleanExit, Restart, RestartLimit, RestartWhen, Signal,
    StatusSet,
};

use super::config::{target, unit};
use super::table::{GONE, READY, SingleUnit, describe, exits};

#[test]
fn status_lists_decide_restart_after_success() {
    let zero = StatusSet { codes: [0].into(), ..StatusSet::default() };
    for (when, force, prevent, again) in [
        (RestartWhen::Never, &zero, &StatusSet::default(), true),
        (RestartWhen::Never, &StatusSet::default(), &StatusSet::default(), false),
        (RestartWhen::Always, &StatusSet::default(), &zero, false),
    ] {
        let mut unit = unit("a supervised");
        unit.run.on_clean_exit = OnCleanExit::Complete;
        let (force, prevent) = (force.clone(), prevent.clone());
        unit.restart = Restart { when, force, prevent, ..Restart::default() };
        let mut single = SingleUnit::new(&unit);
        single.send(READY);
        single.send(exits(0));
        single.plan();
        single.send(GONE);
        assert_eq!(single.seen().retry_at.is_some(), again, "{when:?}");
    }
}

/// Regression: only an exit that caused the failure was considered.
#[test]
fn main_exit_decides_restart_for_any_failure_cause() {
    let kill = || StatusSet { signals: [Signal::KILL].into(), ..StatusSet::default() };
    let (always, never) = (RestartWhen::Always, RestartWhen::Never);
    for (when, force, prevent, again) in [
        (always, StatusSet::default(), kill(), false),
        (never, kill(), StatusSet::default(), true),
        (always, StatusSet::default(), StatusSet::default(), true),
        (never, StatusSet::default(), StatusSet::default(), false),
    ] {
        let mut unit = unit("a notified");
        unit.restart = Restart { when, force, prevent, ..Restart::default() };
        let mut single = SingleUnit::new(&unit);
        single.send(READY);
        single.send(EventKind::Failed(FailureCause::RuntimeMax));
        assert!(single.send(EventKind::MainExited(Exit::Signal(9))));
        assert_eq!(describe(&single), "stopping: it exceeded its maximum runtime");
        single.send(GONE);
        assert_eq!(describe(&single), "failed: it exceeded its maximum runtime");
        assert_eq!(single.seen().retry_at.is_some(), again, "{when:?}");
        assert_eq!(single.seen().exit, None, "it is the end of this start alone");
    }
}

#[test]
fn unit_at_its_failure_limit_stays_down_until_reset() {
    for (limit, starts) in [
        (RestartLimit::Failures(2), 3),
        (RestartLimit::Starts { burst: 4, interval: Duration::from_secs(1000) }, 4),
    ] {
        let mut unit = unit("a notified");
        unit.restart.limit = limit;
        let mut single = SingleUnit::new(&unit);
        let mut started = 1;
        for _ in 0..10 {
            single.start.incarnation = single.seen().incarnation.unwrap();
            single.send(exits(1));
            single.send(GONE);
            single.plan();
            started += usize::from(single.pass(100) == "start a");
        }
        assert_eq!((started, single.seen().gave_up), (starts, true), "{limit:?}");
        assert!(single.system.reset_failed(&target("a"), single.now));
        assert_eq!(single.plan(), "start a");
    }
}

/// Regression: a full disk used up the restarts of a unit, so it was given up.
#[test]
fn unrecorded_start_is_retried_and_does_not_count() {
    for (when, limit) in [
        (RestartWhen::Never, RestartLimit::Failures(0)),
        (RestartWhen::OnFailure, RestartLimit::Failures(0)),
        (
            RestartWhen::OnFailure,
            RestartLimit::Starts { burst: 1, interval: Duration::from_secs(1000) },
        ),
    ] {
        let mut unit = unit("a notified");
        unit.restart = Restart { when, limit, ..Restart::default() };
        let mut single = SingleUnit::new(&unit);
        for _ in 0..5 {
            single.start.incarnation = single.seen().incarnation.unwrap();
            single.send(EventKind::Failed(FailureCause::Unrecorded));
            single.plan();
            single.send(GONE);
            assert_eq!(describe(&single), "failed: its start could not be recorded");
            assert_eq!((single.seen().attempts, single.seen().failures), (0, 0), "{limit:?}");
            assert_eq!(single.pass(1), "start a", "{limit:?}");
        }
    }
}

/// Regression: successes counted as failures, so the unit was given up after the third.
#[test]
fn successes_do_not_count_toward_the_failure_limit() {
    let mut unit = unit("a supervised");
    unit.run.success.codes = [0].into();
    unit.restart = Restart {
        when: RestartWhen::Always,
        limit: RestartLimit::Failures(2),
        ..Restart::default()
    };
    let mut single = SingleUnit::new(&unit);
    let mut pauses = Vec::new();
    for status in [0, 0, 0, 0, 1, 1, 0, 1, 1, 1] {
        single.start.incarnation = single.seen().incarnation.unwrap();
        for what in [READY, exits(status), GONE] {
            single.send(what);
            single.plan();
        }
        pauses.push(single.seen().retry_at.map(|at| at.since(single.now).as_secs()));
        single.pass(60);
    }
    let growing = [1, 2, 4, 8, 16, 32, 60, 60, 60].map(Some);
    assert_eq!(pauses, [&growing[..], &[None]].concat(), "the delay also grows after successes");
    assert!(single.seen().gave_up, "it failed three times in a row");
}

/// Regression: the unit was given up again because of its earlier starts.
#[test]
fn reset_of_an_unkillable_unit_ignores_its_start_limit() {
    let mut unit = unit("a notified");
    unit.restart.limit = RestartLimit::Starts { burst: 1, interval: Duration::from_secs(100_000) };
    let mut single = SingleUnit::new(&unit);
    assert_eq!(single.pass(90), "stop a: its start timed out");
    assert_eq!((single.pass(90).as_str(), single.pass(10)), ("kill a", String::new()));
    assert!(single.system.reset_failed(&target("a"), single.now));
    assert!(single.send(GONE));
    assert_eq!(single.plan(), "start a");
}

#[test]
fn requested_retry_respects_the_start_limit() {
    let mut unit = unit("a supervised");
    unit.run.on_clean_exit = OnCleanExit::Complete;
    unit.restart.when = RestartWhen::Never;
    unit.restart.limit = RestartLimit::Starts { burst: 3, interval: Duration::from_secs(1000) };
    let mut single = SingleUnit::new(&unit);
    assert!(!single.system.retry_now(&target("a"), single.now), "it runs");
    let mut plans = Vec::new();
    for status in [0, 1, 0] {
        single.start.incarnation = single.seen().incarnation.unwrap();
        single.send(READY);
        single.send(exits(status));
        single.plan();
        single.send(GONE);
        assert_eq!(single.plan(), "");
        assert!(single.system.retry_now(&target("a"), single.now));
        assert!(!single.system.retry_now(&target("a"), single.now), "it is about to be tried");
        plans.push(single.plan());
    }
    assert_eq!(plans, ["start a", "start a", ""]);
    assert!(single.seen().gave_up);
    single.pass(1000);
    assert!(single.system.retry_now(&target("a"), single.now));
    assert_eq!(single.plan(), "start a", "its starts of before do not count any more");
}

#[test]
fn long_active_time_clears_failures() {
    let mut single = SingleUnit::new(&unit("a notified"));
    for (up, attempts) in [(1, 1), (9, 2), (10, 1), (1, 2)] {
        single.start.incarnation = single.seen().incarnation.unwrap();
        single.send(READY);
        single.pass(up);
        single.send(exits(1));
        single.send(GONE);
        single.plan();
        assert_eq!(single.seen().attempts, attempts, "after {up} seconds");
        assert_eq!(single.pass(60), "start a");
    }
}
