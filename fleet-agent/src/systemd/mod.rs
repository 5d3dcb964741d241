//! The service manager that drives the machine's systemd over D-Bus.
//!
//! ```text
//! manager ── load, install ────> files, record     unit files and requests
//!    │      │    └─────────────> bus               calls to systemd
//!    │      └ quadlet                              files of containers, for podman's generator
//!    ├───── operations, jobs ──> bus               start, stop, restart; the ends of jobs
//!    ├───── journal                                journalctl as a child process
//!    └ connection: one task ─ dispatch > state, jobs   systemd's signals, in order
//!                         └── refresh ─> state, bus    one call about many units; everything
//!                                │                     once, after missed signals
//!                                └ recovery ─> record  requests with an unknown outcome
//! ```
//!
//! systemd's signals report the states of units, so these are not polled. All units are read once
//! after a connection was lost, or after systemd has reloaded its files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Clock, SystemClock};

mod bus;
mod connection;
mod context;
mod files;
mod install;
mod jobs;
mod journal;
mod load;
mod manager;
mod operations;
mod quadlet;
mod record;
mod recovery;
mod refresh;
mod state;
mod units;

pub use manager::SystemdManager;

/// The systemd instance that runs the units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemdScope {
    /// The system instance, which is the machine's first process.
    System,
    /// A user's instance, `systemd --user`.
    User,
}

/// Settings of a [`SystemdManager`](crate::SystemdManager).
#[derive(Clone)]
#[non_exhaustive]
pub struct SystemdConfig {
    /// The systemd instance that runs the units.
    pub scope: SystemdScope,
    /// Socket of the bus.
    pub socket: PathBuf,
    /// Directory of unit files and records, preferably one that a reboot clears. Only one manager
    /// may use the directory at a time.
    pub directory: PathBuf,
    /// Directory for the links to unit files. systemd searches this directory, and a reboot clears
    /// it.
    pub links: PathBuf,
    /// Directory for the files of containers. podman's generator searches this directory, and a
    /// reboot clears it. No other program may use it.
    pub quadlets: PathBuf,
    /// Clock for the pauses between connection attempts.
    pub clock: Arc<dyn Clock>,
}

impl SystemdConfig {
    /// The system instance, over the system bus; files in `/run/fleet/units`.
    #[must_use]
    pub fn system() -> Self {
        Self {
            scope: SystemdScope::System,
            socket: "/run/dbus/system_bus_socket".into(),
            directory: "/run/fleet/units".into(),
            links: "/run/systemd/system".into(),
            quadlets: "/run/containers/systemd/fleet".into(),
            clock: Arc::new(SystemClock::start()),
        }
    }

    /// Creates the settings for a user's systemd instance, over the user's bus. The unit files are
    /// in `fleet/units` below the runtime directory (`XDG_RUNTIME_DIR`).
    #[must_use]
    pub fn user(runtime_directory: &Path) -> Self {
        Self {
            scope: SystemdScope::User,
            socket: runtime_directory.join("bus"),
            directory: runtime_directory.join("fleet/units"),
            links: runtime_directory.join("systemd/user"),
            quadlets: runtime_directory.join("containers/systemd/fleet"),
            clock: Arc::new(SystemClock::start()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instance_has_its_socket() {
        let user = SystemdConfig::user(Path::new("/run/user/7"));
        let sockets =
            [(SystemdConfig::system(), "/run/dbus/system_bus_socket"), (user, "/run/user/7/bus")];
        for (config, socket) in sockets {
            assert_eq!(config.socket, Path::new(socket));
        }
    }
}
