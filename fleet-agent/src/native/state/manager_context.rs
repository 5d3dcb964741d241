//! State that all units of one native service manager share: directories and their lock, clock,
//! environment, change feed, descriptors of services, control groups, process table, the task that
//! rotates logs, and whether a shutdown has begun.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fleet_core::Timestamp;
use fleet_unitfile::UnitName;

use super::run_journal::RunJournal;
use super::runtime_directory::Directories;
use super::unit_directory::{RunRecord, SharedStorage, UnitDirectory};
use crate::files::{create_private_dir, write_atomic};
use crate::native::executor::Executor;
use crate::native::linux::cgroup::{Group, Groups};
use crate::native::linux::dynamic_user::DynamicUsers;
use crate::native::linux::proc::{Boot, started};
use crate::native::linux::process_table::{ProcessTable, Tracking};
use crate::native::log::rate_limit::{RateLimitedLog, RecordingHealth};
use crate::native::log::{Log, RotationTask};
use crate::native::run::descriptors::DescriptorTable;
use crate::native::run::machine::state::ServicePhase;
use crate::native::run::sd_notify_socket::address;
use crate::{ChangeSender, Clock, ServiceError};

/// Name of the directory of the units, in the runtime directory and, for logs, in the state
/// directory.
pub(crate) const UNITS: &str = "units";

/// The file with the runs of an `InitSupervisor`, and the directory with its logs.
const RUNS: &str = "runs";
const LOGS: &str = "logs";

/// Names of two files: the desired targets, and the start time of the first daemon of the boot.
pub(crate) const TARGETS: &str = "targets.json";
pub(crate) const STARTUP: &str = "timers.json";

/// Directory with the times at which persistent timers last elapsed, which a reboot keeps.
pub(crate) const STAMPS: &str = "timers";

/// An empty file without permissions.
const EMPTY: &str = "empty";

/// The file that marks a shutdown of all units.
const SHUTDOWN: &str = "shutdown";

/// The file that identifies the boot to which all other files belong.
const BOOT: &str = "boot";

/// State that all units of one native service manager share.
pub(crate) struct ManagerContext {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) feed: ChangeSender,
    pub(crate) process_table: ProcessTable,
    /// The program that confines processes, if there is one.
    pub(crate) executor: Option<Executor>,
    /// Descriptors that services get.
    pub(crate) descriptors: DescriptorTable,
    /// Users that exist while units run.
    pub(crate) dynamic_users: DynamicUsers,
    /// Shutdown of all units.
    pub(crate) shutdown: ShutdownMarker,
    /// Log messages about runs and logs that cannot be written.
    pub(crate) write_failures: RateLimitedLog,
    /// Whether starts of units can be recorded.
    pub(crate) recording: RecordingHealth,
    /// Log messages about processes that cannot be killed.
    pub(crate) kill_failures: RateLimitedLog,
    /// Control groups of the manager, or the reason why there are none.
    groups: Result<Groups, String>,
    directories: Directories,
    units: PathBuf,
    journal: Arc<RunJournal>,
    log_limit: u64,
    logs: RotationTask,
    /// Held as long as anything may write to the directory.
    _lock: File,
}

