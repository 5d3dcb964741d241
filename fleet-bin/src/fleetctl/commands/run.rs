//! `run`: creates jobs if necessary, and runs them.

use std::collections::BTreeSet;

use fleet_core::{Requirements, Strictness, Verb};
use fleet_http::client::UnitWrites;
use fleet_http::wire;
use fleet_http::wire::JobEntity;
use fleet_unitfile::{UnitFile, UnitName};

use super::start::prepare_unit;
use super::upload::{UploadStep, write_prepared};
use crate::fleetctl::Context;
use crate::fleetctl::args::job::RunArgs;
use crate::fleetctl::concurrent::buffered;
use crate::fleetctl::job_follow::{FollowedJob, follow};
use crate::fleetctl::local::{LocalUnit, read_units};
use crate::fleetctl::manager_check::check_managers;
use crate::fleetctl::select::{DesiredFilter, select};
use crate::fleetctl::session::{Session, source};
use crate::ui::error::{CliError, Exit};
use crate::ui::output::Record;

impl Record for JobEntity {
    fn name(&self) -> &str {
        &self.name
    }
}

/// Runs the command. All units are checked before the first is changed.
pub(super) async fn run(context: &mut Context, args: RunArgs) -> Result<Exit, CliError> {
    let begin = fleet_agent::Clock::now(&context.clock);
    let steps = write(context, &args).await?;
    let jobs = steps.iter().map(|step| FollowedJob {
        name: step.name.clone(),
        previous: ended_job(step).map(|job| job.origin),
        is_attached: step.is_up_to_date(),
        requested: begin,
    });
    if args.wait.wait {
        return follow(context, jobs.collect(), args.wait.timeout).await;
    }
    for step in &steps {
        let job = context.session.job(&step.name).await?;
        let text = match step.is_up_to_date() {
            true => format!("Job {} is unfinished already: {}\n", step.name, job.summary.text),
            false => format!("Triggered job {}\n", step.name),
        };
        context.output.record(&job, &text)?;
    }
    context.output.finish()?;
    Ok(Exit::Success)
}

/// Makes all checks, and then writes all units together.
async fn write(context: &mut Context, args: &RunArgs) -> Result<Vec<UploadStep>, CliError> {
    let units = select(&context.session, &args.units, DesiredFilter::All).await?;
    let units = read_units(units)?.checked(&mut context.progress)?;
    let mut is_unverified = !args.verification.no_verify;
    let session = context.session.clone();
    let (steps, _) = write_prepared(&session, "run", async || {
        let steps = units.iter().map(|unit| prepare(&session, unit.clone()));
        let steps = CliError::all_or_none(buffered(steps).await)?;
        if std::mem::take(&mut is_unverified) {
            let changed = steps.iter().filter(|step| step.file.is_some());
            check_managers(context, changed.map(UploadStep::to_check).collect()).await?;
        }
        let writes = UnitWrites::default();
        let writes = steps.iter().fold(writes, |writes, step| step.add_to(writes));
        Ok((steps, writes))
    })
    .await?;
    let mut seen = BTreeSet::new();
    Ok(steps.into_iter().filter(|step| seen.insert(step.name.clone())).collect())
}

/// Compares one unit with the cluster. Changes nothing.
///
/// # Errors
///
/// The unit is not a job, or another file of it has not ended yet.
async fn prepare(session: &Session, unit: LocalUnit) -> Result<UploadStep, CliError> {
    let replaces = unit.file.is_some();
    let (step, _) = prepare_unit(session, Verb::Start, unit, replaces).await?;
    let name = &step.name;
    match (&step.file, &step.known) {
        (Some(file), _) => check_is_job(name, file)?,
        (None, Some(known)) => {
            let file = UnitFile::parse(source(known)?).map_err(|error| {
                CliError::failed(format!("cannot read the file of {name}")).because(error)
            })?;
            check_is_job(name, &file)?;
        }
        (None, None) => {}
    }
    let unfinished = step.known.as_ref().and_then(|known| known.job.as_ref());
    let unfinished = unfinished.filter(|job| !job.has_ended && step.goal.is_none());
    if let Some(job) = unfinished.filter(|_| step.file.is_some()) {
        return Err(CliError::failed(format!(
            "cannot run a different {name} now: the job is {}",
            job.text
        ))
        .help(format!("wait for its end, or end it with \"fleetctl stop {name}\""))
        .help("\"fleetctl apply FILE\" replaces it at once"));
    }
    Ok(step)
}

/// Returns the job that ended before the command.
fn ended_job(step: &UploadStep) -> Option<&wire::JobSummary> {
    let job = step.known.as_ref().and_then(|known| known.job.as_ref());
    job.filter(|job| job.has_ended)
}

fn check_is_job(name: &UnitName, file: &UnitFile) -> Result<(), CliError> {
    let parsed = Requirements::parse(name, file, Strictness::Warn);
    let Ok(parsed) = parsed else {
        // The daemon refuses the file, with the positions of its errors.
        return Ok(());
    };
    let refused = |why: &str| CliError::failed(format!("cannot run {name}: {why}"));
    match (parsed.requirements.is_job(), parsed.requirements.is_schedule()) {
        (true, _) => Ok(()),
        (false, true) => Err(refused("it is a schedule, and only its runs are jobs")
            .help(format!("\"fleetctl schedule run-now {name}\" runs its job now"))
            .help(format!("\"fleetctl start {name}\" turns the schedule on"))),
        (false, false) => Err(refused("it is not a job, because its file has no RunOnce=true")
            .help("add RunOnce=true to its section [X-Fleet]")
            .help(format!("or start it with \"fleetctl start {name}\""))),
    }
}
