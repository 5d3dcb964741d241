//! Follows jobs until they end: prints their output, reports their progress, and determines the
//! exit code.

use std::time::Duration;

use fleet_agent::Clock as _;
use fleet_core::Timestamp;
use fleet_http::wire::{JobAttempt, JobEntity, Time};
use fleet_unitfile::UnitName;
use fleet_unitfile::values::Timespan;

use super::Context;
use super::format::short_machine;
use super::job_output::{AttemptOutput, Lines, Outputs};
use super::obstacles::{Obstacles, Waiting};
use crate::fleet_init::format_duration;
use crate::ui::error::{CliError, Exit};
use crate::ui::global_args::Format;

/// First pause between two polls. Later pauses grow up to [`LONGEST_PAUSE`]. It is short, because
/// the output of a short attempt can only be read while the unit is on its machine.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Time for which the daemon may be unavailable while a command waits.
pub(super) const OUTAGE: Duration = Duration::from_secs(30);

/// Maximum number of jobs whose states are shown one by one.
const MAX_STATES: usize = 3;

/// A job to follow.
#[derive(Debug, Clone)]
pub(super) struct FollowedJob {
    /// The unit.
    pub(super) name: UnitName,
    /// Origin of the ended job that the awaited one replaces.
    pub(super) previous: Option<u64>,
    /// Whether the job existed before the command, so that it may have begun long ago.
    pub(super) is_attached: bool,
    /// The time of the request, by the clock of the command.
    pub(super) requested: Timestamp,
}

/// Progress of following one job.
struct Progress {
    job: FollowedJob,
    /// Origin of the job; `None` until the leader has made it.
    origin: Option<u64>,
    /// The time before which all attempts that were known then had begun.
    polled: Timestamp,
    /// Last report of the job.
    last: JobEntity,
    is_first: bool,
    /// Number of the last attempt that was reported as begun.
    begun: u64,
    /// Number of the last attempt that was reported as ended.
    ended: u64,
    exit: Option<u8>,
}

/// Follows jobs until all of them have ended. Returns the first exit code that is not zero, in the
/// order of the jobs.
///
/// # Errors
///
/// The time is over, the daemon stays unavailable, or the user pressed Ctrl-C. The jobs go on.
pub(super) async fn follow(
    context: &mut Context,
    jobs: Vec<FollowedJob>,
    timeout: Option<Timespan>,
) -> Result<Exit, CliError> {
    let limit = timeout.and_then(Timespan::as_duration);
    let deadline = limit.map(|limit| context.clock.now().after(limit));
    let names: Vec<UnitName> = jobs.iter().map(|job| job.name.clone()).collect();
    let result = tokio::select! {
        result = Follower::new(context, jobs).run(deadline) => result,
        Ok(()) = tokio::signal::ctrl_c() => Err(CliError::interrupted("interrupted")),
    };
    context.progress.clear();
    let code = result.map_err(|error| detached(error, &names))?;
    context.output.finish()?;
    Ok(Exit::Remote(code))
}

/// Adds to an error that the jobs go on.
fn detached(error: CliError, names: &[UnitName]) -> CliError {
    let units = names.iter().map(UnitName::as_str).collect::<Vec<_>>().join(" ");
    let subject = if names.len() == 1 { "the job goes on" } else { "the jobs go on" };
    error
        .help(format!("{subject}: \"fleetctl run --wait {units}\" follows the rest"))
        .help(format!("\"fleetctl stop {units}\" ends it"))
}

struct Follower<'a> {
    context: &'a mut Context,
    jobs: Vec<Progress>,
    outputs: Outputs,
    obstacles: Obstacles,
}