impl ManagerContext {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        environment: Vec<(String, String)>,
        directories: Directories,
        log_limit: u64,
        groups: Result<Groups, String>,
        executor: Option<Executor>,
        lock: File,
    ) -> Self {
        Self {
            clock,
            environment,
            feed: ChangeSender::default(),
            process_table: ProcessTable::default(),
            executor,
            descriptors: DescriptorTable::default(),
            dynamic_users: DynamicUsers::default(),
            shutdown: ShutdownMarker::new(directories.runtime.join(SHUTDOWN)),
            write_failures: RateLimitedLog::default(),
            recording: RecordingHealth::default(),
            kill_failures: RateLimitedLog::default(),
            groups,
            journal: Arc::new(RunJournal::new(directories.runtime.join(RUNS))),
            units: directories.runtime.join(UNITS),
            directories,
            log_limit,
            logs: RotationTask::new(),
            _lock: lock,
        }
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the method by which processes are tracked.
    pub(crate) fn tracking(&self) -> Tracking {
        match &self.groups {
            Ok(_) => Tracking::ControlGroups,
            Err(why) => Tracking::Environment { why: why.clone() },
        }
    }

    /// Returns the available cgroup controllers. The error is the reason why control groups are not
    /// used.
    pub(crate) fn controllers(&self) -> Result<BTreeSet<String>, String> {
        self.groups.as_ref().map(|groups| groups.controllers().clone()).map_err(Clone::clone)
    }

    /// Returns whether the devices and addresses of control groups can be filtered.
    pub(crate) fn has_cgroup_filters(&self) -> bool {
        self.groups.as_ref().is_ok_and(Groups::has_filters)
    }

    /// Returns the control group for a run, if control groups are used.
    pub(crate) fn group(&self, unit: &str, invocation: &str) -> Option<Group> {
        self.groups.as_ref().ok().map(|groups| groups.for_run(unit, invocation))
    }

    /// Returns the path of a file that a reboot makes meaningless.
    pub(crate) fn runtime_file(&self, name: &str) -> PathBuf {
        self.directories.runtime.join(name)
    }

    /// Returns the path of a file that a reboot keeps.
    pub(crate) fn state_file(&self, name: &str) -> PathBuf {
        self.directories.state.join(name)
    }

    /// Returns the directory with the credentials of all units. Root's is in the place where
    /// programs expect it.
    pub(crate) fn credentials(&self) -> PathBuf {
        match rustix::process::geteuid().is_root() {
            true => PathBuf::from("/run/credentials"),
            false => self.runtime_file("credentials"),
        }
    }

    /// Returns the path of an empty file without permissions, which covers inaccessible files.
    pub(crate) fn empty_file(&self) -> io::Result<PathBuf> {
        let path = self.runtime_file(EMPTY);
        match File::options().write(true).create_new(true).mode(0o000).open(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(path),
        }
    }

    /// Returns the address of the notification socket of a run.
    pub(crate) fn notify_address(&self, invocation: &str) -> String {
        address(self.directories.sockets.as_deref(), invocation)
    }

    /// Returns the directory of a unit.
    pub(crate) fn directory(&self, unit: &str) -> UnitDirectory {
        self.directory_named(&file_name(unit))
    }

    fn directory_named(&self, file: &str) -> UnitDirectory {
        let log = self.directories.state.join(UNITS).join(file);
        UnitDirectory::new(self.units.join(file), &log)
    }

    /// Returns the storage of a unit: the unit's directory if it exists, and the shared journal
    /// otherwise.
    pub(crate) fn storage(&self, unit: &str) -> UnitDirectory {
        let file = file_name(unit);
        let log = self.directories.state.join(LOGS).join(&file);
        let shared =
            SharedStorage { journal: Arc::clone(&self.journal), unit: unit.to_owned(), log };
        self.directory_named(&file).or_shared(shared)
    }

    /// Returns the directories of all units that have one.
    pub(crate) fn directories(&self) -> io::Result<Vec<UnitDirectory>> {
        let entries = std::fs::read_dir(&self.units)?;
        let named = |file: std::ffi::OsString| self.directory_named(&file.to_string_lossy());
        entries.map(|entry| Ok(named(entry?.file_name()))).collect()
    }

    /// Returns the names of all units with stored state.
    pub(crate) fn known_units(&self) -> io::Result<BTreeSet<String>> {
        let mut known: BTreeSet<String> = self.journal.units()?.into_iter().collect();
        for entry in std::fs::read_dir(&self.units)? {
            known.extend(entry?.file_name().to_str().map(|file| unit_name_of(file).to_owned()));
        }
        Ok(known)
    }

    /// Opens the log of a unit, and limits its size from now on.
    pub(crate) fn open_log(&self, path: PathBuf) -> io::Result<Arc<Log>> {
        let log = Arc::new(Log::open(path, self.log_limit)?);
        self.logs.keep(&log, self.now());
        Ok(log)
    }

    /// Limits the size of all logs.
    pub(crate) async fn limit_logs(self: Arc<Self>) {
        if let Err(error) = self.logs.run(&*self.clock).await {
            tracing::error!(
                %error,
                "cannot watch logs: they grow without limit until this program restarts"
            );
        }
    }
}

