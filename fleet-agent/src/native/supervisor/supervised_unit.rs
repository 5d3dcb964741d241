//! State per unit besides the planner's: its log, its stored state, and its current run.

use std::io;
use std::sync::Arc;

use fleet_core::graph::{Incarnation, InitUnit, Name, StatusReport, Timeouts, text};
use tokio::task::AbortHandle;

use super::run_channel::RunSender;
use crate::native::log::Log;
use crate::native::manager_context::ManagerContext;
use crate::native::run_state::RunState;
use crate::native::unit_directory::{RequestedState, UnitDirectory};

/// A unit that runs or has run.
pub(super) struct SupervisedUnit {
    pub(super) directory: UnitDirectory,
    pub(super) log: Arc<Log>,
    /// State of the current or last run.
    pub(super) run_state: Arc<RunState>,
    pub(super) problem: Option<String>,
    /// Its current run.
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
    /// Creates the state of a unit that has not run yet. Creates an empty log if the unit has none.
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

    /// Records a requested state once it is applied, or if it has no effect. The current run
    /// records it; without a current run, the stored record of the last run does.
    ///
    /// `is_off` tells that the unit is inactive. If it should run nevertheless, the record of the
    /// last run loses its result.
    pub(super) fn record_applied(&mut self, requested: RequestedState, is_off: bool) {
        if std::mem::replace(&mut self.applied, requested) == requested {
            return;
        }
        match &self.handle {
            Some(handle) => handle.sender.update(|update| update.requested = Some(requested)),
            None => self.write_applied(requested, is_off),
        }
    }

    /// Persists the restart counters of a unit that will be retried. The planner may have cleared
    /// them after a long uptime, which the run does not know.
    pub(super) fn persist_counters(&mut self, state: &StatusReport) {
        let attempts = state.attempts.saturating_sub(1);
        // A success leaves no failures to count.
        let failures = state.failures.checked_sub(1).unwrap_or(self.run_state.failures);
        let stored = self.set_idle_state(RunState {
            attempts,
            failures,
            ..RunState::clone(&self.run_state)
        });
        if let Err(error) = stored {
            tracing::warn!(%error, "cannot store the restart counters of a unit");
        }
    }

    /// Writes the applied state to the record of the last run. Clears the result in that record if
    /// the unit is inactive although it should run.
    pub(super) fn write_applied(&self, requested: RequestedState, is_off: bool) {
        let run = self.directory.read_run().map(Option::unwrap_or_default);
        let noted = run.and_then(|mut run| {
            run.requested = requested;
            if is_off && requested.should_run() {
                run.run_state = RunState::default();
            }
            self.directory.write_run(&run)
        });
        if let Err(error) = noted {
            tracing::warn!(%error, "cannot store that a request is applied");
        }
    }

    /// Sets the definition by which the current run is reloaded and stopped.
    pub(super) fn set_definition(&self, spec: Arc<InitUnit>) {
        if let Some(handle) = &self.handle {
            handle.sender.update(|update| update.spec = Some(spec));
        }
    }

    /// Writes the definition that the unit is started from. A later daemon can stop the unit by
    /// this definition, whatever the graph then says. Settings that a stanza cannot express are
    /// left out.
    pub(super) fn write_definition(&mut self, unit: &Arc<InitUnit>) -> io::Result<()> {
        if self.written.as_ref() == Some(unit) {
            return Ok(());
        }
        let printed = text::print(unit, &Timeouts::default());
        self.directory.write_definition(&printed.text)?;
        self.written = Some(Arc::clone(unit));
        Ok(())
    }
}

/// Reads the definition that a unit was started from; `None` if none was written. An invalid
/// definition is an error, since the unit may still run by it.
pub(super) fn read_definition(
    directory: &UnitDirectory,
    unit: &Name,
) -> io::Result<Option<InitUnit>> {
    let Some(stanza) = directory.read_definition()? else { return Ok(None) };
    let read = text::read_stanzas(stanza.as_bytes(), &Timeouts::default());
    let mut units = read.stanzas.into_iter().filter_map(|stanza| stanza.unit);
    let found = units.find(|it| it.name == *unit);
    let why = || match read.diagnostics.first() {
        Some(problem) => format!("the stanza of {unit}: {}", problem.message),
        None => format!("no stanza of {unit}"),
    };
    found.map(Some).ok_or_else(|| directory.invalid_definition(why()))
}
