//! `stop` and `unload`: stop units that the cluster knows.

use fleet_core::{TargetState, Verb};
use fleet_unitfile::UnitName;

use crate::fleetctl::concurrent::{buffered, try_buffered};
use crate::fleetctl::follow::follow;
use crate::fleetctl::partial_failure::all_or_partial_failure;
use crate::fleetctl::report::Action;
use crate::fleetctl::resolve::change;
use crate::fleetctl::select::{DesiredFilter, select};
use crate::fleetctl::session::Session;
use crate::fleetctl::session::context::Context;
use crate::fleetctl::session::settings::WaitTimeout;
use crate::fleetctl::wait::{Goal, is_down};
use crate::fleetctl::wait_state::WaitTarget;
use crate::ui::error::CliError;

/// Runs the command. All units are checked before the first is changed.
pub(super) async fn run(
    context: &mut Context,
    verb: Verb,
    units: &[String],
    timeout: WaitTimeout,
) -> Result<(), CliError> {
    let session = &context.session;
    let units = select(session, units, DesiredFilter::Placed).await?;
    let changes = buffered(units.iter().map(|unit| prepare(session, verb, &unit.name))).await;
    let changes = units.iter().zip(CliError::all_or_none(changes)?);
    let sending = changes.map(|(unit, goal)| send(session, verb, &unit.name, goal));
    let sent = try_buffered(sending).await;
    all_or_partial_failure(units.iter().map(|unit| unit.name.as_str()).zip(sent), done(verb))?;
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

/// Sets the desired state of a unit, if the command changes it. If a loaded unit is to be stopped
/// and runs, because a timer, a socket or another unit started it, requests the end of that run.
async fn send(
    session: &Session,
    verb: Verb,
    name: &UnitName,
    goal: Option<TargetState>,
) -> Result<(), CliError> {
    match goal {
        Some(goal) => session.set_desired(name, goal).await,
        None if verb != Verb::Stop => Ok(()),
        None if session.states_of(name).await?.iter().all(is_down) => Ok(()),
        None => session.stop(name).await,
    }
}

/// Describes completed changes, for errors.
fn done(verb: Verb) -> &'static str {
    if verb == Verb::Stop { "stopped" } else { "unloaded" }
}

fn action_and_goal(verb: Verb) -> (Action, Goal) {
    match verb {
        Verb::Stop => (Action::Stop, Goal::Stopped),
        _ => (Action::Unload, Goal::Unplaced),
    }
}
