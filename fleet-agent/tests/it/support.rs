//! A native service manager in a directory of its own, and waits for its units.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use fleet_agent::journal::Journal;
use fleet_agent::journal::JournalReader as _;
use fleet_agent::{
    Clock, ManagedUnit, NativeConfig, NativeManager, ServiceError, ServiceManager, SystemClock,
};
use fleet_core::journal::JournalQuery;
use fleet_core::{Epoch, Generation, SystemdState, Timestamp};
use fleet_unitfile::{UnitFile, UnitName};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::task::{AbortHandle, JoinHandle};

pub(crate) use crate::wait::{DEADLINE, wait_until};

/// Parses a unit name.
/// Removes the time since which a unit has its state. A restarted daemon knows it less precisely.
pub(crate) fn undated(unit: ManagedUnit) -> ManagedUnit {
    let mut unit = unit;
    unit.state.since = None;
    unit
}

pub(crate) fn name(text: &str) -> UnitName {
    text.parse().expect("the name is well formed")
}

/// The real clock, a hundred times faster.
struct HastyClock(SystemClock);

#[async_trait]
impl Clock for HastyClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.now().as_millis() * 100)
    }

    async fn sleep_until(&self, at: Timestamp) {
        self.0.sleep_until(Timestamp::from_millis(at.as_millis().div_ceil(100))).await;
    }
}

/// Returns a clock on which a second lasts ten milliseconds.
pub(crate) fn hasty() -> Arc<dyn Clock> {
    Arc::new(HastyClock(SystemClock::start()))
}

/// A machine with a native service manager, which has to be left empty.
pub(crate) struct Bench {
    pub(crate) manager: Arc<NativeManager>,
    config: NativeConfig,
    directory: Home,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(set_up: impl FnOnce(&mut NativeConfig)) -> Self {
        Self::at(Home::new(), set_up).await
    }

    /// Like `open`, in memory, where no disk delays it.
    pub(crate) async fn in_memory(set_up: impl FnOnce(&mut NativeConfig)) -> Self {
        Self::at(Home::in_memory(), set_up).await
    }

    async fn at(directory: Home, set_up: impl FnOnce(&mut NativeConfig)) -> Self {
        let mut config = NativeConfig::new(directory.0.path().join("native"));
        let mark = directory.0.path().display().to_string();
        config.environment.push(("BENCH".to_owned(), mark));
        set_up(&mut config);
        let manager = NativeManager::open(config.clone()).await.expect("it opens");
        Self { manager, config, directory }
    }

    /// Returns the control groups of its units, by name.
    pub(crate) fn groups(&self) -> Vec<String> {
        self.directory.groups().unwrap_or_default()
    }

    /// Returns a path for a file of the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.0.path().join(name)
    }

    /// Drops the manager, like the sudden end of a daemon.
    pub(crate) async fn kill(self) -> Dead {
        let Self { manager, config, directory } = self;
        drop(manager);
        Dead { config, directory }
    }

    pub(crate) async fn try_load(&self, unit: &str, text: &str) -> Result<(), ServiceError> {
        let file = UnitFile::parse(text).expect("the unit file is well formed");
        self.manager.load(&name(unit), &file, Epoch(1)).await
    }

    pub(crate) async fn load(&self, unit: &str, service: &str) {
        let text = format!("[Service]\n{service}");
        self.try_load(unit, &text).await.expect("it can be loaded");
    }

    /// Loads `a.service` and starts it, without waiting for the result.
    pub(crate) async fn begin(&self, service: &str) -> AbortHandle {
        self.load("a.service", service).await;
        let manager = Arc::clone(&self.manager);
        let start = tokio::spawn(async move {
            drop(manager.start(&name("a.service"), Generation(1)).await);
        });
        self.wait_for_sub("a.service", "start").await;
        start.abort_handle()
    }

    pub(crate) async fn start(&self, unit: &str) -> Result<(), ServiceError> {
        self.manager.start(&name(unit), Generation(1)).await
    }

    /// Starts a unit in the background.
    pub(crate) fn begin_start(&self, unit: &str) -> JoinHandle<Result<(), ServiceError>> {
        let (manager, unit) = (Arc::clone(&self.manager), name(unit));
        tokio::spawn(async move { manager.start(&unit, Generation(1)).await })
    }

    pub(crate) async fn run(&self, unit: &str, service: &str) {
        self.load(unit, service).await;
        self.start(unit).await.expect("it starts");
    }

    pub(crate) async fn stop(&self, unit: &str) {
        self.manager.stop(&name(unit)).await.expect("it stops");
    }

    pub(crate) async fn get(&self, unit: &str) -> ManagedUnit {
        let unit = self.manager.get(&name(unit)).await.expect("the call succeeds");
        unit.expect("the unit is known")
    }

    pub(crate) async fn state(&self, unit: &str) -> SystemdState {
        self.get(unit).await.state
    }

    pub(crate) async fn pid(&self, unit: &str) -> u32 {
        self.state(unit).await.main_pid.expect("it has a main process")
    }

    /// Waits until the unit's state satisfies the condition.
    pub(crate) async fn wait_for(
        &self,
        unit: &str,
        mut good: impl FnMut(&SystemdState) -> bool,
    ) -> SystemdState {
        let mut changes = self.manager.changes();
        let wait = async {
            loop {
                let state = self.state(unit).await;
                if good(&state) {
                    return state;
                }
                changes.next().await;
            }
        };
        match tokio::time::timeout(DEADLINE, wait).await {
            Ok(state) => state,
            Err(_) => panic!("{unit} did not get there: {:?}", self.state(unit).await),
        }
    }

    pub(crate) async fn wait_for_sub(&self, unit: &str, sub: &str) -> SystemdState {
        self.wait_for(unit, |state| state.sub == sub).await
    }

    /// Waits until a file has this many complete lines, and returns them.
    pub(crate) async fn wait_for_lines(&self, file: &str, lines: usize) -> Vec<String> {
        let path = self.path(file);
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        wait_until(&format!("{lines} lines in {file}"), async || {
            read().matches('\n').count() >= lines
        })
        .await;
        read().lines().map(str::to_owned).collect()
    }

    pub(crate) async fn log(&self, unit: &str) -> Vec<String> {
        let query = JournalQuery::default();
        let mut journal = self.journal(unit, query).await;
        let mut lines = Vec::new();
        while let Some(line) = journal.next().await {
            lines.push(line);
        }
        lines
    }

    pub(crate) async fn journal(&self, unit: &str, query: JournalQuery) -> Journal {
        self.manager.journal(&name(unit), query).await.expect("it has a journal")
    }

    /// Unloads everything, and checks that nothing is left.
    pub(crate) async fn clean_up(self) {
        self.manager.shutdown().await.expect("all units stop");
        assert_eq!(self.directory.processes(), [0; 0], "processes were left behind");
        drop(self.manager);
        let directory = self.directory;
        wait_until("its control groups are gone", async || directory.groups().is_none()).await;
    }
}

