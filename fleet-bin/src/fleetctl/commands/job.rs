//! `job` and `schedule`: show jobs and schedules, and send requests to schedules.

use fleet_agent::Clock as _;
use fleet_core::schedule::ScheduleRequest;
use fleet_http::wire::{JobAttempt, JobEntity, ScheduleEntity, ScheduleHistoryEntry, ScheduleRun};
use fleet_unitfile::UnitName;

use crate::fleet_init::format_duration;
use crate::fleetctl::Context;
use crate::fleetctl::args::job::{
    JobCommand, JobListArgs, JobWaitArgs, RunNowArgs, ScheduleCommand,
};
use crate::fleetctl::format::short_machine;
use crate::fleetctl::job_follow::{FollowedJob, OUTAGE, follow};
use crate::ui::error::{CliError, Exit};
use crate::ui::names::unit_arg;
use crate::ui::output::Record;
use crate::ui::sanitize::sanitize_line;
use crate::ui::table::{cell, layout, painted};
use crate::ui::time::date;

/// Pause between two polls of a schedule.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

impl Record for ScheduleEntity {
    fn name(&self) -> &str {
        &self.name
    }
}

/// Runs `job`.
pub(super) async fn run(context: &mut Context, command: JobCommand) -> Result<Exit, CliError> {
    match command {
        JobCommand::List(args) => list(context, &args).await?,
        JobCommand::Status(args) => {
            let job = context.session.job(&unit_arg(&args.unit)?.name).await?;
            context.output.record(&job, &details(&job))?;
            context.output.finish()?;
        }
    }
    Ok(Exit::Success)
}

async fn list(context: &mut Context, args: &JobListArgs) -> Result<(), CliError> {
    let mut jobs = context.session.jobs().await?;
    let count = jobs.len();
    jobs.retain(|job| args.all || (!job.summary.has_ended && job.summary.phase != "not started"));
    let cells: Vec<Vec<String>> = jobs.iter().map(job_row).collect();
    let headings = &["unit", "phase", "attempt", "machine", "since", "result"];
    let table = painted(headings, true, &cells, context.output.table_style());
    context.output.list(&jobs, &table)?;
    if jobs.is_empty() && count > 0 {
        context.progress.note(&format!("{count} jobs do not run; --all lists them"));
    }
    Ok(())
}

fn job_row(job: &JobEntity) -> Vec<String> {
    let last = job.attempts.last();
    let machine = match (job.machine_id.as_str(), last) {
        ("", Some(last)) => last.machine_id.as_str(),
        (machine, _) => machine,
    };
    let attempt = match job.summary.attempt {
        0 => String::new(),
        attempt => format!("{attempt}/{}", job.retries.saturating_add(1).max(attempt)),
    };
    let result = if job.reason.is_empty() { last.map(|it| it.text.clone()) } else { None };
    vec![
        job.name.clone(),
        job.summary.phase.clone(),
        cell(Some(attempt)),
        cell(Some(short_machine(machine))),
        cell(Some(date(job.since))),
        cell(result.or_else(|| Some(job.reason.clone()))),
    ]
}

/// Describes a job with its attempts, and the output of the last one.
fn details(job: &JobEntity) -> String {
    let JobEntity { name, summary, reason, .. } = job;
    let span = |millis: Option<u64>| millis.map_or_else(|| "none".to_owned(), format_duration);
    let mut text = format!("Job {name}: {}\n", summary.text);
    if !reason.is_empty() {
        text += &format!("Waiting: {reason}\n");
    }
    if let Some(at) = job.retry_at.filter(|_| summary.phase == "pending") {
        text += &format!("Next attempt: {}\n", date(Some(at)));
    }
    text += &format!(
        "Retries: {}, failed: {}, interrupted: {}, deadline: {}, kept for: {}\n",
        job.retries,
        job.failed,
        job.interrupted,
        span(job.deadline_ms),
        job.keep_for_ms.map_or_else(|| "ever".to_owned(), format_duration)
    );
    if let Some(created) = job.created {
        text += &format!("Created: {}\n", date(Some(created)));
    }
    text + &attempts(job, true)
}

