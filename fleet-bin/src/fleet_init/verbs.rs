//! `set-target`, `reload`, `restart` and `reset-failed`: change a running fleet-init.

use std::io::{self, Write as _};

use serde::Serialize;

use super::args::{ReloadArgs, SetTargetArgs, SocketArgs, UnitArgs};
use super::client::{read, request};
use super::protocol::{Request, Targets};
use crate::fleetctl::error::CliError;
use crate::fleetctl::global_args::Format;
use crate::fleetctl::output::{Output, Record};

/// Runs `set-target`.
pub(super) fn set_target(args: &SetTargetArgs) -> Result<(), CliError> {
    let goal = args.goal.to_string();
    let extra_targets = args.with.iter().map(ToString::to_string).collect();
    change(&args.socket, Request::SetTarget { goal, extra_targets }, args.output)
}

/// Runs `reload`.
pub(super) fn reload(args: &ReloadArgs) -> Result<(), CliError> {
    let Some(unit) = args.unit.clone() else {
        return change(&args.socket, Request::Reload, args.output);
    };
    let ask_it = Request::ReloadUnit { unit: unit.clone() };
    request(&args.socket, async |init| init.request_all(ask_it).await)?;
    one(&ReloadResult { unit: &unit, reloads: true }, args.output)
}

/// Runs `restart`.
pub(super) fn restart(args: &UnitArgs) -> Result<(), CliError> {
    let restarted = unit_action(args, Request::Restart { unit: args.unit.clone() })?;
    if !restarted {
        let text = "was not restarted: it is neither starting nor active";
        let _unread = writeln!(io::stderr(), "{} {text}", args.unit).is_err();
    }
    one(&RestartResult { unit: &args.unit, restarted }, args.output)
}

/// Sends a change and prints the new targets.
fn change(socket: &SocketArgs, action: Request, format: Format) -> Result<(), CliError> {
    let items = request(socket, async |init| init.request_all(action).await)?;
    let goals = items.into_iter().next().map(read::<Targets>).transpose()?;
    one(&goals.unwrap_or_default(), format)
}

/// Runs `reset-failed`.
pub(super) fn reset_failed(args: &UnitArgs) -> Result<(), CliError> {
    let reset = unit_action(args, Request::ResetFailed { unit: args.unit.clone() })?;
    if !reset {
        let _unread = writeln!(
            io::stderr(),
            "{} has neither failed nor completed: nothing was reset",
            args.unit
        )
        .is_err();
    }
    one(&ResetResult { unit: &args.unit, reset }, args.output)
}

/// Sends an action for a unit. Returns whether it had an effect.
fn unit_action(args: &UnitArgs, action: Request) -> Result<bool, CliError> {
    let items = request(&args.socket, async |init| init.request_all(action).await)?;
    Ok(items.into_iter().next().map(read::<bool>).transpose()?.unwrap_or(true))
}

/// Result of a unit's reload, as JSON.
#[derive(Serialize)]
struct ReloadResult<'a> {
    unit: &'a str,
    /// The reload has begun; the unit's state shows how it ends.
    reloads: bool,
}

/// Result of a restart, as JSON.
#[derive(Serialize)]
struct RestartResult<'a> {
    unit: &'a str,
    /// Whether the unit was starting or active.
    restarted: bool,
}

/// Result of a reset, as JSON.
#[derive(Serialize)]
struct ResetResult<'a> {
    unit: &'a str,
    /// Whether there was anything to reset.
    reset: bool,
}

impl Record for ReloadResult<'_> {
    fn name(&self) -> &str {
        self.unit
    }
}

impl Record for RestartResult<'_> {
    fn name(&self) -> &str {
        self.unit
    }
}

impl Record for ResetResult<'_> {
    fn name(&self) -> &str {
        self.unit
    }
}

/// Prints one result as a record. The table format prints nothing.
fn one<R: Record>(result: &R, format: Format) -> Result<(), CliError> {
    Output::on_stdout(format).list(std::slice::from_ref(result), "")
}
