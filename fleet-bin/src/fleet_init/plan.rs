//! `plan` prints what would start, stop and restart, in which order and why. `check` reports
//! everything that is wrong in the files.

use std::collections::BTreeSet;
use std::io;
use std::io::Write;
use std::sync::Arc;

use fleet_agent::remote::{InitFileWire, InitRequest, RequestError};
use fleet_core::Timestamp;
use fleet_core::graph::format::{Code, differing_keys};
use fleet_core::graph::{
    DerivedState, EdgeKind, InitState, InitUnit, Name, Observation, PlannedAction, Preview,
    Settings, StopReason, Target, UnitPreview,
};
use fleet_unitfile::Severity;

use super::args::{CheckArgs, PlanArgs};
use super::client::{Edge, PlannedUnit, Targets, request_if_running};
use super::files::Files;
use super::{files, paths};
use crate::fleet_init::status;
use crate::ui::error::CliError;
use crate::ui::findings::Finding;
use crate::ui::output::Output;
use crate::ui::table::{cell, layout};

/// Maximum number of units named in a cell.
const MAX_NAMES: usize = 4;

/// Runs the command.
pub(super) fn run(args: &PlanArgs) -> Result<(), CliError> {
    // Read only once, since a pipe is empty the second time.
    let given = (!args.paths.is_empty()).then(|| files::read(&args.paths)).transpose()?;
    let given = given.as_ref();
    let (output, (goals, rows)) = planned(args, given).map_err(|error| match given {
        Some(given) => given.with_skipped(error),
        None => error,
    })?;
    print_summary(&output, &goals, &rows);
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let table = layout(&["action", "wave", "unit", "type", "after", "why"], true, &cells);
    Output::on_stdout(args.output).list(&rows, &table)
}

type Plan = (Targets, Vec<PlannedUnit>);

/// Returns the plan, and a text that names the state with which it is compared.
fn planned(args: &PlanArgs, given: Option<&Files>) -> Result<(String, Plan), CliError> {
    let running = if args.from_nothing { None } else { of_running(args, given)? };
    Ok(match running {
        Some(Ok(found)) => ("compared with the running units".to_owned(), found),
        Some(Err(why)) => {
            (format!("planned as if no unit were running: {why}"), from_nothing(args, given)?)
        }
        None => ("planned as if no unit were running".to_owned(), from_nothing(args, given)?),
    })
}

/// Requests the plan from a running fleet-init. If no fleet-init is running, or the running one
/// cannot make this plan, returns the reason as text.
fn of_running(
    args: &PlanArgs,
    given: Option<&Files>,
) -> Result<Option<Result<Plan, String>>, CliError> {
    let request = InitRequest::Plan {
        files: given.map(sent).transpose()?,
        goal: args.goal.as_ref().map(ToString::to_string),
        extra_targets: args.with.iter().map(ToString::to_string).collect(),
    };
    let socket = paths::socket(args.socket.socket.as_deref());
    let found = request_if_running(&args.socket, async |init| match init.call(request).await {
        Ok(plan) => Ok(Ok(plan)),
        Err(RequestError::RunsForFleet) if !args.paths.is_empty() => {
            Ok(Err(format!("the fleet-init at {} runs the units of fleetd", socket.display())))
        }
        Err(error) => Err(error.into()),
    })?;
    let not_running = || format!("no fleet-init listens at {}", socket.display());
    Ok(Some(found.unwrap_or_else(|| Err(not_running()))))
}

/// The files as sent in the request, if they have no errors.
fn sent(given: &Files) -> Result<Vec<InitFileWire>, CliError> {
    given.graph_and_goal(None)?;
    Ok(given.sources.files.iter().map(InitFileWire::from).collect())
}

