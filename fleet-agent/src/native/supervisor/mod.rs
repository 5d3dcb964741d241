//! The one task that decides for all units: which start, stop and are retried, and in which order.
//!
//! ```text
//!     ┌─── Statuses, feed, changes ────┐
//!     v                                │
//! frontends ── Command ──────────> Supervisor ── ActionKind, RunUpdate ──> run_task ──> run driver
//!     │                             ^  ^  ^                                   │
//!     └─> requests ── Command ──────┘  │  └────────────── RunReport ──────────┘
//!            │                actions, │ events
//!            v                         v
//!          state         InitState (the planner, pure)      Starters (next elapses, traffic)
//! ```
//!
//! Frontends read the logs of units directly. A snapshot is the answer to a command.
//!
//! The event loop wakes up for a command, a report, an event of a timer or activator, or the
//! earliest deadline: of the planner, of a timer, of a failed start or of changed files. Then it
//! carries out the pending actions. Each such turn works only on the units that have changed, so
//! its cost does not depend on the number of idle units.
//!
//! Units come from one source. `fleet-init` passes a whole graph, read from files. Under fleetd the
//! units are loaded one by one, and [`managed_units`] maps the requests for them to the graph.
//!
//! A run task covers one run of one unit, from its start until no process of the run is left. The
//! stand-in of an external unit has an `ExternalWatch` instead, with the same channels.
//!
//! | module | topic |
//! |---|---|
//! | `command` | commands, the handle of a frontend, configuration, errors |
//! | `requests` | requests for loaded units, in tasks of their own, not in the event loop |
//! | `core`, `targets`, `units` | the planner; goal, extra targets and masks; the state per unit |
//! | `managed_units` | loaded units: the graph of them, their requests, waiting callers |
//! | `starters` | units that start others, loaded units only: timers and activators |
//! | `timers` | timers: next elapse, start of their units |
//! | `activators` | sockets and paths: traffic, changes, start of their units |
//! | `recovery` | state of units of files that an earlier supervisor has left |
//! | `run_task` | the task of a run, and its channel |
//! | `snapshot`, `event_log` | the status of all units, and previews; log lines about units |
//! | `compile` | which unit files can run here |

pub(super) mod command;
pub(super) mod compile;
pub(super) mod managed_units;
pub(super) mod requests;
pub(super) mod starters;
#[cfg(test)]
pub(super) mod support_tests;

mod activators;
mod core;
mod event_log;
mod recovery;
mod run_task;
mod snapshot;
mod targets;
#[cfg(test)]
mod tests;
mod timers;
mod units;

pub(super) use self::command::io_error;
pub use self::command::{SupervisorConfig, SupervisorError};
pub use snapshot::{InitDryRun, InitDryRunResult, InitSnapshot, UnitSnapshot};

use self::core::Core;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{ActionKind, EventKind, FailureCause, InitState, Name, UnitAction};
use tokio::sync::{mpsc, watch};

use self::command::{Command, CommandSender, Reply, answer};
use self::compile::{HostCapabilities, check_supported};
use self::event_log::EventLog;
use self::managed_units::{FollowUps, LoadedGraph, ManagedUnits, RunEnd, Statuses};
use self::requests::Requests;
use self::run_task::{QueueFull, RunReport};
use self::starters::Starters;
use self::targets::Targets;
use self::units::Units;
use crate::ServiceError;
use crate::native::log::rate_limit::unrecorded_cause;
use crate::native::run::driver::RunDriver;
use crate::native::run::machine::state::{RunOutcome, RunState, ServicePhase};
use crate::native::state::desired_targets::TargetSelection;
use crate::native::state::manager_context::{ManagerContext, TARGETS};
use crate::native::state::unit_directory::RequestedState;
use crate::sleep::Sleep;

/// Maximum number of queued reports that the event loop handles before it plans again.
const MAX_PER_TURN: usize = 256;

/// Delay before a run that could not be started counts as failed. Otherwise a unit with a restart
/// delay of zero would fail and restart in an endless loop, which would keep the event loop busy.
const SPAWN_FAILURE_DELAY: Duration = Duration::from_secs(1);

