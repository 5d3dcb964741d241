//! `submit`, `load` and `start`: create units if necessary, and load or start them.
//!
//! Each command makes all its checks, and then writes all units together.

use std::collections::BTreeSet;

use fleet_agent::is_wait_reason;
use fleet_core::{TargetState, Verb};
use fleet_http::client::{UnitWrites, WrittenUnits};
use fleet_http::wire;
use fleet_unitfile::{UnitFile, UnitName};

use super::rollout;
use super::upload::{UploadStep, write_prepared};
use crate::fleetctl::Context;
use crate::fleetctl::args::{CreateArgs, WaitUntil};
use crate::fleetctl::concurrent::buffered;
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
    let (steps, _) = write(context, Verb::Submit, args).await?;
    for PreparedUnit { step, .. } in &steps {
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
    let (steps, WrittenUnits { generations, rollout, .. }) = write(context, verb, args).await?;
    let mut targets = Vec::new();
    for PreparedUnit { step, activation, .. } in steps {
        let name = step.name.clone();
        if activation == Activation::AlreadyEnded {
            context.progress.note(&format!(
                "{name} is not running: it has ended, or was stopped on its machine\nhelp: \
                 \"fleetctl restart {name}\" runs it again"
            ));
        }
        let is_restarted = activation == Activation::Restart;
        let generation = generations.get(&name).filter(|_| is_restarted).map_or(0, |it| it.0);
        let is_settled = step.is_up_to_date() && !is_restarted;
        let (action, goal) = match verb {
            Verb::Load => (Action::Load, Goal::Loaded),
            _ => (Action::Start, Goal::for_start(until, generation)),
        };
        targets.push(WaitTarget { name, action, goal, is_settled });
    }
    if let Some(id) = rollout {
        return rollout::follow(context, id, timeout).await;
    }
    follow(context, targets, timeout).await
}

/// A unit on the command line, as compared with the cluster.
struct PreparedUnit {
    step: UploadStep,
    activation: Activation,
    /// Warning about a local file that is not used.
    warning: Option<String>,
}

/// Makes all checks, and then writes all units together. Returns the units, and the result.
async fn write(
    context: &mut Context,
    verb: Verb,
    args: &CreateArgs,
) -> Result<(Vec<PreparedUnit>, WrittenUnits), CliError> {
    let units = select(&context.session, &args.units, DesiredFilter::All).await?;
    let units = read_units(units)?.checked(&mut context.progress)?;
    let (mut is_unverified, mut shown) = (!args.verification.no_verify, BTreeSet::new());
    let session = context.session.clone();
    write_prepared(&session, verb.as_str(), async || {
        let prepared = units.iter().map(|it| prepare(&session, verb, it.clone(), args.replace));
        let prepared = CliError::all_or_none(buffered(prepared).await)?;
        for warning in prepared.iter().filter_map(|unit| unit.warning.as_ref()) {
            if shown.insert(warning.clone()) {
                context.progress.note(warning);
            }
        }
        if std::mem::take(&mut is_unverified) {
            let changed = prepared.iter().filter(|unit| !unit.step.is_up_to_date());
            let changed = changed.map(|unit| unit.step.to_check()).collect();
            check_managers(context, changed).await?;
        }
        let writes = args.rollout.clone().map(|options| UnitWrites::default().rollout(options));
        let writes = prepared.iter().fold(writes.unwrap_or_default(), |writes, unit| {
            match unit.activation {
                Activation::Restart => writes.restart(&unit.step.name),
                _ => unit.step.add_to(writes),
            }
        });
        Ok((prepared, writes))
    })
    .await
}

/// Compares one unit with the cluster. Changes nothing.
async fn prepare(
    session: &Session,
    verb: Verb,
    unit: LocalUnit,
    replace: bool,
) -> Result<PreparedUnit, CliError> {
    let (step, warning) = prepare_unit(session, verb, unit, replace).await?;
    let activation = match verb {
        // The leader repeats the attempts of a job.
        Verb::Start if step.is_up_to_date() && !step.is_job_or_schedule() => {
            activation(session, &step.name).await?
        }
        _ => Activation::Requested,
    };
    Ok(PreparedUnit { step, activation, warning })
}

/// Returns the steps for one unit, and the warning about a local file that is not used.
pub(super) async fn prepare_unit(
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

/// What a command does about the state of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activation {
    /// The unit has the desired state of the command, or gets it.
    Requested,
    /// The unit has that state already, and is restarted.
    Restart,
    /// The unit has that state already, but its run has ended. Nothing is requested.
    AlreadyEnded,
}

/// Decides whether to restart a unit whose file and desired state do not change. It is restarted if
/// it has failed, was stopped by hand, or was not started because of a condition. A unit that has
/// completed its work is left alone, so that repeated starts of a oneshot run it once.
async fn activation(session: &Session, name: &UnitName) -> Result<Activation, CliError> {
    let states = session.states_of(name).await?;
    let was_skipped = |state: &wire::UnitStateEntity| {
        let problem = &state.problem;
        is_idle(state) && !problem.is_empty() && !is_wait_reason(problem)
    };
    // A unit without an exit status has not run: it may wait for other units.
    let has_ended = |state: &wire::UnitStateEntity| is_idle(state) && !state.exit.is_empty();
    Ok(match &states[..] {
        [] => Activation::Requested,
        all if needs_restart(all) || all.iter().all(was_skipped) => Activation::Restart,
        all if all.iter().all(has_ended) => Activation::AlreadyEnded,
        _ => Activation::Requested,
    })
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