fn from_nothing(args: &PlanArgs, given: Option<&Files>) -> Result<Plan, CliError> {
    let Some(read) = given else {
        let socket = paths::socket(args.socket.socket.as_deref());
        let error = CliError::usage(format!(
            "nothing to plan: no files are given, and no fleet-init listens at {}",
            socket.display()
        ));
        return Err(error.help("name unit files, or start a fleet-init with `fleet-init run`"));
    };
    let (graph, goal) = read.graph_and_goal(args.goal.as_ref())?;
    if goal.is_none() {
        let error = CliError::usage("no goal is set, so there is nothing to plan");
        let help = "give a goal with --goal TARGET, or write `goal: TARGET` in init.conf";
        return Err(error.help(help));
    }
    let now = Timestamp::from_millis(0);
    let settings = Settings { goal: goal.clone(), ..read.sources.settings().clone() };
    let system = InitState::restore(graph.clone(), &settings, Observation::default());
    let goal_name = goal.as_ref().map_or("", Target::as_str).to_owned();
    let cannot =
        |error| CliError::usage(format!("cannot plan for the goal {goal_name}")).because(error);
    let mut system = system.map_err(cannot)?;
    system.set_goal(goal, args.with.iter().cloned().collect(), now).map_err(cannot)?;
    Ok(describe_plan(None, system, now))
}

/// Reports on standard error what was planned.
fn print_summary(basis: &str, goals: &Targets, rows: &[PlannedUnit]) {
    let words = [("restart", "restarted"), ("stop", "stopped"), ("start", "started")];
    let counted = words.into_iter().filter_map(|(action, word)| {
        let count = rows.iter().filter(|row| row.action == action).count();
        (count > 0).then(|| format!("{count} would be {word}"))
    });
    let counted: Vec<String> = counted.collect();
    let counted =
        if counted.is_empty() { "nothing would change".into() } else { counted.join(", ") };
    let goal = goals.goal.as_deref().unwrap_or("nothing");
    let extra_targets = match goals.extra_targets.as_slice() {
        [] => String::new(),
        extra_targets => format!(" and {}", extra_targets.join(", ")),
    };
    let text = format!("{basis}\nfor {goal}{extra_targets}: {counted}");
    let _unread = writeln!(io::stderr(), "{text}").is_err();
}

fn cells(row: &PlannedUnit) -> Vec<String> {
    let waves = [row.stop_wave, row.wave].into_iter().flatten().map(|wave| wave.to_string());
    vec![
        row.action.clone(),
        cell(Some(waves.collect::<Vec<_>>().join(", "))),
        row.unit.clone(),
        row.kind.clone(),
        cell(Some(abbreviated(row))),
        cell(Some(row.why.clone())),
    ]
}

fn abbreviated(row: &PlannedUnit) -> String {
    let names = row.after.iter().take(MAX_NAMES).map(|edge| edge.unit.as_str());
    let text = names.collect::<Vec<_>>().join(", ");
    let more = row.after.len().saturating_sub(MAX_NAMES);
    if more == 0 { text } else { format!("{text} and {more} more") }
}

/// Runs the command.
pub(super) fn check(args: &CheckArgs) -> Result<(), CliError> {
    let mut read = files::read(&args.paths)?;
    read.check_host();
    let mut output = Output::on_stdout(args.output);
    let findings = read.findings();
    for (finding, excerpt) in &findings {
        output.record(finding, &with_excerpt(finding, excerpt))?;
    }
    output.finish()?;
    print_check_summary(&read);
    let errors = findings.iter().filter(|(it, _)| it.severity == Severity::Error).count();
    match errors {
        0 if read.sources.stanzas.is_empty() => {
            let error = CliError::failed("the files contain no units");
            Err(read.with_skipped(error.help("write units into a file whose name ends in .unit")))
        }
        0 => Ok(()),
        1 => Err(CliError::failed("the files have 1 error")),
        _ => Err(CliError::failed(format!("the files have {errors} errors"))),
    }
}

