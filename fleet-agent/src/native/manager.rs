//! The service manager that runs units itself.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};
use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::adopt::adopt;
use super::cgroup::Groups;
use super::compile::compile;
use super::identity::{Host, host};
use super::journal;
use super::machine::{Machine, forget_old_boot, unit_of};
use super::supervise::{Handle, Handles, Reply, Request, lock, task_of};
use super::tracking::Tracking;
use crate::lock::acquire_private;
use crate::{
    Clock, Journal, JournalQuery, ManagedUnit, ServiceError, ServiceManager, StateChanges,
    SystemClock,
};

/// How a [`NativeManager`] is set up.
#[derive(Clone)]
pub struct NativeConfig {
    /// Where unit files, records and logs are kept. One manager at a time may use it.
    pub directory: PathBuf,
    /// Variables that every process of every unit is given, besides `PATH`.
    pub environment: Vec<(String, String)>,
    /// How many bytes of its output are kept of each unit; see [`DEFAULT_LOG_LIMIT`].
    ///
    /// [`DEFAULT_LOG_LIMIT`]: Self::DEFAULT_LOG_LIMIT
    pub log_limit: u64,
    /// Whether each run of a unit gets a control group of its own where that is possible, as it is
    /// for root, and for others in a group that was delegated to them.
    pub control_groups: bool,
    /// Names of options, such as `PrivateTmp`, that are passed over where a unit would be refused
    /// for them. It then runs as if they did not stand there, and the log says so.
    pub accept: BTreeSet<String>,
    /// The clock that time-outs and restarts go by.
    pub clock: Arc<dyn Clock>,
}

impl NativeConfig {
    /// Four mebibytes.
    pub const DEFAULT_LOG_LIMIT: u64 = 4 * 1024 * 1024;

    /// The usual set-up with everything in that directory, going by the real clock.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            environment: Vec::new(),
            log_limit: Self::DEFAULT_LOG_LIMIT,
            accept: BTreeSet::new(),
            control_groups: true,
            clock: Arc::new(SystemClock::start()),
        }
    }
}

/// Runs `.service` units as processes of its own, without systemd.
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
/// - Targets are not run.
/// - `MemoryMax=`, `TasksMax=` and the other limits of what all processes of a unit take together
///   need control groups, and the controller delegated to this daemon alone.
/// - `User=` and `Group=` can be any for root, otherwise only one's own. What raises the rights of
///   a process needs root. The prefixes `+`, `!`, `!!` are taken where they change nothing.
///
/// What units say of one another orders nothing here: each is run when it is asked for, as the
/// daemon's log says when a unit is loaded. Fleet's own variables are not handed down. A start that
/// a person asks for begins a new count for `StartLimitBurst=`.
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
/// Units write straight into a file of their own, so their output survives the daemon. While any
/// unit runs the files are looked at every five seconds; a log past its limit is cut to its newer
/// half. What a unit writes in the instant of the cut may be lost. Unloading a unit removes its
/// log.
///
/// Nobody sees the moment of each line, so a journal [`since`](JournalQuery::since) a moment begins
/// where the file had ended at the last look that was certainly before: at most five seconds
/// early for a unit that writes without a pause, more the longer ago the moment is, and not at all
/// for one that paused. What was written before this manager was opened counts as if it had been
/// written at once, with its last line.
pub struct NativeManager {
    machine: Arc<Machine>,
    handles: Handles,
    host: Host,
    log_keeper: AbortHandle,
}

impl NativeManager {
    /// Opens the service manager of a directory, and takes back what an earlier one left running.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Unavailable`] when another manager uses the directory, and
    /// [`ServiceError::Io`] when the directory cannot be used.
    pub async fn open(config: NativeConfig) -> Result<Arc<Self>, ServiceError> {
        let lock = acquire_private(&config.directory, &*config.clock).await?;
        let units = config.directory.join("units");
        let prepared = forget_old_boot(&config.directory, &units);
        prepared.map_err(io_error("read the boot that this machine is in"))?;
        let groups = if config.control_groups {
            Groups::find(&config.directory)
        } else {
            Err("they are turned off".to_owned())
        };
        let controllers = groups.as_ref().map(|it| it.controllers().clone()).map_err(Clone::clone);
        let machine = Arc::new(Machine::new(
            config.clock,
            config.environment,
            units.clone(),
            config.log_limit,
            groups,
            lock,
        ));
        let manager = Self {
            log_keeper: tokio::spawn(Arc::clone(&machine).keep_logs_small()).abort_handle(),
            machine,
            handles: Handles::default(),
            host: host(config.accept, controllers),
        };
        manager.take_back(&units).map_err(io_error("read the records of units"))?;
        Ok(Arc::new(manager))
    }

    /// How the processes of units are found here.
    #[must_use]
    pub fn tracking(&self) -> Tracking {
        self.machine.tracking()
    }

    /// What a known unit last said of itself in this run, in its own words (`STATUS=` of
    /// `sd_notify`); nothing if it said nothing.
    #[must_use]
    pub fn status_text(&self, unit: &UnitName) -> Option<String> {
        self.handle(unit).and_then(|handle| lock(&handle.shown.status).clone())
    }

    /// Stops all units at the same time, and waits for their end. They stay loaded.
    ///
    /// Nothing else may ask this manager to start units meanwhile.
    ///
    /// # Errors
    ///
    /// The first of those that stopping the units gave; the others are stopped all the same.
    pub async fn shutdown(&self) -> Result<(), ServiceError> {
        let units: Vec<UnitName> = lock(&self.handles).keys().cloned().collect();
        let stopped = join_all(units.iter().map(|unit| self.stop(unit))).await;
        let gone = |result: &Result<(), _>| matches!(result, Err(ServiceError::NotLoaded { .. }));
        stopped.into_iter().filter(|result| !gone(result)).collect()
    }