impl<'a> Follower<'a> {
    fn new(context: &'a mut Context, jobs: Vec<FollowedJob>) -> Self {
        let count = jobs.len();
        let progress = |job: FollowedJob| Progress {
            polled: job.requested,
            job,
            origin: None,
            last: JobEntity::default(),
            is_first: true,
            begun: 0,
            ended: 0,
            exit: None,
        };
        let jobs = jobs.into_iter().map(progress).collect();
        let (outputs, obstacles) = (Outputs::new(count), Obstacles::new("jobs", count));
        Self { context, jobs, outputs, obstacles }
    }

    async fn run(mut self, deadline: Option<Timestamp>) -> Result<u8, CliError> {
        let (mut pause, mut answered) = (FIRST_PAUSE, self.context.clock.now());
        loop {
            let polled = self.poll_all().await;
            let now = self.context.clock.now();
            match polled {
                Ok(has_changed) => {
                    pause =
                        if has_changed { FIRST_PAUSE } else { LONGEST_PAUSE.min(pause * 3 / 2) };
                    answered = now;
                }
                // The daemon may be restarting.
                Err(error) if !error.is_final_answer() && now.since(answered) < OUTAGE => {
                    pause = LONGEST_PAUSE;
                }
                Err(error) => return Err(error),
            }
            if self.jobs.iter().all(|progress| progress.exit.is_some()) {
                let codes = self.jobs.iter().filter_map(|progress| progress.exit);
                return Ok(codes.into_iter().find(|code| *code != 0).unwrap_or(0));
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Err(self.late());
            }
            self.report_obstacles(now);
            self.show_progress();
            let wake = deadline.map_or(now.after(pause), |at| at.min(now.after(pause)));
            self.print_until(wake).await?;
        }
    }

    /// Polls all jobs that have not ended. Returns whether any has changed.
    async fn poll_all(&mut self) -> Result<bool, CliError> {
        let mut has_changed = false;
        for at in 0..self.jobs.len() {
            if self.jobs[at].exit.is_none() {
                has_changed |= self.poll(at).await?;
            }
        }
        Ok(has_changed)
    }

    /// Polls a job, and reports its changes. Returns whether it has changed.
    async fn poll(&mut self, at: usize) -> Result<bool, CliError> {
        let now = self.context.clock.now();
        let name = self.jobs[at].job.name.clone();
        let Some(job) = self.context.session.find_job(&name).await? else {
            let progress = &mut self.jobs[at];
            if progress.origin.is_none() {
                return Err(CliError::failed(format!("{name} is not known to the cluster")));
            }
            progress.exit = Some(Exit::Failure.code());
            self.note(at, "was destroyed, so its outcome is unknown");
            return Ok(true);
        };
        let progress = &mut self.jobs[at];
        let origin = Some(job.summary.origin).filter(|origin| *origin != 0);
        if origin.is_some() && origin == progress.job.previous {
            return Ok(false);
        }
        if progress.origin.is_some() && progress.origin != origin {
            progress.exit = Some(Exit::Failure.code());
            self.note(at, "was started again by another command");
            return Ok(true);
        }
        progress.origin = origin;
        let is_first = std::mem::take(&mut progress.is_first);
        if is_first && progress.job.is_attached && !job.summary.has_ended {
            progress.ended = job.attempts.last().map_or(0, |attempt| attempt.number);
        }
        let has_changed = progress.last != job;
        let age_of = |begin: Time, polled: Timestamp| match is_first && progress.job.is_attached {
            true => age_by_wall(begin),
            false => now.since(polled),
        };
        let (polled, mut starts) = (progress.polled, Vec::new());
        for attempt in job.attempts.iter().filter(|attempt| attempt.number > progress.ended) {
            starts.push((Some(attempt.clone()), attempt.number, age_of(attempt.begin, polled)));
        }
        if job.summary.phase == "running" {
            let begin = job.since.unwrap_or_default();
            starts.push((None, job.summary.attempt, age_of(begin, polled)));
        }
        (progress.polled, progress.last) = (now, job.clone());
        for (ended, number, age) in starts {
            let machine = ended.as_ref().map_or(&job.machine_id, |ended| &ended.machine_id);
            self.begin_attempt(at, number, machine, age);
            if let Some(attempt) = ended {
                self.end_attempt(at, &job, &attempt).await?;
            }
        }
        self.report(at, &job)?;
        Ok(has_changed)
    }