/// Formats a finding with its source lines before the remedy.
fn with_excerpt(finding: &Finding, excerpt: &str) -> String {
    let text = finding.to_string();
    let (message, help) = text.split_once('\n').unwrap_or((&text, ""));
    // An unreadable file has no lines.
    let excerpt = if finding.code == Some(Code::Unreadable.as_str()) { "" } else { excerpt };
    let lines = [message, excerpt, help].into_iter().filter(|line| !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

/// Reports on standard error which files were read and skipped.
fn print_check_summary(read: &Files) {
    let mut to = io::stderr();
    for other in &read.skipped {
        let name = other.display();
        let text = if files::is_systemd_unit(other) {
            "skipped: a systemd unit file; fleet-init convert turns it into a stanza"
        } else if other.is_dir() {
            "skipped: a directory; its files are not read"
        } else {
            "skipped: neither a unit file (NAME.unit) nor init.conf"
        };
        let _unread = writeln!(to, "{name}: {text}").is_err();
    }
    if read.graph.is_some() && !read.sources.stanzas.is_empty() {
        let units = match read.sources.stanzas.len() {
            1 => "1 unit".to_owned(),
            units => format!("{units} units"),
        };
        let _unread = writeln!(to, "ok: {units}").is_err();
    }
}

/// Returns the targets of the system state `after`, and the planned action for each unit. `before`
/// is the state before the plan, if any. The reasons of actions then also name units that failed or
/// completed in it.
pub(super) fn describe_plan(
    before: Option<&InitState>,
    after: InitState,
    now: Timestamp,
) -> (Targets, Vec<PlannedUnit>) {
    let goals = Targets {
        goal: after.goal().map(ToString::to_string),
        extra_targets: after
            .requested_targets()
            .filter(|it| after.goal() != Some(it))
            .map(text)
            .collect(),
    };
    let preview = after.preview(now);
    let text_of = PlanText { needed: needed(&preview.after), before, preview: &preview, now };
    let mut rows: Vec<PlannedUnit> =
        preview.units.iter().filter_map(|unit| text_of.row(unit)).collect();
    // Units are already sorted by name.
    rows.sort_by_key(|row| {
        let wave = [row.stop_wave, row.wave].into_iter().flatten().min();
        (wave.is_none(), wave, row.action == "stay")
    });
    (goals, rows)
}

/// The units needed by the goal and the extra targets.
pub(super) fn needed(system: &InitState) -> BTreeSet<&Name> {
    let is_needed = |name: &&Name| system.status(name).is_some_and(|state| state.needed);
    system.units().filter(is_needed).collect()
}

struct PlanText<'a> {
    before: Option<&'a InitState>,
    preview: &'a Preview,
    needed: BTreeSet<&'a Name>,
    now: Timestamp,
}

impl PlanText<'_> {
    /// Describes the planned action for a unit. Returns `None` if there is nothing to show, because
    /// the unit has no action and nothing needs it.
    fn row(&self, it: &UnitPreview) -> Option<PlannedUnit> {
        let graph = self.preview.after.graph();
        let unit = graph.unit(&it.unit).or(it.running.as_ref())?;
        let needed_by = self.neighbours(graph.dependents(&it.unit), EdgeKind::requires);
        let orders = self.neighbours(graph.dependencies(&it.unit), EdgeKind::orders);
        let degraded = self.preview.after.degraded_by(&it.unit);
        // The state after the change has taken over some of the new definitions.
        let runs = match self.before {
            Some(before) => before.running(&it.unit),
            None => it.running.as_ref(),
        };
        let changed = runs.map_or_else(Vec::new, |runs| differing_keys(runs, unit));
        let mut row = PlannedUnit {
            unit: it.unit.to_string(),
            kind: unit.kind.as_str().to_owned(),
            after: orders,
            needed_by,
            changed: changed.into_iter().map(ToOwned::to_owned).collect(),
            degraded_by: degraded.iter().map(text).collect(),
            ..PlannedUnit::default()
        };
        let (action, why) = match &it.action {
            PlannedAction::Start(step) => {
                row.wave = Some(*step);
                ("start", self.why_started(it, unit, &row))
            }
            PlannedAction::Stop(step, why) => {
                row.stop_wave = Some(*step);
                ("stop", self.why_stopped(it, why))
            }
            PlannedAction::Restart(stop, start, why) => {
                (row.stop_wave, row.wave) = (Some(*stop), Some(*start));
                ("restart", self.why_restarted(why, &row))
            }
            PlannedAction::Unchanged => self.why_unchanged(it, unit, &row)?,
        };
        (row.action, row.why) = (action.to_owned(), why);
        Some(row)
    }

    fn neighbours(
        &self,
        all: Vec<(EdgeKind, &Arc<InitUnit>)>,
        counts: fn(EdgeKind) -> bool,
    ) -> Vec<Edge> {
        let those = all.into_iter();
        let those = those.filter(|(kind, unit)| counts(*kind) && self.needed.contains(&unit.name));
        those.map(|(kind, unit)| Edge { kind: text(kind), unit: text(&unit.name) }).collect()
    }

    fn why_started(&self, it: &UnitPreview, unit: &InitUnit, row: &PlannedUnit) -> String {
        let failed =
            self.before.and_then(|before| before.status(&it.unit)).map(|state| state.state);
        let again = match failed {
            Some(DerivedState::Failed { .. }) => "it failed and is retried; ",
            Some(DerivedState::Completed(_)) => "it completed and is started again; ",
            _ => "",
        };
        format!("{again}{}{}", self.dependents_text(unit, row), self.missing_text(row))
    }

    fn why_stopped(&self, it: &UnitPreview, why: &StopReason) -> String {
        match self.preview.after.graph().unit(&it.unit) {
            None => "it is no longer in a file".to_owned(),
            Some(_) => why.to_string(),
        }
    }

    /// Describes a unit without an action. Returns `None` if nothing needs the unit.
    fn why_unchanged(
        &self,
        it: &UnitPreview,
        unit: &InitUnit,
        row: &PlannedUnit,
    ) -> Option<(&'static str, String)> {
        let state = self.preview.after.status(&it.unit)?.state;
        let is_asked_for = !row.needed_by.is_empty() || self.is_goal(unit);
        match state {
            DerivedState::Masked if is_asked_for => Some(("wait", "it is masked".to_owned())),
            DerivedState::Disabled | DerivedState::Masked => None,
            DerivedState::Waiting(_) | DerivedState::Failed { .. } | DerivedState::Completed(_)
                if self.needed.contains(&it.unit) =>
            {
                let (state, reason) =
                    status::state_text(&state, self.preview.after.graph(), self.now);
                let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
                Some(("wait", format!("{state}{reason}")))
            }
            _ if !self.needed.contains(&it.unit) => None,
            _ => {
                let keys = row.changed.join(", ");
                let live = format!("; applies without a restart: {keys}");
                let live = if keys.is_empty() { String::new() } else { live };
                Some(("stay", self.dependents_text(unit, row) + &live + &self.missing_text(row)))
            }
        }
    }

    fn is_goal(&self, unit: &InitUnit) -> bool {
        self.preview.after.requested_targets().any(|goal| unit.provides.contains(goal))
    }

    fn dependents_text(&self, unit: &InitUnit, row: &PlannedUnit) -> String {
        let after = &self.preview.after;
        let provides = |target: &Target| unit.provides.contains(target);
        let goal = if after.goal().is_some_and(provides) {
            Some("it is the goal")
        } else {
            after.requested_targets().any(provides).then_some("it is an extra target")
        };
        let more = row.needed_by.len().saturating_sub(MAX_NAMES);
        let names = row.needed_by.iter().take(MAX_NAMES);
        let names: Vec<String> =
            names.map(|edge| format!("{} ({})", edge.unit, edge.kind)).collect();
        let names =
            names.join(", ") + &if more == 0 { String::new() } else { format!(" and {more} more") };
        let users = (!names.is_empty()).then(|| format!("needed by {names}"));
        goal.map(str::to_owned).into_iter().chain(users).collect::<Vec<_>>().join("; ")
    }

    fn why_restarted(&self, why: &StopReason, row: &PlannedUnit) -> String {
        let keys = row.changed.join(", ");
        let keys = if keys.is_empty() { keys } else { format!(" ({keys})") };
        match why {
            StopReason::DefinitionChanged => format!("{why}{keys}{}", self.missing_text(row)),
            _ => format!("{why}{}", self.missing_text(row)),
        }
    }

    /// Describes missing dependencies, and those that are active but degraded.
    fn missing_text(&self, row: &PlannedUnit) -> String {
        let (up, down): (Vec<&str>, Vec<&str>) =
            row.degraded_by.iter().map(String::as_str).partition(|target| self.is_active(target));
        let down = (!down.is_empty()).then(|| format!("; without {}", down.join(", ")));
        let up = (!up.is_empty()).then(|| format!("; degraded: {}", up.join(", ")));
        down.into_iter().chain(up).collect()
    }

    fn is_active(&self, target: &str) -> bool {
        let after = &self.preview.after;
        let provider = Target::new(target).ok().and_then(|it| after.graph().provider(&it));
        let state = provider.and_then(|unit| after.status(&unit.name));
        state.is_some_and(|state| matches!(state.state, DerivedState::Active(_)))
    }
}