/// Source of the units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnitSource {
    /// A graph that is replaced as a whole. The supervisor stores the definition of each unit that
    /// it starts, and logs what happens to the units.
    Files,
    /// Units that fleet loads one by one. Their files are stored when they are loaded.
    Loads,
}

/// State of the event loop.
pub(super) struct Supervisor {
    source: UnitSource,
    core: Core,
    /// Units that fleet has loaded.
    managed: ManagedUnits,
    /// Capabilities of this host.
    host: HostCapabilities,
    event_log: EventLog,
    /// Starts that failed, each with the time at which the run is to be reported as failed.
    failed_spawns: VecDeque<(Timestamp, UnitAction, FailureCause)>,
    /// Callers that wait until all runs are over, except those of stuck units.
    idle_waiters: Vec<Reply<Vec<ServiceError>>>,
    inbox: mpsc::Receiver<Command>,
    requests: Arc<Requests>,
    reports: mpsc::Receiver<RunReport>,
    changes: watch::Sender<u64>,
}

impl Supervisor {
    /// Creates a supervisor without units.
    fn new(
        context: Arc<ManagerContext>,
        host: HostCapabilities,
        source: UnitSource,
        (planner, selection): (InitState, TargetSelection),
        graph: LoadedGraph,
    ) -> Self {
        let (units, reports) = Units::new(Arc::clone(&context));
        let (commands, inbox) = CommandSender::channel();
        let statuses = Statuses::default();
        let requests = Arc::new(Requests::new(&context, &host, commands, &statuses));
        let starters = Starters::new(&context, &requests, &statuses);
        let follow_ups = FollowUps::new(&requests);
        Self {
            source,
            managed: ManagedUnits::new(graph, starters, follow_ups, statuses),
            host,
            event_log: EventLog::default(),
            failed_spawns: VecDeque::new(),
            idle_waiters: Vec::new(),
            inbox,
            requests,
            reports,
            changes: watch::channel(0).0,
            core: Core {
                planner,
                targets: Targets::new(selection, context.runtime_file(TARGETS)),
                units,
                unrecoverable: BTreeMap::new(),
                shutting_down: false,
                context,
            },
        }
    }

    /// Runs until its task is aborted.
    async fn run(mut self) {
        let mut sleep = Sleep::new(&self.core.context.clock);
        loop {
            self.turn();
            let elapse = self.managed.starters().set_alarm();
            let due = self.deadlines().chain(elapse).min();
            tokio::select! {
                command = self.inbox.recv() => match command {
                    Some(command) => self.on_command(command),
                    None => return,
                },
                Some(report) = self.reports.recv() => self.on_report(report),
                event = self.managed.starters().next_event() => {
                    self.managed.starters().on_event(event);
                }
                () = sleep.until(due) => {}
            }
            // Handles all pending reports in one turn.
            for _ in 0..MAX_PER_TURN {
                let Ok(report) = self.reports.try_recv() else { break };
                self.on_report(report);
            }
        }
    }

    /// Returns the deadlines of all units except timers.
    fn deadlines(&self) -> impl Iterator<Item = Timestamp> {
        let failed_spawns = self.failed_spawns.front().map(|(due, ..)| *due);
        let planner = self.core.planner.next_deadline().into_iter();
        let managed = self.managed.relink_due().into_iter().chain(self.managed.upkeep_due());
        planner.chain(failed_spawns).chain(managed)
    }

    /// Carries out the pending actions and publishes the changes.
    fn turn(&mut self) {
        let now = self.core.now();
        self.managed.starters().elapse();
        if self.deadlines().any(|due| due <= now) {
            self.managed.apply_pending_files(&mut self.core);
        }
        self.report_failed_spawns(now);
        self.managed.restart_dependents_of_due_restarts(&mut self.core, now);
        self.managed.retry_upheld(&mut self.core, now);
        // An action for a run that is already gone is answered at once, which may cause further
        // actions.
        let mut changed = BTreeSet::new();
        loop {
            let actions = self.core.planner.next_actions(now);
            let batch = self.core.planner.take_changed();
            let again = self.managed.restart_pending(&mut self.core, &batch)
                | self.managed.check_upkeep(&mut self.core, &batch);
            changed.extend(batch);
            if actions.is_empty() && !again {
                break;
            }
            actions.iter().for_each(|action| self.execute(action, now));
        }
        self.publish(changed);
        self.managed.starters().check_changed_units();
        self.answer_idle_waiters();
    }

