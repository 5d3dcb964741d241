//! A manager in its own process that follows a script, and is killed at a point that the test
//! chooses; then the next manager, which recovers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fleet_agent::{NativeConfig, NativeManager, ServiceError, ServiceManager};
use fleet_core::graph::{Activity, DerivedState};
use fleet_core::{Epoch, Generation, SystemdState};
use fleet_unitfile::UnitFile;
use rustix::process::{Signal, getpid, kill_process};
use tokio::task::JoinHandle;

use super::kill_harness::{Daemon, KilledDaemonConfig, begin, wait_between_looks};
use crate::support::{Bench, Dead, base_of_groups, name, wait_until};

/// A directory whose manager is to be killed.
pub(super) struct CrashScenario {
    dead: Dead,
    plain: bool,
}

/// The running manager that is to be killed.
pub(super) struct ScriptedManager {
    machine: CrashScenario,
    daemon: Daemon,
}

impl CrashScenario {
    pub(super) async fn new(plain: bool) -> Self {
        let bench = Bench::in_memory(|config| config.control_groups = !plain).await;
        Self { dead: bench.kill().await, plain }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dead.path(name)
    }

    /// Lets the manager load a unit.
    pub(super) fn unit(&self, unit: &str, text: &str) {
        let folder = self.path("files");
        std::fs::create_dir_all(&folder).expect("it can be created");
        std::fs::write(folder.join(unit), text).expect("it can be written");
    }

    /// Starts the manager, and lets it make these calls one after the other: `start`, `restart`,
    /// `stop` and `unload` with a unit; the generation is the position of the call. `begin` does
    /// not wait for the answer. `await` waits until a file has content, and `end` kills the
    /// manager.
    pub(super) async fn begin(self, asks: &[&str]) -> ScriptedManager {
        std::fs::write(self.path("asks"), asks.join("\n")).expect("it can be written");
        let setup = KilledDaemonConfig { home: self.dead.home(), seed: 0, plain: self.plain };
        let daemon = begin("native::kill_point::scripted_manager", &setup);
        let mut living = ScriptedManager { machine: self, daemon };
        living.wait_for_file("open-0").await;
        living
    }
}

impl ScriptedManager {
    /// Waits until a file exists.
    pub(super) async fn wait_for_file(&mut self, file: &str) {
        let path = self.machine.path(file);
        self.daemon.wait_until(&format!("there is {file}"), async || path.exists()).await;
    }

    /// Waits until the last line of a stored file of a unit contains this text.
    pub(super) async fn wait_for_record(&mut self, unit: &str, file: &str, text: &str) {
        let path = self.machine.path(&format!("native/units/{unit}/{file}"));
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        let is_so = async || read().lines().next_back().is_some_and(|line| line.contains(text));
        self.daemon.wait_until(&format!("{unit} is at {text}"), is_so).await;
    }

    pub(super) async fn wait_for_phase(&mut self, unit: &str, phase: &str) {
        self.wait_for_record(unit, "run.json", &format!("\"phase\":\"{phase}\"")).await;
    }

    /// Waits until a file has this many complete lines.
    pub(super) async fn wait_for_lines(&mut self, file: &str, lines: usize) {
        let path = self.machine.path(file);
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        let are = async || read().matches('\n').count() >= lines;
        self.daemon.wait_until(&format!("{file} has {lines} lines"), are).await;
    }

    /// Freezes every new process in a control group before its program runs.
    pub(super) fn freeze(&self) -> Option<FrozenGroups> {
        let base = base_of_groups(&self.machine.dead.home()).filter(|base| base.exists())?;
        std::fs::write(base.join("cgroup.freeze"), "1").expect("it can be frozen");
        Some(FrozenGroups(base))
    }

    pub(super) fn make(&self, file: &str) {
        std::fs::write(self.machine.path(file), "go\n").expect("it can be created");
    }

    /// Kills the manager.
    pub(super) fn kill(self) -> Dead {
        drop(self.daemon);
        self.machine.dead
    }

    /// Waits for a manager with an `end` call.
    pub(super) async fn wait_for_end(mut self) -> Dead {
        self.daemon.wait_for_end().await;
        self.machine.dead
    }
}

/// Control groups that are frozen until this is dropped.
pub(super) struct FrozenGroups(PathBuf);

impl FrozenGroups {
    /// Waits until a process is frozen in one of them.
    pub(super) async fn wait_for_frozen_process(&self) {
        let events = self.0.join("cgroup.events");
        let read = || std::fs::read_to_string(&events).expect("it can be read");
        let is_held = async || ["populated 1", "frozen 1"].iter().all(|it| read().contains(it));
        wait_until("a process is frozen before its program runs", is_held).await;
    }
}

