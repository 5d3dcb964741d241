//! The units that run or have run, with the state that the planner does not hold: the log, the
//! stored state, and the current run.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use fleet_core::graph::{Incarnation, InitUnit, Name, StatusReport, Timeouts, format};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::run_task::{RunReport, RunSender, RunTask, run_channel};
use crate::lock::lock;
use crate::native::log::Log;
use crate::native::run::adopt::StoredUnit;
use crate::native::run::driver::RunDriver;
use crate::native::run::machine::state::{RunOutcome, RunState, ServicePhase};
use crate::native::state::manager_context::ManagerContext;
use crate::native::state::unit_directory::{RequestedState, RunRecord, UnitDirectory};

/// Maximum number of queued run reports; further runs wait for a free slot.
const REPORT_CAPACITY: usize = 1024;

/// Logs of all units that have run, shared with readers.
pub(super) type Logs = Arc<Mutex<BTreeMap<Name, Arc<Log>>>>;

/// All units that run or have run. Dropping this ends the tasks of their runs, and leaves their
/// processes running.
pub(super) struct Units {
    context: Arc<ManagerContext>,
    all: BTreeMap<Name, SupervisedUnit>,
    logs: Logs,
    /// Sender that is cloned for each run.
    reports: mpsc::Sender<RunReport>,
}

impl Units {
    /// Creates an empty collection, and returns it with the reports of its future runs.
    pub(super) fn new(context: Arc<ManagerContext>) -> (Self, mpsc::Receiver<RunReport>) {
        let (reports, received) = mpsc::channel(REPORT_CAPACITY);
        (Self { context, all: BTreeMap::new(), logs: Logs::default(), reports }, received)
    }

    pub(super) fn get(&self, unit: &Name) -> Option<&SupervisedUnit> {
        self.all.get(unit)
    }

    pub(super) fn get_mut(&mut self, unit: &Name) -> Option<&mut SupervisedUnit> {
        self.all.get_mut(unit)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Name, &SupervisedUnit)> {
        self.all.iter()
    }

    pub(super) fn names(&self) -> Vec<Name> {
        self.all.keys().cloned().collect()
    }

    /// Returns the logs of all units that have run.
    pub(super) fn logs(&self) -> &Logs {
        &self.logs
    }

    /// Returns a unit, which is created if it has not run yet.
    pub(super) fn get_or_create(&mut self, unit: &Name) -> io::Result<&mut SupervisedUnit> {
        if !self.all.contains_key(unit) {
            let entry = SupervisedUnit::new(&self.context, unit)?;
            self.insert(unit.clone(), entry);
        }
        self.all.get_mut(unit).ok_or_else(|| io::Error::other("the unit is gone"))
    }

    /// Adds a unit, whose log is then readable.
    pub(super) fn insert(&mut self, unit: Name, entry: SupervisedUnit) {
        self.insert_log(unit.clone(), Arc::clone(&entry.log));
        self.all.insert(unit, entry);
    }

    /// Makes the log of a unit readable that is not supervised.
    pub(super) fn insert_log(&mut self, unit: Name, log: Arc<Log>) {
        lock(&self.logs).insert(unit, log);
    }

    /// Removes a unit and its log, which stays on disk.
    pub(super) fn remove(&mut self, unit: &Name) -> Option<SupervisedUnit> {
        lock(&self.logs).remove(unit);
        self.all.remove(unit)
    }

    /// Starts the task of a run.
    pub(super) fn spawn_run(&mut self, unit: &Name, incarnation: Incarnation, driver: RunDriver) {
        let (sender, receiver) = run_channel();
        let (unit_name, reports) = (unit.clone(), self.reports.clone());
        let run_task = RunTask { driver, unit: unit_name, incarnation, receiver, reports };
        let Some(entry) = self.all.get_mut(unit) else { return };
        let task = tokio::spawn(Box::new(run_task).run()).abort_handle();
        entry.handle = Some(RunHandle { incarnation, sender, task });
    }

    /// Adds the stand-in of an external unit. `start` starts its task, which reports to the given
    /// channel. A stand-in has no readable log.
    pub(super) fn insert_stand_in(
        &mut self,
        unit: &Name,
        start: impl FnOnce(mpsc::Sender<RunReport>) -> RunHandle,
    ) -> io::Result<()> {
        let mut entry = SupervisedUnit::new(&self.context, unit)?;
        entry.handle = Some(start(self.reports.clone()));
        self.all.insert(unit.clone(), entry);
        Ok(())
    }

