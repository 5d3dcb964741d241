//! `restart`: units that are stopped and started again where they are.

use fleet_core::TargetState;
use fleet_unitfile::UnitName;

use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::follow::follow;
use crate::fleetctl::names::unit_args;
use crate::fleetctl::pending::Awaited;
use crate::fleetctl::report::Action;
use crate::fleetctl::session::Session;
use crate::fleetctl::settings::Patience;
use crate::fleetctl::wait::Goal;

/// Runs the command. Nothing is restarted unless everything can be.
pub(super) async fn run(
    context: &mut Context,
    units: &[String],
    patience: Patience,
) -> Result<(), CliError> {
    let (mut names, mut errors) = (Vec::new(), Vec::new());
    for unit in unit_args(units)? {
        match check(&context.session, &unit.name).await {
            Ok(()) => names.push(unit.name),
            Err(error) => errors.push(error),
        }
    }
    CliError::of_all(errors)?;
    let mut awaited = Vec::new();
    for name in names {
        let generation = context.session.restart(&name).await?;
        let (action, goal) = (Action::Restart, Goal::Active { generation });
        awaited.push(Awaited { name, action, goal, is_settled: false });
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
