//! `stop`, `unload`, `destroy` and `restart`: change units that the cluster knows. To destroy a
//! unit that does not exist is no error, as in fleet v1.

use std::collections::BTreeSet;
use std::io;
use std::io::{IsTerminal as _, Write as _};

use fleet_core::{TargetState, Verb};
use fleet_http::client::{UnitWrites, WrittenUnits};
use fleet_unitfile::UnitName;

use super::rollout;
use super::upload::write_prepared;
use crate::fleetctl::Context;
use crate::fleetctl::args::subcommands::RestartArgs;
use crate::fleetctl::concurrent::{
    abbreviated_list, all_or_partial_failure, buffered, try_buffered,
};
use crate::fleetctl::follow::follow;
use crate::fleetctl::format::MachineLabels;
use crate::fleetctl::report::{Action, UnitOutcome, UnitReport};
use crate::fleetctl::resolve::change;
use crate::fleetctl::select::{DesiredFilter, select, selected_by_pattern};
use crate::fleetctl::session::Session;
use crate::fleetctl::session::settings::WaitTimeout;
use crate::fleetctl::wait::{Goal, is_down};
use crate::fleetctl::wait_state::WaitTarget;
use crate::ui::error::CliError;
use crate::ui::names::UnitArg;
use crate::ui::sanitize::sanitize_for_terminal;

/// Runs the command. All units are checked before the first is changed.
pub(super) async fn run(
    context: &mut Context,
    verb: Verb,
    units: &[String],
    timeout: WaitTimeout,
) -> Result<(), CliError> {
    let session = &context.session;
    let units = select(session, units, DesiredFilter::Placed).await?;
    let (goals, _) = write_prepared(session, verb.as_str(), async || {
        let goals = buffered(units.iter().map(|unit| prepare(session, verb, &unit.name))).await;
        let goals = CliError::all_or_none(goals)?;
        let writes = units.iter().zip(&goals).fold(
            UnitWrites::default(),
            |writes, (unit, goal)| match goal {
                Some(goal) => writes.set_desired(&unit.name, *goal),
                None => writes,
            },
        );
        Ok((goals, writes))
    })
    .await?;
    if verb == Verb::Stop {
        let loaded = units.iter().zip(goals).filter(|(_, goal)| goal.is_none());
        let stopping = loaded.clone().map(|(unit, _)| stop_run(session, &unit.name));
        let stopped = try_buffered(stopping).await;
        all_or_partial_failure(loaded.map(|(unit, _)| unit.name.as_str()).zip(stopped), "stopped")?;
    }
    let mut targets = Vec::new();
    for unit in &units {
        let (action, goal) = action_and_goal(verb);
        targets.push(WaitTarget { name: unit.name.clone(), action, goal, is_settled: false });
    }
    follow(context, targets, timeout).await
}

/// Checks whether the command can be applied to the unit. Returns the desired state to set, or
/// `None` for a unit that already has that state.
async fn prepare(
    session: &Session,
    verb: Verb,
    name: &UnitName,
) -> Result<Option<TargetState>, CliError> {
    let unit = session.known_unit(name).await?;
    if unit.problem.is_empty() {
        return change(verb, name, unit.desired());
    }
    let (verb, problem) = (verb.as_str(), unit.problem);
    Err(CliError::failed(format!("cannot {verb} {name}, which is broken: {problem}"))
        .help(format!("\"fleetctl destroy {name}\" deletes it")))
}

/// Requests the end of a loaded unit's run, which a timer, a socket or another unit has started.
async fn stop_run(session: &Session, name: &UnitName) -> Result<(), CliError> {
    match session.states_of(name).await?.iter().all(is_down) {
        true => Ok(()),
        false => session.stop(name).await,
    }
}

fn action_and_goal(verb: Verb) -> (Action, Goal) {
    match verb {
        Verb::Stop => (Action::Stop, Goal::Stopped),
        _ => (Action::Unload, Goal::Unplaced),
    }
}

/// Runs the command. Without `yes`, several units that patterns match require confirmation.
pub(super) async fn destroy(
    context: &mut Context,
    args: &[String],
    yes: bool,
    timeout: WaitTimeout,
) -> Result<(), CliError> {
    let units = select(&context.session, args, DesiredFilter::All).await?;
    if !yes {
        confirm_patterns(args, &units).await?;
    }
    let session = &context.session;
    let mut known_before: Option<BTreeSet<UnitName>> = None;
    let (names, _) = write_prepared(session, "destroy", async || {
        let known = buffered(units.iter().map(|unit| session.unit(&unit.name))).await;
        let known = CliError::all_or_none(known)?;
        let known = units.iter().zip(known).filter(|(_, known)| known.is_some());
        let names: Vec<&UnitName> = known.map(|(unit, _)| &unit.name).collect();
        // An attempt that failed may have destroyed some of the units.
        let before =
            known_before.get_or_insert_with(|| names.iter().copied().cloned().collect()).clone();
        Ok((before, names.into_iter().fold(UnitWrites::default(), UnitWrites::destroy)))
    })
    .await?;
    for unit in units.iter().filter(|unit| !names.contains(&unit.name)) {
        report_absent(context, &unit.name).await?;
    }
    let target = |name| {
        let (action, goal) = (Action::Destroy, Goal::Gone);
        WaitTarget { name, action, goal, is_settled: false }
    };
    follow(context, names.into_iter().map(target).collect(), timeout).await
}

