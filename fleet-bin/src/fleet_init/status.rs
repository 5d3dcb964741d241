//! `status`: prints the units of a running fleet-init, which are those of files or of fleetd.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::io::Write as _;

use fleet_agent::ManagedUnit;
use fleet_agent::native::{InitSnapshot, Tracking, UnitSnapshot};
use fleet_agent::remote::{Connection, InitRequest, ManagerRequest, RequestError};
use fleet_core::Timestamp;
use fleet_core::graph::{
    Activity, BlockedBy, DerivedState, FailureCause, Graph, InitState, Retry, StopReason, Target,
    WaitReason,
};
use serde::Serialize;

use super::args::StatusArgs;
use super::client::{Edge, StatusHeader, Unit, request};
use super::tree::{tree, tree_with};
use crate::ui::error::CliError;
use crate::ui::global_args::Format;
use crate::ui::output::{Output, Record};
use crate::ui::table::cell;

/// Runs the command.
pub(super) fn run(args: &StatusArgs) -> Result<(), CliError> {
    request(&args.socket, async |init| {
        let (head, units) = all(init).await?;
        print_header(&head);
        if head.fleet {
            return print_fleet(init, args.output, &head, units).await;
        }
        let mut output = Output::on_stdout(args.output);
        let tree = match args.output {
            Format::Table => tree(&head, &units, output.colour()),
            _ => String::new(),
        };
        output.list(&units, &tree)
    })
}

/// Requests the status of all units.
pub(super) async fn all(init: &Connection) -> Result<(StatusHeader, Vec<Unit>), RequestError> {
    init.call(InitRequest::Status).await
}

/// Prints on standard error how processes are tracked, and the goal.
fn print_header(head: &StatusHeader) {
    let mut to = io::stderr();
    let tracking = match &head.tracking_fallback {
        None => "processes are tracked by control groups".to_owned(),
        Some(why) => {
            format!(
                "processes that leave their group, parent and environment are not tracked: {why}"
            )
        }
    };
    let _unread = writeln!(to, "{tracking}").is_err();
    let extra = match head.extra_targets.as_slice() {
        [] => String::new(),
        extra => format!(", extra targets: {}", extra.join(", ")),
    };
    let goal = match &head.goal {
        Some(goal) => format!("goal: {goal}{extra}"),
        None if head.fleet => return,
        None => "no goal is set, so no unit is needed".to_owned(),
    };
    let _unread = writeln!(to, "{goal}").is_err();
}

/// Prints the units of fleetd as a tree. Each row also shows the last request of fleetd for the
/// unit, and the unit's state as fleetd sees it.
async fn print_fleet(
    init: &Connection,
    format: Format,
    head: &StatusHeader,
    mut units: Vec<Unit>,
) -> Result<(), CliError> {
    let managed: Vec<ManagedUnit> = init.call(ManagerRequest::List).await?;
    let rows: BTreeMap<&str, Row> =
        managed.iter().map(|it| (it.unit.as_str(), Row::new(it))).collect();
    let known: BTreeSet<String> = units.iter().map(|unit| unit.unit.clone()).collect();
    // Timers, and units that cannot run, are not in the graph.
    units.extend(rows.values().filter(|row| !known.contains(row.unit)).map(|row| Unit {
        unit: row.unit.to_owned(),
        state: row.sub.to_owned(),
        reason: (row.load != "loaded").then(|| row.load.to_owned()),
        ..Unit::default()
    }));
    units.sort_by(|one, other| one.unit.cmp(&other.unit));
    let cell_of = |name: &str| match rows.get(name) {
        Some(row) => [row.asked, row.active, row.sub].map(str::to_owned).to_vec(),
        None => vec![cell(None::<String>); 3],
    };
    let mut output = Output::on_stdout(format);
    let columns = ["asked", "active", "sub"];
    let table = tree_with(head, &units, &columns, &cell_of, output.colour());
    let both = |unit| UnitWithRow { unit, row: rows.get(unit.unit.as_str()) };
    output.list(&units.iter().map(both).collect::<Vec<_>>(), &table)
}

/// A unit of the graph, together with fleetd's view of the unit, such as the last request for it.
/// This is also the record of the JSON output.
#[derive(Serialize)]
struct UnitWithRow<'a> {
    #[serde(flatten)]
    unit: &'a Unit,
    #[serde(flatten)]
    row: Option<&'a Row<'a>>,
}

impl Record for UnitWithRow<'_> {
    fn name(&self) -> &str {
        &self.unit.unit
    }
}

/// A unit; also the JSON output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    unit: &'a str,
    /// The last request.
    asked: &'a str,
    load: &'a str,
    active: &'a str,
    sub: &'a str,
    #[serde(rename = "mainPID")]
    main_pid: Option<u32>,
    /// Result of its last run.
    result: Option<&'a str>,
    /// Exit of its last main process.
    exit: Option<String>,
    restarts: u32,
}

impl<'a> Row<'a> {
    fn new(managed: &'a ManagedUnit) -> Self {
        let state = &managed.state;
        Self {
            unit: managed.unit.as_str(),
            asked: managed.known.requested.as_str(),
            load: state.load.as_str(),
            active: state.active.as_str(),
            sub: &state.sub,
            main_pid: state.main_pid,
            result: state.result.as_deref(),
            exit: state.exit.map(|exit| exit.to_string()),
            restarts: state.restarts,
        }
    }
}

impl Record for Row<'_> {
    fn name(&self) -> &str {
        self.unit
    }
}

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
                    BlockedBy::Inactive => "is not active",
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