/// Describes the attempts of a job. `has_output` adds the last lines of the last one.
pub(super) fn attempts(job: &JobEntity, has_output: bool) -> String {
    let (mut text, rows) = (String::new(), attempt_rows(job));
    if !rows.is_empty() {
        let headings = ["attempt", "machine", "begin", "took", "result"];
        text += &format!("\n{}", layout(&headings, true, &rows));
    }
    let last = job.attempts.last().filter(|last| has_output && !last.output.is_empty());
    if let Some(last) = last {
        text += &format!("\nLast lines of attempt {}:\n", last.number);
        text.extend(last.output.iter().map(|line| format!("{}\n", sanitize_line(line))));
    }
    text
}

/// Returns a row for each attempt, the current one last.
fn attempt_rows(job: &JobEntity) -> Vec<Vec<String>> {
    let ended = |it: &JobAttempt| {
        vec![
            it.number.to_string(),
            short_machine(&it.machine_id),
            date(Some(it.begin)),
            format_duration(it.end.as_millis().saturating_sub(it.begin.as_millis())),
            it.text.clone(),
        ]
    };
    let mut rows: Vec<_> = job.attempts.iter().map(ended).collect();
    if !job.machine_id.is_empty() {
        let number = job.summary.attempt.to_string();
        let none = || cell(None::<String>);
        rows.push(vec![number, short_machine(&job.machine_id), date(job.since), none(), none()]);
    }
    rows
}

/// Runs `schedule`.
pub(super) async fn schedule(
    context: &mut Context,
    command: ScheduleCommand,
) -> Result<Exit, CliError> {
    match command {
        ScheduleCommand::List => {
            let schedules = context.session.schedules().await?;
            let cells: Vec<Vec<String>> = schedules.iter().map(schedule_row).collect();
            let headings = &["unit", "event", "state", "next", "running", "last"];
            let table = painted(headings, true, &cells, context.output.table_style());
            context.output.list(&schedules, &table)?;
        }
        ScheduleCommand::Status(args) => {
            let schedule = context.session.schedule(&unit_arg(&args.unit)?.name).await?;
            context.output.record(&schedule, &schedule_details(&schedule))?;
            context.output.finish()?;
        }
        ScheduleCommand::RunNow(args) => return run_now(context, &args).await,
        ScheduleCommand::Pause(args) => {
            request(context, &args.unit, ScheduleRequest::Pause, "pause").await?;
        }
        ScheduleCommand::Resume(args) => {
            request(context, &args.unit, ScheduleRequest::Resume, "resume").await?;
        }
    }
    Ok(Exit::Success)
}

async fn request(
    context: &mut Context,
    unit: &str,
    request: ScheduleRequest,
    verb: &str,
) -> Result<(), CliError> {
    let name = unit_arg(unit)?.name;
    let schedule = context.session.request_schedule(&name, request, verb).await?;
    context.output.record(&schedule, &(headline(&schedule) + "\n"))?;
    context.output.finish()
}

/// Runs `schedule run-now`.
async fn run_now(context: &mut Context, args: &RunNowArgs) -> Result<Exit, CliError> {
    let name = unit_arg(&args.name.unit)?.name;
    let requested = context.clock.now();
    let run_now = ScheduleRequest::RunNow;
    let schedule = context.session.request_schedule(&name, run_now, "run").await?;
    let JobWaitArgs { wait, timeout } = args.wait;
    if !wait {
        context.output.record(&schedule, &format!("Triggered a run of {name}\n"))?;
        context.output.finish()?;
        return Ok(Exit::Success);
    }
    let unit = tokio::select! {
        unit = run_of(context, &name, schedule) => unit?,
        Ok(()) = tokio::signal::ctrl_c() => {
            return Err(CliError::interrupted("interrupted: the run goes on")
                .help(format!("\"fleetctl schedule status {name}\" shows it")));
        }
    };
    context.progress.note(&format!("{name}: the run is {unit}"));
    let job = FollowedJob { name: unit, previous: None, is_attached: false, requested };
    follow(context, vec![job], timeout).await
}

