//! The one task that decides for all units: which start, stop and are retried, and in which order.
//!
//! ```text
//! frontends ── Command ──> Supervisor ── RunUpdate ──> run_task ──> run driver ──> processes
//!     ^                      │  ^  ^                      │
//!     └── Statuses, logs ────┘  │  └────── RunReport ─────┘
//!                      actions, │ events
//!                               v
//!                 InitState (the planner, pure)     Timers (next elapses)
//! ```
//!
//! The event loop wakes up for a command, a report, an event of a timer, or the earliest deadline:
//! of the planner, of a timer, of a failed start or of changed files. Then it carries out the
//! pending actions. Each such turn works only on the units that have changed, so its cost does not
//! depend on the number of idle units.
//!
//! Units come from one source. `fleet-init` passes a whole graph, read from files. Under fleetd the
//! units are loaded one by one, and [`managed_units`] maps the requests for them to the graph.
//!
//! A run task covers one run of one unit, from its start until no process of the run is left.
//!
//! | module | topic |
//! |---|---|
//! | `command`, `requests` | commands and their handle; requests for loaded units, stored first |
//! | `goal` | goal, extra targets, masks; replacement of the graph of files; shutdown |
//! | `managed_units` | loaded units: the graph of them, their requests, waiting callers |
//! | `timers` | timer units: next elapse, start of their units |
//! | `recovery` | state of units of files that an earlier supervisor has left |
//! | `run_task`, `supervised_unit` | the task of a run and its channel; the state kept per unit |
//! | `snapshot`, `unit_log` | the status of all units, and previews; log lines about units |
//! | `compile` | which unit files can run here |
//! | `config`, `error` | configuration and errors of a supervisor |

pub(super) mod command;
pub(super) mod compile;
pub(super) mod managed_units;
pub(super) mod requests;
#[cfg(test)]
pub(super) mod support_tests;

mod config;
mod error;
mod goal;
mod recovery;
mod run_task;
mod snapshot;
mod supervised_unit;
#[cfg(test)]
mod tests;
mod timers;
mod unit_log;

pub use config::SupervisorConfig;
pub use error::SupervisorError;
pub(super) use error::io_error;
pub use snapshot::{InitDryRun, InitDryRunResult, InitSnapshot, UnitSnapshot};

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{
    ActionKind, DerivedState, EventKind, FailureCause, Incarnation, InitState, Name, Retry,
    UnitAction, UnitEvent,
};
use tokio::sync::{mpsc, watch};

use self::command::{Command, CommandSender, Reply};
use self::compile::HostCapabilities;
use self::compile::check_supported;
use self::managed_units::ManagedUnits;
use self::requests::Requests;
use self::run_task::{QueueFull, run_channel};
use self::run_task::{RunReport, RunTask};
use self::supervised_unit::{RunHandle, SupervisedUnit};
use self::timers::Timers;
use crate::ServiceError;
use crate::lock::lock;
use crate::native::log::Log;
use crate::native::log::rate_limit::unrecorded_cause;
use crate::native::run::driver::RunDriver;
use crate::native::run::machine::outcome::RunOutcome;
use crate::native::run::machine::state::{RunState, ServicePhase};
use crate::native::state::desired_targets::TargetSelection;
use crate::native::state::manager_context::{ManagerContext, TARGETS};
use crate::native::state::unit_directory::RequestedState;
use crate::sleep::Sleep;

/// Maximum number of queued reports that the event loop handles before it plans again.
const MAX_PER_TURN: usize = 256;

/// Delay before a run that could not be started counts as failed. Otherwise a unit with a restart
/// delay of zero would fail and restart in an endless loop, which would keep the event loop busy.
const SPAWN_FAILURE_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of queued run reports; further runs wait for a free slot.
const REPORT_CAPACITY: usize = 1024;

/// Logs of all units that have run, shared with readers.
type Logs = Arc<Mutex<BTreeMap<Name, Arc<Log>>>>;

/// Source of the units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnitSource {
    /// A graph that is replaced as a whole. The supervisor stores the definition of each unit that
    /// it starts, and logs what happens to the units.
    Files,
    /// Units that fleet loads one by one. Their files are stored when they are loaded.
    Loads,
}

