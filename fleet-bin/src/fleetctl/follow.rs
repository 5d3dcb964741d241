//! Waits until units reach the goals of a command, and reports the result for each unit.

use std::time::Duration;

use fleet_agent::Clock as _;
use fleet_core::Timestamp;
use fleet_unitfile::UnitName;

use super::Context;
use super::concurrent::Poller;
use super::format::MachineLabels;
use super::obstacles::Obstacles;
use super::report::{UnitOutcome, UnitReport};
use super::session::eligible;
use super::session::machines::MachineCache;
use super::session::settings::WaitTimeout;
use super::wait::Observation;
use super::wait_state::{WaitResult, WaitState, WaitTarget};
use crate::ui::error::CliError;
use crate::ui::global_args::Format;

/// First pause between two polls. Later pauses grow up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);

const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Minimum pause between two polls, as a multiple of the time that a poll takes. If polls are slow,
/// for example because there are many units, longer pauses reduce the load. The pause is at most
/// [`LONGEST_FACTOR_PAUSE`].
const PAUSE_FACTOR: u32 = 4;

const LONGEST_FACTOR_PAUSE: Duration = Duration::from_secs(1);

/// Number of journal lines shown for a failed unit.
const LAST_LINES: u32 = 10;

/// Time limit for reading the journal lines of a failed unit, which are optional.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(3);

/// Waits for all units together. Prints a line for each unit that reaches its goal, and a notice
/// for each obstacle that delays a unit.
///
/// The wait for a unit ends when the unit reaches its goal, fails, is blocked for two seconds, or
/// runs out of time. The desired states stay as the command has set them, even after a failure or
/// Ctrl-C.
///
/// # Errors
///
/// Some unit did not reach its goal, or the user pressed Ctrl-C.
pub(crate) async fn follow(
    context: &mut Context,
    targets: Vec<WaitTarget>,
    timeout: WaitTimeout,
) -> Result<(), CliError> {
    let WaitTimeout::For(limit) = timeout else {
        return match timeout {
            WaitTimeout::None => report_triggered(context, &targets),
            _ => interruptible(context, targets, None).await,
        };
    };
    let deadline = context.clock.now().after(limit);
    interruptible(context, targets, Some(deadline)).await
}

/// Reports all units as triggered, without waiting.
fn report_triggered(context: &mut Context, targets: &[WaitTarget]) -> Result<(), CliError> {
    for WaitTarget { name, action, .. } in targets {
        let report = UnitReport::new(name.as_str(), *action, UnitOutcome::Triggered);
        context.output.record(&report, &report.text(&MachineLabels::default()))?;
    }
    context.output.finish()
}

async fn interruptible(
    context: &mut Context,
    targets: Vec<WaitTarget>,
    deadline: Option<Timestamp>,
) -> Result<(), CliError> {
    let summary = WaitSummary::new(&targets);
    let finished = tokio::select! {
        missed = Follower::new(context, targets).run(deadline) => Some(missed),
        Ok(()) = tokio::signal::ctrl_c() => None,
    };
    context.progress.clear();
    let missed = match finished {
        Some(missed) => missed?,
        None => {
            return Err(CliError::interrupted(
                "interrupted: the requested changes remain in effect",
            ));
        }
    };
    context.output.finish()?;
    if missed.count == 0 {
        return Ok(());
    }
    Err(CliError::failed(summary.missed(missed.count)).help(summary.help(missed)))
}

/// Number of units that did not reach their goal.
#[derive(Debug, Clone, Copy, Default)]
struct Missed {
    count: usize,
    /// Those that failed on a machine, which does not try again.
    failed: usize,
}

/// Summary of the wait, for the final error.
struct WaitSummary {
    first: String,
    count: usize,
    word: &'static str,
}

impl WaitSummary {
    fn new(targets: &[WaitTarget]) -> Self {
        let first = targets.first();
        let word = first.map_or("", |it| it.goal.word());
        let first = first.map_or_else(String::new, |it| it.name.to_string());
        Self { first, count: targets.len(), word }
    }

    fn help(&self, missed: Missed) -> String {
        let unit = if self.count == 1 { &self.first } else { "UNIT" };
        if missed.failed == missed.count {
            return format!("correct the cause, then \"fleetctl start {unit}\" tries again");
        }
        format!("the desired state stays; \"fleetctl status {unit}\" shows the progress")
    }

    fn missed(&self, missed: usize) -> String {
        let Self { first, count, word } = self;
        match count {
            1 => format!("{first} is not {word}"),
            _ => format!("{missed} of {count} units are not {word}"),
        }
    }
}

/// State of the wait for all units.
struct Follower<'a> {
    context: &'a mut Context,
    machines: MachineCache,
    poller: Poller,
    remaining: Vec<WaitState>,
    obstacles: Obstacles,
    count: usize,
    missed: Missed,
}

