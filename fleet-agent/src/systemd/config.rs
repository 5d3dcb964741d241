//! Settings: the systemd instance, the connection to it, and the directories.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Clock, SystemClock};

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
pub struct SystemdConfig {
    /// The systemd instance that runs the units.
    pub scope: SystemdScope,
    /// Socket of the bus, or systemd's private one if `private`.
    pub socket: PathBuf,
    /// Whether the socket is systemd's private one, which works without a bus.
    pub private: bool,
    /// Directory of unit files and records, preferably one that a reboot clears. Only one manager
    /// may use the directory at a time.
    pub directory: PathBuf,
    /// Directory for the links to unit files. systemd searches this directory, and a reboot clears
    /// it.
    pub links: PathBuf,
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
            private: false,
            directory: "/run/fleet/units".into(),
            links: "/run/systemd/system".into(),
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
            private: false,
            directory: runtime_directory.join("fleet/units"),
            links: runtime_directory.join("systemd/user"),
            clock: Arc::new(SystemClock::start()),
        }
    }

    /// Uses systemd's private socket instead of the bus.
    #[must_use]
    pub fn with_private_socket(mut self) -> Self {
        self.private = true;
        let beside_links = self.links.parent().unwrap_or(Path::new("/run/systemd"));
        self.socket = beside_links.join("private");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instance_has_its_socket() {
        let user = SystemdConfig::user(Path::new("/run/user/7"));
        let sockets = [
            (SystemdConfig::system(), "/run/dbus/system_bus_socket"),
            (SystemdConfig::system().with_private_socket(), "/run/systemd/private"),
            (user.clone(), "/run/user/7/bus"),
            (user.with_private_socket(), "/run/user/7/systemd/private"),
        ];
        for (config, socket) in sockets {
            assert_eq!(config.socket, Path::new(socket));
        }
    }
}
