//! `submit`, `load` and `start`: create units if necessary, and load or start them.
//!
//! Each command makes all its checks before it sends the first request that changes something. It
//! uploads all files before it changes any desired state.

use fleet_agent::is_wait_reason;
use fleet_core::{TargetState, Verb};
use fleet_http::wire;
use fleet_unitfile::{UnitFile, UnitName};

use super::upload::{UploadStep, send_contents};
use crate::fleetctl::Context;
use crate::fleetctl::args::{CreateArgs, WaitUntil};
use crate::fleetctl::concurrent::{all_or_partial_failure, buffered, try_buffered};
use crate::fleetctl::diagnosis::is_stopped_by_hand;
use crate::fleetctl::follow::follow;
use crate::fleetctl::format::MachineLabels;
use crate::fleetctl::local::{LocalUnit, read_units};
use crate::fleetctl::manager_check::check_managers;
use crate::fleetctl::report::{Action, UnitOutcome, UnitReport};
use crate::fleetctl::resolve::{
    ContentAction, ContentSource, change, content, unused_file_warning,
};
use crate::fleetctl::select::{DesiredFilter, select};
use crate::fleetctl::session::settings::WaitTimeout;
use crate::fleetctl::session::{Session, source};
use crate::fleetctl::wait::{Goal, Observation};
use crate::fleetctl::wait_state::WaitTarget;
use crate::ui::error::CliError;
use crate::ui::findings::check;

/// Runs `submit`.
pub(super) async fn submit(context: &mut Context, args: &CreateArgs) -> Result<(), CliError> {
    let steps = prepare(context, Verb::Submit, args).await?;
    send_contents(&context.session, &steps).await?;
    for step in &steps {
        let outcome = match step.content {
            ContentAction::Keep => UnitOutcome::Unchanged,
            ContentAction::Create(_) | ContentAction::Replace(_) => UnitOutcome::Reached,
        };
        let unit = context.session.unit(&step.name).await?;
        let observation = Observation { unit, ..Observation::default() };
        let report = UnitReport::new(step.name.as_str(), Action::Submit, outcome)
            .with_observation(&observation);
        context.output.record(&report, &report.text(&MachineLabels::default()))?;
    }
    context.output.finish()
}

/// Runs `load` or `start`.
pub(super) async fn run(
    context: &mut Context,
    verb: Verb,
    args: &CreateArgs,
    until: WaitUntil,
    timeout: WaitTimeout,
) -> Result<(), CliError> {
    let steps = prepare(context, verb, args).await?;
    send_contents(&context.session, &steps).await?;
    let session = &context.session;
    let activated = try_buffered(steps.iter().map(|step| activate(session, verb, step))).await;
    let names: Vec<UnitName> = steps.iter().map(|step| step.name.clone()).collect();
    let done = if verb == Verb::Load { "loaded" } else { "launched" };
    let activated =
        all_or_partial_failure(names.iter().map(UnitName::as_str).zip(activated), done)?;
    let mut targets = Vec::new();
    for (step, activation) in steps.into_iter().zip(activated) {
        if activation == Activation::AlreadyEnded {
            let name = &step.name;
            context.progress.note(&format!(
                "{name} is not running: it has ended, or was stopped on its machine\nhelp: \
                 \"fleetctl restart {name}\" runs it again"
            ));
        }
        let restarted = match activation {
            Activation::Restarted(generation) => Some(generation),
            Activation::Requested | Activation::AlreadyEnded => None,
        };
        let is_settled = step.is_up_to_date() && restarted.is_none();
        let generation = restarted.unwrap_or(0);
        let (action, goal) = match verb {
            Verb::Load => (Action::Load, Goal::Loaded),
            _ => (Action::Start, Goal::for_start(until, generation)),
        };
        targets.push(WaitTarget { name: step.name, action, goal, is_settled });
    }
    follow(context, targets, timeout).await
}

/// Returns the steps for each unit. Changes nothing.
///
/// # Errors
///
/// The errors of all units, combined into one.
async fn prepare(
    context: &mut Context,
    verb: Verb,
    args: &CreateArgs,
) -> Result<Vec<UploadStep>, CliError> {
    let units = select(&context.session, &args.units, DesiredFilter::All).await?;
    let units = read_units(units)?.checked(&mut context.progress)?.into_iter();
    let session = &context.session;
    let steps = buffered(units.map(|unit| prepare_unit(session, verb, unit, args.replace))).await;
    let (steps, warnings): (Vec<_>, Vec<_>) = CliError::all_or_none(steps)?.into_iter().unzip();
    warnings.iter().flatten().for_each(|warning| context.progress.note(warning));
    if !args.verification.no_verify {
        let changed = steps.iter().filter(|step| !step.is_up_to_date());
        check_managers(context, changed.map(UploadStep::to_check).collect()).await?;
    }
    Ok(steps)
}

