//! Which systemd is meant, how it is reached, and where files are kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Clock, SystemClock};

/// Whose units are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemdScope {
    /// The context's, by its first process.
    System,
    /// A user's, by `systemd --user`.
    User,
}

/// How a [`SystemdManager`](crate::SystemdManager) is set up.
#[derive(Clone)]
pub struct SystemdConfig {
    /// Whose units are run.
    pub scope: SystemdScope,
    /// The socket of the bus, or systemd's own if `private`.
    pub socket: PathBuf,
    /// Whether the socket is systemd's own, which works without a bus.
    pub private: bool,
    /// Where unit files and records are kept; best where a reboot empties it. One manager at a
    /// time may use it.
    pub directory: PathBuf,
    /// Where systemd looks for links to unit files that last until the context is booted again.
    pub links: PathBuf,
    /// The clock that pauses between attempts to connect go by.
    pub clock: Arc<dyn Clock>,
}

impl SystemdConfig {
    /// The context's systemd, over the system bus; files in `/run/fleet/units`.
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

    /// A user's systemd, over the user's bus; files in `fleet/units` in the runtime directory,
    /// which is what `XDG_RUNTIME_DIR` names.
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

    /// The same systemd, over a socket of its own and not over the bus.
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
    fn each_systemd_has_a_socket_of_its_own() {
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