/// Asks whether to destroy several units that patterns have selected.
///
/// # Errors
///
/// The answer is no, or there is no terminal to ask on.
async fn confirm_patterns(args: &[String], units: &[UnitArg]) -> Result<(), CliError> {
    let names = selected_by_pattern(args, units);
    if names.len() < 2 {
        return Ok(());
    }
    let (count, list) = (names.len(), abbreviated_list(&names));
    match confirm(&format!("Destroy {count} units: {list}?")).await? {
        Some(true) => Ok(()),
        Some(false) => Err(CliError::failed("nothing was destroyed: the answer was not \"y\"")),
        None => Err(CliError::failed(format!(
            "cannot destroy {count} units by a pattern without confirmation: {list}"
        ))
        .help("add --yes to destroy all of them")),
    }
}

/// Notes on standard error that there is no such unit, with a similar name if there is one.
async fn report_absent(context: &mut Context, name: &UnitName) -> Result<(), CliError> {
    context.progress.note(&format!("nothing to destroy: {name} is not known to the cluster"));
    if let Some(near) = context.session.suggestion(name).await {
        context.progress.note(&format!("help: {near}"));
    }
    let report = UnitReport::new(name.as_str(), Action::Destroy, UnitOutcome::Unchanged);
    let report = report.with_message("it is not known to the cluster");
    context.output.record(&report, &report.text(&MachineLabels::default()))
}

/// Runs the command. All units are checked before the first is restarted.
pub(super) async fn restart(context: &mut Context, args: RestartArgs) -> Result<(), CliError> {
    let session = &context.session;
    let units = select(session, &args.units, DesiredFilter::Launched).await?;
    let options = args.rollout.options();
    let ((), WrittenUnits { generations, rollout, .. }) =
        write_prepared(session, "restart", async || {
            let checks = units.iter().map(|unit| check(session, &unit.name));
            CliError::all_or_none(buffered(checks).await)?;
            let names = units.iter().map(|unit| &unit.name);
            let writes = options.clone().map(|options| UnitWrites::default().rollout(options));
            Ok(((), names.fold(writes.unwrap_or_default(), UnitWrites::restart)))
        })
        .await?;
    if let Some(id) = rollout {
        return rollout::follow(context, id, rollout::wait_timeout(args.wait)).await;
    }
    let mut targets = Vec::new();
    for unit in units {
        let generation = generations.get(&unit.name).map_or(0, |generation| generation.0);
        let (action, goal) = (Action::Restart, Goal::Active { generation });
        targets.push(WaitTarget { name: unit.name, action, goal, is_settled: false });
    }
    follow(context, targets, args.wait.into()).await
}

async fn check(session: &Session, name: &UnitName) -> Result<(), CliError> {
    let unit = session.known_unit(name).await?;
    if unit.desired() > Some(TargetState::Inactive) {
        return Ok(());
    }
    if !unit.problem.is_empty() {
        return Err(CliError::failed(format!(
            "cannot restart {name}, which is broken: {}",
            unit.problem
        ))
        .help("replace its file with \"fleetctl submit --replace FILE\""));
    }
    let state = unit.desired_state;
    Err(CliError::failed(format!("cannot restart {name}: its desired state is {state}"))
        .help(format!("\"fleetctl start {name}\" starts it")))
}

/// Asks a question on standard error, and reads the answer from standard input.
///
/// Returns `None` without a terminal, and otherwise whether the answer is yes.
pub(crate) async fn confirm(question: &str) -> Result<Option<bool>, CliError> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(None);
    }
    let question = sanitize_for_terminal(question);
    // If the question cannot be printed, the answer cannot be yes.
    write!(io::stderr(), "{question} [y/N] ")?;
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map(|_length| answer)
    });
    let answer = answer.await.map_err(io::Error::other).flatten();
    let answer =
        answer.map_err(|error| CliError::failed("cannot read the answer").because(error))?;
    Ok(Some(is_yes(&answer)))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for (answer, expected) in
            [("y\n", true), ("Yes\r\n", true), ("", false), ("\n", false), ("no\n", false)]
        {
            assert_eq!(is_yes(answer), expected, "{answer:?}");
        }
    }
}
