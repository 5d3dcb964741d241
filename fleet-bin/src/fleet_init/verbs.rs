//! `set-target`, `reload` and `reset`: what can be changed of a fleet-init that runs.

use std::io::{self, Write as _};

use serde::Serialize;

use super::args::{ReloadArgs, ResetArgs, SetTargetArgs, SocketArgs};
use super::asking::{ask, read};
use super::asks::{Ask, Goals};
use crate::fleetctl::error::CliError;
use crate::fleetctl::global_args::Format;
use crate::fleetctl::output::{Output, Record};

/// Runs `set-target`.
pub(super) fn set_target(args: &SetTargetArgs) -> Result<(), CliError> {
    let goal = args.goal.to_string();
    let beside = args.with.iter().map(ToString::to_string).collect();
    change(&args.socket, Ask::SetTarget { goal, beside }, args.output)
}

/// Runs `reload`.
pub(super) fn reload(args: &ReloadArgs) -> Result<(), CliError> {
    change(&args.socket, Ask::Reload, args.output)
}

/// Has something changed, and tells what is wanted from then on.
fn change(socket: &SocketArgs, what: Ask, format: Format) -> Result<(), CliError> {
    let items = ask(socket, async |init| init.all(what).await)?;
    let goals = items.into_iter().next().map(read::<Goals>).transpose()?;
    one(&goals.unwrap_or_default(), format)
}

/// Runs `reset`.
pub(super) fn reset(args: &ResetArgs) -> Result<(), CliError> {
    let unit = args.unit.clone();
    let items = ask(&args.socket, async |init| init.all(Ask::Reset { unit }).await)?;
    let forgot = items.into_iter().next().map(read::<bool>).transpose()?.unwrap_or(true);
    if !forgot {
        let _unread = writeln!(io::stderr(), "{} has not failed or ended", args.unit).is_err();
    }
    one(&Reset { unit: &args.unit, forgot }, args.output)
}

/// What came of a reset, as JSON.
#[derive(Serialize)]
struct Reset<'a> {
    unit: &'a str,
    /// Whether there was something to forget.
    forgot: bool,
}

impl Record for Reset<'_> {
    fn name(&self) -> &str {
        self.unit
    }
}

/// Prints one result. People are told nothing of what went as they asked for.
fn one<R: Record>(result: &R, format: Format) -> Result<(), CliError> {
    Output::on_stdout(format).list(std::slice::from_ref(result), "")
}