impl Drop for FrozenGroups {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // It must not survive a failed test, and cannot be identified yet.
            drop(std::fs::write(self.0.join("cgroup.kill"), "1"));
        }
        std::fs::write(self.0.join("cgroup.freeze"), "0").expect("it can be thawed");
    }
}

/// Returns a service that writes its process ID when it starts.
pub(super) fn tells(chosen: &CrashScenario, file: &str, options: &str) -> String {
    let script = format!("echo $$$$ >>{}; exec sleep 1000", chosen.path(file).display());
    format!("[Unit]\n{options}\n[Service]\nExecStart=/bin/sh -c '{script}'\n")
}

/// Returns a service that writes a line when it starts and when it is over. It ignores `SIGTERM`,
/// and exits with a failure.
pub(super) fn stubborn(chosen: &CrashScenario, options: &str) -> String {
    format!(
        "[Unit]\n{options}\n[Service]\nTimeoutStopSec=1h\n\
         ExecStart=/bin/sh -c 'trap \"\" TERM; echo $$$$ >>{}; while :; do sleep 1000; done'\n\
         ExecStopPost=/bin/sh -c 'echo over >>{}; exit 1'\n",
        chosen.path("begun").display(),
        chosen.path("over").display(),
    )
}

/// Returns the lines of a file.
pub(super) fn lines(bench: &Bench, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(bench.path(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

pub(super) fn is_over(state: &SystemdState) -> bool {
    ["dead", "failed"].contains(&state.sub.as_str())
}

pub(super) const RUNNING: DerivedState = DerivedState::Active(Activity::Running);

/// Returns the state of a unit in the planner, once the planner has handled the recovered state.
pub(super) async fn decided(bench: &Bench, unit: &str) -> DerivedState {
    let units = bench.manager.snapshot().await.expect("the call succeeds").units;
    let found = units.into_iter().find(|it| it.unit.as_str() == unit);
    found.expect("it is in the graph").report.state
}

/// The manager. Does nothing as a test.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn scripted_manager() {
    let Some(setup) = KilledDaemonConfig::from_env() else { return };
    let mut config = NativeConfig::new(setup.home.join("native"));
    config.environment.push(("BENCH".to_owned(), setup.home.display().to_string()));
    config.control_groups = !setup.plain;
    let manager = NativeManager::open(config).await.expect("it opens");
    load_all(&manager, &setup.home.join("files")).await;
    setup.is_open();
    let asks = std::fs::read_to_string(setup.home.join("asks")).expect("it is there");
    for (number, ask) in (1..).zip(asks.lines()) {
        match ask.split_once(' ') {
            None => kill_process(getpid(), Signal::KILL).expect("it can be killed"),
            Some(("await", file)) => wait_for_words(&setup.home.join(file)).await,
            Some(("begin", ask)) => drop(call(&manager, ask, number)),
            Some(_) => answered(call(&manager, ask, number)).await,
        }
    }
    std::future::pending::<()>().await;
}

async fn load_all(manager: &NativeManager, folder: &Path) {
    for entry in std::fs::read_dir(folder).expect("it can be listed") {
        let path = entry.expect("it can be read").path();
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let file = UnitFile::parse(text).expect("it is well formed");
        let unit = path.file_name().and_then(|name| name.to_str()).expect("it has a name");
        manager.load(&name(unit), &file, Epoch(1)).await.expect("it loads");
    }
}

type Call = JoinHandle<Result<(), ServiceError>>;

fn call(manager: &Arc<NativeManager>, ask: &str, number: u64) -> Call {
    let (verb, unit) = ask.split_once(' ').expect("a verb and a unit");
    let (manager, verb, unit) = (Arc::clone(manager), verb.to_owned(), name(unit));
    tokio::spawn(async move {
        match &*verb {
            "start" => manager.start(&unit, Generation(number)).await,
            "restart" => manager.restart(&unit, Generation(number)).await,
            "stop" => manager.stop(&unit).await,
            "unload" => manager.unload(&unit).await,
            other => panic!("no verb: {other}"),
        }
    })
}

async fn answered(call: Call) {
    call.await.expect("it does not panic").expect("it is done");
}

async fn wait_for_words(path: &Path) {
    while !std::fs::read(path).is_ok_and(|words| words.ends_with(b"\n")) {
        wait_between_looks().await;
    }
}
