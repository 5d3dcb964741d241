//! The service manager of fleetd, which runs units itself.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use fleet_core::graph::systemd::AcceptedOptions;
use fleet_core::journal::JournalQuery;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};

use crate::journal::{Journal, JournalReader};
use crate::native::executor::Executor;
use crate::native::linux::process_table::Tracking;
use crate::native::log::journal;
use crate::native::state::manager_context::running_units;
use crate::native::supervisor::command::{Command, SupervisorHandle};
use crate::native::supervisor::managed_units::ManagedUnitsConfig;
use crate::native::supervisor::managed_units::external::External;
use crate::native::supervisor::requests::UnitRequest;
use crate::native::supervisor::starters::is_starter;
use crate::native::supervisor::{InitSnapshot, SupervisorConfig};
use crate::{
    ChangeReceiver, Clock, ManagedUnit, ServiceError, ServiceManager, SystemClock, UnitDetails,
};

/// Service manager that runs `.service`, `.socket`, `.path`, `.timer` and `.target` units without
/// systemd. It starts the processes of `.service` units itself.
///
/// Dropping the manager leaves the units running, as a crash of the daemon does. The next manager
/// of the same directory adopts the processes of the units, and knows the requested states. If a
/// process ended between the two managers, its exit status is unknown. This counts as a failure, so
/// the restart policy of the unit applies. After a reboot no unit is known, and the logs are
/// removed.
///
/// # Options
///
/// Unit files are read by [`fleet_core::graph::systemd`]. Each option has systemd's meaning, is
/// ignored with a remark in the log, or refuses the unit. A refusal states the line, the reason and
/// an alternative. A refused unit does not run at all. [`accept`](NativeConfig::accept) lists the
/// options whose loss the operator accepts. Some options depend on this host:
///
/// - `MemoryMax=`, `TasksMax=` and the other limits for all processes of a unit need control
///   groups. Their controllers have to be delegated to this daemon alone. Without them, the limits
///   are ignored with a remark, and so are a negative `Nice=` and `OOMScoreAdjust=` without root.
/// - `User=` and `Group=` can name any account if the daemon runs as root, and otherwise only the
///   daemon's own account. The prefixes `+` and `!` of commands need root. Without it, the unit is
///   refused, or runs as the daemon's own user if the operator accepts that.
///
/// Units do not inherit the daemon's own environment variables. A requested start resets the
/// counter for `StartLimitBurst=`, but a start by a timer, socket or path does not.
///
/// # Units that depend on each other
///
/// The loaded units form one graph. A start of a unit also starts the units that it requires, in
/// the order that the files prescribe. A stop of a unit also stops the units that require it or are
/// bound to it.
///
/// Units are loaded in any order, so a unit may require a unit that is not loaded yet. It cannot
/// start until the required unit is loaded. [External](NativeConfig::external) units of the machine
/// satisfy requirements like loaded units.
///
/// # Processes
///
/// Each run of a unit has its own control group if the host allows it. No process of the run can
/// leave this group, so a stop reaches all of them. [`tracking`](Self::tracking) reports whether
/// control groups are used.
///
/// Without control groups, each command runs in its own process group and carries the random
/// `INVOCATION_ID` of its run. A stop then reaches the process group, every process with this ID,
/// and the descendants of both. It misses a process that leaves its group, its parent and its
/// environment.
///
/// A unit only becomes `inactive` once no process of it is left, or once `TimeoutStopSec=` (at
/// least ten seconds) has passed since SIGKILL.
///
/// # Output
///
/// Units write directly to their own log file, so their output survives the daemon. Once a log
/// exceeds its limit, its older half is released to the file system by punching a hole. No other
/// output is lost. On file systems without holes the file is truncated, and output written at that
/// instant may be lost.
///
/// A log is checked after its first write, and every 50 milliseconds for as long as more is
/// written. Unloading a unit removes its log.
///
/// The time of each line is not recorded, but the size of the file at each check is. A journal
/// [`since`](fleet_core::journal::JournalQuery::since) a timestamp begins at the last recorded size
/// that was certainly reached before that timestamp:
///
/// - For a unit that writes continuously, the journal begins at most 50 milliseconds too early. For
///   older timestamps it may begin earlier, because some recorded sizes are dropped.
/// - For a unit that paused at the timestamp, the beginning is exact.
/// - Output from before this manager was opened counts as written at the time of its last line.
pub struct NativeManager(SupervisorHandle);

