//! Pure: what a unit is, and why, in words.

use fleet_agent::{Snapshot, Tracking, UnitStatus};
use fleet_core::Timestamp;
use fleet_core::graph::{Activity, Cause, Obstacle, Retry, Shown, System, Target, Waiting};

use super::asks::{Edge, Head, Unit};

/// What the whole is there for.
pub(super) fn head(snapshot: &Snapshot) -> Head {
    let wanted = &snapshot.wanted;
    Head {
        goal: wanted.goal.as_ref().map(ToString::to_string),
        beside: wanted.beside.iter().map(ToString::to_string).collect(),
        fleet: false,
        weak: match &snapshot.tracking {
            Tracking::ControlGroups => None,
            Tracking::Environment { why } => Some(why.clone()),
        },
    }
}

/// What one is there for that runs the units of fleetd: what that wants.
pub(super) fn head_for_fleet(snapshot: &Snapshot) -> Head {
    let beside = snapshot.system.goals().map(ToString::to_string).collect();
    Head { beside, fleet: true, ..head(snapshot) }
}

/// One unit.
pub(super) fn unit(status: &UnitStatus, system: &System, now: Timestamp) -> Unit {
    let (state, reason) = words(&status.state.what, now);
    let retry = match status.state.what {
        Shown::Failed { retry: Retry::At(at), .. } | Shown::Ended(Retry::At(at)) => Some(at),
        _ => None,
    };
    let problem = status.problem.clone();
    let reason = match (reason, problem) {
        (Some(reason), Some(problem)) => Some(format!("{reason}: {problem}")),
        (reason, problem) => reason.or(problem),
    };
    let reload = status.state.reload_failed.then(|| "its last reload failed".to_owned());
    let edges = system.graph().dependencies(&status.unit).into_iter();
    // One of which nothing was seen yet has been so since before the clock began.
    let since = Some(status.state.since).filter(|since| *since > Timestamp::from_millis(0));
    Unit {
        unit: status.unit.to_string(),
        description: status.description.clone(),
        provides: texts(&status.provides),
        state: state.to_owned(),
        reason: reason.or(reload),
        needed: status.state.needed,
        degraded_by: texts(&status.degraded_by),
        coincidental: texts(&status.coincidental),
        main_pid: status.main_pid,
        milliseconds: since.map(|since| millis(now.since(since))),
        retry_in_milliseconds: retry.map(|at| millis(at.since(now))),
        attempts: status.state.attempts,
        status: status.status.clone(),
        depends: edges
            .map(|(kind, on)| Edge { kind: kind.to_string(), unit: on.name.to_string() })
            .collect(),
    }
}

fn texts(targets: &[Target]) -> Vec<String> {
    targets.iter().map(ToString::to_string).collect()
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What a unit is, in a word, and why.
pub(super) fn words(shown: &Shown, now: Timestamp) -> (&'static str, Option<String>) {
    match shown {
        Shown::Disabled => ("disabled", None),
        Shown::Masked => ("masked", None),
        Shown::Waiting(waiting) => ("waiting", waits(waiting)),
        Shown::Starting => ("starting", None),
        Shown::Active(Activity::Running) => ("running", None),
        Shown::Active(Activity::Reloading) => ("reloading", None),
        Shown::Active(Activity::Exited) => ("exited", None),
        Shown::Stopping(reason) => ("stopping", reason.as_ref().map(ToString::to_string)),
        Shown::Failed { cause, retry, stuck } => {
            let left = match (stuck, cause) {
                (true, Cause::Lost) | (false, _) => "",
                (true, _) => "; nothing ends some processes",
            };
            ("failed", Some(format!("{cause}{left}; {}", follows(*retry, now))))
        }
        Shown::Ended(retry) => ("ended", Some(follows(*retry, now))),
    }
}

fn follows(retry: Retry, now: Timestamp) -> String {
    match retry {
        Retry::At(at) => format!("tried again in {}", brief(millis(at.since(now)))),
        Retry::Not => "not tried again".to_owned(),
        Retry::GaveUp => "given up".to_owned(),
    }
}

fn waits(waiting: &Waiting) -> Option<String> {
    match waiting {
        Waiting::Dependencies(targets) => Some(format!("for {}", texts(targets).join(", "))),
        Waiting::Doomed(targets) => {
            let one = |(target, obstacle): &(Target, Obstacle)| {
                let why = match obstacle {
                    Obstacle::Failed => "failed",
                    Obstacle::Ended => "has ended",
                    Obstacle::Doomed => "cannot start either",
                    Obstacle::Masked => "is masked",
                    Obstacle::Missing => "is not there",
                };
                format!("{target} {why}")
            };
            Some(targets.iter().map(one).collect::<Vec<_>>().join(", "))
        }
        Waiting::Slot => Some("for others to start first".to_owned()),
        Waiting::Leftovers => Some("for its processes of before to end".to_owned()),
        Waiting::Nothing => None,
    }
}

/// A time as people say it, by its largest part or two.
pub(crate) fn brief(millis: u64) -> String {
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
    use fleet_core::graph::{Exit, StopReason};

    use super::*;

    #[test]
    fn every_state_has_a_word_and_its_reason() {
        let now = Timestamp::from_millis(1000);
        let target = |name: &str| Target::new(name).unwrap();
        let doomed = vec![(target("a"), Obstacle::Failed), (target("b"), Obstacle::Missing)];
        let cause = Cause::Exit(Exit::Status(3));
        let at = Retry::At(Timestamp::from_millis(3500));
        let failed = |retry, stuck| Shown::Failed { cause, retry, stuck };
        let rows = [
            Shown::Disabled,
            Shown::Waiting(Waiting::Dependencies(vec![target("a"), target("b")])),
            Shown::Waiting(Waiting::Doomed(doomed)),
            Shown::Waiting(Waiting::Nothing),
            Shown::Active(Activity::Exited),
            Shown::Stopping(Some(StopReason::DependencyLost(target("a")))),
            failed(at, false),
            failed(Retry::GaveUp, true),
            Shown::Failed { cause: Cause::Lost, retry: Retry::Not, stuck: true },
            Shown::Ended(Retry::Not),
        ];
        let told = rows.iter().map(|shown| {
            let (word, reason) = words(shown, now);
            reason.map_or_else(|| format!("{word}\n"), |reason| format!("{word}: {reason}\n"))
        });
        insta::assert_snapshot!(told.collect::<String>(), @"
        disabled
        waiting: for a, b
        waiting: a failed, b is not there
        waiting
        exited
        stopping: it depends on a, which is lost
        failed: its main process ended with status 3; tried again in 2.5s
        failed: its main process ended with status 3; nothing ends some processes; given up
        failed: it cannot be taken back, and may run; not tried again
        ended: not tried again
        ");
    }

    #[test]
    fn times_are_said_in_short() {
        let rows = [(0, "0s"), (2500, "2.5s"), (59_999, "59s"), (61_000, "1min 1s")];
        let more = [(7_380_000, "2h 3min"), (180_000_000, "2d 2h")];
        for (millis, expected) in rows.into_iter().chain(more) {
            assert_eq!(brief(millis), expected);
        }
    }
}
