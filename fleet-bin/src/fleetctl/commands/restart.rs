//! `restart`: units that are stopped and started again where they are.

use fleet_core::TargetState;
use fleet_unitfile::UnitName;

use crate::fleetctl::at_once::{at_once, until_refused};
use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::follow::follow;
use crate::fleetctl::partly::all_or_partly;
use crate::fleetctl::pending::Awaited;
use crate::fleetctl::report::Action;
use crate::fleetctl::select::{Fits, select};
use crate::fleetctl::session::Session;
use crate::fleetctl::settings::Patience;
use crate::fleetctl::wait::Goal;

/// Runs the command. Nothing is restarted unless everything can be.
pub(super) async fn run(
    context: &mut Context,
    units: &[String],
    patience: Patience,
) -> Result<(), CliError> {
    let session = &context.session;
    let units = select(session, units, Fits::Launched).await?;
    CliError::all_or_none(at_once(units.iter().map(|unit| check(session, &unit.name))).await)?;
    let restarts = units.iter().map(|unit| session.restart(&unit.name));
    let generations = until_refused(restarts).await;
    let names = units.iter().map(|unit| unit.name.as_str());
    let generations = all_or_partly(names.zip(generations), "restarted")?;
    let mut awaited = Vec::new();
    for (unit, generation) in units.into_iter().zip(generations) {
        let (action, goal) = (Action::Restart, Goal::Active { generation });
        awaited.push(Awaited { name: unit.name, action, goal, is_settled: false });
    }
    follow(context, awaited, patience).await
}

async fn check(session: &Session, name: &UnitName) -> Result<(), CliError> {
    let unit = session.known_unit(name).await?;
    if unit.desired() == Some(TargetState::Launched) {
        return Ok(());
    }
    let state = if unit.problem.is_empty() { unit.desired_state } else { unit.problem };
    Err(CliError::failed(format!("cannot restart {name}: its desired state is {state}"))
        .help(format!("use \"fleetctl start {name}\"")))
}