/// Removes the state of an earlier boot: all units, their logs, and the desired targets. The state
/// is useless, because no process of a unit survives a reboot of the machine or a restart of the
/// container.
pub(crate) fn forget_old_boot(directories: &Directories) -> io::Result<()> {
    let Directories { state, runtime, .. } = directories;
    let boot = Boot::current()?;
    create_private_dir(&runtime.join(UNITS))?;
    if is_of_other_boot(runtime, &boot)? {
        std::fs::remove_dir_all(runtime.join(UNITS))?;
        create_private_dir(&runtime.join(UNITS))?;
        ignore_missing(std::fs::remove_dir_all(runtime.join(LOGS)))?;
        for file in [RUNS, TARGETS, STARTUP, SHUTDOWN] {
            ignore_missing(std::fs::remove_file(runtime.join(file)))?;
        }
    }
    write_boot(runtime, &boot)?;
    if state == runtime {
        return directories.remember();
    }
    if let Err(error) = forget_old_logs(directories, &boot) {
        // A full disk prevents no start.
        let directory = state.display();
        tracing::warn!(%error, %directory, "cannot remove the logs of an earlier boot");
    }
    Ok(())
}

/// Removes the logs of an earlier boot from a state directory, and records that an earlier
/// supervisor kept there.
fn forget_old_logs(directories: &Directories, boot: &Boot) -> io::Result<()> {
    let state = &directories.state;
    if is_of_other_boot(state, boot)? {
        ignore_missing(std::fs::remove_dir_all(state.join(LOGS)))?;
        ignore_missing(std::fs::remove_dir_all(state.join(UNITS)))?;
        for file in [RUNS, TARGETS, STARTUP, SHUTDOWN] {
            ignore_missing(std::fs::remove_file(state.join(file)))?;
        }
    }
    directories.remember()?;
    write_boot(state, boot)
}

fn is_of_other_boot(directory: &Path, boot: &Boot) -> io::Result<bool> {
    Ok(Boot::read(&directory.join(BOOT))?.is_some_and(|memory| memory.differs_from(boot)))
}

/// Stores the boot to which a directory belongs, after everything of an earlier boot was removed:
/// if the daemon is killed before, no old state is left that could pass for current. Only this file
/// is synced; the others are useless after a crash of the machine.
fn write_boot(directory: &Path, boot: &Boot) -> io::Result<()> {
    let file = directory.join(BOOT);
    match Boot::read(&file)? {
        Some(memory) if memory == *boot => Ok(()),
        _ => write_atomic(&file, boot.text().as_bytes(), true),
    }
}