impl NativeManager {
    /// Opens the service manager of a directory, and adopts the units that an earlier manager left
    /// running.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Unavailable`] when another manager uses the directory, and
    /// [`ServiceError::Io`] when the directory cannot be used.
    pub async fn open(config: NativeConfig) -> Result<Arc<Self>, ServiceError> {
        let NativeConfig { directory, environment, log_limit, control_groups, clock, .. } = config;
        let NativeConfig { runtime_directory, accept, external, max_starting, executor, .. } =
            config;
        let supervisor = SupervisorConfig {
            directory,
            runtime_directory,
            environment,
            log_limit,
            control_groups,
            executor,
            clock,
        };
        let managed = ManagedUnitsConfig { accept, external, max_starting };
        let handle = SupervisorHandle::open_loaded(supervisor, managed).await?;
        Ok(Arc::new(Self(handle)))
    }

    /// Returns the units that a manager of this directory has started since boot, and that still
    /// run. Does not change the directory, so a program that uses another service manager can check
    /// that it starts no unit a second time.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Io`] if the records cannot be read.
    pub fn running_units(directory: &Path) -> Result<Vec<UnitName>, ServiceError> {
        running_units(directory).map_err(|source| ServiceError::Io {
            action: format!("read the records of units of {}", directory.display()),
            source,
        })
    }

    /// Returns the status of all units in the graph. The status includes the dependencies of each
    /// unit, the reasons for its state, and the time of its next retry. The units that fleet has
    /// launched are listed as extra targets, and there is no goal. Timers, sockets and paths are
    /// not included.
    ///
    /// # Errors
    ///
    /// Only [`ServiceError::Unavailable`].
    pub async fn snapshot(&self) -> Result<InitSnapshot, ServiceError> {
        Ok(self.0.commands().call(|reply| Command::Snapshot { reply }).await?)
    }

    /// Returns the method by which processes are tracked.
    #[must_use]
    pub fn tracking(&self) -> Tracking {
        self.0.context().tracking()
    }

    /// Returns the latest `STATUS=` message that the unit has sent with `sd_notify` in its current
    /// run, if there is one.
    #[must_use]
    pub fn status_text(&self, unit: &UnitName) -> Option<String> {
        self.0.requests().status(unit).and_then(|status| status.text.clone())
    }

    /// Stops all units, dependents before their dependencies, and waits until they have stopped.
    /// The units stay loaded. From then on this manager refuses every start, and the next manager
    /// does not catch up on the refused starts.
    ///
    /// Before the first unit is stopped, a marker for the whole shutdown is stored. If the manager
    /// is killed during the shutdown, the next manager finds the marker and records every unit as
    /// stopped.
    ///
    /// # Errors
    ///
    /// The first error that stopping a unit has caused. The other units are stopped nevertheless.
    pub async fn shutdown(&self) -> Result<(), ServiceError> {
        let context = self.0.context();
        context.shutdown.begin();
        let marker = Arc::clone(context);
        let noted = tokio::task::spawn_blocking(move || marker.shutdown.write()).await;
        let file = context.shutdown.file().display();
        // A failing disk must not keep units running.
        if let Err(error) = noted.map_err(io::Error::other).flatten() {
            tracing::error!(
                %error,
                %file,
                "cannot save that a shutdown has begun: if the shutdown is interrupted, units \
                 start again when this program starts again"
            );
        }
        let (errors, is_written) = self.0.requests().shut_down().await?;
        errors.into_iter().next().map_or(Ok(()), Err)?;
        if is_written && let Err(error) = context.shutdown.remove() {
            tracing::warn!(%error, %file, "cannot remove the marker file of a complete shutdown");
        }
        Ok(())
    }