/// Returns the steps for one unit, and the warning about a local file that is not used.
async fn prepare_unit(
    session: &Session,
    verb: Verb,
    unit: LocalUnit,
    replace: bool,
) -> Result<(UploadStep, Option<String>), CliError> {
    let known = session.unit(&unit.name).await?;
    let template = match unit.name.template() {
        Some(template) if known.is_none() && unit.file.is_none() => session.unit(&template).await?,
        _ => None,
    };
    let content = match content(verb, &unit, known.as_ref(), template.is_some(), replace) {
        Err(error) if known.is_none() => match session.suggestion(&unit.name).await {
            Some(near) => return Err(error.help(near)),
            None => return Err(error),
        },
        content => content?,
    };
    let from = match (&known, &content) {
        (Some(known), _) => known.desired(),
        // The unit is submitted, and thus inactive, before its state changes.
        (None, _) if verb == Verb::Submit => None,
        (None, _) => Some(TargetState::Inactive),
    };
    let goal = change(verb, &unit.name, from)?;
    let file = file_to_send(&unit.name, &content, template.as_ref())?;
    let warning = unused_file_warning(&unit, known.as_ref(), replace);
    Ok((UploadStep { name: unit.name, known, content, file, goal }, warning))
}

fn file_to_send(
    name: &UnitName,
    content: &ContentAction,
    template: Option<&wire::UnitEntity>,
) -> Result<Option<UnitFile>, CliError> {
    match (content, template) {
        (ContentAction::Keep, _) => Ok(None),
        (
            ContentAction::Create(ContentSource::Local(local))
            | ContentAction::Replace(ContentSource::Local(local)),
            _,
        ) => Ok(Some(local.file.clone())),
        (_, Some(template)) => instance_of(name, template).map(Some),
        (_, None) => {
            Err(CliError::failed(format!("cannot create {name}: its template no longer exists")))
        }
    }
}

/// Returns the file of a template as the file of its instance. Returns an error if the file is
/// invalid under the name of the instance, even if it is valid for the template.
fn instance_of(name: &UnitName, template: &wire::UnitEntity) -> Result<UnitFile, CliError> {
    let (file, findings) = check(template.name.as_ref(), name, &source(template)?);
    file.ok_or_else(|| {
        let error = CliError::failed(format!("cannot create {name} from its template"));
        findings.iter().fold(error, |error, finding| error.help(finding.to_string()))
    })
}

/// What a command has done about the state of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activation {
    /// The unit has the desired state of the command.
    Requested,
    /// The unit had that state already, and a restart of this generation was requested.
    Restarted(u64),
    /// The unit had that state already, but its run has ended. Nothing was requested.
    AlreadyEnded,
}

/// Sets the desired state of a unit, if the command changes it. If neither the file nor the desired
/// state changes, but the unit has failed, was stopped by hand, or was not started because of a
/// condition, `start` requests a restart instead. A unit that has completed its work is left alone,
/// so that repeated starts of a oneshot run it once.
async fn activate(
    session: &Session,
    verb: Verb,
    step: &UploadStep,
) -> Result<Activation, CliError> {
    if let Some(goal) = step.goal {
        session.set_desired(&step.name, goal).await?;
    } else if verb == Verb::Start && step.is_up_to_date() {
        let states = session.states_of(&step.name).await?;
        let was_skipped = |state: &wire::UnitStateEntity| {
            let problem = &state.problem;
            is_idle(state) && !problem.is_empty() && !is_wait_reason(problem)
        };
        if needs_restart(&states) || (!states.is_empty() && states.iter().all(was_skipped)) {
            let generation = session.restart(verb.as_str(), &step.name).await?;
            return Ok(Activation::Restarted(generation));
        }
        // A unit without an exit status has not run: it may wait for other units.
        let has_ended = |state: &wire::UnitStateEntity| is_idle(state) && !state.exit.is_empty();
        if !states.is_empty() && states.iter().all(has_ended) {
            return Ok(Activation::AlreadyEnded);
        }
    }
    Ok(Activation::Requested)
}

/// Returns whether a machine was requested to start a unit that is inactive.
fn is_idle(state: &wire::UnitStateEntity) -> bool {
    state.requested_state == "launched" && state.systemd_active_state == "inactive"
}

/// Returns whether all machines that report the unit report it as failed, or as stopped by hand.
/// Only then does `start` restart the unit, so a global unit that still runs on some machine is
/// left alone.
pub(super) fn needs_restart(states: &[wire::UnitStateEntity]) -> bool {
    let needs = |state: &wire::UnitStateEntity| {
        state.systemd_active_state == "failed" || is_stopped_by_hand(state)
    };
    !states.is_empty() && states.iter().all(needs)
}