/// Waits until the leader has made the run of the last request, and returns its unit.
///
/// # Errors
///
/// The request made no run, or the daemon stays unavailable.
async fn run_of(
    context: &Context,
    name: &UnitName,
    mut schedule: ScheduleEntity,
) -> Result<UnitName, CliError> {
    let number = schedule.requested;
    let mut answered = context.clock.now();
    loop {
        if let Some(unit) = made_run(&schedule, number)? {
            return Ok(unit);
        }
        let now = context.clock.now();
        context.clock.sleep_until(now.after(PAUSE)).await;
        match context.session.schedule(name).await {
            Ok(new) => (schedule, answered) = (new, now),
            Err(error) if error.is_final_answer() || now.since(answered) >= OUTAGE => {
                return Err(error);
            }
            Err(_) => {}
        }
    }
}

/// Returns the unit of the run that a request made, once it exists.
///
/// # Errors
///
/// The request made no run.
fn made_run(schedule: &ScheduleEntity, number: u64) -> Result<Option<UnitName>, CliError> {
    if schedule.handled < number {
        return Ok(None);
    }
    // One run stands for all requests that came in before the leader handled the first of them.
    let is_it = |manual: Option<u64>| manual.is_some_and(|manual| manual >= number);
    let name = |unit: &str| UnitName::parse(unit).ok();
    if let Some(run) = schedule.runs.iter().find(|run| is_it(run.manual)) {
        return Ok(name(&run.unit).filter(|_| run.phase != "recorded"));
    }
    let entry = schedule.history.iter().find(|entry| is_it(entry.manual));
    match entry {
        Some(ScheduleHistoryEntry { unit, .. }) if !unit.is_empty() => Ok(name(unit)),
        entry => {
            let why = entry.map_or("the schedule no longer shows it", |it| it.result.as_str());
            let schedule = &schedule.name;
            Err(CliError::failed(format!("{schedule} was not run: {why}"))
                .help(format!("\"fleetctl schedule status {schedule}\" shows its runs")))
        }
    }
}

fn headline(schedule: &ScheduleEntity) -> String {
    let next = match schedule.summary.next {
        Some(_) => format!(", next {}", date(schedule.summary.next)),
        None => String::new(),
    };
    format!("Schedule {} is {}{next}", schedule.name, schedule.summary.state)
}

fn schedule_row(schedule: &ScheduleEntity) -> Vec<String> {
    vec![
        schedule.name.clone(),
        schedule.event.clone(),
        schedule.summary.state.clone(),
        cell(Some(date(schedule.summary.next))),
        schedule.runs.len().to_string(),
        cell(schedule.history.last().map(|entry| entry.text.clone())),
    ]
}

/// Describes a schedule with its runs and its history.
fn schedule_details(schedule: &ScheduleEntity) -> String {
    let ScheduleEntity { event, concurrency_policy, catch_up, .. } = schedule;
    let text = format!(
        "{}\nEvent: {event}, concurrency: {concurrency_policy}, catch up: {catch_up}\n",
        headline(schedule)
    );
    text + &runs(schedule)
}

/// Describes the runs of a schedule.
pub(super) fn runs(schedule: &ScheduleEntity) -> String {
    let ScheduleEntity { runs, history, .. } = schedule;
    if runs.is_empty() && history.is_empty() {
        return String::new();
    }
    let ended = |it: &ScheduleHistoryEntry| {
        let unit = if it.unit.is_empty() { cell(None::<String>) } else { it.unit.clone() };
        let result = if it.unit.is_empty() { it.text.clone() } else { it.result.clone() };
        vec![unit, cell(Some(date(it.recorded))), cell(Some(date(it.ended))), result]
    };
    let unfinished = |it: &ScheduleRun| {
        let begin = date(Some(it.recorded));
        vec![it.unit.clone(), begin, cell(None::<String>), it.phase.clone()]
    };
    let rows: Vec<Vec<String>> =
        history.iter().map(ended).chain(runs.iter().map(unfinished)).collect();
    format!("\n{}", layout(&["run", "begin", "end", "result"], true, &rows))
}
