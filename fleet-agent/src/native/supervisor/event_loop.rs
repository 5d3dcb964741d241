//! The task that owns the planner and carries out its actions.

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
use tokio::sync::{mpsc, oneshot, watch};

use super::desired_targets::TargetSelection;
use super::host_capabilities::HostCapabilities;
use super::managed_units::ManagedUnits;
use super::run_channel::{QueueFull, run_channel};
use super::run_task::{RunReport, RunTask};
use super::supervised_unit::{RunHandle, SupervisedUnit};
use super::support::check_supported;
use crate::native::log::Log;
use crate::native::log::rate_limit::unrecorded_cause;
use crate::native::run::driver::RunDriver;
use crate::native::run::machine::outcome::RunOutcome;
use crate::native::run::machine::state::{RunState, ServicePhase};
use crate::native::state::manager_context::ManagerContext;
use crate::native::state::unit_directory::RequestedState;
use crate::sleep::Sleep;

/// Maximum number of queued reports that the event loop handles before it plans again.
const MAX_PER_TURN: usize = 256;

/// Delay before a run that could not be started counts as failed. Otherwise a unit with a restart
/// delay of zero would fail and restart in an endless loop, which would keep the event loop busy.
const SPAWN_FAILURE_DELAY: Duration = Duration::from_secs(1);

/// Request that the event loop runs between two turns.
pub(in crate::native) type Request = Box<dyn FnOnce(&mut Supervisor) + Send>;

/// Logs of all units that have run, shared with readers.
pub(in crate::native) type Logs = Arc<Mutex<BTreeMap<Name, Arc<Log>>>>;

/// State of the event loop: the planner, and everything that its decisions affect.
pub(in crate::native) struct Supervisor {
    pub(super) context: Arc<ManagerContext>,
    pub(super) planner: InitState,
    pub(super) selection: TargetSelection,
    pub(super) units: BTreeMap<Name, SupervisedUnit>,
    pub(super) logs: Logs,
    /// File that stores the desired targets.
    pub(super) targets_file: PathBuf,
    pub(super) changes: watch::Sender<u64>,
    /// Whether a shutdown has begun, so that no unit may start.
    pub(super) shutting_down: bool,
    /// Callers that wait until all runs are over, except those of stuck units.
    pub(super) idle_waiters: Vec<oneshot::Sender<()>>,
    /// Starts that failed, each with the time at which the run is to be reported as failed.
    pub(super) failed_spawns: VecDeque<(Timestamp, UnitAction, FailureCause)>,
    pub(super) reports: mpsc::Receiver<RunReport>,
    /// Sender that is cloned for each run.
    pub(super) report_sender: mpsc::Sender<RunReport>,
    /// Capabilities of this host.
    pub(super) host: HostCapabilities,
    /// Units that could not be recovered, with the reason.
    pub(super) unrecoverable: BTreeMap<Name, String>,
    /// Units that fleet has loaded, if fleet decides which units run.
    pub(super) managed: Option<ManagedUnits>,
    /// Units to publish again, even if the planner reports no change.
    pub(super) touched: BTreeSet<Name>,
    /// Units whose last start could not be recorded, which is logged only once.
    pub(super) unrecorded: BTreeSet<Name>,
}

impl Supervisor {
    /// Runs until the sender of requests is dropped.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut sleep = Sleep::new(&self.context.clock);
        loop {
            self.turn();
            let failed_spawns = self.failed_spawns.front().map(|(due, ..)| *due);
            let files = self.relink_due();
            let due =
                self.planner.next_deadline().into_iter().chain(failed_spawns).chain(files).min();
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => request(&mut self),
                    None => return,
                },
                Some(report) = self.reports.recv() => self.on_report(report),
                () = sleep.until(due) => {}
            }
            // Handles all pending reports in one turn.
            for _ in 0..MAX_PER_TURN {
                let Ok(report) = self.reports.try_recv() else { break };
                self.on_report(report);
            }
        }
    }

    /// Carries out the pending actions and publishes the changes.
    pub(super) fn turn(&mut self) {
        let now = self.context.now();
        let failed_spawns = self.failed_spawns.front().map(|(due, ..)| *due);
        let mut due =
            self.planner.next_deadline().into_iter().chain(failed_spawns).chain(self.relink_due());
        if due.any(|due| due <= now) {
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
        if !self.idle_waiters.is_empty() && self.is_idle() {
            for waiter in self.idle_waiters.drain(..) {
                // The caller may be gone.
                let _ = waiter.send(());
            }
        }
    }

    fn is_idle(&self) -> bool {
        let is_stuck = |unit| {
            let state = self.planner.status(unit);
            state.is_some_and(|state| {
                matches!(state.state, DerivedState::Failed { stuck: true, .. })
            })
        };
        let mut running = self.units.iter().filter(|(_, entry)| entry.handle.is_some());
        running.all(|(unit, _)| is_stuck(unit))
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
        let requested = match &self.managed {
            // The unit file holds the definition.
            Some(managed) => managed.request_for_start(&action.unit).map_err(failed)?,
            None => {
                // For managed units, loading has checked this already.
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
    pub(super) fn spawn_run_task(
        &mut self,
        unit: &Name,
        incarnation: Incarnation,
        driver: RunDriver,
    ) {
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

    /// Kills all processes of all runs. Their exits are reported as usual.
    pub(in crate::native) fn kill_all(&mut self) {
        let handles = self.units.values().filter_map(|entry| entry.handle.as_ref());
        handles.for_each(|handle| handle.sender.update(|update| update.kill = true));
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
        if self.managed.is_some() {
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
    pub(super) fn take_over_definition(&mut self, unit: &Name) {
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
            let is_loaded = self.managed.as_ref().is_some_and(|managed| managed.is_loaded(unit));
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
        if self.managed.is_some() {
            let mut touched = std::mem::take(&mut self.touched);
            touched.extend(changed);
            self.record_start_limit_hits(&touched);
            for unit in &touched {
                self.settle_awaited_run(unit);
                self.publish_status(unit);
                self.answer_waiters(unit);
            }
        } else {
            self.persist_ended_runs(&changed);
            changed.iter().for_each(|unit| self.take_over_definition(unit));
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

/// Locks a mutex, even if a thread has panicked while it held the lock. The data is still valid in
/// that case, because no holder leaves it half changed.
pub(in crate::native) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