    fn execute(&mut self, action: &UnitAction, now: Timestamp) {
        tracing::debug!(%action, incarnation = %action.incarnation, "decided");
        let entry = self.core.units.get(&action.unit);
        if self.source == UnitSource::Files {
            self.event_log.log_action(action, entry.is_some_and(|entry| entry.is_auto_restart));
        }
        if !action.is_start() {
            return self.send_action(action);
        }
        if let Err((cause, error)) = self.start_run(action) {
            match cause {
                FailureCause::Unrecorded => self.core.context.recording.on_failure(&error, now),
                _ => tracing::error!(unit = %action.unit, %error, "cannot start a unit"),
            }
            if let Some(entry) = self.core.units.get_mut(&action.unit) {
                entry.problem = Some(format!("cannot start: {error}"));
                let outcome = Some(RunOutcome::Resources);
                entry.run_state = Arc::new(RunState {
                    phase: ServicePhase::Failed,
                    outcome,
                    ..RunState::default()
                });
            }
            let due = now.after(SPAWN_FAILURE_DELAY);
            self.failed_spawns.push_back((due, action.clone(), cause));
        }
    }

    fn start_run(&mut self, action: &UnitAction) -> Result<(), (FailureCause, io::Error)> {
        self.managed.starters().activators.prepare_service(action.unit.as_str());
        let unrecorded = |error| (unrecorded_cause(&error), error);
        let failed = |error| (FailureCause::Resources, error);
        let (core, name) = (&mut self.core, &action.unit);
        if let Some(external) = self.managed.external(name) {
            let clock = Arc::clone(&core.context.clock);
            let watch = |reports| external.clone().watch(clock, action, reports);
            return core.units.insert_stand_in(name, watch).map_err(failed);
        }
        let monitor = self.managed.monitor_variables(core, name);
        let entry = core.units.get_or_create(name).map_err(unrecorded)?;
        let requested = match self.source {
            // The unit file holds the definition.
            UnitSource::Loads => self.managed.request_for_start(name).map_err(failed)?,
            UnitSource::Files => {
                // For loaded units, loading has checked this already.
                check_supported(&action.definition.run, &self.host)
                    .map_err(|why| failed(io::Error::other(why)))?;
                entry.write_definition(&action.definition).map_err(unrecorded)?;
                RequestedState::default()
            }
        };
        let (directory, log) = (&entry.directory, Arc::clone(&entry.log));
        let definition = Arc::clone(&action.definition);
        let mut driver = RunDriver::new(&core.context, name.as_str(), directory, log, definition);
        driver.set_requested(requested);
        driver.set_monitor(monitor);
        entry.applied = requested;
        if let Some(state) = core.planner.status(name) {
            driver.service.set_counters(state.attempts, state.failures);
        }
        let before = entry.is_auto_restart.then_some(&*entry.run_state);
        driver.service.begin(before, core.context.now());
        if driver.service.publishes_start() {
            // Clears the result of the last run, since the first report of the new run may take a
            // while.
            entry.run_state = Arc::new(driver.service.run_state().clone());
            entry.problem = None;
        }
        entry.is_auto_restart = false;
        core.units.spawn_run(name, action.incarnation, driver);
        Ok(())
    }

    /// Reports each run that could not be started as failed, once its delay is over. The queue is
    /// ordered by time, so only its front is checked.
    fn report_failed_spawns(&mut self, now: Timestamp) {
        let is_due = |(due, ..): &(Timestamp, UnitAction, FailureCause)| *due <= now;
        let due = self.failed_spawns.iter().take_while(|it| is_due(it)).count();
        let due: Vec<_> = self.failed_spawns.drain(..due).collect();
        for (_, action, cause) in due {
            for event in [EventKind::Failed(cause), EventKind::AllGone] {
                self.core.on_event(&action.unit, action.incarnation, event, now);
                self.log_event(&action.unit, event, now);
            }
            let end = RunEnd { has_begun: true, is_restart: false };
            self.managed.on_run_ended(&mut self.core, &action.unit, end);
        }
    }

