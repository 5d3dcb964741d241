//! Restarts of units that ended, and their limits.

use std::time::Duration;

use fleet_core::graph::{
    EventKind, Exit, FailureCause, OnCleanExit, Restart, RestartLimit, RestartWhen, Signal,
    StatusSet,
};

use super::config::{target, unit};
use super::table::{GONE, One, READY, exits, told};

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
        let mut one = One::new(&unit);
        one.tell(READY);
        one.tell(exits(0));
        one.plan();
        one.tell(GONE);
        assert_eq!(one.seen().retry_at.is_some(), again, "{when:?}");
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
        let mut one = One::new(&unit);
        one.tell(READY);
        one.tell(EventKind::Failed(FailureCause::RuntimeMax));
        assert!(one.tell(EventKind::MainExited(Exit::Signal(9))));
        assert_eq!(told(&one), "stopping: it exceeded its maximum runtime");
        one.tell(GONE);
        assert_eq!(told(&one), "failed: it exceeded its maximum runtime");
        assert_eq!(one.seen().retry_at.is_some(), again, "{when:?}");
        assert_eq!(one.seen().exit, None, "it is the end of this start alone");
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
        let mut one = One::new(&unit);
        let mut started = 1;
        for _ in 0..10 {
            one.start.incarnation = one.seen().incarnation.unwrap();
            one.tell(exits(1));
            one.tell(GONE);
            one.plan();
            started += usize::from(one.pass(100) == "start a");
        }
        assert_eq!((started, one.seen().gave_up), (starts, true), "{limit:?}");
        assert!(one.system.reset_failed(&target("a"), one.now));
        assert_eq!(one.plan(), "start a");
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
    let mut one = One::new(&unit);
    let mut pauses = Vec::new();
    for status in [0, 0, 0, 0, 1, 1, 0, 1, 1, 1] {
        one.start.incarnation = one.seen().incarnation.unwrap();
        for what in [READY, exits(status), GONE] {
            one.tell(what);
            one.plan();
        }
        pauses.push(one.seen().retry_at.map(|at| at.since(one.now).as_secs()));
        one.pass(60);
    }
    let growing = [1, 2, 4, 8, 16, 32, 60, 60, 60].map(Some);
    assert_eq!(pauses, [&growing[..], &[None]].concat(), "what it ends as paces it all the same");
    assert!(one.seen().gave_up, "it failed three times in a row");
}

/// Regression: the unit was given up again because of its earlier starts.
#[test]
fn reset_of_an_unkillable_unit_ignores_its_start_limit() {
    let mut unit = unit("a notified");
    unit.restart.limit = RestartLimit::Starts { burst: 1, interval: Duration::from_secs(100_000) };
    let mut one = One::new(&unit);
    assert_eq!(one.pass(90), "stop a: its start timed out");
    assert_eq!((one.pass(90).as_str(), one.pass(10)), ("kill a", String::new()));
    assert!(one.system.reset_failed(&target("a"), one.now));
    assert!(one.tell(GONE));
    assert_eq!(one.plan(), "start a");
}

#[test]
fn requested_retry_respects_the_start_limit() {
    let mut unit = unit("a supervised");
    unit.run.on_clean_exit = OnCleanExit::Complete;
    unit.restart.when = RestartWhen::Never;
    unit.restart.limit = RestartLimit::Starts { burst: 3, interval: Duration::from_secs(1000) };
    let mut one = One::new(&unit);
    assert!(!one.system.retry_now(&target("a"), one.now), "it runs");
    let mut plans = Vec::new();
    for status in [0, 1, 0] {
        one.start.incarnation = one.seen().incarnation.unwrap();
        one.tell(READY);
        one.tell(exits(status));
        one.plan();
        one.tell(GONE);
        assert_eq!(one.plan(), "");
        assert!(one.system.retry_now(&target("a"), one.now));
        assert!(!one.system.retry_now(&target("a"), one.now), "it is about to be tried");
        plans.push(one.plan());
    }
    assert_eq!(plans, ["start a", "start a", ""]);
    assert!(one.seen().gave_up);
    one.pass(1000);
    assert!(one.system.retry_now(&target("a"), one.now));
    assert_eq!(one.plan(), "start a", "its starts of before do not count any more");
}

#[test]
fn long_active_time_clears_failures() {
    let mut one = One::new(&unit("a notified"));
    for (up, attempts) in [(1, 1), (9, 2), (10, 1), (1, 2)] {
        one.start.incarnation = one.seen().incarnation.unwrap();
        one.tell(READY);
        one.pass(up);
        one.tell(exits(1));
        one.tell(GONE);
        one.plan();
        assert_eq!(one.seen().attempts, attempts, "after {up} seconds");
        assert_eq!(one.pass(60), "start a");
    }
}
