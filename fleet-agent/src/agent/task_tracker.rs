//! Starts tasks, and tracks failures and retries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{DesiredUnit, KnownUnit, TargetState, Task, Timestamp, converge};
use fleet_unitfile::UnitName;

use super::execute::{Executor, Outcome};
use super::fence::StoppingUnits;
use super::unit_errors::{OrderId, UnitError, UnitErrors, chain};
use crate::backoff::{Backoff, BackoffLimits};
use crate::{Clock, ServiceError};

/// Waits before a failed task is retried: one second at first, then doubling up to one minute.
pub(crate) const RETRY: BackoffLimits =
    BackoffLimits { first: Duration::from_secs(1), max: Duration::from_secs(60) };

/// Number of consecutive failures after which an unavailable service manager is a problem of its
/// units. By the pauses of [`RETRY`], it has then been unavailable for three seconds. Before, it
/// may only be re-executing itself, and the next attempt is likely to succeed.
const SHORT_OUTAGE: u32 = 2;

/// Units that a machine should have, and units that it has.
pub(crate) type DesiredUnits = BTreeMap<UnitName, DesiredUnit>;
pub(crate) type KnownUnits = BTreeMap<UnitName, KnownUnit>;

/// A unit and the cluster's order for it (version of the unit, placement and target state) that a
/// task carries out. The order is `None` if the unit is not wanted on this machine at all.
type TaskKey = (UnitName, Option<OrderId>);

/// Tasks of one machine: in progress, failed and waiting.
pub(crate) struct TaskTracker {
    clock: Arc<dyn Clock>,
    errors: Arc<UnitErrors>,
    executor: Executor,
    /// Units that the fence is stopping.
    stopping: Arc<StoppingUnits>,
    /// Failures by unit and order; a new order is tried at once.
    backoff: Backoff<TaskKey>,
    /// Attempts that wait for another unit to be loaded, such as the start of a timer whose service
    /// is missing. They are retried when any unit is loaded.
    waiting: BTreeSet<TaskKey>,
    /// Desired state for which each busy unit's tasks were started.
    in_progress: BTreeMap<UnitName, Option<DesiredUnit>>,
    /// Busy units for which the cluster has given another order since their tasks were started.
    overruled: BTreeSet<UnitName>,
}

