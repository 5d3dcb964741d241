//! `apply`, `diff` and `plan`: the cluster as files say that it is to be.
//!
//! All files are read and checked here, then by the daemon, all of them together and without
//! writing anything; only then the first is sent.

use fleet_core::TargetState;
use fleet_http::{UnitUpload, wire};
use fleet_unitfile::UnitName;

use super::bring_up::has_failed;
use super::sending::{Refusal, Step, send_contents};
use crate::fleetctl::args::Until;
use crate::fleetctl::at_once::{at_once, until_refused};
use crate::fleetctl::change_args::{ApplyArgs, PlanArgs, WantedArgs};
use crate::fleetctl::context::Context;
use crate::fleetctl::error::{CliError, Exit};
use crate::fleetctl::follow::follow;
use crate::fleetctl::foreseen::{Foreseen, told};
use crate::fleetctl::global_args::Format;
use crate::fleetctl::met::Met;
use crate::fleetctl::partly::all_or_partly;
use crate::fleetctl::pending::Awaited;
use crate::fleetctl::report::{Action, Outcome, Report};
use crate::fleetctl::resolve::{Content, Source};
use crate::fleetctl::select::{Fits, select};
use crate::fleetctl::wait::{Goal, Sight};
use crate::fleetctl::wanted::{Change, Wanted, compare, read};
use crate::fleetctl::words::Machines;

/// Runs `apply`.
pub(super) async fn run(context: &mut Context, args: ApplyArgs) -> Result<Exit, CliError> {
    let wanted = gather(context, &args.wanted).await?;
    let is_there = |wanted: &&Wanted| wanted.change() == Change::None;
    let (there, changed): (Vec<_>, Vec<_>) = wanted.iter().partition(is_there);
    let plan = foresee(context, &changed, &[]).await?;
    let machines = machines_of(context, &plan).await?;
    if args.dry_run {
        let changes = wanted.iter().map(Foreseen::of_file).chain(plan.iter().cloned());
        context.output.list(&changes.collect::<Vec<_>>(), &told(&wanted, &plan, &machines))?;
        return Ok(verdict(context, changed.is_empty()));
    }
    context.output.for_people(&told(&wanted, &plan, &machines))?;
    let is_changed = !changed.is_empty();
    let mut errors = tell_of_those_there(context, &there).await?;
    if is_changed {
        let awaited = send(context, wanted, args.until.state).await?;
        let followed = follow(context, awaited, args.wait.into()).await;
        errors.splice(0..0, followed.err());
    } else {
        context.output.finish()?;
    }
    CliError::of_all(errors)?;
    Ok(if is_changed { Exit::Success } else { verdict(context, true) })
}

/// Reports the units for which nothing is to be done. That one of them is not where its file wants
/// it is an error: to apply the file once more must not pass for success.
async fn tell_of_those_there(
    context: &mut Context,
    there: &[&Wanted],
) -> Result<Vec<CliError>, CliError> {
    let states = async |wanted: &&Wanted| match wanted.desired {
        TargetState::Launched => context.session.states_of(&wanted.name).await,
        _ => Ok(Vec::new()),
    };
    let states = CliError::all_or_none(at_once(there.iter().map(states)).await)?;
    let mut errors = Vec::new();
    for (wanted, states) in there.iter().zip(states) {
        let missed = missed(wanted, &states);
        let outcome = if missed.is_some() { Outcome::Failed } else { Outcome::Unchanged };
        let sight = Sight { unit: wanted.known.clone(), states, ..Sight::default() };
        let report = Report::new(wanted.name.as_str(), Action::Apply, outcome).seen(&sight);
        context.output.record(&report, "")?;
        errors.extend(missed);
    }
    Ok(errors)
}

