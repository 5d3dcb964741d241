//! What is kept of a unit beside what decides: its log, its record, and its present run.

use std::io;
use std::sync::Arc;

use fleet_core::graph::{Incarnation, InitUnit, Name, StatusReport, Timeouts, text};
use tokio::task::AbortHandle;

use super::run_channel::RunSender;
use crate::native::log::Log;
use crate::native::manager_context::ManagerContext;
use crate::native::run_state::RunState;
use crate::native::unit_directory::{RequestedState, UnitDirectory};

/// A unit that runs, or did.
pub(super) struct SupervisedUnit {
    pub(super) directory: UnitDirectory,
    pub(super) log: Arc<Log>,
    /// How its last run is, or ended.
    pub(super) run_state: Arc<RunState>,
    pub(super) problem: Option<String>,
    /// Its present run.
    pub(super) handle: Option<RunHandle>,
    /// Whether its next start is one that follows from how it ended.
    pub(super) is_auto_restart: bool,
    /// What was written down as that which it runs.
    pub(super) written: Option<Arc<InitUnit>>,
    /// What of the asked is done, as far as it is written down or about to be.
    pub(super) applied: RequestedState,
}

/// The task of a run, from outside.
pub(super) struct RunHandle {
    pub(super) incarnation: Incarnation,
    pub(super) sender: RunSender,
    pub(super) task: AbortHandle,
}

impl SupervisedUnit {
    /// A unit that has not run yet, with an empty log if it has none.
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

    /// What was asked is done, or nothing comes of it: that is written down with its run, or with
    /// the last one. One that is off, though it is to run, is no more what its last run made of it.
    pub(super) fn record_applied(&mut self, requested: RequestedState, is_off: bool) {
        if std::mem::replace(&mut self.applied, requested) == requested {
            return;
        }
        match &self.handle {
            Some(handle) => handle.sender.update(|update| update.requested = Some(requested)),
            None => self.write_applied(requested, is_off),
        }
    }

    /// It is tried again, with so many ends that count. If it was up for long what was before is
    /// forgiven by now, of which its run knows nothing: that is written down for the next supervisor.
    pub(super) fn persist_counters(&mut self, state: &StatusReport) {
        let attempts = state.attempts.saturating_sub(1);
        // After a good end nothing is left to count.
        let failures = state.failures.checked_sub(1).unwrap_or(self.run_state.failures);
        let kept = self.set_idle_state(RunState {
            attempts,
            failures,
            ..RunState::clone(&self.run_state)
        });
        if let Err(error) = kept {
            tracing::warn!(%error, "cannot record what a unit was forgiven");
        }
    }

    /// Writes down with its last run what was asked and is done.
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
            tracing::warn!(%error, "cannot record that what was asked of a unit is done");
        }
    }

    /// Its present run is ended, and whatever else is to be done to it, by this.
    pub(super) fn set_definition(&self, spec: Arc<InitUnit>) {
        if let Some(handle) = &self.handle {
            handle.sender.update(|update| update.spec = Some(spec));
        }
    }

    /// Writes down what it is started from, so that it can be ended by that, whatever the graph
    /// says by then. What a stanza cannot say is left out.
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

/// Reads what was written down as that which a unit runs; `None` when nothing was. What makes no
/// sense is an error: it is not known what the unit runs.
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
        None => format!("there is no stanza of {unit}"),
    };
    found.map(Some).ok_or_else(|| directory.invalid_definition(why()))
}
