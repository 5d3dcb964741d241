//! Finds the units that a supervisor has left running, for a caller that does not supervise them.

use std::io;
use std::path::Path;

use fleet_unitfile::UnitName;

use super::manager_context::{UNITS, unit_name_of};
use super::runtime_directory::Directories;
use super::unit_directory::{RunRecord, UnitDirectory};
use crate::native::linux::proc::started;
use crate::native::run::machine::state::ServicePhase;

/// Returns the units that a [`NativeManager`](crate::NativeManager) of this directory has started
/// since boot and that still run. Does not change the directory.
///
/// A unit whose run cannot be read counts as running.
pub(crate) fn running_units(directory: &Path) -> io::Result<Vec<UnitName>> {
    let Some(runtime) = Directories::of_this_boot(directory)? else { return Ok(Vec::new()) };
    let entries = match std::fs::read_dir(runtime.join(UNITS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut running = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Ok(unit) = UnitName::parse(unit_name_of(file)) else { continue };
        let is_running = match UnitDirectory::new(path.clone(), &path).read_run() {
            Ok(Some(run)) => is_running(&run)?,
            Ok(None) => false,
            Err(_) => true,
        };
        if is_running {
            running.push(unit);
        }
    }
    running.sort();
    Ok(running)
}

/// Returns whether a run has a process, or is active without one.
fn is_running(run: &RunRecord) -> io::Result<bool> {
    if run.run_state.phase == ServicePhase::Exited {
        return Ok(true);
    }
    if let Some(group) = &run.group
        && !group.is_empty()?
    {
        return Ok(true);
    }
    let known = run.run_state.main.iter().chain(&run.run_state.control).chain(&run.leaders);
    for process in known {
        if started(process.pid)? == Some(*process) {
            return Ok(true);
        }
    }
    Ok(false)
}
