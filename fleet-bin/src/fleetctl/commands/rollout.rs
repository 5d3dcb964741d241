//! `rollout`: shows and controls rollouts. Other commands wait here for the rollout that they have
//! requested.

use std::collections::BTreeSet;
use std::time::Duration;

use fleet_agent::Clock as _;
use fleet_core::TargetState;
use fleet_core::rollout::{RolloutId, RolloutRequest};
use fleet_http::wire::{RolloutEntity, RolloutMember, RolloutOptions};
use fleet_unitfile::UnitName;

use crate::fleetctl::Context;
use crate::fleetctl::args::WaitArgs;
use crate::fleetctl::args::rollout::{RolloutArgs, RolloutCommand, RolloutStatusArgs};
use crate::fleetctl::format::{short_hash, short_machine};
use crate::fleetctl::job_follow::OUTAGE;
use crate::fleetctl::manifest_diff::{UnitChange, UnitDiff};
use crate::fleetctl::session::Session;
use crate::fleetctl::session::settings::WaitTimeout;
use crate::ui::error::{CliError, Exit};
use crate::ui::names::unit_arg;
use crate::ui::output::Record;
use crate::ui::table::{cell, layout, painted};
use crate::ui::time::date;

/// Pause between two polls.
const PAUSE: Duration = Duration::from_millis(250);

impl Record for RolloutEntity {
    fn name(&self) -> &'static str {
        "rollout"
    }
}

/// Runs the command.
pub(super) async fn run(context: &mut Context, command: RolloutCommand) -> Result<Exit, CliError> {
    let (name, request, verb) = match command {
        RolloutCommand::Status(args) => return status(context, &args).await,
        RolloutCommand::Pause(args) => (args.rollout, RolloutRequest::Pause, "pause"),
        RolloutCommand::Resume(args) => (args.rollout, RolloutRequest::Resume, "resume"),
        RolloutCommand::Abort(args) if args.rollback => {
            (args.name.rollout, RolloutRequest::RollBack, "roll back")
        }
        RolloutCommand::Abort(args) => (args.name.rollout, RolloutRequest::Abort, "abort"),
    };
    let rollout = find(&context.session, name.as_deref()).await?;
    let id = rollout.rollout_id();
    let rollout = context.session.request_rollout(id, request, verb).await?;
    context.output.record(&rollout, &(summary(&rollout) + "\n"))?;
    context.output.finish()?;
    Ok(Exit::Success)
}

/// Runs `rollout status`.
async fn status(context: &mut Context, args: &RolloutStatusArgs) -> Result<Exit, CliError> {
    if args.wait {
        let rollout = find(&context.session, args.rollout.as_deref()).await?;
        follow(context, rollout.rollout_id(), WaitTimeout::Unlimited).await?;
        return Ok(Exit::Success);
    }
    if let Some(name) = &args.rollout {
        let rollout = find(&context.session, Some(name)).await?;
        context.output.record(&rollout, &details(&rollout))?;
        context.output.finish()?;
        return Ok(Exit::Success);
    }
    let rollouts = context.session.rollouts().await?;
    let cells: Vec<Vec<String>> = rollouts.iter().map(row).collect();
    let headings = &["rollout", "phase", "updated", "requested", "units"];
    let table = painted(headings, true, &cells, context.output.table_style());
    context.output.list(&rollouts, &table)?;
    Ok(Exit::Success)
}