    /// Kills all processes of all units that can be found, regardless of the stop settings of the
    /// units. Does not wait for the processes to exit. The exits are handled like any others.
    ///
    /// # Errors
    ///
    /// Only [`ServiceError::Unavailable`].
    pub async fn kill_all(&self) -> Result<(), ServiceError> {
        Ok(self.0.commands().call(|reply| Command::KillAll { reply }).await?)
    }
}

#[async_trait]
impl ServiceManager for NativeManager {
    async fn load(
        &self,
        unit: &UnitName,
        file: &UnitFile,
        epoch: Epoch,
    ) -> Result<(), ServiceError> {
        self.0.requests().load(unit, file, epoch).await
    }

    async fn reload(&self) -> Result<(), ServiceError> {
        // Each load has read its file already.
        Ok(())
    }

    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.0.requests().unload(unit).await
    }

    async fn start(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        self.0.requests().request(unit, UnitRequest::Start(generation)).await
    }

    async fn restart(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        self.0.requests().request(unit, UnitRequest::Restart(generation)).await
    }

    async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.0.requests().request(unit, UnitRequest::Stop).await
    }

    async fn reload_unit(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.0.requests().reload_unit(unit).await
    }

    async fn get(&self, unit: &UnitName) -> Result<Option<ManagedUnit>, ServiceError> {
        self.0.requests().get(unit)
    }

    async fn list(&self) -> Result<Vec<ManagedUnit>, ServiceError> {
        self.0.requests().list()
    }

    async fn details(&self, unit: &UnitName) -> Result<UnitDetails, ServiceError> {
        self.0.requests().details(unit).await
    }

    fn changes(&self) -> ChangeReceiver {
        self.0.context().feed.subscribe()
    }
}

#[async_trait]
impl JournalReader for NativeManager {
    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError> {
        // A unit that starts others writes nothing, so no line of it can be missing.
        let query = if is_starter(unit) { query.with_after(None) } else { query };
        let status = self.0.requests().status(unit);
        let status = status.ok_or_else(|| ServiceError::NotLoaded { unit: unit.clone() })?;
        let action = || format!("read the log of {unit}");
        journal::read(&status.log, &query)
            .map_err(|source| ServiceError::Io { action: action(), source })
    }
}

/// Configuration of a [`NativeManager`].
#[derive(Clone)]
#[non_exhaustive]
pub struct NativeConfig {
    /// Directory for unit files, state and logs. Only one manager at a time may use it.
    pub directory: PathBuf,
    /// Directory in memory for records of runs and notification sockets; see
    /// [`SupervisorConfig::runtime_directory`](crate::native::SupervisorConfig::runtime_directory).
    pub runtime_directory: Option<PathBuf>,
    /// Environment variables for every process of every unit, besides `PATH`.
    pub environment: Vec<(String, String)>,
    /// Bytes of output kept per unit; see [`DEFAULT_LOG_LIMIT`].
    ///
    /// [`DEFAULT_LOG_LIMIT`]: Self::DEFAULT_LOG_LIMIT
    pub log_limit: u64,
    /// Whether each run of a unit gets its own control group where possible. Root can create
    /// control groups. Other users can do so if the daemon's control group is delegated to them.
    pub control_groups: bool,
    /// Unit file options that are ignored instead of refused. A unit with such an option runs as if
    /// the option were absent, and the log reports that.
    pub accept: AcceptedOptions,
    /// External units of this machine, which loaded units may depend on, in addition to systemd's
    /// standard targets and a few well-known services. A loaded unit takes precedence over an
    /// external unit of the same name.
    pub external: BTreeMap<UnitName, External>,
    /// Maximum number of units that may be starting at once. `None` sets no limit. A oneshot counts
    /// as starting for as long as it runs. See [`DEFAULT_MAX_STARTING`].
    ///
    /// [`DEFAULT_MAX_STARTING`]: Self::DEFAULT_MAX_STARTING
    pub max_starting: Option<NonZeroU32>,
    /// The program that confines the processes of units. Without it, options such as
    /// `ProtectSystem=` are not supported.
    pub executor: Option<Executor>,
    /// Clock for timeouts and restarts.
    pub clock: Arc<dyn Clock>,
}

