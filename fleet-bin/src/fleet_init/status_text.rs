//! Pure: the state of each unit as text.

use fleet_agent::native::{InitSnapshot, Tracking, UnitSnapshot};
use fleet_core::Timestamp;
use fleet_core::graph::{
    Activity, BlockedBy, DerivedState, FailureCause, Graph, InitState, Retry, StopReason, Target,
    WaitReason,
};

use super::protocol::{Edge, StatusHeader, Unit};

/// Returns the header of a status response.
pub(super) fn header(snapshot: &InitSnapshot) -> StatusHeader {
    let wanted = &snapshot.desired;
    StatusHeader {
        goal: wanted.goal.as_ref().map(ToString::to_string),
        extra_targets: wanted.extra_targets.iter().map(ToString::to_string).collect(),
        fleet: false,
        tracking_fallback: match &snapshot.tracking {
            Tracking::ControlGroups => None,
            Tracking::Environment { why } => Some(why.clone()),
        },
    }
}

/// Returns the header for a fleet-init that runs the units of fleetd. Such a fleet-init has no
/// goal; its targets are those of the units that fleetd requested.
pub(super) fn header_for_fleet(snapshot: &InitSnapshot) -> StatusHeader {
    let extra_targets = snapshot.planner.requested_targets().map(ToString::to_string).collect();
    StatusHeader { extra_targets, fleet: true, ..header(snapshot) }
}

/// Describes a unit.
pub(super) fn unit(status: &UnitSnapshot, system: &InitState, now: Timestamp) -> Unit {
    let (state, reason) = state_text(&status.report.state, system.graph(), now);
    let retry = match status.report.state {
        DerivedState::Failed { retry: Retry::At(at), .. }
        | DerivedState::Completed(Retry::At(at)) => Some(at),
        _ => None,
    };
    let problem = status.problem.clone();
    let reason = match (reason, problem) {
        (Some(reason), Some(problem)) => Some(format!("{reason}: {problem}")),
        (reason, problem) => reason.or(problem),
    };
    let reload = status.report.reload_failed.then(|| "its last reload failed".to_owned());
    let edges = system.graph().dependencies(&status.unit).into_iter();
    // A timestamp of 0 means that nothing was observed yet.
    let since = Some(status.report.since).filter(|since| *since > Timestamp::from_millis(0));
    Unit {
        unit: status.unit.to_string(),
        description: status.description.clone(),
        provides: texts(&status.provides),
        state: state.to_owned(),
        reason: reason.or(reload),
        changing: is_changing(&status.report.state),
        incarnation: status.report.incarnation.map(|it| it.0),
        reload_failed: status.report.reload_failed,
        needed: status.report.needed,
        degraded_by: texts(&status.degraded_by),
        coincidental: texts(&status.coincidental),
        main_pid: status.main_pid,
        milliseconds: since.map(|since| millis(now.since(since))),
        retry_in_milliseconds: retry.map(|at| millis(at.since(now))),
        attempts: status.report.attempts,
        status: status.status.clone(),
        depends: edges
            .map(|(kind, on)| Edge { kind: kind.to_string(), unit: on.name.to_string() })
            .collect(),
    }
}

/// Returns whether a unit is about to change its state without an event from outside. A unit whose
/// retry is scheduled has failed.
fn is_changing(state: &DerivedState) -> bool {
    match state {
        DerivedState::Starting
        | DerivedState::Stopping(_)
        | DerivedState::Active(Activity::Reloading) => true,
        DerivedState::Waiting(waiting) => !matches!(waiting, WaitReason::Blocked(_)),
        _ => false,
    }
}