    /// Kills all processes of all runs. Their exits are reported as usual.
    pub(super) fn kill_all(&self) {
        let handles = self.all.values().filter_map(|entry| entry.handle.as_ref());
        handles.for_each(|handle| handle.sender.update(|update| update.kill = true));
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        let handles = self.all.values().filter_map(|entry| entry.handle.as_ref());
        handles.for_each(|handle| handle.task.abort());
    }
}

/// A unit that runs or has run.
pub(super) struct SupervisedUnit {
    pub(super) directory: UnitDirectory,
    pub(super) log: Arc<Log>,
    /// State of the current or last run.
    pub(super) run_state: Arc<RunState>,
    pub(super) problem: Option<String>,
    /// Current run of the unit.
    pub(super) handle: Option<RunHandle>,
    /// Whether the next start is an automatic restart.
    pub(super) is_auto_restart: bool,
    /// Definition that was last written to disk.
    pub(super) written: Option<Arc<InitUnit>>,
    /// Requested state that is applied and written, or about to be written.
    pub(super) applied: RequestedState,
}

/// Handle to the task of a run.
pub(super) struct RunHandle {
    pub(super) incarnation: Incarnation,
    pub(super) sender: RunSender,
    pub(super) task: AbortHandle,
}

impl SupervisedUnit {
    /// Creates the state of a unit that has not run yet. If the unit has no log, creates an empty
    /// one.
    pub(super) fn new(context: &ManagerContext, unit: &Name) -> io::Result<Self> {
        let directory = context.storage(unit.as_str());
        let log = context.open_log(directory.log())?;
        Ok(Self {
            directory,
            log,
            run_state: Arc::default(),
            problem: None,
            handle: None,
            is_auto_restart: false,
            written: None,
            applied: RequestedState::default(),
        })
    }

