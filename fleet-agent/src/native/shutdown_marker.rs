//! That all units are to end, as one word for all of them.
//!
//! It is written down before the first unit is told, and the records of units follow while they
//! end: five hundred of them must not keep five hundred units waiting. A daemon that is killed
//! meanwhile leaves the word, so that the next one takes none of them for one that is to run.
//!
//! Nothing of it is synced: a daemon's death loses no write that the kernel has taken, and after
//! the machine's end no unit is known any more.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use fleet_unitfile::UnitName;

use super::unit_directory::UnitDirectory;
use crate::ServiceError;
use crate::atomic_file::write_atomic;

/// The end of all units of one service manager.
#[derive(Debug)]
pub(crate) struct ShutdownMarker {
    file: PathBuf,
    has_begun: AtomicBool,
}

impl ShutdownMarker {
    /// One that has not begun, with the file that says so if it has.
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { file, has_begun: AtomicBool::new(false) }
    }

    /// It begins: whatever would start something is refused from now on, before it is written down.
    pub(crate) fn begin(&self) {
        self.has_begun.store(true, Ordering::SeqCst);
    }

    /// Whether it has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::SeqCst)
    }

    /// Refuses to start a unit once it has begun.
    pub(crate) fn refuse_start(&self, unit: &UnitName) -> Result<(), ServiceError> {
        if self.has_begun() { Err(shutdown_refusal(unit)) } else { Ok(()) }
    }

    /// Writes down that all units are to end.
    pub(crate) fn write(&self) -> io::Result<()> {
        write_atomic(&self.file, b"", false)
    }

    /// Whether that was written down, and is not done.
    pub(crate) fn exists(&self) -> io::Result<bool> {
        self.file.try_exists()
    }

    /// It is done, as far as records go: each unit's own tells the same.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Has the records of these units tell what an earlier daemon did not live to write.
    pub(crate) fn apply_to(
        &self,
        mut units: impl Iterator<Item = UnitDirectory>,
    ) -> io::Result<()> {
        if self.exists()? { units.try_for_each(|unit| unit.write_stopped()) } else { Ok(()) }
    }
}

/// Why a unit is not started any more.
pub(crate) fn shutdown_refusal(unit: &UnitName) -> ServiceError {
    let (unit, problem) = (unit.clone(), "all units are being ended".to_owned());
    ServiceError::StartFailed { unit, problem }
}