impl NativeConfig {
    /// Four mebibytes.
    pub const DEFAULT_LOG_LIMIT: u64 = 4 * 1024 * 1024;
    /// 512: hardly ever reached, and low enough not to overwhelm a machine.
    pub const DEFAULT_MAX_STARTING: NonZeroU32 = NonZeroU32::MIN.saturating_add(511);

    /// Returns the default configuration, with everything in this directory and the real clock.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            runtime_directory: None,
            environment: Vec::new(),
            log_limit: Self::DEFAULT_LOG_LIMIT,
            accept: AcceptedOptions::default(),
            external: BTreeMap::new(),
            max_starting: Some(Self::DEFAULT_MAX_STARTING),
            control_groups: true,
            executor: None,
            clock: Arc::new(SystemClock::start()),
        }
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::{Epoch, Generation};
    use fleet_unitfile::UnitFile;

    use super::*;

    #[tokio::test]
    async fn calls_fail_once_the_supervisor_task_is_gone() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let opened = NativeManager::open(NativeConfig::new(directory.path())).await;
        let manager = opened.expect("it opens");
        let unit = UnitName::parse("a.service").expect("it is a name");
        let file = UnitFile::parse("[Service]\nExecStart=/bin/true\n").expect("it is well formed");
        manager.load(&unit, &file, Epoch(1)).await.expect("it loads");
        manager.0.event_loop().abort();
        while !manager.0.event_loop().is_finished() {
            tokio::task::yield_now().await;
        }
        let refused = manager.load(&unit, &file, Epoch(2)).await;
        assert!(matches!(refused, Err(ServiceError::Unavailable(_))), "{refused:?}");
        let unknown = manager.list().await;
        assert!(matches!(unknown, Err(ServiceError::Unavailable(_))), "unknown is not absent");
    }

    /// Simulates a start that passes the check for a shutdown, but reaches the supervisor only
    /// after the shutdown.
    #[tokio::test]
    async fn a_start_overtaken_by_a_shutdown_has_no_later_effect() {
        for is_killed in [true, false] {
            let directory = tempfile::tempdir().expect("a directory can be made");
            let open = || NativeManager::open(NativeConfig::new(directory.path()));
            let manager = open().await.expect("it opens");
            let unit = UnitName::parse("a.target").expect("it is a name");
            let file = UnitFile::parse("[Unit]\n").expect("it is well formed");
            manager.load(&unit, &file, Epoch(1)).await.expect("it loads");
            manager.0.context().shutdown.write().expect("it can be written");
            let stopped = manager.0.commands().call(|reply| Command::Shutdown { reply }).await;
            stopped.expect("it leads");
            let refused = manager.start(&unit, Generation(1)).await;
            assert!(matches!(refused, Err(ServiceError::StartFailed { .. })), "{refused:?}");
            if !is_killed {
                manager.shutdown().await.expect("nothing runs");
                assert!(!manager.0.context().shutdown.exists().expect("it can be seen"));
            }
            manager.0.event_loop().abort();
            while !manager.0.event_loop().is_finished() {
                tokio::task::yield_now().await;
            }
            drop(manager);
            let next = open().await.expect("it opens").get(&unit).await.expect("the call succeeds");
            let next = next.expect("it is loaded");
            assert_eq!(next.known.requested, fleet_core::TargetState::Loaded, "{is_killed}");
            assert_eq!(next.state.active, fleet_core::ActiveState::Inactive, "{is_killed}");
        }
    }
}
