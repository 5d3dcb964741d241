//! `restart`: restarts units on their machines, and starts loaded ones.

use fleet_core::TargetState;
use fleet_unitfile::UnitName;

use crate::fleetctl::concurrent::{buffered, try_buffered};
use crate::fleetctl::follow::follow;
use crate::fleetctl::partial_failure::all_or_partial_failure;
use crate::fleetctl::report::Action;
use crate::fleetctl::select::{DesiredFilter, select};
use crate::fleetctl::session::Session;
use crate::fleetctl::session::context::Context;
use crate::fleetctl::session::settings::WaitTimeout;
use crate::fleetctl::wait::Goal;
use crate::fleetctl::wait_state::WaitTarget;
use crate::ui::error::CliError;

/// Runs the command. All units are checked before the first is restarted.
pub(super) async fn run(
    context: &mut Context,
    units: &[String],
    timeout: WaitTimeout,
) -> Result<(), CliError> {
    let session = &context.session;
    let units = select(session, units, DesiredFilter::Launched).await?;
    CliError::all_or_none(buffered(units.iter().map(|unit| check(session, &unit.name))).await)?;
    let restarts = units.iter().map(|unit| session.restart("restart", &unit.name));
    let generations = try_buffered(restarts).await;
    let names = units.iter().map(|unit| unit.name.as_str());
    let generations = all_or_partial_failure(names.zip(generations), "restarted")?;
    let mut targets = Vec::new();
    for (unit, generation) in units.into_iter().zip(generations) {
        let (action, goal) = (Action::Restart, Goal::Active { generation });
        targets.push(WaitTarget { name: unit.name, action, goal, is_settled: false });
    }
    follow(context, targets, timeout).await
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
