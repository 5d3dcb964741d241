//! Waiting until units are where a command wanted them, and telling of it.

use std::time::Duration;

use fleet_agent::Clock as _;
use fleet_core::Timestamp;
use fleet_http::wire;
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::context::Context;
use super::error::CliError;
use super::report::{Action, Outcome, Report};
use super::settings::Patience;
use super::wait::{Goal, Sight, Verdict};
use super::words::Machines;

/// How long after the first look the second one comes. The pause grows up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);

const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How long something that is in the way must stay there to be taken for what will stay.
const SETTLED: Duration = Duration::from_secs(2);

/// How long a process that was just started must run for its unit to count as active. What ends
/// at once, for want of a file or a port, is found out by this.
const STAYS: Duration = Duration::from_millis(200);

/// How many units are looked at at the same moment.
const LOOKS: usize = 8;

/// How many journal lines are shown of a unit that failed.
const LAST_LINES: u32 = 10;

/// How long these lines may take to come; they are a courtesy.
const LAST_LINES_TIME: Duration = Duration::from_secs(3);

/// A unit that a command acted on, and what for.
#[derive(Debug, Clone)]
pub(crate) struct Awaited {
    /// The unit.
    pub(crate) name: UnitName,
    /// What was asked for.
    pub(crate) action: Action,
    /// What to wait for.
    pub(crate) goal: Goal,
    /// Whether it was there before the command, so that nothing new is to be expected of it.
    pub(crate) is_settled: bool,
}

/// Waits for all the units together, prints a line for each as it gets there, and tells of those
/// that do not.
///
/// A unit's wait ends when it is there, when it failed, when something has been in its way for two
/// seconds, or when time is up. Desired states stay as they are in every case.
///
/// # Errors
///
/// Some unit did not get there, or somebody pressed Ctrl-C.
pub(crate) async fn follow(
    context: &mut Context,
    awaited: Vec<Awaited>,
    patience: Patience,
) -> Result<(), CliError> {
    let Patience::For(limit) = patience else {
        return match patience {
            Patience::None => trigger(context, &awaited),
            _ => interruptible(context, awaited, None).await,
        };
    };
    let deadline = context.clock.now().after(limit);
    interruptible(context, awaited, Some(deadline)).await
}

/// Tells that the units were asked for.
fn trigger(context: &mut Context, awaited: &[Awaited]) -> Result<(), CliError> {
    for Awaited { name, action, .. } in awaited {
        let report = Report::new(name.as_str(), *action, Outcome::Triggered);
        context.output.record(&report, &report.text(&Machines::default()))?;
    }
    context.output.finish()
}

async fn interruptible(
    context: &mut Context,
    awaited: Vec<Awaited>,
    deadline: Option<Timestamp>,
) -> Result<(), CliError> {
    let whole = Whole::of(&awaited);
    let ended = tokio::select! {
        ended = Following::new(context, awaited).run(deadline) => Some(ended),
        Ok(()) = tokio::signal::ctrl_c() => None,
    };
    context.progress.clear();
    let missed = match ended {
        Some(missed) => missed?,
        None => {
            return Err(CliError::interrupted("interrupted; what was asked for stays asked for"));
        }
    };
    context.output.finish()?;
    if missed == 0 {
        return Ok(());
    }
    Err(CliError::failed(whole.missed(missed))
        .help("the desired state stays; \"fleetctl status\" shows how a unit goes on"))
}

/// What all units together were to become, for the error in the end.
struct Whole {
    first: String,
    count: usize,
    word: &'static str,
}

impl Whole {
    fn of(awaited: &[Awaited]) -> Self {
        let first = awaited.first();
        let word = first.map_or("", |it| it.goal.word());
        let first = first.map_or_else(String::new, |it| it.name.to_string());
        Self { first, count: awaited.len(), word }
    }

    fn missed(&self, missed: usize) -> String {
        let Self { first, count, word } = self;
        match count {
            1 => format!("{first} is not {word}"),
            _ => format!("{missed} of {count} units are not {word}"),
        }
    }
}

/// The units that are still waited for.
struct Following<'a> {
    context: &'a mut Context,
    machines: Vec<wire::Machine>,
    left: Vec<Pending>,
    count: usize,
    missed: usize,
}

/// One unit that is still waited for.
struct Pending {
    awaited: Awaited,
    last: Option<Last>,
    /// What was told of it.
    told: Option<String>,
}

/// What the last look at a unit meant, and since when that is so.
struct Last {
    verdict: Verdict,
    since: Timestamp,
    looks: u32,
}

impl<'a> Following<'a> {
    fn new(context: &'a mut Context, awaited: Vec<Awaited>) -> Self {
        let count = awaited.len();
        let pending = |awaited| Pending { awaited, last: None, told: None };
        let left = awaited.into_iter().map(pending).collect();
        Self { context, machines: Vec::new(), left, count, missed: 0 }
    }

    /// Returns how many units did not get there.
    async fn run(mut self, deadline: Option<Timestamp>) -> Result<usize, CliError> {
        self.machines = self.context.session.machines().await?;
        let mut pause = FIRST_PAUSE;
        loop {
            let is_late = deadline.is_some_and(|deadline| self.context.clock.now() >= deadline);
            self.round(is_late).await?;
            if self.left.is_empty() {
                return Ok(self.missed);
            }
            self.context.progress.show(&self.summary());
            let wake = self.context.clock.now().after(pause);
            let wake = deadline.map_or(wake, |deadline| wake.min(deadline));
            self.context.clock.sleep_until(wake).await;
            pause = LONGEST_PAUSE.min(pause * 3 / 2);
        }
    }