/// State of the event loop: the planner, and everything that its decisions affect.
pub(super) struct Supervisor {
    context: Arc<ManagerContext>,
    source: UnitSource,
    planner: InitState,
    selection: TargetSelection,
    units: BTreeMap<Name, SupervisedUnit>,
    /// Units that fleet has loaded, except timers.
    managed: ManagedUnits,
    timers: Timers,
    logs: Logs,
    /// File that stores the desired targets.
    targets_file: PathBuf,
    changes: watch::Sender<u64>,
    /// Whether a shutdown has begun, so that no unit may start.
    shutting_down: bool,
    /// Callers that wait until all runs are over, except those of stuck units.
    idle_waiters: Vec<Reply<Vec<ServiceError>>>,
    /// Starts that failed, each with the time at which the run is to be reported as failed.
    failed_spawns: VecDeque<(Timestamp, UnitAction, FailureCause)>,
    inbox: mpsc::Receiver<Command>,
    requests: Arc<Requests>,
    reports: mpsc::Receiver<RunReport>,
    /// Sender that is cloned for each run.
    report_sender: mpsc::Sender<RunReport>,
    /// Capabilities of this host.
    host: HostCapabilities,
    /// Units that could not be recovered, with the reason.
    unrecoverable: BTreeMap<Name, String>,
    /// Loaded units to publish again, even if the planner reports no change.
    touched: BTreeSet<Name>,
    /// Units whose last start could not be recorded, which is logged only once.
    unrecorded: BTreeSet<Name>,
}

impl Supervisor {
    /// Creates a supervisor without units.
    fn new(
        context: Arc<ManagerContext>,
        host: HostCapabilities,
        source: UnitSource,
        (planner, selection): (InitState, TargetSelection),
        managed: ManagedUnits,
    ) -> Self {
        let (report_sender, reports) = mpsc::channel(REPORT_CAPACITY);
        let (commands, inbox) = CommandSender::channel();
        let requests = Arc::new(Requests::new(&context, &host, commands, managed.statuses()));
        let timers = Timers::new(&context, &requests, managed.statuses());
        Self {
            source,
            planner,
            selection,
            units: BTreeMap::new(),
            managed,
            timers,
            logs: Logs::default(),
            targets_file: context.runtime_file(TARGETS),
            changes: watch::channel(0).0,
            shutting_down: false,
            idle_waiters: Vec::new(),
            failed_spawns: VecDeque::new(),
            inbox,
            requests,
            reports,
            report_sender,
            host,
            unrecoverable: BTreeMap::new(),
            touched: BTreeSet::new(),
            unrecorded: BTreeSet::new(),
            context,
        }
    }

