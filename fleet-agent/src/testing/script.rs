//! Scripted behaviour of the fake service manager, and its recorded calls.

use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitHash, UnitName};

/// Behaviour of a unit once it is started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// It runs until it is stopped.
    #[default]
    Runs,
    /// It writes these lines, and runs until it is stopped.
    Writes(&'static [&'static str]),
    /// It starts, and exits at once with this code.
    Exits(i32),
    /// The unit is a oneshot unit, whose start is over when its process exits with this code.
    Task(i32),
    /// It runs until it is stopped, and writes a line on each reload.
    Reloads,
    /// Its start never ends by itself: it stays `activating` until it is stopped.
    NeverReady,
}

/// A call to a fake service manager.
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