fn text(value: impl ToString) -> String {
    value.to_string()
}

#[cfg(test)]
mod tests {
    use fleet_core::graph::format::{FileRole, FileSet, InitFile};
    use fleet_core::graph::{EventKind, Exit, Graph, Settings, UnitEvent};

    use super::*;

    fn graph(source: &str) -> Graph {
        let source = source.as_bytes().to_vec();
        let file = InitFile { name: "a.unit".to_owned(), role: FileRole::Units, source };
        FileSet::read(vec![file]).graph().unwrap()
    }

    #[test]
    fn nothing_starts_for_a_masked_unit_alone() {
        let stanza = |name, more| format!("unit: {name}\ntype: virtual\nprovides: {name}\n{more}");
        let source = stanza("web", "waits-for: db\ndepends-on: net\n")
            + &stanza("db", "depends-on: disk, net\n")
            + &stanza("disk", "")
            + &stanza("net", "");
        let goal = Some(Target::new("web").unwrap());
        let mask = BTreeSet::from([Target::new("db").unwrap()]);
        let settings = Settings { goal, mask, ..Settings::default() };
        let system = InitState::new(graph(&source), &settings).unwrap();
        let (_, rows) = describe_plan(None, system, Timestamp::from_millis(0));
        let output = rows.iter().map(|row| format!("{} {}: {}", row.action, row.unit, row.why));
        let expected = [
            "start net: needed by web (depends-on)",
            "start web: it is the goal; without db",
            "wait db: it is masked",
        ];
        assert_eq!(output.collect::<Vec<_>>(), expected);
    }

