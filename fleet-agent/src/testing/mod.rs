//! Test support for service managers and for their callers.
//!
//! - [`FakeManager`] is a scripted service manager that runs nothing.
//! - [`conformance()`] checks that a service manager provides the guarantees of [`ServiceManager`].
//! - [`Planner`] is the planner of an engine, for benchmarks.
//!
//! [`ServiceManager`]: crate::ServiceManager

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_unitfile::{UnitFile, UnitName};

use crate::ServiceManager;
use crate::journal::JournalReader;

mod conformance;
mod fake;
mod journals;

pub use conformance::conformance;
pub use fake::{Behaviour, Call, FakeManager};

pub use crate::engine::planner::Planner;

/// A kind of unit that the suite needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnitKind {
    /// Runs until it is stopped.
    RunsForEver,
    /// Starts, and exits with status 3 at once. It is not started again.
    ExitsWith3,
    /// A task that is started when it is done, and succeeds.
    Succeeds,
    /// Runs a process that exits with status 3. The start fails when the process exits.
    Fails,
    /// Runs, and ignores the stop signal.
    IgnoresStop,
    /// Runs; once it is asked to stop it goes on until [`Harness::release`].
    HangsInStop,
    /// Writes the lines `one`, `two` and `three`, and runs until it is stopped.
    Writes,
    /// Writes the line `four`, and runs until it is stopped.
    WritesMore,
    /// Runs until it is stopped. Writes the line `reloaded` on each reload, if the service manager
    /// supports reloads.
    Reloads,
    /// Cannot be loaded.
    Broken,
}

/// An open service manager under test, and the journals of its units.
#[derive(Clone)]
pub struct ManagerWithJournals {
    manager: Arc<dyn ServiceManager>,
    journals: Arc<dyn JournalReader>,
}

impl ManagerWithJournals {
    /// Wraps a service manager.
    #[must_use]
    pub fn new<M: ServiceManager + JournalReader>(manager: Arc<M>) -> Self {
        Self::from_parts(manager.clone(), manager)
    }

    /// Wraps a service manager, and another type that reads the journals of its units.
    #[must_use]
    pub fn from_parts(manager: Arc<dyn ServiceManager>, journals: Arc<dyn JournalReader>) -> Self {
        Self { manager, journals }
    }
}

impl fmt::Debug for ManagerWithJournals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerWithJournals").finish_non_exhaustive()
    }
}

/// A machine with the service manager under test.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Opens a service manager on the machine, as a daemon does when it starts. The suite drops the
    /// previous service manager first.
    async fn open(&self) -> ManagerWithJournals;

    /// Whether the service manager can reload units. By default it can; a service manager with the
    /// default [`reload_unit`](ServiceManager::reload_unit) returns `false` here.
    fn can_reload(&self) -> bool {
        true
    }

    /// A directory that the units may use.
    fn directory(&self) -> &Path;

    /// Returns the file of a unit with this name and of this kind.
    ///
    /// The files of the default implementation need `/bin/sh`, `/bin/sleep` and a service manager
    /// that supports `Type=oneshot`, `ExecStop=`, `ExecReload=`, `TimeoutStopSec=` and quotes, and
    /// that refuses a service without `ExecStart=`. Other service managers return files of their
    /// own.
    fn unit(&self, unit: &UnitName, kind: UnitKind) -> UnitFile {
        let gate = self.gate(unit);
        let service = match kind {
            UnitKind::RunsForEver => "ExecStart=/bin/sleep 100000".to_owned(),
            UnitKind::ExitsWith3 => "ExecStart=/bin/sh -c 'exit 3'".to_owned(),
            UnitKind::Succeeds => "Type=oneshot\nExecStart=/bin/sh -c 'exit 0'".to_owned(),
            UnitKind::Fails => "Type=oneshot\nExecStart=/bin/sh -c 'exit 3'".to_owned(),
            UnitKind::IgnoresStop => "TimeoutStopSec=100ms\nExecStart=/bin/sh -c 'trap \"\" TERM; \
                                      while :; do sleep 100000; done'"
                .to_owned(),
            UnitKind::HangsInStop => format!(
                "ExecStart=/bin/sleep 100000\n\
                 ExecStop=/bin/sh -c 'until [ -e {gate} ]; do sleep 0.01; done'"
            ),
            UnitKind::Writes => {
                "ExecStart=/bin/sh -c 'echo one; echo two; echo three; exec sleep 100000'"
                    .to_owned()
            }
            UnitKind::WritesMore => {
                "ExecStart=/bin/sh -c 'echo four; exec sleep 100000'".to_owned()
            }
            UnitKind::Reloads => {
                // A journal may lose track of a line's unit once its writer is gone.
                let reload = "/bin/sh -c 'echo reloaded; exec /bin/sleep 1'";
                format!("ExecStart=/bin/sleep 100000\nExecReload={reload}")
            }
            UnitKind::Broken => "Restart=always".to_owned(),
        };
        UnitFile::parse(format!("[Service]\n{service}\n")).expect("each of these is well formed")
    }

    /// Lets a stop of a [`UnitKind::HangsInStop`] unit finish.
    fn release(&self, unit: &UnitName) {
        std::fs::write(self.gate(unit), "").expect("the directory can be written to");
    }

    /// Returns the file for which that stop waits.
    fn gate(&self, unit: &UnitName) -> String {
        self.directory().join(format!("{unit}.gate")).display().to_string()
    }
}