    fn send_action(&mut self, action: &UnitAction) {
        let handle = self.core.units.get(&action.unit).and_then(|entry| entry.handle.as_ref());
        let handle = handle.filter(|handle| handle.incarnation == action.incarnation);
        match handle.map(|handle| handle.sender.send(action.kind.clone())) {
            Some(Ok(())) => {}
            Some(Err(QueueFull)) => {
                tracing::error!(
                    %action,
                    "cannot carry out an action: too many others of this unit are pending"
                );
            }
            None if matches!(action.kind, ActionKind::Reload) => {}
            // No process of the run is left to report it.
            None => {
                let now = self.core.now();
                self.core.on_event(&action.unit, action.incarnation, EventKind::AllGone, now);
            }
        }
    }

    /// Logs an event of a unit of files after the planner has handled it.
    fn log_event(&mut self, unit: &Name, event: EventKind, now: Timestamp) {
        if self.source == UnitSource::Files
            && let Some(status) = self.core.planner.status(unit)
        {
            self.event_log.log_event(unit, event, status.state, now);
        }
    }

    fn on_report(&mut self, report: RunReport) {
        let (unit, run, now) = (report.unit, report.incarnation, self.core.now());
        let Some(entry) = self.core.units.get_mut(&unit) else { return };
        if entry.handle.as_ref().is_none_or(|handle| handle.incarnation != run) {
            return;
        }
        let is_up = report.run_state.phase.is_up();
        let has_begun = entry.run_state.is_in_progress();
        (entry.run_state, entry.problem) = (report.run_state, report.problem);
        self.managed.apply_pending_files(&mut self.core);
        let over = report.events.contains(&EventKind::AllGone);
        let is_restart = over && self.core.is_restarting(&unit);
        let Some(entry) = self.core.units.get_mut(&unit) else { return };
        let mut unread = None;
        if over {
            unread = entry.handle.take().and_then(|handle| handle.sender.take_unread_request());
        }
        for event in report.events {
            if self.core.on_event(&unit, run, event, now) {
                self.log_event(&unit, event, now);
            }
        }
        if over {
            self.core.record_end(&unit, unread);
            let end = RunEnd { has_begun, is_restart };
            self.managed.on_run_ended(&mut self.core, &unit, end);
        }
        self.managed.on_report(&mut self.core, &unit, run, is_up);
        self.changes.send_modify(|count| *count += 1);
    }

    fn publish(&mut self, changed: BTreeSet<Name>) {
        for unit in &changed {
            let is_loaded = self.managed.is_loaded(unit);
            let Some(entry) = self.core.units.get_mut(unit) else { continue };
            match self.core.planner.stays_inactive(unit) {
                Some(true) if std::mem::take(&mut entry.is_auto_restart) && is_loaded => {
                    entry.clear_retry();
                }
                None if !is_loaded => {
                    self.core.remove_unit(unit);
                    self.event_log.forget(unit);
                }
                _ => {}
            }
        }
        if !changed.is_empty() {
            self.changes.send_modify(|count| *count += 1);
        }
        match self.source {
            UnitSource::Loads => self.managed.publish(&mut self.core, changed),
            UnitSource::Files => {
                self.core.persist_ended_runs(&changed);
                self.core.take_over_definitions(&changed);
            }
        }
    }

    /// Begins to stop all units, and refuses to start any from now on. The stored targets stay.
    fn shut_down(&mut self, reply: Reply<Vec<ServiceError>>) {
        self.managed.begin_shutdown(&mut self.core);
        self.core.clear_goal();
        self.idle_waiters.push(reply);
    }

    /// Answers the callers that wait for a shutdown, if all runs are over except those of stuck
    /// units.
    fn answer_idle_waiters(&mut self) {
        if self.idle_waiters.is_empty() || !self.core.is_idle() {
            return;
        }
        for waiter in self.idle_waiters.drain(..) {
            answer(waiter, self.managed.stop_errors(&self.core.planner));
        }
    }
}
