//! `stop`, `unload` and `destroy`: units that the cluster has to know.

use fleet_core::{TargetState, Verb};
use fleet_unitfile::UnitName;

use crate::fleetctl::at_once::{at_once, until_refused};
use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::follow::follow;
use crate::fleetctl::partly::all_or_partly;
use crate::fleetctl::pending::Awaited;
use crate::fleetctl::report::Action;
use crate::fleetctl::resolve::change;
use crate::fleetctl::select::{Fits, select};
use crate::fleetctl::session::Session;
use crate::fleetctl::settings::Patience;
use crate::fleetctl::wait::Goal;

/// Runs the command. Nothing is changed unless it makes sense for every unit.
pub(super) async fn run(
    context: &mut Context,
    verb: Verb,
    units: &[String],
    patience: Patience,
) -> Result<(), CliError> {
    let fits = if verb == Verb::Destroy { Fits::All } else { Fits::Placed };
    let session = &context.session;
    let units = select(session, units, fits).await?;
    let changes = at_once(units.iter().map(|unit| prepare(session, verb, &unit.name))).await;
    let changes = units.iter().zip(CliError::all_or_none(changes)?);
    let sending = changes.map(|(unit, goal)| send(session, verb, &unit.name, goal));
    let sent = until_refused(sending).await;
    all_or_partly(units.iter().map(|unit| unit.name.as_str()).zip(sent), done(verb))?;
    let mut awaited = Vec::new();
    for unit in &units {
        let (action, goal) = waits_for(verb);
        awaited.push(Awaited { name: unit.name.clone(), action, goal, is_settled: false });
    }
    follow(context, awaited, patience).await
}

/// The desired state that a unit is to get; `None` where it has it, and for one to be destroyed.
async fn prepare(
    session: &Session,
    verb: Verb,
    name: &UnitName,
) -> Result<Option<TargetState>, CliError> {
    let unit = session.known_unit(name).await?;
    match verb {
        // What cannot be understood can still be destroyed.
        Verb::Destroy => Ok(None),
        _ if !unit.problem.is_empty() => {
            Err(CliError::failed(format!("{name} cannot be understood: {}", unit.problem))
                .help(format!("\"fleetctl destroy {name}\" takes it away")))
        }
        _ => change(verb, name, unit.desired()),
    }
}

async fn send(
    session: &Session,
    verb: Verb,
    name: &UnitName,
    goal: Option<TargetState>,
) -> Result<(), CliError> {
    match (verb, goal) {
        // Somebody else was faster: it is gone all the same.
        (Verb::Destroy, _) => session.destroy(name).await.map(drop),
        (_, Some(goal)) => session.set_desired(name, goal).await,
        (_, None) => Ok(()),
    }
}

/// What becomes of units, as an error tells it.
fn done(verb: Verb) -> &'static str {
    match verb {
        Verb::Stop => "stopped",
        Verb::Destroy => "destroyed",
        _ => "unloaded",
    }
}

fn waits_for(verb: Verb) -> (Action, Goal) {
    match verb {
        Verb::Stop => (Action::Stop, Goal::Stopped),
        Verb::Destroy => (Action::Destroy, Goal::Gone),
        _ => (Action::Unload, Goal::Unplaced),
    }
}