/// Returns whether a supervisor has used a directory since boot. Does not change the directory,
/// since a running supervisor may be using it.
pub(crate) fn was_used_this_boot(directory: &Path) -> io::Result<bool> {
    let memory = Boot::read(&directory.join(BOOT))?;
    let present = Boot::current()?;
    Ok(memory.is_some_and(|memory| !memory.differs_from(&present)))
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

/// Returns the file name for a unit name; `.` and `..` are escaped.
pub(crate) fn file_name(unit: &str) -> String {
    if unit.starts_with(['.', '\\']) { format!("\\{unit}") } else { unit.to_owned() }
}

/// Returns the unit name for a file name.
pub(crate) fn unit_name_of(file: &str) -> &str {
    file.strip_prefix('\\').unwrap_or(file)
}

impl Drop for ManagerContext {
    fn drop(&mut self) {
        if let Ok(groups) = &self.groups {
            groups.remove_empty();
        }
    }
}

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

/// Shutdown of all units of a service manager, marked by a single file.
///
/// The marker is written before the first unit is stopped. It prevents the next daemon from
/// starting the units again if this daemon is killed during the shutdown.
///
/// The requested state in a unit's own directory is only updated while the unit stops. Updating all
/// units before the first stop would delay hundreds of stops.
///
/// No file is synced. If only the daemon crashes, the kernel still has everything that was written.
/// After a reboot no unit is known anyway.
#[derive(Debug)]
pub(crate) struct ShutdownMarker {
    file: PathBuf,
    has_begun: AtomicBool,
}

impl ShutdownMarker {
    /// Creates the state before a shutdown, with the path of the marker.
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { file, has_begun: AtomicBool::new(false) }
    }

    /// Begins the shutdown. From now on starts are refused, even before the marker is written.
    pub(crate) fn begin(&self) {
        self.has_begun.store(true, Ordering::SeqCst);
    }

    /// Returns whether the shutdown has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::SeqCst)
    }

    /// Returns an error if the shutdown has begun.
    pub(crate) fn refuse_start(&self, unit: &UnitName) -> Result<(), ServiceError> {
        if self.has_begun() { Err(shutdown_refusal(unit)) } else { Ok(()) }
    }

    /// Returns the path of the marker.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Writes the marker.
    pub(crate) fn write(&self) -> io::Result<()> {
        write_atomic(&self.file, b"", false)
    }

    /// Returns whether the marker exists: a shutdown has begun, and some units are not stored as
    /// stopped yet.
    pub(crate) fn exists(&self) -> io::Result<bool> {
        self.file.try_exists()
    }

    /// Removes the marker once the stored state of each unit reflects the shutdown.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// If an earlier daemon has left the marker, stores for each of these units that the unit
    /// should be stopped. Otherwise does nothing.
    pub(crate) fn apply_to(
        &self,
        mut units: impl Iterator<Item = UnitDirectory>,
    ) -> io::Result<()> {
        if self.exists()? { units.try_for_each(|unit| unit.write_stopped()) } else { Ok(()) }
    }
}

/// Returns the error for a start during a shutdown.
pub(crate) fn shutdown_refusal(unit: &UnitName) -> ServiceError {
    let (unit, problem) = (unit.clone(), "all units are shutting down".to_owned());
    ServiceError::StartFailed { unit, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a directory as a daemon of an earlier boot leaves it.
    fn used_before_boot() -> tempfile::TempDir {
        let home = tempfile::tempdir().expect("a directory can be made");
        for directory in ["units/a.service", LOGS] {
            std::fs::create_dir_all(home.path().join(directory)).expect("it can be created");
        }
        for file in [RUNS, TARGETS, STARTUP, BOOT] {
            std::fs::write(home.path().join(file), "earlier").expect("it can be written");
        }
        home
    }

    fn left(home: &Path) -> Vec<&str> {
        let all = ["units/a.service", LOGS, RUNS, TARGETS, STARTUP];
        all.into_iter().filter(|name| home.join(name).exists()).collect()
    }

    #[test]
    fn state_of_an_earlier_boot_is_removed_despite_a_crash() {
        let home = used_before_boot();
        let forget = || forget_old_boot(&Directories::one(home.path().to_owned()));
        // Makes the write of the boot file fail, as if the daemon were killed before it.
        let aside = home.path().join("boot.new");
        std::fs::create_dir(&aside).expect("it can be created");
        forget().expect_err("the boot cannot be written down");
        assert_eq!(left(home.path()), [""; 0], "nothing is left once the boot is written");
        assert!(!was_used_this_boot(home.path()).expect("it can be read"));
        std::fs::remove_dir(&aside).expect("it is there");
        forget().expect("it is done");
        assert!(was_used_this_boot(home.path()).expect("it can be read"));
        std::fs::write(home.path().join(TARGETS), "{}").expect("it can be written");
        forget().expect("there is nothing to do");
        assert_eq!(left(home.path()), [TARGETS], "state of this boot stays");
    }
}
