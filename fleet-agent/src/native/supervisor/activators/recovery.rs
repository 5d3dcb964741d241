//! Continues with the activators that an earlier daemon has left.

use std::io;

use fleet_core::graph::systemd::{Activator, Path};
use fleet_unitfile::{UnitHash, UnitName};

use super::Activators;
use crate::native::state::unit_directory::StoredUnit;

impl Activators {
    /// Adds an activator that an earlier daemon has stored. If its file can no longer be run, there
    /// is no definition, and the activator never starts its unit.
    pub(in super::super) fn recover(
        &mut self,
        unit: &UnitName,
        hash: UnitHash,
        definition: Option<&Activator>,
        (_, requested, run): &StoredUnit,
    ) -> io::Result<()> {
        let never = || Path::without_triggers(unit.clone());
        let definition = definition.cloned().unwrap_or_else(never);
        let entry = self.entry(unit, hash, *requested, definition)?.with_record(run.as_ref());
        self.insert(unit, entry);
        Ok(())
    }

    /// Continues with the stored states of all recovered activators. Their units are recovered.
    pub(in super::super) fn resume(&mut self, was_shutting_down: bool) {
        let all: Vec<UnitName> = self.entries.keys().cloned().collect();
        for unit in &all {
            let starts = self.change(unit, |entry, view| entry.resume(was_shutting_down, view));
            if starts == Some(true)
                && let Err(error) = self.start(unit)
            {
                let error = &error as &dyn std::error::Error;
                tracing::error!(%unit, error, "cannot start a socket or path again");
            }
            // An event right before the daemon ended may not have reached the unit.
            self.start_unit(unit);
        }
    }
}