    /// Returns what the adoption of a run needs to know about the unit.
    pub(super) fn stored<'a>(
        &'a self,
        name: &'a Name,
        definition: &'a Arc<InitUnit>,
    ) -> StoredUnit<'a> {
        StoredUnit { name, directory: &self.directory, log: &self.log, definition }
    }

    /// Records that a requested state is applied, or that nothing has to be done for it.
    ///
    /// - If the unit has a run, passes the requested state to the run, which stores it.
    /// - Otherwise, writes it to the record of the last run. If `is_inactive` is set and the unit
    ///   should run, this also clears the result of that run.
    pub(super) fn record_applied(&mut self, requested: RequestedState, is_inactive: bool) {
        if std::mem::replace(&mut self.applied, requested) == requested {
            return;
        }
        match &self.handle {
            Some(handle) => handle.sender.update(|update| update.requested = Some(requested)),
            None => self.write_applied(requested, is_inactive),
        }
    }

    /// Stores the planner's restart counters of a unit that will be retried. The counters of the
    /// run may be outdated, because only the planner resets them after a long uptime.
    pub(super) fn persist_counters(&mut self, state: &StatusReport) {
        // A recovery adds the end of the last run, which the planner has counted already.
        let attempts = state.attempts.saturating_sub(1);
        // A success leaves no failures to count.
        let failures = state.failures.checked_sub(1).unwrap_or(self.run_state.failures);
        let counted = RunState { attempts, failures, ..RunState::clone(&self.run_state) };
        self.set_idle_state(counted, "older restart counts apply");
    }

    /// Returns the run state of a unit that has hit its start limit. A failure keeps its own
    /// result, as in systemd.
    pub(super) fn start_limit_state(&self) -> RunState {
        let run_state = RunState::clone(&self.run_state);
        if run_state.gave_up || run_state.outcome == Some(RunOutcome::StartLimitHit) {
            return run_state;
        }
        let outcome = match run_state.outcome {
            None | Some(RunOutcome::Success) => Some(RunOutcome::StartLimitHit),
            failure => failure,
        };
        let restarts = run_state.restarts.saturating_add(1);
        RunState { phase: ServicePhase::Failed, outcome, restarts, gave_up: true, ..run_state }
    }

    /// Records that the unit has hit its start limit, so that it stays failed.
    pub(super) fn record_start_limit_hit(&mut self) {
        self.is_auto_restart = false;
        self.set_idle_state(self.start_limit_state(), "the unit starts again");
    }

    /// Records that the unit is not retried, because it is no longer needed.
    pub(super) fn clear_retry(&mut self) {
        let run_state = RunState { phase: ServicePhase::Dead, ..RunState::clone(&self.run_state) };
        self.set_idle_state(run_state, "the unit might start");
    }

    /// Clears the result of the last run, so that a later daemon starts the unit again.
    pub(super) fn clear_result(&mut self) {
        self.set_idle_state(RunState::default(), "the unit might stay stopped");
    }

    /// Replaces the state of the unit's last run, in memory and on disk. Does nothing while the
    /// unit has a current run. `otherwise` is the effect of a failure to store it, for the log.
    pub(super) fn set_idle_state(&mut self, run_state: RunState, otherwise: &str) {
        if *self.run_state == run_state || self.handle.is_some() {
            return;
        }
        self.run_state = Arc::new(run_state.clone());
        let stored = self.directory.read_run().and_then(|run| match run {
            Some(run) => self.directory.write_run(&RunRecord { run_state, ..run }),
            None => Ok(()),
        });
        if let Err(error) = stored {
            let unit = self.directory.label();
            tracing::warn!(
                %unit,
                %error,
                "cannot save the state of a unit: after this program restarts, {otherwise}"
            );
        }
    }

    /// Writes the applied requested state to the record of the last run. If the unit is inactive
    /// (`is_inactive`) although it should run, also clears the result in that record.
    pub(super) fn write_applied(&self, requested: RequestedState, is_inactive: bool) {
        let run = self.directory.read_run().map(Option::unwrap_or_default);
        let noted = run.and_then(|mut run| {
            run.requested = requested;
            if is_inactive && requested.should_run() {
                run.run_state = RunState::default();
            }
            self.directory.write_run(&run)
        });
        if let Err(error) = noted {
            let unit = self.directory.label();
            tracing::warn!(
                %unit,
                %error,
                "cannot save that a start, stop or restart was carried out: after this program \
                 restarts, the request is carried out again"
            );
        }
    }

    /// Passes the definition that the planner runs to the current run, and stores it, if a reload
    /// has changed it.
    pub(super) fn take_over_definition(&mut self, runs: &Arc<InitUnit>) {
        if self.handle.is_none() || self.written.as_ref() == Some(runs) {
            return;
        }
        self.set_definition(Arc::clone(runs));
        if let Err(error) = self.write_definition(runs) {
            tracing::warn!(
                unit = %runs.name,
                %error,
                "cannot store the new definition of a running unit: after this program restarts, \
                 the earlier one applies"
            );
        }
    }

    /// Sets the definition by which the current run is reloaded and stopped.
    pub(super) fn set_definition(&self, spec: Arc<InitUnit>) {
        if let Some(handle) = &self.handle {
            handle.sender.update(|update| update.spec = Some(spec));
        }
    }

    /// Writes the definition from which the unit is started. A later daemon can then stop the unit
    /// with this definition, even if the graph has changed. Settings that a stanza cannot express
    /// are left out.
    pub(super) fn write_definition(&mut self, unit: &Arc<InitUnit>) -> io::Result<()> {
        if self.written.as_ref() == Some(unit) {
            return Ok(());
        }
        let printed = format::print(unit, &Timeouts::default());
        self.directory.write_definition(&printed.text)?;
        self.written = Some(Arc::clone(unit));
        Ok(())
    }
}

/// Reads the definition from which a unit was started. Returns `None` if no definition was written.
/// An invalid definition is an error, since the unit may still run with it.
pub(super) fn read_definition(
    directory: &UnitDirectory,
    unit: &Name,
) -> io::Result<Option<InitUnit>> {
    let Some(stanza) = directory.read_definition()? else { return Ok(None) };
    let read = format::read_stanzas(stanza.as_bytes(), &Timeouts::default());
    let mut units = read.stanzas.into_iter().filter_map(|stanza| stanza.unit);
    let found = units.find(|it| it.name == *unit);
    let why = || match read.diagnostics.first() {
        Some(problem) => format!("the stanza of {unit}: {}", problem.message),
        None => format!("no stanza of {unit}"),
    };
    found.map(Some).ok_or_else(|| directory.invalid_definition(why()))
}