impl<'a> Follower<'a> {
    fn new(context: &'a mut Context, targets: Vec<WaitTarget>) -> Self {
        let count = targets.len();
        let remaining = targets.into_iter().map(WaitState::new).collect();
        let (machines, poller) = (MachineCache::default(), Poller::default());
        let (obstacles, missed) = (Obstacles::new("units", count), Missed::default());
        Self { context, machines, poller, remaining, obstacles, count, missed }
    }

    /// Polls until the wait for each unit is over. Returns the number of units that did not reach
    /// their goal.
    async fn run(mut self, deadline: Option<Timestamp>) -> Result<Missed, CliError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let begin = self.context.clock.now();
            let is_late = deadline.is_some_and(|deadline| begin >= deadline);
            self.poll_once(is_late).await?;
            if self.remaining.is_empty() {
                return Ok(self.missed);
            }
            self.context.progress.show(&self.summary());
            let now = self.context.clock.now();
            let minimum = LONGEST_FACTOR_PAUSE.min(now.since(begin) * PAUSE_FACTOR);
            let wake = now.after(pause.max(minimum));
            let wake = deadline.map_or(wake, |deadline| wake.min(deadline));
            self.context.clock.sleep_until(wake).await;
            pause = LONGEST_PAUSE.min(pause * 3 / 2);
        }
    }

    /// Polls all remaining units once, and removes those that are done.
    async fn poll_once(&mut self, is_late: bool) -> Result<(), CliError> {
        let units: Vec<&UnitName> = self.remaining.iter().map(|it| &it.target.name).collect();
        let observations = self.poller.poll(&self.context.session, &units).await?;
        for (mut pending, mut observation) in
            std::mem::take(&mut self.remaining).into_iter().zip(observations)
        {
            self.add_eligible_machines(&pending.target, &mut observation).await?;
            pending.observe(&observation, self.context.clock.now(), is_late);
            match pending.result() {
                Some(result) => self.end(&pending, &observation, result).await?,
                None => self.remaining.push(pending),
            }
        }
        self.report_obstacles();
        Ok(())
    }

    /// For a global unit, adds the machines that have the required metadata to the observation.
    /// This needs the list of all machines, so it is only done for goals that expect the unit on
    /// machines.
    async fn add_eligible_machines(
        &mut self,
        target: &WaitTarget,
        observation: &mut Observation,
    ) -> Result<(), CliError> {
        if let Some(unit) = observation.unit.as_ref().filter(|unit| unit.global)
            && target.goal.expects_placement()
        {
            self.machines.load_all(&self.context.session).await?;
            observation.eligible = eligible(unit, self.machines.present());
        }
        Ok(())
    }

    /// Prints new obstacles.
    fn report_obstacles(&mut self) {
        let waiting = self.remaining.iter().map(|it| (&it.target.name, it.obstacle()));
        let now = self.context.clock.now();
        for notice in self.obstacles.observe(&waiting.collect::<Vec<_>>(), now) {
            self.context.progress.note(&notice);
        }
    }

    async fn end(
        &mut self,
        pending: &WaitState,
        observation: &Observation,
        result: WaitResult,
    ) -> Result<(), CliError> {
        let WaitTarget { name, action, goal, .. } = &pending.target;
        self.context.progress.clear();
        let report =
            UnitReport::new(name.as_str(), *action, result.outcome).with_observation(observation);
        let report = report.for_goal(*goal).with_message(&result.text);
        if self.context.output.format() == Format::Table {
            self.machines.load(&self.context.session, report.only_machine()).await?;
        }
        let text = report.text(&self.machines.labels());
        self.context.output.record(&report, &text)?;
        if result.outcome == UnitOutcome::Reached {
            return Ok(());
        }
        self.missed.count += 1;
        self.missed.failed += usize::from(result.machine.is_some());
        if !self.obstacles.was_reported(name, &result.text) {
            let when = if result.outcome == UnitOutcome::Late { "timed out: " } else { "" };
            self.context.progress.note(&format!("{name}: {when}{}", result.text));
        }
        if let Some(machine) = result.machine {
            self.show_last_lines(name, machine).await;
        }
        Ok(())
    }

    /// Shows the last journal lines of a failed unit. Errors are ignored.
    async fn show_last_lines(&mut self, name: &UnitName, machine: String) {
        let lines = self.context.session.last_lines(name, Some(machine), LAST_LINES);
        let Ok(Ok(lines)) = tokio::time::timeout(LAST_LINES_TIMEOUT, lines).await else {
            return;
        };
        for line in lines {
            self.context.progress.note(&format!("  | {}", line.text));
        }
    }

    fn summary(&self) -> String {
        let reached = self.count - self.remaining.len() - self.missed.count;
        let Some(first) = self.remaining.first() else {
            return String::new();
        };
        let WaitTarget { name, goal, .. } = &first.target;
        let (count, word, state) = (self.count, goal.word(), first.description());
        format!("{reached}/{count} units {word}; waiting for {name}: {state}")
    }
}