    /// Reports an attempt that has begun, and follows its output.
    fn begin_attempt(&mut self, at: usize, number: u64, machine: &str, age: Duration) {
        let session = &self.context.session;
        let progress = &mut self.jobs[at];
        if !self.outputs.is_of(at, number, machine) {
            let output = AttemptOutput::new(number, machine, age, self.context.clock.now());
            self.outputs.follow(at, session, &progress.job.name, output);
        }
        if progress.begun < number {
            progress.begun = number;
            self.note(at, &format!("attempt {number} begins on {}", short_machine(machine)));
        }
        self.outputs.release(at);
    }

    /// Prints the rest of an attempt's output, and reports its end.
    async fn end_attempt(
        &mut self,
        at: usize,
        job: &JobEntity,
        attempt: &JobAttempt,
    ) -> Result<(), CliError> {
        let name = self.jobs[at].job.name.clone();
        let rest = self.outputs.complete(at, &self.context.session, &name, &self.context.clock);
        let complete = rest.await;
        match complete {
            Lines::All(lines) => {
                self.print_arrived()?;
                let printed = self.outputs.stop(at);
                for line in lines.iter().skip(printed) {
                    self.print(at, line)?;
                }
                if printed == 0 && lines.is_empty() {
                    self.print_all(at, &attempt.output)?;
                }
            }
            Lines::Unreadable => {
                while let Some((of, line)) = self.outputs.next_in_time(at).await {
                    self.print(of, &line)?;
                }
                let missing = self.outputs.missing(at, &attempt.output);
                self.outputs.stop(at);
                self.print_all(at, &missing)?;
            }
        }
        self.jobs[at].ended = attempt.number;
        if !job.summary.has_ended {
            let next = attempt.number + 1;
            let retry = job.retry_at.map_or(Duration::ZERO, until_wall);
            let retry = match u64::try_from(retry.as_millis()).unwrap_or(u64::MAX) {
                0 => String::new(),
                millis => format!(" in {}", format_duration(millis)),
            };
            let text = &attempt.text;
            let ended = format!("attempt {} ended: {text}", attempt.number);
            // The next attempt is likely to be on the same machine, and may be short.
            let (known, machine) = (self.context.clock.now(), &attempt.machine_id);
            let output = AttemptOutput::new(next, machine, Duration::ZERO, known);
            self.outputs.follow(at, &self.context.session, &name, output);
            self.note(at, &format!("{ended}; attempt {next} follows{retry}"));
        }
        Ok(())
    }

    /// Reports the end of the job.
    fn report(&mut self, at: usize, job: &JobEntity) -> Result<(), CliError> {
        let progress = &mut self.jobs[at];
        if job.summary.has_ended {
            progress.exit = Some(exit_code(job));
            self.note(at, &job.summary.text);
            if self.context.output.format() != Format::Table {
                self.context.output.record(job, "")?;
            }
        }
        Ok(())
    }

    /// Prints the lines that arrive until a time.
    async fn print_until(&mut self, wake: Timestamp) -> Result<(), CliError> {
        loop {
            let (at, line) = tokio::select! {
                biased;
                line = self.outputs.next() => line,
                () = self.context.clock.sleep_until(wake) => return Ok(()),
            };
            self.print(at, &line)?;
        }
    }

    /// Prints the lines that have arrived.
    fn print_arrived(&mut self) -> Result<(), CliError> {
        while let Some((at, line)) = self.outputs.next_arrived() {
            self.print(at, &line)?;
        }
        Ok(())
    }

    fn print_all(&mut self, at: usize, lines: &[String]) -> Result<(), CliError> {
        lines.iter().try_for_each(|line| self.print(at, line))
    }

