//! `set-target`, `reload`, `restart`, `reset-failed`, `mask` and `unmask`: change a running
//! fleet-init.

use std::io;
use std::io::Write as _;

use fleet_agent::remote::InitRequest;
use serde::Serialize;

use super::args::{ReloadArgs, RestartArgs, SetTargetArgs, UnitArgs};
use super::client::{Targets, request};
use super::{outcome, status};
use crate::ui::error::CliError;
use crate::ui::global_args::Format;
use crate::ui::output::{Output, Record};

/// Runs `set-target`.
pub(super) fn set_target(args: &SetTargetArgs) -> Result<(), CliError> {
    let goal = args.goal.to_string();
    let extra_targets = args.with.iter().map(ToString::to_string).collect();
    let action = InitRequest::SetTarget { goal: goal.clone(), extra_targets };
    let (goals, outcome) = request(&args.socket, async |init| {
        let goals: Targets = init.call(action).await?;
        let outcome = match args.no_block {
            true => Ok(None),
            false => outcome::wait(init, |head, units| outcome::of_targets(&goal, head, units))
                .await
                .map(Some),
        };
        Ok((goals, outcome))
    })?;
    one(&goals, args.output)?;
    print_line(outcome?)
}

/// Runs `reload`.
pub(super) fn reload(args: &ReloadArgs) -> Result<(), CliError> {
    let Some(unit) = args.unit.clone() else {
        let reload = InitRequest::Reload;
        let goals: Targets = request(&args.socket, async |init| Ok(init.call(reload).await?))?;
        return one(&goals, args.output);
    };
    let ask_it = InitRequest::ReloadUnit { unit: unit.clone() };
    let outcome = request(&args.socket, async |init| {
        init.call::<()>(ask_it).await?;
        Ok(match args.no_block {
            true => Ok(None),
            false => {
                outcome::wait(init, |_, units| outcome::of_reload(&unit, units)).await.map(Some)
            }
        })
    })?;
    one(&ReloadResult { unit: &unit, reloads: true }, args.output)?;
    print_line(outcome?)
}

/// Runs `restart`.
pub(super) fn restart(args: &RestartArgs) -> Result<(), CliError> {
    let name = &args.unit.unit;
    let action = InitRequest::Restart { unit: name.clone() };
    let (restarted, outcome) = request(&args.unit.socket, async |init| {
        let (_, units) = status::all(init).await?;
        let before = outcome::find(&units, name).and_then(|unit| unit.incarnation);
        let restarted = init.call(action).await?;
        let outcome = match restarted && !args.no_block {
            true => outcome::wait(init, |_, units| outcome::of_restart(name, before, units))
                .await
                .map(Some),
            false => Ok(None),
        };
        Ok((restarted, outcome))
    })?;
    if !restarted {
        let text = "was not restarted: it is neither starting nor active";
        let _unread = writeln!(io::stderr(), "{name} {text}").is_err();
    }
    one(&RestartResult { unit: name, restarted }, args.unit.output)?;
    print_line(outcome?)
}

/// Prints a successful outcome on standard error.
fn print_line(line: Option<String>) -> Result<(), CliError> {
    if let Some(line) = line {
        let _unread = writeln!(io::stderr(), "{line}").is_err();
    }
    Ok(())
}

/// Runs `reset-failed`.
pub(super) fn reset_failed(args: &UnitArgs) -> Result<(), CliError> {
    let reset = unit_action(args, InitRequest::ResetFailed { unit: args.unit.clone() })?;
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

/// Runs `mask`.
pub(super) fn mask(args: &UnitArgs) -> Result<(), CliError> {
    if !unit_action(args, InitRequest::Mask { unit: args.unit.clone() })? {
        let _unread = writeln!(io::stderr(), "{} is already masked", args.unit).is_err();
    }
    one(&MaskResult { unit: &args.unit, masked: true }, args.output)
}

/// Runs `unmask`.
pub(super) fn unmask(args: &UnitArgs) -> Result<(), CliError> {
    if !unit_action(args, InitRequest::Unmask { unit: args.unit.clone() })? {
        let _unread = writeln!(io::stderr(), "{} is not masked", args.unit).is_err();
    }
    one(&MaskResult { unit: &args.unit, masked: false }, args.output)
}

/// Sends an action for a unit. Returns whether it had an effect.
fn unit_action(args: &UnitArgs, action: InitRequest) -> Result<bool, CliError> {
    request(&args.socket, async |init| Ok(init.call(action).await?))
}

/// Result of a unit's reload, as JSON.
#[derive(Serialize)]
struct ReloadResult<'a> {
    unit: &'a str,
    /// Whether the reload was accepted.
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

/// Whether a unit is masked, as JSON.
#[derive(Serialize)]
struct MaskResult<'a> {
    unit: &'a str,
    masked: bool,
}

impl Record for MaskResult<'_> {
    fn name(&self) -> &str {
        self.unit
    }
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