    /// Looks at every unit that is left once, and takes out those whose wait is over.
    async fn round(&mut self, is_late: bool) -> Result<(), CliError> {
        let (session, machines) = (self.context.session.clone(), self.machines.clone());
        let looks = self.left.iter().map(|it| it.awaited.name.clone()).map(|name| {
            let (session, machines) = (&session, &machines);
            async move { session.sight(&name, machines).await }
        });
        let sights: Vec<Sight> = stream::iter(looks).buffered(LOOKS).try_collect().await?;
        for (mut pending, sight) in std::mem::take(&mut self.left).into_iter().zip(sights) {
            let verdict = pending.look(&sight, self.context.clock.now());
            match self.decide(&mut pending, verdict, is_late) {
                Some((outcome, text)) => self.end(&pending, &sight, outcome, text).await?,
                None => self.left.push(pending),
            }
        }
        Ok(())
    }

    /// Whether the wait for one unit is over, and how.
    fn decide(
        &mut self,
        pending: &mut Pending,
        verdict: Verdict,
        is_late: bool,
    ) -> Option<(Outcome, Ending)> {
        let is_settled = pending.is_settled(self.context.clock.now()) || is_late;
        match verdict {
            Verdict::Reached => Some((Outcome::Reached, Ending::default())),
            Verdict::Runs if is_late || pending.has_stayed(self.context.clock.now()) => {
                Some((Outcome::Reached, Ending::default()))
            }
            Verdict::Enough(text) if is_settled => Some((Outcome::Reached, Ending::saying(text))),
            Verdict::Failed { text, machine } if pending.is_sure() => {
                Some((Outcome::Failed, Ending { text, machine }))
            }
            Verdict::Stuck(text) if is_settled => Some((Outcome::Failed, Ending::saying(text))),
            Verdict::Pending(text) if is_late => Some((Outcome::Late, Ending::saying(text))),
            Verdict::Stuck(text) => {
                self.tell_once(pending, text);
                None
            }
            _ => None,
        }
    }

    /// Says what is in the way as soon as it is known, so that nobody waits in silence.
    fn tell_once(&mut self, pending: &mut Pending, text: String) {
        if pending.told.as_ref() != Some(&text) {
            self.context.progress.note(&format!("{}: waiting: {text}", pending.awaited.name));
            pending.told = Some(text);
        }
    }

    async fn end(
        &mut self,
        pending: &Pending,
        sight: &Sight,
        outcome: Outcome,
        ending: Ending,
    ) -> Result<(), CliError> {
        let Awaited { name, action, .. } = &pending.awaited;
        self.context.progress.clear();
        let report = Report::new(name.as_str(), *action, outcome).seen(sight);
        let report = report.with_message(&ending.text);
        let text = report.text(&Machines::new(&self.machines));
        self.context.output.record(&report, &text)?;
        if outcome == Outcome::Reached {
            return Ok(());
        }
        self.missed += 1;
        if pending.told.as_ref() != Some(&ending.text) {
            let when = if outcome == Outcome::Late { "not in time: " } else { "" };
            self.context.progress.note(&format!("{name}: {when}{}", ending.text));
        }
        if let Some(machine) = ending.machine {
            self.show_last_lines(name, machine).await;
        }
        Ok(())
    }

    /// Shows what a unit that failed wrote last. That it cannot be had is no further error.
    async fn show_last_lines(&mut self, name: &UnitName, machine: String) {
        let lines = self.context.session.last_lines(name, Some(machine), LAST_LINES);
        let Ok(Ok(lines)) = tokio::time::timeout(LAST_LINES_TIME, lines).await else {
            return;
        };
        for line in lines {
            self.context.progress.note(&format!("  | {line}"));
        }
    }

    fn summary(&self) -> String {
        let there = self.count - self.left.len() - self.missed;
        let Some(first) = self.left.first() else {
            return String::new();
        };
        let Awaited { name, goal, .. } = &first.awaited;
        let what = match first.last.as_ref().map(|last| &last.verdict) {
            Some(Verdict::Pending(text) | Verdict::Stuck(text) | Verdict::Enough(text)) => text,
            _ => "it runs",
        };
        format!("{there}/{} units {}; waiting for {name}: {what}", self.count, goal.word())
    }
}

impl Pending {
    /// Judges what was seen, and remembers since when it is so.
    fn look(&mut self, sight: &Sight, now: Timestamp) -> Verdict {
        let verdict = self.awaited.goal.judge(sight);
        match &mut self.last {
            Some(last) if last.verdict == verdict => last.looks += 1,
            last => *last = Some(Last { verdict: verdict.clone(), since: now, looks: 1 }),
        }
        verdict
    }

    /// Whether things have been like this for so long that they will hardly change by themselves.
    fn is_settled(&self, now: Timestamp) -> bool {
        self.last.as_ref().is_some_and(|last| now.since(last.since) >= SETTLED)
    }

    /// Whether a process that runs has been running long enough.
    fn has_stayed(&self, now: Timestamp) -> bool {
        let stays = |last: &Last| now.since(last.since) >= STAYS;
        self.awaited.is_settled || self.last.as_ref().is_some_and(stays)
    }

    /// Whether a second look showed the same. Between the moment when a machine notes that it
    /// starts a unit and the start itself, the end of an earlier run may still be seen.
    fn is_sure(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.looks > 1)
    }
}

/// What is said of a unit whose wait is over.
#[derive(Debug, Default)]
struct Ending {
    text: String,
    machine: Option<String>,
}

impl Ending {
    fn saying(text: String) -> Self {
        Self { text, machine: None }
    }
}