/// The directory of a machine. Dropping it kills processes that a failed test has left.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory can be made"))
    }

    /// Creates one where syncing takes no time, if there is such a file system.
    pub(crate) fn in_memory() -> Self {
        let made = tempfile::tempdir_in("/dev/shm");
        made.map_or_else(|_| Self::new(), Self)
    }

    /// Returns the marker by which the processes of its units are found.
    pub(crate) fn mark(&self) -> String {
        self.0.path().display().to_string()
    }

    /// Returns a path below it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the control groups of the machine's units, if it can have any.
    fn groups(&self) -> Option<Vec<String>> {
        groups_below(self.0.path())
    }

    /// Returns the processes of the machine's units.
    pub(crate) fn processes(&self) -> Vec<u32> {
        marked(self.0.path())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for pid in self.processes() {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            // It may have ended by itself meanwhile.
            let _gone = pid.map(|pid| kill_process(pid, Signal::KILL));
        }
    }
}

/// A machine whose daemon has ended.
pub(crate) struct Dead {
    config: NativeConfig,
    directory: Home,
}

impl Dead {
    /// Opens the next daemon's manager.
    pub(crate) async fn revive(self) -> Bench {
        let Self { config, directory } = self;
        let manager = NativeManager::open(config.clone()).await.expect("it opens");
        Bench { manager, config, directory }
    }

    /// Changes the configuration of the next daemon.
    pub(crate) fn with(mut self, set_up: impl FnOnce(&mut NativeConfig)) -> Self {
        set_up(&mut self.config);
        self
    }

    /// Tries to open a manager with this configuration.
    pub(crate) async fn try_to_open(
        &self,
        set_up: impl FnOnce(&mut NativeConfig),
    ) -> Result<(), ServiceError> {
        let mut config = self.config.clone();
        set_up(&mut config);
        NativeManager::open(config).await.map(drop)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.0.path().join(name)
    }

    /// Returns the directory of the machine.
    pub(crate) fn home(&self) -> PathBuf {
        self.directory.0.path().to_owned()
    }
}

/// Returns the control groups of the machine's units, if it can have any.
pub(crate) fn groups_below(home: &Path) -> Option<Vec<String>> {
    let entries = std::fs::read_dir(base_of_groups(home)?).ok()?;
    let groups = entries.flatten().filter(|entry| entry.path().is_dir());
    Some(groups.map(|group| group.file_name().to_string_lossy().into_owned()).collect())
}

/// Returns the parent of these control groups, if there is one.
pub(crate) fn base_of_groups(home: &Path) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/mounts").expect("it can be read");
    let mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut points = mounts.filter(|mount| mount[2] == "cgroup2").map(|mount| mount[1].to_owned());
    let own = std::fs::read_to_string("/proc/self/cgroup").expect("it can be read");
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
    let native = std::fs::metadata(home.join("native")).ok()?;
    let base = format!("fleet-{:x}-{:x}", native.dev(), native.ino());
    Some(Path::new(&points.next_back()?).join(own).join(base))
}

/// Returns the processes of the machine's units.
pub(crate) fn marked(home: &Path) -> Vec<u32> {
    processes_with(&format!("BENCH={}", home.display()))
}

/// Whether a process with this pid runs.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z")))
}

/// Sends a signal, given by name, to a process.
pub(crate) fn signal(pid: u32, signal: &str) {
    kill(signal, &pid.to_string());
}

/// Sends a signal, given by name, to a process group.
pub(crate) fn signal_group(group: u32, signal: &str) {
    kill(signal, &format!("-{group}"));
}

fn kill(signal: &str, whom: &str) {
    let status = std::process::Command::new("/bin/kill")
        .args(["-s", signal, "--", whom])
        .status()
        .expect("kill can be run");
    assert!(status.success(), "kill -s {signal} -- {whom}");
}

fn processes_with(mark: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("it can be listed").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let marked = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
    };
    pids.filter(marked).filter(|&pid| runs(pid)).collect()
}