/// Finds the rollout that an argument names: by its number, or the last one of a unit. Without an
/// argument, finds the only one that has not ended.
async fn find(session: &Session, arg: Option<&str>) -> Result<RolloutEntity, CliError> {
    if let Some(id) = arg.and_then(|arg| arg.parse::<RolloutId>().ok()) {
        return session.rollout(id).await;
    }
    let rollouts = session.rollouts().await?;
    let Some(arg) = arg else {
        let mut current = rollouts.into_iter().filter(|it| !it.has_ended);
        return match (current.next(), current.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(CliError::failed("no rollout is in progress")
                .help("\"fleetctl rollout status\" lists those that have ended")),
            (Some(_), Some(_)) => Err(CliError::usage("several rollouts are in progress")
                .help("give the number of one; \"fleetctl rollout status\" lists them")),
        };
    };
    let name = unit_arg(arg)?.name;
    let of_unit = rollouts.into_iter().filter(|it| updates(it, &name));
    let last = of_unit.max_by_key(|it| (!it.has_ended, it.id));
    last.ok_or_else(|| {
        CliError::failed(format!("no rollout updates {name}"))
            .help("\"fleetctl rollout status\" lists the rollouts")
    })
}

/// Returns whether a rollout has this unit, or instances of this template, as members.
fn updates(rollout: &RolloutEntity, name: &UnitName) -> bool {
    rollout.members.iter().any(|member| {
        let unit = UnitName::parse(&member.unit).ok();
        unit.is_some_and(|unit| unit == *name || unit.template().as_ref() == Some(name))
    })
}

/// Returns the time to wait for a rollout, which has no limit unless the user gives one.
pub(super) fn wait_timeout(args: WaitArgs) -> WaitTimeout {
    let is_limited = args.no_block || args.wait_timeout.is_some() || args.block_attempts.is_some();
    if is_limited { args.into() } else { WaitTimeout::Unlimited }
}

/// Returns the options of the rollout that makes the changes; `None` if they are made at once. By
/// default, a rollout updates several running instances of one template.
pub(super) fn options_for(args: &RolloutArgs, changed: &[&UnitDiff]) -> Option<RolloutOptions> {
    let is_updated = |unit: &&&UnitDiff| {
        unit.change() == UnitChange::Replace
            && !unit.is_job_or_schedule()
            && unit.desired == TargetState::Launched
            && unit.current_desired() == "launched"
    };
    let mut templates = BTreeSet::new();
    let mut of_updated = changed.iter().filter(is_updated).filter_map(|unit| unit.name.template());
    let has_two = of_updated.any(|template| !templates.insert(template));
    args.options().or_else(|| has_two.then(RolloutOptions::default))
}

/// Returns whether a rollout would have members. Jobs and schedules are written at once.
pub(super) fn has_members(changed: &[&UnitDiff]) -> bool {
    changed.iter().any(|unit| unit.desired == TargetState::Launched && !unit.is_job_or_schedule())
}

/// Announces the rollout of a plan.
pub(super) fn note(options: &RolloutOptions) -> String {
    let at_once = options.at_once.as_deref().unwrap_or("1");
    format!("the units that are to run are updated in batches of {at_once}")
}

