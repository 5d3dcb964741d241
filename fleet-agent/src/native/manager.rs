//! The service manager that runs units itself.

mod config;
mod contract;

use std::io;
use std::sync::Arc;

pub use config::NativeConfig;

use fleet_unitfile::UnitName;
use futures_util::future::join;
use tokio::task::AbortHandle;

use super::client::SupervisorClient;
use super::identity::HostCapabilities;
use super::manager_context::ManagerContext;
use super::supervisor::managed_units::{ManagedUnitsConfig, SupervisorHandle, open_managed_units};
use super::supervisor::{InitSnapshot, SupervisorConfig};
use super::timer::Timers;
use super::timer_targets::SupervisedTargets;
use super::tracking::Tracking;
use crate::ServiceError;

/// Runs `.service` units as processes of its own, `.target` units and `.timer` units, without
/// systemd.
///
/// Dropping it leaves the units running, as the sudden end of a daemon does. The next manager of
/// the same directory finds them, watches them, and knows what was asked. What ended meanwhile
/// ended unseen, which counts as a failure, so the unit's own restart policy decides. A machine
/// that was booted since knows no unit, and the logs are gone with them.
///
/// # Options
///
/// Unit files are read by [`fleet_core::graph::systemd`]: each option has systemd's meaning, or is
/// refused with its line, the reason and what to write instead. Nothing runs with more rights than
/// it asks for, and of a unit that is refused nothing runs at all. Of what is understood there,
/// this manager does not do all by itself, and refuses the rest likewise:
///
/// - `MemoryMax=`, `TasksMax=` and the other limits of what all processes of a unit take together
///   need control groups, and the controller delegated to this daemon alone.
/// - `User=` and `Group=` can be any for root, otherwise only one's own. What raises the rights of
///   a process needs root. The prefixes `+`, `!`, `!!` are taken where they change nothing.
///
/// Fleet's own variables are not handed down. A start that a person asks for begins a new count for
/// `StartLimitBurst=`.
///
/// # Units that need each other
///
/// The units that are loaded are one graph. A start starts what the unit requires, in the order
/// that is asked for, and a stop stops what requires or is bound to the unit. A unit that requires
/// one which is not loaded is taken, since units come in any order, and cannot be started before
/// the other one is there. What others run on the machine is there, too, as far as
/// [`external`](NativeConfig::external) says so.
///
/// # Processes
///
/// Each run of a unit has a control group of its own where there can be any, which no process that
/// it starts can leave, and a stop reaches them all. [`tracking`](Self::tracking) says whether it
/// is so. Where it is not, each command still runs in a process group of its own and carries the
/// random `INVOCATION_ID` of its run. A stop reaches the whole group, and every process elsewhere
/// that carries this identity or descends from one that does; a process that leaves its group, its
/// parent and its environment behind is not found. The state is only `inactive` once none is left,
/// or `TimeoutStopSec=`, at least ten seconds, has passed since SIGKILL.
///
/// # Output
///
/// Units write straight into a file of their own, so their output survives the daemon. Of a log
/// past its limit all but the newer half is given back to the file system, and nothing else of it
/// is lost. A file system that knows no holes in files has it cut, and what a unit writes in that
/// instant may be lost. A log is looked at when it is first written, and within a tenth of a second
/// while more comes. Unloading a unit removes its log.
///
/// Nobody sees the moment of each line, so a journal [`since`](crate::JournalQuery::since) a moment
/// begins where the file had ended at the last look that was certainly before: at most a tenth of a
/// second early for a unit that writes without a pause, more the longer ago the moment is, and not
/// at all for one that paused. What was written before this manager was opened counts as if it had
/// been written at once, with its last line.
pub struct NativeManager {
    context: Arc<ManagerContext>,
    client: Arc<SupervisorClient>,
    host: HostCapabilities,
    timers: Arc<Timers>,
    event_loop: AbortHandle,
    log_task: AbortHandle,
}

impl NativeManager {
    /// Opens the service manager of a directory, and takes back what an earlier one left running.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Unavailable`] when another manager uses the directory, and
    /// [`ServiceError::Io`] when the directory cannot be used.
    pub async fn open(config: NativeConfig) -> Result<Arc<Self>, ServiceError> {
        let NativeConfig { directory, environment, log_limit, control_groups, clock, .. } = config;
        let NativeConfig { accept, external, max_starting, .. } = config;
        let supervisor =
            SupervisorConfig { directory, environment, log_limit, control_groups, clock };
        let directory = supervisor.directory.clone();
        let services = ManagedUnitsConfig { accept, external, max_starting };
        let SupervisorHandle { context, requests, statuses, host, event_loop } =
            open_managed_units(supervisor, services).await?;
        let client = Arc::new(SupervisorClient::new(&context, requests, statuses));
        let triggered = Arc::new(SupervisedTargets::new(&context, &client));
        let timers = Timers::open(&context, triggered, &host, &directory);
        let timers = timers.map_err(|source| {
            event_loop.abort();
            ServiceError::Io { action: "read the records of timers".to_owned(), source }
        })?;
        // Else what is asked from now on would count for nothing in the next daemon.
        context.shutdown.remove().map_err(|source| {
            event_loop.abort();
            ServiceError::Io { action: "finish the end of all units".to_owned(), source }
        })?;
        Ok(Arc::new(Self {
            log_task: tokio::spawn(Arc::clone(&context).limit_logs()).abort_handle(),
            context,
            client,
            host,
            timers: Arc::new(timers),
            event_loop,
        }))
    }

