//! `submit`, `load` and `start`: units that are created where the cluster does not know them yet.
//!
//! All that can be checked is checked before anything is sent. Then all contents are sent, and only
//! when the cluster has taken each of them, desired states are changed.

use fleet_core::{TargetState, Verb};
use fleet_http::wire;
use fleet_unitfile::{UnitFile, UnitName};

use super::sending::{Step, send_contents};
use crate::findings::check;
use crate::fleetctl::args::{CreateArgs, Until};
use crate::fleetctl::at_once::{at_once, until_refused};
use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::follow::follow;
use crate::fleetctl::local::{LocalUnit, read_units};
use crate::fleetctl::partly::all_or_partly;
use crate::fleetctl::pending::Awaited;
use crate::fleetctl::report::{Action, Outcome, Report};
use crate::fleetctl::resolve::{Content, Source, change, content};
use crate::fleetctl::select::{Fits, select};
use crate::fleetctl::session::{Session, source};
use crate::fleetctl::settings::Patience;
use crate::fleetctl::wait::{Goal, Sight};
use crate::fleetctl::words::Machines;

/// Runs `submit`.
pub(super) async fn submit(context: &mut Context, args: &CreateArgs) -> Result<(), CliError> {
    let steps = prepare(context, Verb::Submit, args).await?;
    send_contents(&context.session, &steps).await?;
    for step in &steps {
        let outcome = match step.content {
            Content::Keep => Outcome::Unchanged,
            Content::Create(_) | Content::Replace(_) => Outcome::Reached,
        };
        let unit = context.session.unit(&step.name).await?;
        let sight = Sight { unit, ..Sight::default() };
        let report = Report::new(step.name.as_str(), Action::Submit, outcome).seen(&sight);
        context.output.record(&report, &report.text(&Machines::default()))?;
    }
    context.output.finish()
}

/// Runs `load` or `start`.
pub(super) async fn run(
    context: &mut Context,
    verb: Verb,
    args: &CreateArgs,
    until: Until,
    patience: Patience,
) -> Result<(), CliError> {
    let steps = prepare(context, verb, args).await?;
    send_contents(&context.session, &steps).await?;
    let session = &context.session;
    let activated = until_refused(steps.iter().map(|step| activate(session, verb, step))).await;
    let names: Vec<UnitName> = steps.iter().map(|step| step.name.clone()).collect();
    let done = if verb == Verb::Load { "loaded" } else { "launched" };
    let activated = all_or_partly(names.iter().map(UnitName::as_str).zip(activated), done)?;
    let mut awaited = Vec::new();
    for (step, restarted) in steps.into_iter().zip(activated) {
        let is_settled = step.is_there() && restarted.is_none();
        let generation = restarted.unwrap_or(0);
        let (action, goal) = match verb {
            Verb::Load => (Action::Load, Goal::Loaded),
            _ => (Action::Start, Goal::of_start(until, generation)),
        };
        awaited.push(Awaited { name: step.name, action, goal, is_settled });
    }
    follow(context, awaited, patience).await
}

/// Finds out what is to be done for each unit, without changing anything.
///
/// # Errors
///
/// All that is wrong with any of them.
async fn prepare(
    context: &mut Context,
    verb: Verb,
    args: &CreateArgs,
) -> Result<Vec<Step>, CliError> {
    let units = select(&context.session, &args.units, Fits::All).await?;
    let units = read_units(units)?.sound(&mut context.progress)?.into_iter();
    let session = &context.session;
    let steps = at_once(units.map(|unit| prepare_one(session, verb, unit, args.replace))).await;
    CliError::all_or_none(steps)
}

async fn prepare_one(
    session: &Session,
    verb: Verb,
    unit: LocalUnit,
    replace: bool,
) -> Result<Step, CliError> {
    let known = session.unit(&unit.name).await?;
    let template = match unit.name.template() {
        Some(template) if known.is_none() && unit.file.is_none() => session.unit(&template).await?,
        _ => None,
    };
    let content = match content(verb, &unit, known.as_ref(), template.is_some(), replace) {
        Err(error) if known.is_none() => match session.near(&unit.name).await {
            Some(near) => return Err(error.help(near)),
            None => return Err(error),
        },
        content => content?,
    };
    let from = match (&known, &content) {
        (Some(known), _) => known.desired(),
        // It will have been submitted by then.
        (None, _) if verb == Verb::Submit => None,
        (None, _) => Some(TargetState::Inactive),
    };
    let goal = change(verb, &unit.name, from)?;
    let file = file_to_send(&unit.name, &content, template.as_ref())?;
    Ok(Step { name: unit.name, known, content, file, goal })
}

fn file_to_send(
    name: &UnitName,
    content: &Content,
    template: Option<&wire::Unit>,
) -> Result<Option<UnitFile>, CliError> {
    match (content, template) {
        (Content::Keep, _) => Ok(None),
        (Content::Create(Source::Local(local)) | Content::Replace(Source::Local(local)), _) => {
            Ok(Some(local.file.clone()))
        }
        (_, Some(template)) => of_template(name, template).map(Some),
        (_, None) => Err(CliError::failed(format!("the template of {name} is gone"))),
    }
}

/// An instance has the file of its template, which may be wrong under the instance's name alone.
fn of_template(name: &UnitName, template: &wire::Unit) -> Result<UnitFile, CliError> {
    let (file, findings) = check(template.name.as_ref(), name, &source(template)?);
    file.ok_or_else(|| {
        let error = CliError::failed(format!("{name} cannot be made from its template"));
        findings.iter().fold(error, |error, finding| error.help(finding.to_string()))
    })
}

/// Changes the desired state, or asks for a new attempt, whose generation is returned.
async fn activate(session: &Session, verb: Verb, step: &Step) -> Result<Option<u64>, CliError> {
    if let Some(goal) = step.goal {
        session.set_desired(&step.name, goal).await?;
    } else if verb == Verb::Start
        && step.is_there()
        && has_failed(&session.states_of(&step.name).await?)
    {
        return session.restart(&step.name).await.map(Some);
    }
    Ok(None)
}

/// Whether a unit is launched and has failed wherever it is, so that starting it means to try
/// again. A global unit that still runs somewhere is not disturbed.
pub(super) fn has_failed(states: &[wire::UnitState]) -> bool {
    !states.is_empty() && states.iter().all(|state| state.systemd_active_state == "failed")
}
