//! `set-target`, `reload` and `reset`: what can be changed of a fleet-init that runs.

use std::io::{self, Write as _};

use super::args::{ResetArgs, SetTargetArgs, SocketArgs};
use super::asking::{ask, read};
use super::asks::Ask;
use crate::fleetctl::error::CliError;

/// Runs `set-target`.
pub(super) fn set_target(args: &SetTargetArgs) -> Result<(), CliError> {
    let goal = args.goal.to_string();
    let beside = args.with.iter().map(ToString::to_string).collect();
    ask(&args.socket, async |init| init.all(Ask::SetTarget { goal, beside }).await)?;
    Ok(())
}

/// Runs `reload`.
pub(super) fn reload(args: &SocketArgs) -> Result<(), CliError> {
    ask(args, async |init| init.all(Ask::Reload).await)?;
    Ok(())
}

/// Runs `reset`.
pub(super) fn reset(args: &ResetArgs) -> Result<(), CliError> {
    let unit = args.unit.clone();
    let items = ask(&args.socket, async |init| init.all(Ask::Reset { unit }).await)?;
    let forgot = items.into_iter().next().map(read::<bool>).transpose()?;
    if forgot == Some(false) {
        let _unread = writeln!(io::stderr(), "{} has not failed or ended", args.unit).is_err();
    }
    Ok(())
}
