//! What is kept of a unit beside what decides: its log, its record, and its present run.

use std::io;
use std::sync::Arc;

use fleet_core::graph::{Incarnation, Name, TimeOuts, Unit, text};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::course::Errand;
use crate::native::life::Memory;
use crate::native::log::Log;
use crate::native::machine::Machine;
use crate::native::record::UnitDirectory;

/// A unit that runs, or did.
pub(super) struct Member {
    pub(super) directory: UnitDirectory,
    pub(super) log: Arc<Log>,
    /// How its last run is, or ended.
    pub(super) memory: Memory,
    pub(super) problem: Option<String>,
    /// Its present run.
    pub(super) live: Option<Live>,
    /// Whether its next start is one that follows from how it ended.
    pub(super) retries: bool,
    /// What was written down as that which it runs.
    pub(super) written: Option<Arc<Unit>>,
}

/// The task of a run, from outside.
pub(super) struct Live {
    pub(super) incarnation: Incarnation,
    pub(super) errands: mpsc::Sender<Errand>,
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
            memory: Memory::default(),
            problem: None,
            live: None,
            retries: false,
            written: None,
        })
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

/// Reads what was written down as that which a unit runs.
pub(super) fn read_definition(directory: &UnitDirectory) -> io::Result<Option<Unit>> {
    let Some(stanza) = directory.read_definition()? else { return Ok(None) };
    let read = text::read_stanzas(stanza.as_bytes(), &TimeOuts::default());
    Ok(read.stanzas.into_iter().find_map(|stanza| stanza.unit))
}
