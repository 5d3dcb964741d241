//! What a fake service manager is told to do with a unit, and what it was asked to do.

use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitHash, UnitName};

/// What a unit does when it is started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// It runs until it is stopped.
    #[default]
    Runs,
    /// It writes these lines, and runs until it is stopped.
    Writes(&'static [&'static str]),
    /// It starts, and ends at once with this exit code.
    Exits(i32),
    /// It is a task that is started when it is done, with this exit code.
    Task(i32),
    /// It runs until it is stopped, and can read its configuration again; then it writes a line.
    Reloads,
}

/// A call that was made to a fake service manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// [`load`](crate::ServiceManager::load)
    Load {
        /// The unit.
        unit: UnitName,
        /// The hash of its file.
        hash: UnitHash,
        /// The epoch of its placement.
        epoch: Epoch,
    },
    /// [`reload`](crate::ServiceManager::reload)
    Reload,
    /// [`unload`](crate::ServiceManager::unload)
    Unload(UnitName),
    /// [`start`](crate::ServiceManager::start)
    Start(UnitName, Generation),
    /// [`restart`](crate::ServiceManager::restart)
    Restart(UnitName, Generation),
    /// [`stop`](crate::ServiceManager::stop)
    Stop(UnitName),
    /// [`reload_unit`](crate::ServiceManager::reload_unit)
    ReloadUnit(UnitName),
}