fn texts(targets: &[Target]) -> Vec<String> {
    targets.iter().map(ToString::to_string).collect()
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the state as one word, and the reason.
pub(super) fn state_text(
    shown: &DerivedState,
    graph: &Graph,
    now: Timestamp,
) -> (&'static str, Option<String>) {
    match shown {
        DerivedState::Disabled => ("disabled", None),
        DerivedState::Masked => ("masked", None),
        DerivedState::Waiting(waiting) => ("waiting", wait_text(waiting, graph)),
        DerivedState::Starting => ("starting", None),
        DerivedState::Active(Activity::Running) => ("running", None),
        DerivedState::Active(Activity::Reloading) => ("reloading", None),
        DerivedState::Active(Activity::Exited) => ("exited", None),
        DerivedState::Stopping(Some(StopReason::DependencyLost(target))) => {
            let target = with_unit(target, graph);
            ("stopping", Some(format!("its dependency {target} is no longer active")))
        }
        DerivedState::Stopping(reason) => ("stopping", reason.as_ref().map(ToString::to_string)),
        DerivedState::Failed { cause, retry, stuck } => {
            let left = match (stuck, cause) {
                (true, FailureCause::Lost) | (false, _) => "",
                (true, _) => "; some processes survive SIGKILL",
            };
            ("failed", Some(format!("{cause}{left}; {}", retry_text(*retry, now))))
        }
        DerivedState::Completed(retry) => ("completed", Some(retry_text(*retry, now))),
    }
}

fn retry_text(retry: Retry, now: Timestamp) -> String {
    match retry {
        Retry::At(at) => format!("retry in {}", format_duration(millis(at.since(now)))),
        Retry::Never => "no retry".to_owned(),
        Retry::GaveUp => "given up".to_owned(),
    }
}

/// Returns a target with the unit that provides it, if that unit has another name: `dns (unbound)`.
fn with_unit(target: &Target, graph: &Graph) -> String {
    let unit = graph.provider(target).map(|unit| unit.name.as_str());
    match unit.filter(|unit| *unit != target.as_str()) {
        Some(unit) => format!("{target} ({unit})"),
        None => target.to_string(),
    }
}

fn wait_text(waiting: &WaitReason, graph: &Graph) -> Option<String> {
    match waiting {
        WaitReason::Dependencies(targets) => {
            let targets: Vec<String> = targets.iter().map(|it| with_unit(it, graph)).collect();
            Some(format!("for {}", targets.join(", ")))
        }
        WaitReason::Blocked(targets) => {
            let one = |(target, obstacle): &(Target, BlockedBy)| {
                let why = match obstacle {
                    BlockedBy::Failed => "failed",
                    BlockedBy::Completed => "has completed",
                    BlockedBy::Blocked => "is blocked",
                    BlockedBy::Masked => "is masked",
                    BlockedBy::Missing => "is missing",
                };
                format!("{} {why}", with_unit(target, graph))
            };
            Some(targets.iter().map(one).collect::<Vec<_>>().join(", "))
        }
        WaitReason::Slot => Some("for a free start slot".to_owned()),
        WaitReason::LeftoverProcesses => Some("for earlier processes to end".to_owned()),
        WaitReason::NextPlan => None,
    }
}

/// Formats a duration by its largest one or two units.
pub(crate) fn format_duration(millis: u64) -> String {
    let seconds = millis / 1000;
    match (seconds / 86400, seconds / 3600, seconds / 60) {
        (0, 0, 0) if millis < 10_000 && !millis.is_multiple_of(1000) => {
            format!("{}.{}s", seconds, millis % 1000 / 100)
        }
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}min {}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h {}min", minutes % 60),
        (days, hours, _) => format!("{days}d {}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::graph::{Exit, InitUnit, Name, Settings};

    use super::*;

    #[test]
    fn every_state_has_a_text_and_a_reason() {
        let now = Timestamp::from_millis(1000);
        let target = |name: &str| Target::new(name).unwrap();
        let doomed = vec![(target("a"), BlockedBy::Failed), (target("b"), BlockedBy::Missing)];
        let provider = InitUnit::new_virtual(Name::new("unbound").unwrap(), [target("dns")]);
        let graph = Graph::strict([provider], &Settings::default()).unwrap();
        let cause = FailureCause::Exit(Exit::Status(3));
        let at = Retry::At(Timestamp::from_millis(3500));
        let failed = |retry, stuck| DerivedState::Failed { cause, retry, stuck };
        let rows = [
            DerivedState::Disabled,
            DerivedState::Waiting(WaitReason::Dependencies(vec![target("a"), target("b")])),
            DerivedState::Waiting(WaitReason::Blocked(doomed)),
            DerivedState::Waiting(WaitReason::Dependencies(vec![target("dns")])),
            DerivedState::Stopping(Some(StopReason::DependencyLost(target("dns")))),
            DerivedState::Waiting(WaitReason::NextPlan),
            DerivedState::Active(Activity::Exited),
            DerivedState::Stopping(Some(StopReason::DependencyLost(target("a")))),
            failed(at, false),
            failed(Retry::GaveUp, true),
            DerivedState::Failed { cause: FailureCause::Lost, retry: Retry::Never, stuck: true },
            DerivedState::Completed(Retry::Never),
        ];
        let output = rows.iter().map(|shown| {
            let (word, reason) = state_text(shown, &graph, now);
            reason.map_or_else(|| format!("{word}\n"), |reason| format!("{word}: {reason}\n"))
        });
        insta::assert_snapshot!(output.collect::<String>(), @"
        disabled
        waiting: for a, b
        waiting: a failed, b is missing
        waiting: for dns (unbound)
        stopping: its dependency dns (unbound) is no longer active
        waiting
        exited
        stopping: its dependency a is no longer active
        failed: its main process ended with status 3; retry in 2.5s
        failed: its main process ended with status 3; some processes survive SIGKILL; given up
        failed: it cannot be adopted and may still run; no retry
        completed: no retry
        ");
    }

    #[test]
    fn durations_are_formatted_briefly() {
        let rows = [(0, "0s"), (2500, "2.5s"), (59_999, "59s"), (61_000, "1min 1s")];
        let more = [(7_380_000, "2h 3min"), (180_000_000, "2d 2h")];
        for (millis, expected) in rows.into_iter().chain(more) {
            assert_eq!(format_duration(millis), expected);
        }
    }
}