    /// Runs until its task is aborted.
    async fn run(mut self) {
        let mut sleep = Sleep::new(&self.context.clock);
        loop {
            self.turn();
            let elapse = self.timers.set_alarm();
            let due = self.deadlines().chain(elapse).min();
            tokio::select! {
                command = self.inbox.recv() => match command {
                    Some(command) => self.on_command(command),
                    None => return,
                },
                Some(report) = self.reports.recv() => self.on_report(report),
                event = self.timers.next_event() => self.timers.on_event(event),
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
        let planner = self.planner.next_deadline().into_iter();
        planner.chain(failed_spawns).chain(self.managed.relink_due())
    }

    /// Carries out the pending actions and publishes the changes.
    fn turn(&mut self) {
        let now = self.context.now();
        self.timers.elapse();
        if self.deadlines().any(|due| due <= now) {
            self.apply_pending_files();
        }
        self.report_failed_spawns(now);
        self.restart_dependents_of_due_restarts(now);
        // An action for a run that is already gone is answered at once, which may cause further
        // actions.
        let mut changed = BTreeSet::new();
        loop {
            let actions = self.planner.next_actions(now);
            let batch = self.planner.take_changed();
            let again = self.restart_pending(&batch);
            changed.extend(batch);
            if actions.is_empty() && !again {
                break;
            }
            actions.iter().for_each(|action| self.execute(action, now));
        }
        self.publish(changed);
        self.timers.check_changed_units();
        self.answer_idle_waiters();
    }

    fn execute(&mut self, action: &UnitAction, now: Timestamp) {
        tracing::debug!(%action, incarnation = %action.incarnation, "decided");
        self.log_action(action);
        if !action.is_start() {
            return self.send_action(action);
        }
        if let Err((cause, error)) = self.start_run(action) {
            match cause {
                FailureCause::Unrecorded => self.context.recording.on_failure(&error, now),
                _ => tracing::error!(unit = %action.unit, %error, "cannot start a unit"),
            }
            if let Some(entry) = self.units.get_mut(&action.unit) {
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
        let unrecorded = |error| (unrecorded_cause(&error), error);
        let failed = |error| (FailureCause::Resources, error);
        if self.await_external(action).map_err(failed)? {
            return Ok(());
        }
        if !self.units.contains_key(&action.unit) {
            let entry = SupervisedUnit::new(&self.context, &action.unit).map_err(unrecorded)?;
            lock(&self.logs).insert(action.unit.clone(), Arc::clone(&entry.log));
            self.units.insert(action.unit.clone(), entry);
        }
        let Some(entry) = self.units.get_mut(&action.unit) else { return Ok(()) };
        let requested = match self.source {
            // The unit file holds the definition.
            UnitSource::Loads => self.managed.request_for_start(&action.unit).map_err(failed)?,
            UnitSource::Files => {
                // For loaded units, loading has checked this already.
                check_supported(&action.definition.run, &self.host)
                    .map_err(|why| failed(io::Error::other(why)))?;
                entry.write_definition(&action.definition).map_err(unrecorded)?;
                RequestedState::default()
            }
        };
        let (unit, spec) = (action.unit.as_str(), Arc::clone(&action.definition));
        let (directory, log) = (&entry.directory, Arc::clone(&entry.log));
        let mut driver = RunDriver::new(&self.context, unit, directory, log, spec);
        driver.set_requested(requested);
        entry.applied = requested;
        if let Some(state) = self.planner.status(&action.unit) {
            driver.service.set_counters(state.attempts, state.failures);
        }
        let before = entry.is_auto_restart.then_some(&*entry.run_state);
        driver.service.begin(before, self.context.now());
        if driver.service.publishes_start() {
            // Clears the result of the last run, since the first report of the new run may take a
            // while.
            entry.run_state = Arc::new(driver.service.run_state().clone());
            entry.problem = None;
        }
        entry.is_auto_restart = false;
        self.spawn_run_task(&action.unit, action.incarnation, driver);
        Ok(())
    }

    /// Starts the task of a run.
    fn spawn_run_task(&mut self, unit: &Name, incarnation: Incarnation, driver: RunDriver) {
        let (sender, receiver) = run_channel();
        let (unit_name, reports) = (unit.clone(), self.report_sender.clone());
        let run_task = RunTask { driver, unit: unit_name, incarnation, receiver, reports };
        let Some(entry) = self.units.get_mut(unit) else { return };
        let task = tokio::spawn(Box::new(run_task).run()).abort_handle();
        entry.handle = Some(RunHandle { incarnation, sender, task });
    }

    /// Reports each run that could not be started as failed, once its delay is over. The queue is
    /// ordered by time, so only its front is checked.
    fn report_failed_spawns(&mut self, now: Timestamp) {
        let is_due = |(due, ..): &(Timestamp, UnitAction, FailureCause)| *due <= now;
        let due = self.failed_spawns.iter().take_while(|it| is_due(it)).count();
        let due: Vec<_> = self.failed_spawns.drain(..due).collect();
        for (_, action, cause) in due {
            for what in [EventKind::Failed(cause), EventKind::AllGone] {
                let (unit, incarnation) = (action.unit.clone(), action.incarnation);
                self.planner.on_event(&UnitEvent { unit, incarnation, kind: what }, now);
                self.log_event(&action.unit, what, now);
            }
        }
    }

    fn send_action(&mut self, action: &UnitAction) {
        let handle = self.units.get(&action.unit).and_then(|entry| entry.handle.as_ref());
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
            None => self.report_all_gone(action),
        }
    }

    fn report_all_gone(&mut self, action: &UnitAction) {
        let (unit, incarnation) = (action.unit.clone(), action.incarnation);
        let event = UnitEvent { unit, incarnation, kind: EventKind::AllGone };
        self.planner.on_event(&event, self.context.now());
    }

    fn on_report(&mut self, report: RunReport) {
        let now = self.context.now();
        let Some(entry) = self.units.get_mut(&report.unit) else { return };
        let is_present =
            entry.handle.as_ref().is_some_and(|handle| handle.incarnation == report.incarnation);
        if !is_present {
            return;
        }
        let is_up = report.run_state.phase.is_up();
        (entry.run_state, entry.problem) = (report.run_state, report.problem);
        self.apply_pending_files();
        let Some(entry) = self.units.get_mut(&report.unit) else { return };
        let over = report.events.contains(&EventKind::AllGone);
        let mut unread = None;
        if over {
            unread = entry.handle.take().and_then(|handle| handle.sender.take_unread_request());
        }
        for what in report.events {
            let (unit, incarnation) = (report.unit.clone(), report.incarnation);
            if self.planner.on_event(&UnitEvent { unit, incarnation, kind: what }, now) {
                self.log_event(&report.unit, what, now);
            }
        }
        if over {
            // An unneeded unit is not retried, however its run ended.
            let state = self.planner.status(&report.unit).filter(|state| state.needed);
            let again = state.filter(|state| {
                matches!(
                    state.state,
                    DerivedState::Failed { retry: Retry::At(_), .. }
                        | DerivedState::Completed(Retry::At(_))
                )
            });
            let is_inactive = self.planner.is_inactive(&report.unit);
            if let Some(entry) = self.units.get_mut(&report.unit) {
                entry.is_auto_restart = again.is_some();
                again.iter().for_each(|state| entry.persist_counters(state));
                // The run was over before it read the request, so it has not written this itself.
                unread
                    .into_iter()
                    .for_each(|requested| entry.write_applied(requested, is_inactive));
            }
        }
        if self.managed.is_loaded(&report.unit) {
            if is_up {
                self.publish_status(&report.unit);
                self.answer_up(&report.unit, report.incarnation);
            }
            self.touched.insert(report.unit);
        }
        self.changes.send_modify(|count| *count += 1);
    }

    /// Passes the running definition of a unit to its run, and stores it, if a reload has changed
    /// it.
    fn take_over_definition(&mut self, unit: &Name) {
        let Some(entry) = self.units.get_mut(unit).filter(|it| it.handle.is_some()) else { return };
        let Some(runs) = self.planner.running(unit) else { return };
        if entry.written.as_ref() == Some(runs) {
            return;
        }
        entry.set_definition(Arc::clone(runs));
        if let Err(error) = entry.write_definition(runs) {
            tracing::warn!(
                %unit,
                %error,
                "cannot store the new definition of a running unit: after this program restarts, \
                 the earlier one applies"
            );
        }
    }

    fn publish(&mut self, changed: BTreeSet<Name>) {
        for unit in &changed {
            let Some(entry) = self.units.get_mut(unit) else { continue };
            let is_loaded = self.managed.is_loaded(unit);
            match self.planner.stays_inactive(unit) {
                Some(true) if std::mem::take(&mut entry.is_auto_restart) && is_loaded => {
                    entry.clear_retry();
                }
                None if !is_loaded => {
                    self.units.remove(unit);
                    self.unrecorded.remove(unit);
                    lock(&self.logs).remove(unit);
                    if let Err(error) = self.context.storage(unit.as_str()).remove() {
                        tracing::warn!(
                            %unit,
                            %error,
                            "cannot remove the stored state of a unit that no longer exists"
                        );
                    }
                }
                _ => {}
            }
        }
        if !changed.is_empty() {
            self.changes.send_modify(|count| *count += 1);
        }
        match self.source {
            UnitSource::Loads => {
                let mut touched = std::mem::take(&mut self.touched);
                touched.extend(changed);
                self.record_start_limit_hits(&touched);
                for unit in &touched {
                    self.settle_awaited_run(unit);
                    self.publish_status(unit);
                    self.answer_waiters(unit);
                }
            }
            UnitSource::Files => {
                self.persist_ended_runs(&changed);
                changed.iter().for_each(|unit| self.take_over_definition(unit));
            }
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // Processes keep running; only the tasks that drive them end.
        let handles = self.units.values().filter_map(|entry| entry.handle.as_ref());
        handles.for_each(|handle| handle.task.abort());
    }
}
