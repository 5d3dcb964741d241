//! Waiting until units are where a command wanted them, and telling of it.

use std::time::Duration;

use fleet_agent::Clock as _;
use fleet_core::Timestamp;
use fleet_unitfile::UnitName;

use super::context::Context;
use super::error::CliError;
use super::global_args::Format;
use super::met::Met;
use super::pending::{Awaited, Ending, Pending};
use super::report::{Outcome, Report};
use super::session::eligible;
use super::settings::Patience;
use super::sights::Sights;
use super::wait::Sight;
use super::words::Machines;

/// How long after the first look the second one comes. The pause grows up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);

const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How many times as long as a look the pause after it is at least: to show many units is work for
/// the machines that have them to start. It is a second at most.
const REST: u32 = 4;

const LONGEST_REST: Duration = Duration::from_secs(1);

/// How many journal lines are shown of a unit that failed.
const LAST_LINES: u32 = 10;

/// How long these lines may take to come; they are a courtesy.
const LAST_LINES_TIME: Duration = Duration::from_secs(3);

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
    Err(CliError::failed(whole.missed(missed)).help(whole.help()))
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

    fn help(&self) -> String {
        let (unit, it) = match self.count {
            1 => (format!(" {}", self.first), "it"),
            _ => (String::new(), "a unit"),
        };
        format!("the desired state stays; \"fleetctl status{unit}\" shows how {it} goes on")
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
    met: Met,
    sights: Sights,
    left: Vec<Pending>,
    count: usize,
    missed: usize,
}

impl<'a> Following<'a> {
    fn new(context: &'a mut Context, awaited: Vec<Awaited>) -> Self {
        let count = awaited.len();
        let left = awaited.into_iter().map(Pending::new).collect();
        let (met, sights) = (Met::default(), Sights::default());
        Self { context, met, sights, left, count, missed: 0 }
    }

    /// Returns how many units did not get there.
    async fn run(mut self, deadline: Option<Timestamp>) -> Result<usize, CliError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let begin = self.context.clock.now();
            let is_late = deadline.is_some_and(|deadline| begin >= deadline);
            self.round(is_late).await?;
            if self.left.is_empty() {
                return Ok(self.missed);
            }
            self.context.progress.show(&self.summary());
            let now = self.context.clock.now();
            let rest = LONGEST_REST.min(now.since(begin) * REST);
            let wake = now.after(pause.max(rest));
            let wake = deadline.map_or(wake, |deadline| wake.min(deadline));
            self.context.clock.sleep_until(wake).await;
            pause = LONGEST_PAUSE.min(pause * 3 / 2);
        }
    }

    /// Looks at every unit that is left once, and takes out those whose wait is over.
    async fn round(&mut self, is_late: bool) -> Result<(), CliError> {
        let units: Vec<&UnitName> = self.left.iter().map(|it| &it.awaited.name).collect();
        let sights = self.sights.look(&self.context.session, &units).await?;
        for (mut pending, mut sight) in std::mem::take(&mut self.left).into_iter().zip(sights) {
            self.see_where_it_belongs(&pending.awaited, &mut sight).await?;
            pending.look(&sight, self.context.clock.now(), is_late);
            match pending.ending() {
                Some(ending) => self.end(&pending, &sight, ending).await?,
                None => {
                    self.tell(&mut pending);
                    self.left.push(pending);
                }
            }
        }
        Ok(())
    }

    /// A global unit belongs on whatever machines fit it, which the list of all of them shows.
    async fn see_where_it_belongs(
        &mut self,
        awaited: &Awaited,
        sight: &mut Sight,
    ) -> Result<(), CliError> {
        if let Some(unit) = sight.unit.as_ref().filter(|unit| unit.global)
            && awaited.goal.is_to_be_there()
        {
            self.met.meet_all(&self.context.session).await?;
            sight.eligible = eligible(unit, self.met.present());
        }
        Ok(())
    }

    /// Says what is in the way as soon as it is known, so that nobody waits in silence.
    fn tell(&mut self, pending: &mut Pending) {
        if let Some(text) = pending.news() {
            self.context.progress.note(&format!("{}: waiting: {text}", pending.awaited.name));
        }
    }

    async fn end(
        &mut self,
        pending: &Pending,
        sight: &Sight,
        ending: Ending,
    ) -> Result<(), CliError> {
        let Awaited { name, action, goal, .. } = &pending.awaited;
        self.context.progress.clear();
        let report = Report::new(name.as_str(), *action, ending.outcome).seen(sight);
        let report = report.reaching(*goal).with_message(&ending.text);
        if self.context.output.format() == Format::Table {
            self.met.meet(&self.context.session, report.only_machine()).await?;
        }
        let text = report.text(&self.met.words());
        self.context.output.record(&report, &text)?;
        if ending.outcome == Outcome::Reached {
            return Ok(());
        }
        self.missed += 1;
        if !pending.was_told(&ending.text) {
            let when = if ending.outcome == Outcome::Late { "not in time: " } else { "" };
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
        let (count, word, what) = (self.count, goal.word(), first.what());
        format!("{there}/{count} units {word}; waiting for {name}: {what}")
    }
}