/// Waits until a rollout has ended, and reports each change of its progress.
///
/// # Errors
///
/// The rollout did not complete, the time is over, or the user pressed Ctrl-C.
pub(super) async fn follow(
    context: &mut Context,
    id: RolloutId,
    timeout: WaitTimeout,
) -> Result<(), CliError> {
    let continues =
        format!("the rollout continues; \"fleetctl rollout status {id}\" shows its progress");
    let deadline = match timeout {
        WaitTimeout::None => {
            let rollout = context.session.rollout(id).await?;
            context.output.record(&rollout, &(summary(&rollout) + "\n"))?;
            context.output.finish()?;
            context.progress.note(&continues);
            return Ok(());
        }
        WaitTimeout::For(limit) => Some(context.clock.now().after(limit)),
        WaitTimeout::Unlimited => None,
    };
    let (mut last, mut answered) = (String::new(), context.clock.now());
    let rollout = loop {
        let rollout = context.session.rollout(id).await;
        let now = context.clock.now();
        let rollout = match rollout {
            // The daemon may be restarting.
            Err(error) if !error.is_final_answer() && now.since(answered) < OUTAGE => {
                context.clock.sleep_until(now.after(PAUSE)).await;
                continue;
            }
            rollout => rollout.map_err(|error| error.help(continues.clone()))?,
        };
        answered = now;
        let line = summary(&rollout);
        if rollout.has_ended {
            break rollout;
        }
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Err(CliError::failed(format!("{line} within the time limit")).help(continues));
        }
        context.progress.show(&line);
        if rollout.phase != last && rollout.phase != "running" {
            context.progress.note(&format!("rollout {id} is {}", rollout.text));
        }
        last = rollout.phase;
        let wake = deadline.map_or(now.after(PAUSE), |deadline| now.after(PAUSE).min(deadline));
        tokio::select! {
            () = context.clock.sleep_until(wake) => {}
            Ok(()) = tokio::signal::ctrl_c() => {
                context.progress.clear();
                return Err(CliError::interrupted(format!("interrupted: {continues}")));
            }
        }
    };
    context.progress.clear();
    let is_complete = rollout.phase == "completed";
    context.output.record(&rollout, &(summary(&rollout) + "\n"))?;
    context.output.finish()?;
    let superseded = count(&rollout.members, "superseded");
    if is_complete && superseded > 0 {
        let text = format!("{superseded} units were changed by another command meanwhile");
        return Err(CliError::failed(text).help("run the same command again to update them"));
    }
    if is_complete {
        return Ok(());
    }
    Err(CliError::failed(format!("rollout {id} is {}", rollout.text))
        .help(format!("\"fleetctl rollout status {id}\" shows each unit")))
}

/// Describes the progress in one line.
fn summary(rollout: &RolloutEntity) -> String {
    let RolloutEntity { id, phase, members, .. } = rollout;
    let superseded = count(members, "superseded");
    let others = match superseded {
        0 => String::new(),
        _ => format!(", {superseded} changed by another command"),
    };
    format!(
        "rollout {id} is {phase}: {} of {} updated{others}",
        count(members, "updated"),
        members.len()
    )
}

fn count(members: &[RolloutMember], state: &str) -> usize {
    members.iter().filter(|member| member.state == state).count()
}

fn row(rollout: &RolloutEntity) -> Vec<String> {
    let members = &rollout.members;
    let first = members.first().map(|member| member.unit.as_str()).unwrap_or_default();
    let units = match members.len() {
        0 | 1 => first.to_owned(),
        count => format!("{first} and {} more", count - 1),
    };
    vec![
        rollout.id.to_string(),
        rollout.phase.clone(),
        format!("{}/{}", count(members, "updated"), members.len()),
        cell(Some(date(rollout.requested_at))),
        units,
    ]
}

/// Describes a rollout with its members.
fn details(rollout: &RolloutEntity) -> String {
    let RolloutEntity { id, text, at_once, min_available, settle_ms, deadline_ms, .. } = rollout;
    let (settle, deadline) =
        (Duration::from_millis(*settle_ms), Duration::from_millis(*deadline_ms));
    let head = format!(
        "Rollout {id} is {text}\n\
         At once: {at_once}, at least healthy: {min_available}, settle: {settle:?}, deadline: \
         {deadline:?}\n\n"
    );
    let cells: Vec<Vec<String>> = rollout.members.iter().map(member_row).collect();
    head + &layout(&["unit", "state", "health", "from", "to"], true, &cells)
}

fn member_row(member: &RolloutMember) -> Vec<String> {
    let RolloutMember { unit, machine_id, state, health, from_hash, to_hash, .. } = member;
    let unit = match machine_id.as_str() {
        "" => unit.clone(),
        machine => format!("{unit} on {}", short_machine(machine)),
    };
    let from = from_hash.as_ref().map(|hash| short_hash(hash));
    let health = Some(health.clone()).filter(|health| !health.is_empty());
    vec![unit, state.clone(), cell(health), cell(from), short_hash(to_hash)]
}