    fn print(&mut self, at: usize, line: &str) -> Result<(), CliError> {
        if self.context.output.format() != Format::Table {
            return Ok(());
        }
        self.context.progress.clear();
        let label = match self.jobs.len() {
            1 => String::new(),
            _ => format!("{}: ", self.jobs[at].job.name),
        };
        self.context.output.document(format!("{label}{line}\n").as_bytes())
    }

    fn note(&mut self, at: usize, text: &str) {
        let name = &self.jobs[at].job.name;
        self.context.progress.note(&format!("{name}: {text}"));
    }

    /// Prints new obstacles.
    fn report_obstacles(&mut self, now: Timestamp) {
        let waiting: Vec<_> = self.jobs.iter().filter_map(Progress::waiting).collect();
        for notice in self.obstacles.observe(&waiting, now) {
            self.context.progress.note(&notice);
        }
    }

    fn show_progress(&mut self) {
        let line = self.states();
        self.context.progress.show(&line);
    }

    /// Describes the states of a few unfinished jobs, or gives a summary of many.
    fn states(&self) -> String {
        let waiting: Vec<_> = self.jobs.iter().filter_map(Progress::waiting).collect();
        if waiting.len() > MAX_STATES {
            return self.obstacles.summary(&waiting);
        }
        let unfinished = self.jobs.iter().filter(|progress| progress.exit.is_none());
        unfinished.map(Progress::state).collect::<Vec<_>>().join(", ")
    }

    fn late(&self) -> CliError {
        CliError::failed(format!("the time is over: {}", self.states()))
    }
}

impl Progress {
    /// Returns the current obstacle, if the job has not ended.
    fn waiting(&self) -> Option<Waiting<'_>> {
        let obstacle = Some(self.last.reason.as_str()).filter(|reason| !reason.is_empty());
        self.exit.is_none().then_some((&self.job.name, obstacle))
    }

    fn state(&self) -> String {
        let text = match self.last.summary.text.as_str() {
            "" => "pending",
            text => text,
        };
        format!("{} is {text}", self.job.name)
    }
}

/// Returns the exit code for an ended job.
fn exit_code(job: &JobEntity) -> u8 {
    let failure = Exit::Failure.code();
    if job.summary.phase == "succeeded" {
        return Exit::Success.code();
    }
    let last = job.attempts.last().filter(|_| job.summary.phase == "failed");
    let code = last.and_then(|last| last.exit_code.or(last.signal.map(|signal| 128 + signal)));
    code.and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0).unwrap_or(failure)
}

fn age_by_wall(begin: Time) -> Duration {
    fleet_agent::wall_time().since(begin.timestamp())
}

fn until_wall(at: Time) -> Duration {
    at.timestamp().since(fleet_agent::wall_time())
}

#[cfg(test)]
mod tests {
    use fleet_http::wire::JobSummary;

    use super::*;

    #[test]
    fn exit_code_is_that_of_the_last_attempt() {
        let job = |phase: &str, exit_code: Option<i32>, signal: Option<i32>| {
            let mut attempt = JobAttempt::default();
            (attempt.exit_code, attempt.signal) = (exit_code, signal);
            let mut job = JobEntity::default();
            job.summary = JobSummary { phase: phase.into(), ..JobSummary::default() };
            job.attempts = vec![attempt];
            exit_code_of(&job)
        };
        for (phase, code, signal, expected) in [
            ("succeeded", Some(0), None, 0),
            ("succeeded", Some(7), None, 0),
            ("failed", Some(3), None, 3),
            ("failed", Some(0), None, 1),
            ("failed", Some(256), None, 1),
            ("failed", None, Some(9), 137),
            ("failed", None, None, 1),
            ("deadline exceeded", None, None, 1),
            ("stopped", None, None, 1),
        ] {
            assert_eq!(job(phase, code, signal), expected, "{phase} {code:?} {signal:?}");
        }
    }

    fn exit_code_of(job: &JobEntity) -> u8 {
        exit_code(job)
    }
}
