//! Marks the shutdown of all units with a single file, the marker.
//!
//! The marker is written before the first unit is stopped. It prevents the next daemon from
//! starting the units again if this daemon is killed during the shutdown.
//!
//! The requested state in a unit's own directory is only updated while the unit stops. Updating all
//! units before the first stop would delay hundreds of stops.
//!
//! No file is synced. If only the daemon crashes, the kernel still has everything that was written.
//! After a reboot no unit is known anyway.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use fleet_unitfile::UnitName;

use super::unit_directory::UnitDirectory;
use crate::ServiceError;
use crate::files::write_atomic;

/// Shutdown of all units of a service manager.
#[derive(Debug)]
pub(crate) struct ShutdownMarker {
    file: PathBuf,
    has_begun: AtomicBool,
}

impl ShutdownMarker {
    /// Creates the state before a shutdown, with the path of the marker.
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { file, has_begun: AtomicBool::new(false) }
    }

    /// Begins the shutdown. From now on starts are refused, even before the marker is written.
    pub(crate) fn begin(&self) {
        self.has_begun.store(true, Ordering::SeqCst);
    }

    /// Returns whether the shutdown has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::SeqCst)
    }

    /// Returns an error if the shutdown has begun.
    pub(crate) fn refuse_start(&self, unit: &UnitName) -> Result<(), ServiceError> {
        if self.has_begun() { Err(shutdown_refusal(unit)) } else { Ok(()) }
    }

    /// Returns the path of the marker.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Writes the marker.
    pub(crate) fn write(&self) -> io::Result<()> {
        write_atomic(&self.file, b"", false)
    }

    /// Returns whether the marker exists: a shutdown has begun, and some units are not stored as
    /// stopped yet.
    pub(crate) fn exists(&self) -> io::Result<bool> {
        self.file.try_exists()
    }

    /// Removes the marker once the stored state of each unit reflects the shutdown.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// If an earlier daemon has left the marker, stores for each of these units that the unit
    /// should be stopped. Otherwise does nothing.
    pub(crate) fn apply_to(
        &self,
        mut units: impl Iterator<Item = UnitDirectory>,
    ) -> io::Result<()> {
        if self.exists()? { units.try_for_each(|unit| unit.write_stopped()) } else { Ok(()) }
    }
}

/// Returns the error for a start during a shutdown.
pub(crate) fn shutdown_refusal(unit: &UnitName) -> ServiceError {
    let (unit, problem) = (unit.clone(), "all units are shutting down".to_owned());
    ServiceError::StartFailed { unit, problem }
}