    fn take_back(&self, units: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(units)? {
            let name = entry?.file_name();
            let Some(unit) = name.to_str().and_then(|name| UnitName::parse(unit_of(name)).ok())
            else {
                continue;
            };
            let directory = self.machine.directory(unit.as_str());
            match adopt(&self.machine, &unit, &directory, &self.host) {
                Ok(Some(loaded)) => {
                    task_of(&self.machine, &self.handles, &unit, Some(loaded));
                }
                Ok(None) => directory.remove()?,
                // One unit that cannot be read must not keep the others from being taken back.
                Err(error) => tracing::error!(%unit, %error, "cannot take a unit back"),
            }
        }
        Ok(())
    }

    fn handle(&self, unit: &UnitName) -> Option<Handle> {
        lock(&self.handles).get(unit).cloned()
    }

    /// Whether this is still the task of the unit: one that ends as it should takes itself out.
    fn is_present(&self, unit: &UnitName, handle: &Handle) -> bool {
        self.handle(unit).is_some_and(|now| Arc::ptr_eq(&now.shown, &handle.shown))
    }

    /// Asks the task of a unit; `None` when there is none, or it ended before it answered.
    async fn ask(
        handle: &Handle,
        request: impl FnOnce(Reply) -> Request,
    ) -> Option<Result<(), ServiceError>> {
        let (reply, answer) = oneshot::channel();
        handle.requests.send(request(reply)).await.ok()?;
        answer.await.ok()
    }

    async fn ask_known(
        &self,
        unit: &UnitName,
        request: impl FnOnce(Reply) -> Request,
    ) -> Result<(), ServiceError> {
        let unknown = || ServiceError::NotLoaded { unit: unit.clone() };
        let handle = self.handle(unit).ok_or_else(unknown)?;
        Self::ask(&handle, request).await.unwrap_or_else(|| Err(unknown()))
    }
}

impl Drop for NativeManager {
    fn drop(&mut self) {
        self.log_keeper.abort();
        for handle in lock(&self.handles).values() {
            handle.task.abort();
        }
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
        let compiled = compile(unit, file, &self.host).map_err(|bad| ServiceError::BadSetting {
            unit: unit.clone(),
            line: bad.line,
            problem: bad.problem,
        })?;
        if self.handle(unit).is_none() {
            for remark in &compiled.remarks {
                tracing::warn!(%unit, remark, "an option is not what it is under systemd");
            }
        }
        let spec = Arc::new(compiled.spec);
        loop {
            let handle = task_of(&self.machine, &self.handles, unit, None);
            let (file, spec) = (file.clone(), Arc::clone(&spec));
            let asked = Self::ask(&handle, |reply| Request::Load { file, spec, epoch, reply });
            // A task that ends because its unit is being forgotten makes room for the next.
            if let Some(answer) = asked.await {
                return answer;
            }
            if handle.task.is_finished() && self.is_present(unit, &handle) {
                return Err(ServiceError::Unavailable(format!(
                    "what sees to {unit} has ended by a defect: restart the daemon"
                )));
            }
            tokio::task::yield_now().await;
        }
    }

    async fn reload(&self) -> Result<(), ServiceError> {
        // Each load has read its file already.
        Ok(())
    }

    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError> {
        let Some(handle) = self.handle(unit) else {
            return Ok(());
        };
        Self::ask(&handle, |reply| Request::Unload { reply }).await.unwrap_or(Ok(()))
    }

    async fn start(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        self.ask_known(unit, |reply| Request::Start { generation, reply }).await
    }

    async fn restart(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        self.ask_known(unit, |reply| Request::Restart { generation, reply }).await
    }

    async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.ask_known(unit, |reply| Request::Stop { reply }).await
    }

    async fn reload_unit(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.ask_known(unit, |reply| Request::Reload { reply }).await
    }

    async fn get(&self, unit: &UnitName) -> Result<Option<ManagedUnit>, ServiceError> {
        Ok(self.handle(unit).and_then(|handle| lock(&handle.shown.state).clone()))
    }

    async fn list(&self) -> Result<Vec<ManagedUnit>, ServiceError> {
        let handles = lock(&self.handles);
        Ok(handles.values().filter_map(|handle| lock(&handle.shown.state).clone()).collect())
    }

    fn changes(&self) -> StateChanges {
        self.machine.feed.subscribe()
    }

    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError> {
        let log = self.handle(unit).and_then(|handle| lock(&handle.shown.log).clone());
        let log = log.ok_or_else(|| ServiceError::NotLoaded { unit: unit.clone() })?;
        journal::read(&log, query).map_err(io_error(format!("read the log of {unit}")))
    }
}

fn io_error(action: impl Into<String>) -> impl FnOnce(io::Error) -> ServiceError {
    move |source| ServiceError::Io { action: action.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_unit_whose_task_has_broken_off_is_refused_and_not_waited_for() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let opened = NativeManager::open(NativeConfig::new(directory.path())).await;
        let manager = opened.expect("it opens");
        let unit = UnitName::parse("a.service").expect("it is a name");
        let file = UnitFile::parse("[Service]\nExecStart=/bin/true\n").expect("it is well formed");
        manager.load(&unit, &file, Epoch(1)).await.expect("it loads");
        let task = manager.handle(&unit).expect("it is known").task;
        task.abort();
        while !task.is_finished() {
            tokio::task::yield_now().await;
        }
        let refused = manager.load(&unit, &file, Epoch(2)).await;
        assert!(matches!(refused, Err(ServiceError::Unavailable(_))), "{refused:?}");
    }
}