    /// How all units are now, as those of a graph: what they depend on, why they are as they are,
    /// and when they are tried again. What fleet wants to run is what is wanted beside a goal;
    /// timers are not among them.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Unavailable`] alone.
    pub async fn snapshot(&self) -> Result<InitSnapshot, ServiceError> {
        self.client.snapshot().await
    }

    /// How the processes of units are found here.
    #[must_use]
    pub fn tracking(&self) -> Tracking {
        self.context.tracking()
    }

    /// What a known unit last said of itself in this run, in its own words (`STATUS=` of
    /// `sd_notify`); nothing if it said nothing.
    #[must_use]
    pub fn status_text(&self, unit: &UnitName) -> Option<String> {
        self.client.status(unit).and_then(|status| status.status.clone())
    }

    /// Stops all units, dependents before what they depend on, and waits for their end. They stay
    /// loaded. From then on this manager starts nothing: whoever asks for it is refused, and the
    /// next manager does not make up for it.
    ///
    /// That all are to end is written down by one word before the first is told, and a manager that
    /// is killed meanwhile leaves the rest to the next.
    ///
    /// # Errors
    ///
    /// The first of those that stopping the units gave; the others are stopped all the same.
    pub async fn shutdown(&self) -> Result<(), ServiceError> {
        self.context.shutdown.begin();
        let context = Arc::clone(&self.context);
        let noted = tokio::task::spawn_blocking(move || context.shutdown.write()).await;
        // A disk that fails must not keep anything running.
        if let Err(error) = noted.map_err(io::Error::other).flatten() {
            tracing::error!(%error, "cannot record that all units are to end");
        }
        let (stopped, timers) = join(self.client.stop_all(), self.stop_timers()).await;
        let (mut stopped, is_written) = stopped?;
        stopped.extend(timers);
        let gone = |result: &Result<(), _>| matches!(result, Err(ServiceError::NotLoaded { .. }));
        stopped.into_iter().filter(|result| !gone(result)).collect::<Result<(), _>>()?;
        if is_written && let Err(error) = self.context.shutdown.remove() {
            tracing::warn!(%error, "leaves the end of all units to the next daemon");
        }
        Ok(())
    }

    async fn stop_timers(&self) -> Vec<Result<(), ServiceError>> {
        let mut stopped = Vec::new();
        for timer in self.timers.list() {
            stopped.push(self.timers.stop(&timer.unit).await);
        }
        stopped
    }

    /// Kills all processes of all units as far as they can be found, whatever the files of the
    /// units say of how they are to end. Their ends are seen as any others; nothing is waited for.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Unavailable`] alone.
    pub async fn kill_all(&self) -> Result<(), ServiceError> {
        self.client.kill_all().await
    }
}

impl Drop for NativeManager {
    fn drop(&mut self) {
        self.log_task.abort();
        self.event_loop.abort();
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::{Epoch, Generation};
    use fleet_unitfile::UnitFile;

    use super::*;
    use crate::ServiceManager as _;

    #[tokio::test]
    async fn nothing_is_asked_of_units_that_nobody_leads_any_more() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let opened = NativeManager::open(NativeConfig::new(directory.path())).await;
        let manager = opened.expect("it opens");
        let unit = UnitName::parse("a.service").expect("it is a name");
        let file = UnitFile::parse("[Service]\nExecStart=/bin/true\n").expect("it is well formed");
        manager.load(&unit, &file, Epoch(1)).await.expect("it loads");
        manager.event_loop.abort();
        while !manager.event_loop.is_finished() {
            tokio::task::yield_now().await;
        }
        let refused = manager.load(&unit, &file, Epoch(2)).await;
        assert!(matches!(refused, Err(ServiceError::Unavailable(_))), "{refused:?}");
        let unknown = manager.list().await;
        assert!(matches!(unknown, Err(ServiceError::Unavailable(_))), "unknown is not absent");
    }

    /// It has passed where it would have been refused, and comes to who decides after the end.
    #[tokio::test]
    async fn a_start_that_all_units_end_before_has_no_effect_in_the_next_daemon() {
        for is_killed in [true, false] {
            let directory = tempfile::tempdir().expect("a directory can be made");
            let open = || NativeManager::open(NativeConfig::new(directory.path()));
            let manager = open().await.expect("it opens");
            let unit = UnitName::parse("a.target").expect("it is a name");
            let file = UnitFile::parse("[Unit]\n").expect("it is well formed");
            manager.load(&unit, &file, Epoch(1)).await.expect("it loads");
            manager.context.shutdown.write().expect("it can be written");
            manager
                .client
                .call(|supervisor| drop(supervisor.stop_all(|requested| requested)))
                .await
                .expect("it leads");
            let refused = manager.start(&unit, Generation(1)).await;
            assert!(matches!(refused, Err(ServiceError::StartFailed { .. })), "{refused:?}");
            if !is_killed {
                manager.shutdown().await.expect("nothing runs");
                assert!(!manager.context.shutdown.exists().expect("it can be seen"));
            }
            manager.event_loop.abort();
            while !manager.event_loop.is_finished() {
                tokio::task::yield_now().await;
            }
            drop(manager);
            let next = open().await.expect("it opens").get(&unit).await.expect("it answers");
            let next = next.expect("it is loaded");
            assert_eq!(next.known.requested, fleet_core::TargetState::Loaded, "{is_killed}");
            assert_eq!(next.state.active, fleet_core::ActiveState::Inactive, "{is_killed}");
        }
    }
}