/// Why a unit is not where its file wants it, though nothing is to be changed.
fn missed(wanted: &Wanted, states: &[wire::UnitState]) -> Option<CliError> {
    let (name, known) = (&wanted.name, wanted.known.as_ref()?);
    let is = |what: &str| CliError::failed(format!("{name} is as its file says, and {what}"));
    if has_failed(states) {
        let help = format!("see \"fleetctl logs {name}\"; \"fleetctl start {name}\" tries again");
        return Some(is("has failed").help(help));
    }
    let is_unplaced = wanted.desired > TargetState::Inactive && known.machine_id.is_empty();
    (is_unplaced && !known.reason.is_empty()).then(|| {
        let help = format!("\"fleetctl explain {name}\" tells what every machine says to it");
        is(&format!("has no machine: {}", known.reason)).help(help)
    })
}

/// Runs `diff`.
pub(super) async fn diff(context: &mut Context, args: &WantedArgs) -> Result<Exit, CliError> {
    let wanted = gather(context, args).await?;
    let changed = wanted.iter().filter(|wanted| wanted.change() != Change::None);
    let text = changed.clone().map(|wanted| format!("# {}{}", wanted.told(), wanted.diff()));
    let text = text.collect::<String>();
    let records: Vec<Foreseen> = changed.map(Foreseen::of_file).collect();
    context.output.list(&records, &text)?;
    Ok(verdict(context, records.is_empty()))
}

/// Runs `plan`.
pub(super) async fn plan(context: &mut Context, args: &PlanArgs) -> Result<Exit, CliError> {
    let wanted = match args.paths.is_empty() {
        true => Vec::new(),
        false => {
            let (paths, state) = (args.paths.clone(), args.state);
            gather(context, &WantedArgs { paths, state }).await?
        }
    };
    let changed: Vec<&Wanted> = wanted.iter().filter(|it| it.change() != Change::None).collect();
    let gone = match args.destroy.is_empty() {
        true => Vec::new(),
        false => select(&context.session, &args.destroy, Fits::All).await?,
    };
    let gone: Vec<UnitName> = gone.into_iter().map(|unit| unit.name).collect();
    let plan = match foresee(context, &changed, &gone).await {
        Err(error) => return Err(unknown_of(context, &gone).await.unwrap_or(error)),
        Ok(plan) => plan,
    };
    let machines = machines_of(context, &plan).await?;
    let text: String = plan.iter().map(|it| it.sentence(&machines)).collect();
    context.output.list(&plan, &text)?;
    if plan.iter().any(|it| it.is_change(&changed)) {
        return Ok(Exit::Changes);
    }
    context.progress.note(match changed.is_empty() {
        true => "nothing to do",
        false => "no unit would get another machine; \"fleetctl diff\" shows how the files differ",
    });
    Ok(Exit::Success)
}

/// The error for those of these units that the cluster does not know, if there is one.
async fn unknown_of(context: &Context, units: &[UnitName]) -> Option<CliError> {
    let known = at_once(units.iter().map(|name| context.session.known_unit(name))).await;
    CliError::all_or_none(known).err()
}

/// The machines that a plan names, where people see it.
async fn machines_of(context: &Context, plan: &[Foreseen]) -> Result<Machines, CliError> {
    let mut met = Met::default();
    if context.output.format() == Format::Table {
        met.meet(&context.session, plan.iter().flat_map(Foreseen::machines)).await?;
    }
    Ok(met.words())
}

/// How a command ends that only tells.
fn verdict(context: &mut Context, is_there: bool) -> Exit {
    if is_there {
        context.progress.note("nothing to do");
        return Exit::Success;
    }
    Exit::Changes
}

async fn gather(context: &mut Context, args: &WantedArgs) -> Result<Vec<Wanted>, CliError> {
    let units = read(&args.paths)?.sound(&mut context.progress)?;
    let units = units.into_iter().filter_map(|unit| Some((unit.name, unit.file?)));
    compare(&context.session, units.collect(), args.state.into()).await
}