    /// Regression: for an active unit with an active but degraded dependency, the text said that
    /// the dependency was missing.
    #[test]
    fn a_degraded_dependency_is_not_described_as_missing() {
        let source = "unit: goal\ntype: virtual\nprovides: goal\nwaits-for: web, db\n\
                      unit: web\ntype: virtual\nprovides: web\nwaits-for: db\n\
                      unit: db\ntype: virtual\nprovides: db\n";
        let goal = Some(Target::new("goal").unwrap());
        let mask = BTreeSet::from([Target::new("db").unwrap()]);
        let settings = Settings { goal, mask, ..Settings::default() };
        let system = InitState::new(graph(source), &settings).unwrap();
        let (_, rows) = describe_plan(None, system, Timestamp::from_millis(0));
        let output = rows.iter().map(|row| row.why.as_str()).collect::<Vec<_>>();
        let expected = [
            "needed by goal (waits-for); without db",
            "it is the goal; without db; degraded: web",
            "it is masked",
        ];
        assert_eq!(output, expected);
    }

    #[test]
    fn a_needed_completed_unit_waits() {
        let source = "unit: a\ntype: virtual\nprovides: a\nwaits-for: once, left\n\
                      unit: once\ntype: oneshot\nremain: no\nprovides: once\nexec-start: /b\n\
                      unit: left\ntype: oneshot\nprovides: left\nexec-start: /b\n";
        let settings = Settings { goal: Some(Target::new("a").unwrap()), ..Settings::default() };
        let mut system = InitState::new(graph(source), &settings).unwrap();
        let now = Timestamp::from_millis(0);
        for action in system.next_actions(now) {
            let end = match action.unit.as_str() {
                "once" => EventKind::MainExited(Exit::Status(0)),
                _ => EventKind::Skipped,
            };
            for kind in [end, EventKind::AllGone] {
                let (unit, incarnation) = (action.unit.clone(), action.incarnation);
                system.on_event(&UnitEvent { unit, incarnation, kind }, now);
                system.next_actions(now);
            }
        }
        let (_, rows) = describe_plan(Some(&system.clone()), system, now);
        let output = rows.iter().map(|row| format!("{} {}: {}", row.action, row.unit, row.why));
        let down = output.filter(|row| !row.starts_with("stay a: "));
        let expected = ["wait left: completed: no retry", "wait once: completed: no retry"];
        assert_eq!(down.collect::<Vec<_>>(), expected);
    }
}
