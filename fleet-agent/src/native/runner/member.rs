//! What is kept of a unit beside what decides: its log, its record, and its present run.

use std::io;
use std::sync::Arc;

use fleet_core::graph::{Incarnation, Name, State, TimeOuts, Unit, text};
use tokio::task::AbortHandle;

use super::inbox::Outside;
use crate::native::life::Memory;
use crate::native::log::Log;
use crate::native::machine::Machine;
use crate::native::record::{Asked, UnitDirectory};

/// A unit that runs, or did.
pub(super) struct Member {
    pub(super) directory: UnitDirectory,
    pub(super) log: Arc<Log>,
    /// How its last run is, or ended.
    pub(super) memory: Arc<Memory>,
    pub(super) problem: Option<String>,
    /// Its present run.
    pub(super) live: Option<Live>,
    /// Whether its next start is one that follows from how it ended.
    pub(super) retries: bool,
    /// What was written down as that which it runs.
    pub(super) written: Option<Arc<Unit>>,
    /// What of the asked is done, as far as it is written down or about to be.
    pub(super) done: Asked,
}

/// The task of a run, from outside.
pub(super) struct Live {
    pub(super) incarnation: Incarnation,
    pub(super) outside: Outside,
    pub(super) task: AbortHandle,
}

impl Member {
    /// A unit that has not run yet, with an empty log if it has none.
    pub(super) fn new(machine: &Machine, unit: &Name) -> io::Result<Self> {
        let directory = machine.record(unit.as_str());
        let log = machine.open_log(directory.log())?;
        Ok(Self {
            directory,
            log,
            memory: Arc::default(),
            problem: None,
            live: None,
            retries: false,
            written: None,
            done: Asked::default(),
        })
    }

    /// What was asked is done, or nothing comes of it: that is written down with its run, or with
    /// the last one. One that is off, though it is to run, is no more what its last run made of it.
    pub(super) fn note_done(&mut self, asked: Asked, is_off: bool) {
        if std::mem::replace(&mut self.done, asked) == asked {
            return;
        }
        match &self.live {
            Some(live) => live.outside.tell(|news| news.asked = Some(asked)),
            None => self.write_done(asked, is_off),
        }
    }

    /// It is tried again, with so many ends that count. If it was up for long what was before is
    /// forgiven by now, of which its run knows nothing: that is written down for the next runner.
    pub(super) fn keep_counts(&mut self, state: &State) {
        let attempts = state.attempts.saturating_sub(1);
        // After a good end nothing is left to count.
        let failures = state.failures.checked_sub(1).unwrap_or(self.memory.failures);
        let kept = self.remember(Memory { attempts, failures, ..Memory::clone(&self.memory) });
        if let Err(error) = kept {
            tracing::warn!(%error, "cannot record what a unit was forgiven");
        }
    }

    /// Writes down with its last run what was asked and is done.
    pub(super) fn write_done(&self, asked: Asked, is_off: bool) {
        let run = self.directory.read_run().map(Option::unwrap_or_default);
        let noted = run.and_then(|mut run| {
            run.asked = asked;
            if is_off && asked.is_wanted() {
                run.memory = Memory::default();
            }
            self.directory.write_run(&run)
        });
        if let Err(error) = noted {
            tracing::warn!(%error, "cannot record that what was asked of a unit is done");
        }
    }

    /// Its present run is ended, and whatever else is to be done to it, by this.
    pub(super) fn replace(&self, spec: Arc<Unit>) {
        if let Some(live) = &self.live {
            live.outside.tell(|news| news.spec = Some(spec));
        }
    }

    /// Writes down what it is started from, so that it can be ended by that, whatever the graph
    /// says by then. What a stanza cannot say is left out.
    pub(super) fn write_definition(&mut self, unit: &Arc<Unit>) -> io::Result<()> {
        if self.written.as_ref() == Some(unit) {
            return Ok(());
        }
        let printed = text::print(unit, &TimeOuts::default());
        self.directory.write_definition(&printed.text)?;
        self.written = Some(Arc::clone(unit));
        Ok(())
    }
}

/// Reads what was written down as that which a unit runs; `None` when nothing was. What makes no
/// sense is an error: it is not known what the unit runs.
pub(super) fn read_definition(directory: &UnitDirectory, unit: &Name) -> io::Result<Option<Unit>> {
    let Some(stanza) = directory.read_definition()? else { return Ok(None) };
    let read = text::read_stanzas(stanza.as_bytes(), &TimeOuts::default());
    let mut units = read.stanzas.into_iter().filter_map(|stanza| stanza.unit);
    let found = units.find(|it| it.name == *unit);
    let why = || match read.diagnostics.first() {
        Some(problem) => format!("the stanza of {unit}: {}", problem.message),
        None => format!("there is no stanza of {unit}"),
    };
    found.map(Some).ok_or_else(|| directory.senseless_definition(why()))
}
