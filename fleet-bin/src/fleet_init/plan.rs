//! `plan` prints what would start, stop and restart, in which order and why. `check` reports
//! everything that is wrong in the files.

use std::io;
use std::io::Write;

use fleet_agent::remote::{InitFileWire, InitRequest, RequestError};
use fleet_core::Timestamp;
use fleet_core::graph::format::Code;
use fleet_core::graph::{InitState, Observation, Settings, Target};
use fleet_unitfile::Severity;

use super::args::{CheckArgs, PlanArgs};
use super::client::request_if_running;
use super::files::Files;
use super::protocol::{PlannedUnit, Targets};
use super::{files, paths, plan_text};
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
    Ok(plan_text::describe_plan(None, system, now))
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