impl TaskTracker {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        errors: Arc<UnitErrors>,
        executor: Executor,
        stopping: Arc<StoppingUnits>,
    ) -> Self {
        Self {
            clock,
            errors,
            executor,
            stopping,
            backoff: Backoff::new(RETRY),
            waiting: BTreeSet::new(),
            in_progress: BTreeMap::new(),
            overruled: BTreeSet::new(),
        }
    }

    /// Starts the tasks that lead from `known` to `desired`. `allowed` selects from these tasks.
    ///
    /// Returns `now` if the caller should call this again at once. This is the case if a unit was
    /// loaded while earlier tasks waited for a load. (For example, the start of a timer waits until
    /// its service is loaded.) Otherwise returns `None`.
    pub(crate) async fn run_tasks(
        &mut self,
        desired: &DesiredUnits,
        known: &KnownUnits,
        now: Timestamp,
        allowed: fn(Vec<Task>) -> Vec<Task>,
    ) -> Option<Timestamp> {
        let mut tasks = allowed(converge(desired, known));
        self.abandon_overruled_starts(&tasks, desired, known);
        let held = self.held_back(desired, known, now);
        tasks.retain(|task| task.unit().is_none_or(|unit| !held.contains(unit)));
        for unit in tasks.iter().filter_map(Task::unit) {
            self.in_progress.insert(unit.clone(), desired.get(unit).cloned());
        }
        let loads = tasks.iter().any(|task| matches!(task, Task::Load { .. }));
        for outcome in self.executor.execute(tasks).await {
            drop(self.on_outcome(outcome));
        }
        let freed = if loads { std::mem::take(&mut self.waiting) } else { BTreeSet::new() };
        freed.iter().for_each(|attempt| self.backoff.on_success(attempt));
        (!freed.is_empty()).then_some(now)
    }

    /// Drops outdated retry delays and errors. Both are dropped as soon as the cluster gives
    /// another order for the unit, such as a new version. While the order is the same:
    ///
    /// - A retry delay stays.
    /// - An error stays only if tasks remain to be done for the order.
    /// - The error of a failed start stays even without remaining tasks, because the tracker does
    ///   not repeat a failed start.
    pub(crate) fn forget_old_failures(&mut self, desired: &DesiredUnits, known: &KnownUnits) {
        let tasks = converge(desired, known);
        let with_tasks: BTreeSet<&UnitName> = tasks.iter().filter_map(Task::unit).collect();
        let order = |unit: &UnitName| desired.get(unit).map(OrderId::of);
        let stands = |(unit, of): &TaskKey| {
            (desired.contains_key(unit) || known.contains_key(unit)) && order(unit) == *of
        };
        self.backoff.retain(stands);
        self.waiting.retain(stands);
        let executor = &self.executor;
        self.errors.retain_failures(|unit, problem| {
            // Between two tasks of a busy unit, the desired and the known state may agree
            // temporarily.
            let is_left =
                problem.start_failed || with_tasks.contains(unit) || executor.is_busy(unit);
            is_left && order(unit) == Some(problem.order)
        });
    }

    /// Returns when the next failed attempt is to be retried.
    pub(crate) fn due(&self, now: Timestamp) -> Option<Timestamp> {
        let reload_at = self.executor.needs_reload().then(|| now.after(RETRY.first));
        self.backoff.next_due(now).into_iter().chain(reload_at).min()
    }

    /// Whether tasks of `unit` are in progress.
    pub(crate) fn is_busy(&self, unit: &UnitName) -> bool {
        self.executor.is_busy(unit)
    }

    /// Waits until a unit's tasks have ended. Waits forever if no tasks are in progress. The caller
    /// has to pass the result to [`on_outcome`](Self::on_outcome).
    pub(crate) async fn next(&mut self) -> Outcome {
        self.executor.next().await
    }

    /// Processes the result of a unit's tasks. Returns the desired state for which they were
    /// started. Returns `None` if a task failed, or if the tasks removed the unit.
    pub(crate) fn on_outcome(&mut self, Outcome { unit, result }: Outcome) -> Option<DesiredUnit> {
        let wanted = self.in_progress.remove(&unit).flatten();
        if wanted.is_none() {
            self.executor.require_reload(); // its file has been removed
        }
        let attempt = (unit, wanted.as_ref().map(OrderId::of));
        match result {
            Ok(()) => {
                self.errors.clear_failure(&attempt.0);
                self.backoff.on_success(&attempt);
                wanted
            }
            Err(error) => {
                self.on_failure(attempt, &error);
                None
            }
        }
    }

    fn on_failure(&mut self, attempt: TaskKey, error: &ServiceError) {
        let unit = &attempt.0;
        tracing::warn!(%unit, error = chain(error), "cannot bring a unit to its desired state");
        let is_short_outage = matches!(error, ServiceError::Unavailable(_))
            && self.backoff.failures(&attempt) < SHORT_OUTAGE;
        if let Some(order) = attempt.1.filter(|_| !is_short_outage) {
            self.errors.set(&attempt.0, UnitError::new(order, error));
        }
        // A unit whose start failed counts as launched; its own restart policy takes over.
        if matches!(error, ServiceError::NothingToTrigger { .. }) {
            self.waiting.insert(attempt.clone());
        }
        let is_tried_again = !matches!(error, ServiceError::StartFailed { .. });
        self.errors.metrics().on_failure(is_tried_again);
        if is_tried_again {
            self.backoff.on_failure(attempt, self.clock.now());
        }
    }

    /// Abandons each start and restart that the cluster has overruled by an order to stop, restart
    /// or unload the unit, or by a newer placement on this machine. So that order takes effect at
    /// once, even if the start never ends. After a newer placement, the start itself continues.
    ///
    /// A start must be known to the service manager first. Otherwise the service manager could
    /// begin the start after the stop.
    fn abandon_overruled_starts(
        &mut self,
        tasks: &[Task],
        desired: &DesiredUnits,
        known: &KnownUnits,
    ) {
        self.overruled.clear();
        let order = |wanted: Option<&DesiredUnit>| wanted.map(OrderId::of);
        let loaded = tasks.iter().filter_map(|task| match task {
            Task::Load { unit, .. } => Some(&unit.name),
            _ => None,
        });
        let ended: BTreeSet<&UnitName> = ending_tasks(tasks).chain(loaded).collect();
        for (unit, wanted) in std::mem::take(&mut self.in_progress) {
            let is_overruled = order(desired.get(&unit)) != order(wanted.as_ref());
            let is_requested =
                known.get(&unit).zip(wanted.as_ref()).is_some_and(|(known, wanted)| {
                    known.requested == TargetState::Launched
                        && known.generation >= wanted.unit.generation
                });
            let is_ended = is_overruled && is_requested && ended.contains(&unit);
            if is_ended && self.executor.abandon_start(&unit) {
                continue;
            }
            if is_overruled {
                self.overruled.insert(unit.clone());
            }
            self.in_progress.insert(unit, wanted);
        }
    }

    /// Returns whether one of these units has a start in progress that the cluster had overruled at
    /// the last call of [`run_tasks`](Self::run_tasks).
    pub(crate) fn is_overruled(&self, units: &BTreeSet<UnitName>) -> bool {
        !self.overruled.is_disjoint(units)
    }

    /// Returns the units that must not get tasks yet: busy units, and units that failed recently.
    fn held_back(
        &self,
        desired: &DesiredUnits,
        known: &KnownUnits,
        now: Timestamp,
    ) -> BTreeSet<UnitName> {
        let all: BTreeSet<&UnitName> = desired.keys().chain(known.keys()).collect();
        let held = all.into_iter().filter(|unit| {
            let attempt = ((*unit).clone(), desired.get(*unit).map(OrderId::of));
            let is_busy = self.executor.is_busy(unit) || self.stopping.contains(unit);
            is_busy || !self.backoff.is_due(&attempt, now)
        });
        held.cloned().collect()
    }
}

/// Drops every task of a unit that any of `tasks` stops, restarts or unloads. So the remaining
/// tasks end no running unit.
pub(crate) fn additive_tasks(mut tasks: Vec<Task>) -> Vec<Task> {
    let ended: BTreeSet<UnitName> = ending_tasks(&tasks).cloned().collect();
    tasks.retain(|task| task.unit().is_none_or(|unit| !ended.contains(unit)));
    tasks
}

/// Returns the units that one of `tasks` stops, restarts or unloads.
fn ending_tasks(tasks: &[Task]) -> impl Iterator<Item = &UnitName> {
    let ends = |task: &&Task| {
        matches!(task, Task::Unload { .. } | Task::Stop { .. } | Task::Restart { .. })
    };
    tasks.iter().filter(ends).filter_map(Task::unit)
}
