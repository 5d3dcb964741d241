//! What is being tried: sends tasks on their way, and remembers what failed and when to try again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{DesiredUnit, KnownUnit, Task, Timestamp, converge};
use fleet_unitfile::UnitName;

use super::execute::{Executor, Outcome};
use super::fence::Ending;
use super::problems::{Order, Problem, Problems, chain};
use crate::backoff::{Backoff, Pace};
use crate::{Clock, ServiceError};

/// What failed is tried again after a second, then ever less often, down to once a minute.
pub(crate) const RETRY: Pace =
    Pace { first: Duration::from_secs(1), longest: Duration::from_secs(60) };

/// What a machine should have, or what it has, by unit.
pub(crate) type Desired = BTreeMap<UnitName, DesiredUnit>;
pub(crate) type Known = BTreeMap<UnitName, KnownUnit>;

/// A unit and what was wanted of it; `None` when it was not wanted at all.
type Attempt = (UnitName, Option<Order>);

/// All that is tried on one machine.
pub(crate) struct Attempts {
    clock: Arc<dyn Clock>,
    problems: Arc<Problems>,
    executor: Executor,
    /// The units that the fence ends.
    ending: Arc<Ending>,
    /// What failed, by unit and the order that it failed under; a new order is tried at once.
    backoff: Backoff<Attempt>,
    /// What waits for another unit to be loaded, and is tried again when one is.
    waiting: BTreeSet<Attempt>,
    /// What each busy unit's tasks were given for.
    under_way: BTreeMap<UnitName, Option<DesiredUnit>>,
}

impl Attempts {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        problems: Arc<Problems>,
        executor: Executor,
        ending: Arc<Ending>,
    ) -> Self {
        let (backoff, waiting) = (Backoff::new(RETRY), BTreeSet::new());
        Self { clock, problems, executor, ending, backoff, waiting, under_way: BTreeMap::new() }
    }

    /// Sends those of the tasks on their way that lead from `known` to `desired` and that `allowed`
    /// lets through. Returns when to look again because something may be possible now.
    pub(crate) async fn carry_out(
        &mut self,
        desired: &Desired,
        known: &Known,
        now: Timestamp,
        allowed: fn(Vec<Task>) -> Vec<Task>,
    ) -> Option<Timestamp> {
        let held = self.held_back(desired, known, now);
        let mut tasks = allowed(converge(desired, known));
        tasks.retain(|task| task.unit().is_none_or(|unit| !held.contains(unit)));
        for unit in tasks.iter().filter_map(Task::unit) {
            self.under_way.insert(unit.clone(), desired.get(unit).cloned());
        }
        let loads = tasks.iter().any(|task| matches!(task, Task::Load { .. }));
        for outcome in self.executor.execute(tasks).await {
            drop(self.on_outcome(outcome));
        }
        let freed = if loads { std::mem::take(&mut self.waiting) } else { BTreeSet::new() };
        freed.iter().for_each(|attempt| self.backoff.on_success(attempt));
        (!freed.is_empty()).then_some(now)
    }

    /// Forgets failures that no longer matter. One does as long as the order that failed still
    /// stands, and is told as long as something is left to do for it; a start that failed is done,
    /// but what became of it stays worth telling.
    pub(crate) fn forget_old_failures(&mut self, desired: &Desired, known: &Known) {
        let tasks = converge(desired, known);
        let owed: BTreeSet<&UnitName> = tasks.iter().filter_map(Task::unit).collect();
        let order = |unit: &UnitName| desired.get(unit).map(Order::of);
        let stands = |(unit, of): &Attempt| {
            (desired.contains_key(unit) || known.contains_key(unit)) && order(unit) == *of
        };
        self.backoff.retain(stands);
        self.waiting.retain(stands);
        let executor = &self.executor;
        self.problems.retain_failures(|unit, problem| {
            // What is wanted and known of a busy unit may agree for a moment in between.
            let is_left = problem.start_failed || owed.contains(unit) || executor.is_busy(unit);
            is_left && order(unit) == Some(problem.order)
        });
    }

    /// When something that failed is to be tried again.
    pub(crate) fn due(&self, now: Timestamp) -> Option<Timestamp> {
        let reload_at = self.executor.owes_reload().then(|| now.after(RETRY.first));
        self.backoff.next_due(now).into_iter().chain(reload_at).min()
    }

    /// Whether tasks of `unit` are under way.
    pub(crate) fn is_busy(&self, unit: &UnitName) -> bool {
        self.executor.is_busy(unit)
    }

    /// Waits for a unit's tasks to end; for ever if none are under way. It has to be
    /// [taken in](Self::on_outcome).
    pub(crate) async fn next(&mut self) -> Outcome {
        self.executor.next().await
    }

    /// Takes in how the tasks of a unit ended. Returns what they were given for if all went well.
    pub(crate) fn on_outcome(&mut self, Outcome { unit, result }: Outcome) -> Option<DesiredUnit> {
        let wanted = self.under_way.remove(&unit).flatten();
        if wanted.is_none() {
            self.executor.owe_reload(); // its file was taken away
        }
        let attempt = (unit, wanted.as_ref().map(Order::of));
        match result {
            Ok(()) => {
                self.problems.clear_failure(&attempt.0);
                self.backoff.on_success(&attempt);
                wanted
            }
            Err(error) => {
                self.on_failure(attempt, &error);
                None
            }
        }
    }

    fn on_failure(&mut self, attempt: Attempt, error: &ServiceError) {
        tracing::warn!(unit = %attempt.0, error = chain(error), "a task failed");
        if let Some(order) = attempt.1 {
            self.problems.set(&attempt.0, Problem::new(order, error));
        }
        // A unit that was started and failed is launched; its own restart policy goes on from here.
        if matches!(error, ServiceError::NothingToTrigger { .. }) {
            self.waiting.insert(attempt.clone());
        }
        let is_tried_again = !matches!(error, ServiceError::StartFailed { .. });
        self.problems.tally().on_failure(is_tried_again);
        if is_tried_again {
            self.backoff.on_failure(attempt, self.clock.now());
        }
    }

    /// The units that must be left alone for now: they are busy, or failed a moment ago.
    fn held_back(&self, desired: &Desired, known: &Known, now: Timestamp) -> BTreeSet<UnitName> {
        let all: BTreeSet<&UnitName> = desired.keys().chain(known.keys()).collect();
        let held = all.into_iter().filter(|unit| {
            let attempt = ((*unit).clone(), desired.get(*unit).map(Order::of));
            let is_busy = self.executor.is_busy(unit) || self.ending.contains(unit);
            is_busy || !self.backoff.is_due(&attempt, now)
        });
        held.cloned().collect()
    }
}

/// The tasks of those units that only gain by theirs.
pub(crate) fn only_adding(mut tasks: Vec<Task>) -> Vec<Task> {
    let ends = |task: &&Task| {
        matches!(task, Task::Unload { .. } | Task::Stop { .. } | Task::Restart { .. })
    };
    let ended = tasks.iter().filter(ends).filter_map(Task::unit);
    let ended: BTreeSet<UnitName> = ended.cloned().collect();
    tasks.retain(|task| task.unit().is_none_or(|unit| !ended.contains(unit)));
    tasks
}