/// What the engine would do then. The daemon refuses what it would refuse if it were sent.
async fn foresee(
    context: &Context,
    changed: &[&Wanted],
    gone: &[UnitName],
) -> Result<Vec<Foreseen>, CliError> {
    let uploads: Vec<(UnitName, UnitUpload)> = changed.iter().map(|it| it.upload()).collect();
    Ok(Foreseen::of_plan(&context.session.plan(&uploads, gone).await?))
}

/// Sends all files, then changes desired states, and says what to wait for.
async fn send(
    context: &mut Context,
    wanted: Vec<Wanted>,
    until: Until,
) -> Result<Vec<Awaited>, CliError> {
    let awaited: Vec<Awaited> = changed(&wanted).map(|it| awaited(it, until)).collect();
    let steps: Vec<Step> =
        wanted.into_iter().filter(|it| it.change() != Change::None).map(step).collect();
    if let Err(Refusal { error, taken }) = send_contents(&context.session, &steps).await {
        let sent = taken.iter().map(|name| begun(name).with_message("its file was sent"));
        sent.into_iter().try_for_each(|report| context.output.record(&report, ""))?;
        return Err(again(error));
    }
    let session = &context.session;
    let goals = steps.iter().filter_map(|step| Some((&step.name, step.goal?)));
    let asked = goals.clone().map(|(name, goal)| session.set_desired(name, goal));
    let set = until_refused(asked).await;
    if set.iter().any(Result::is_err) {
        let is_set = |step: &Step| {
            let at = goals.clone().position(|(name, _)| *name == step.name);
            at.and_then(|at| set.get(at))
        };
        for step in &steps {
            let report = match (is_set(step), &step.file) {
                (Some(Ok(())), _) => begun(&step.name),
                (Some(Err(error)), _) => {
                    let report = Report::new(step.name.as_str(), Action::Apply, Outcome::Failed);
                    report.with_message(error.parts().0)
                }
                (None, Some(_)) => begun(&step.name).with_message("its file was sent"),
                (None, None) => continue,
            };
            context.output.record(&report, "")?;
        }
    }
    let names = goals.map(|(name, _)| name.as_str());
    all_or_partly(names.zip(set), "brought to their desired states")
        .map_err(|error| again(error.help("the files of all units were sent")))?;
    Ok(awaited)
}

/// Of a unit for which something was done before another one was refused.
fn begun(name: &UnitName) -> Report {
    Report::new(name.as_str(), Action::Apply, Outcome::Triggered)
}

/// What is there already is found to be so.
fn again(error: CliError) -> CliError {
    error.help("when that is mended, the same command does what is left")
}

fn changed(wanted: &[Wanted]) -> impl Iterator<Item = &Wanted> {
    wanted.iter().filter(|it| it.change() != Change::None)
}

fn step(wanted: Wanted) -> Step {
    let (change, moves) = (wanted.change(), wanted.moves());
    // What is new is inactive until its desired state is set.
    let moves = moves && (wanted.known.is_some() || wanted.desired != TargetState::Inactive);
    let Wanted { name, file, desired, known } = wanted;
    let content = match change {
        Change::None | Change::State => Content::Keep,
        Change::Create => Content::Create(Source::Local(file.clone())),
        Change::Replace => Content::Replace(Source::Local(file.clone())),
    };
    let file = (!matches!(content, Content::Keep)).then_some(file.file);
    Step { name, known, content, file, goal: moves.then_some(desired) }
}

fn awaited(wanted: &Wanted, until: Until) -> Awaited {
    let goal = match (wanted.desired, wanted.was()) {
        (TargetState::Launched, _) => Goal::of_start(until, 0),
        (TargetState::Loaded, "launched") => Goal::Stopped,
        (TargetState::Loaded, _) => Goal::Loaded,
        (TargetState::Inactive, _) => Goal::Unplaced,
    };
    Awaited { name: wanted.name.clone(), action: Action::Apply, goal, is_settled: false }
}
