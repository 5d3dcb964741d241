//! `destroy`: stops units and deletes them. Units that do not exist are no error, as in fleet v1.

use fleet_unitfile::UnitName;

use crate::fleetctl::concurrent::{buffered, try_buffered};
use crate::fleetctl::confirm::confirm;
use crate::fleetctl::follow::follow;
use crate::fleetctl::format::MachineLabels;
use crate::fleetctl::partial_failure::{abbreviated_list, all_or_partial_failure};
use crate::fleetctl::report::{Action, UnitOutcome, UnitReport};
use crate::fleetctl::select::{DesiredFilter, select, selected_by_pattern};
use crate::fleetctl::session::context::Context;
use crate::fleetctl::session::settings::WaitTimeout;
use crate::fleetctl::wait::Goal;
use crate::fleetctl::wait_state::WaitTarget;
use crate::ui::error::CliError;
use crate::ui::names::UnitArg;

/// Runs the command. Without `yes`, several units that patterns match require confirmation.
pub(super) async fn run(
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
    let known = buffered(units.iter().map(|unit| session.unit(&unit.name))).await;
    let known = CliError::all_or_none(known)?;
    let (known, absent): (Vec<_>, Vec<_>) =
        units.into_iter().zip(known).partition(|(_, known)| known.is_some());
    let names: Vec<UnitName> = known.into_iter().map(|(unit, _)| unit.name).collect();
    // Another client may have destroyed a unit already.
    let sent = try_buffered(names.iter().map(|name| session.destroy(name))).await;
    all_or_partial_failure(names.iter().map(UnitName::as_str).zip(sent), "destroyed")?;
    for (unit, _) in absent {
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
