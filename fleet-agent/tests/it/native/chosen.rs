//! A manager in a process of its own that does what a test says, and is killed when the test has it
//! where it wants it; and the next one, which finds what that one has left.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fleet_agent::{NativeConfig, NativeManager, ServiceError, ServiceManager};
use fleet_core::graph::{Activity, DerivedState};
use fleet_core::{Epoch, Generation, SystemdState};
use fleet_unitfile::UnitFile;
use rustix::process::{Signal, getpid, kill_process};
use tokio::task::JoinHandle;

use super::killing::{Daemon, Victim, begin, wait_between_looks};
use crate::support::{Bench, Dead, base_of_groups, name, wait_until};

/// A machine whose manager is to be killed.
pub(super) struct Chosen {
    dead: Dead,
    plain: bool,
}

/// The same with the manager that is to be killed.
pub(super) struct Living {
    machine: Chosen,
    daemon: Daemon,
}

impl Chosen {
    pub(super) async fn new(plain: bool) -> Self {
        let bench = Bench::in_memory(|config| config.control_groups = !plain).await;
        Self { dead: bench.kill().await, plain }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dead.path(name)
    }

    /// Has the manager load a unit.
    pub(super) fn unit(&self, unit: &str, text: &str) {
        let folder = self.path("files");
        std::fs::create_dir_all(&folder).expect("it can be made");
        std::fs::write(folder.join(unit), text).expect("it can be written");
    }

    /// Begins the manager, and has it asked that, one after the other: `start`, `restart` and
    /// `stop` with a unit, each by the number of its place. After `begin` nobody waits for the
    /// answer. To `await` a file waits until it says something, and with `end` it kills itself.
    pub(super) async fn begin(self, asks: &[&str]) -> Living {
        std::fs::write(self.path("asks"), asks.join("\n")).expect("it can be written");
        let told = Victim { home: self.dead.home(), seed: 0, plain: self.plain };
        let daemon = begin("native::chosen::manager_that_is_told_what_to_ask", &told);
        let mut living = Living { machine: self, daemon };
        living.wait_for_file("open-0").await;
        living
    }
}

impl Living {
    /// Waits until there is such a file.
    pub(super) async fn wait_for_file(&mut self, file: &str) {
        let path = self.machine.path(file);
        self.daemon.wait_until(&format!("there is {file}"), async || path.exists()).await;
    }

    /// Waits until a record of a unit holds that text: its last line, where it has several.
    pub(super) async fn wait_for_record(&mut self, unit: &str, file: &str, text: &str) {
        let path = self.machine.path(&format!("native/units/{unit}/{file}"));
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        let is_so = async || read().lines().next_back().is_some_and(|line| line.contains(text));
        self.daemon.wait_until(&format!("{unit} is at {text}"), is_so).await;
    }

    pub(super) async fn wait_for_phase(&mut self, unit: &str, phase: &str) {
        self.wait_for_record(unit, "run.json", &format!("\"phase\":\"{phase}\"")).await;
    }

    /// Waits until a file has that many whole lines.
    pub(super) async fn wait_for_lines(&mut self, file: &str, lines: usize) {
        let path = self.machine.path(file);
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        let are = async || read().matches('\n').count() >= lines;
        self.daemon.wait_until(&format!("{file} has {lines} lines"), are).await;
    }

    /// Holds whatever begins in a control group from now on before its program does.
    pub(super) fn freeze(&self) -> Option<Frost> {
        let base = base_of_groups(&self.machine.dead.home()).filter(|base| base.exists())?;
        std::fs::write(base.join("cgroup.freeze"), "1").expect("it can be frozen");
        Some(Frost(base))
    }

    pub(super) fn make(&self, file: &str) {
        std::fs::write(self.machine.path(file), "go\n").expect("it can be made");
    }

    /// Kills the manager.
    pub(super) fn strike(self) -> Dead {
        drop(self.daemon);
        self.machine.dead
    }

    /// Waits for a manager that was told to `end`.
    pub(super) async fn wait_for_end(mut self) -> Dead {
        self.daemon.wait_for_end().await;
        self.machine.dead
    }
}

/// The control groups of a machine, as long as they are frozen.
pub(super) struct Frost(PathBuf);

impl Frost {
    /// Waits until somebody is held in one of them.
    pub(super) async fn wait_for_somebody(&self) {
        let events = self.0.join("cgroup.events");
        let read = || std::fs::read_to_string(&events).expect("it can be read");
        let is_held = async || ["populated 1", "frozen 1"].iter().all(|it| read().contains(it));
        wait_until("a process is held at its beginning", is_held).await;
    }
}

impl Drop for Frost {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // It must not outlive a test that failed, and is none of those that can be told yet.
            drop(std::fs::write(self.0.join("cgroup.kill"), "1"));
        }
        std::fs::write(self.0.join("cgroup.freeze"), "0").expect("it can be thawed");
    }
}

/// A service that tells its number when it begins.
pub(super) fn tells(chosen: &Chosen, file: &str, says: &str) -> String {
    let script = format!("echo $$$$ >>{}; exec sleep 1000", chosen.path(file).display());
    format!("[Unit]\n{says}\n[Service]\nExecStart=/bin/sh -c '{script}'\n")
}

/// A service that tells when it begins and when it is over, by a line each. It minds no `SIGTERM`,
/// and its end is a failure.
pub(super) fn stubborn(chosen: &Chosen, says: &str) -> String {
    format!(
        "[Unit]\n{says}\n[Service]\nTimeoutStopSec=1h\n\
         ExecStart=/bin/sh -c 'trap \"\" TERM; echo $$$$ >>{}; while :; do sleep 1000; done'\n\
         ExecStopPost=/bin/sh -c 'echo over >>{}; exit 1'\n",
        chosen.path("begun").display(),
        chosen.path("over").display(),
    )
}

/// All that a file holds, line by line.
pub(super) fn lines(bench: &Bench, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(bench.path(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

pub(super) fn is_over(state: &SystemdState) -> bool {
    ["dead", "failed"].contains(&state.sub.as_str())
}

pub(super) const RUNNING: DerivedState = DerivedState::Active(Activity::Running);

/// How a unit is for what decides. It has decided all that follows from what was found.
pub(super) async fn decided(bench: &Bench, unit: &str) -> DerivedState {
    let units = bench.manager.snapshot().await.expect("it answers").units;
    let found = units.into_iter().find(|it| it.unit.as_str() == unit);
    found.expect("it is in the graph").report.state
}

/// The manager. By itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn manager_that_is_told_what_to_ask() {
    let Some(told) = Victim::told() else { return };
    let mut config = NativeConfig::new(told.home.join("native"));
    config.environment.push(("BENCH".to_owned(), told.home.display().to_string()));
    config.control_groups = !told.plain;
    let manager = NativeManager::open(config).await.expect("it opens");
    load_all(&manager, &told.home.join("files")).await;
    told.is_open();
    let asks = std::fs::read_to_string(told.home.join("asks")).expect("it is there");
    for (number, ask) in (1..).zip(asks.lines()) {
        match ask.split_once(' ') {
            None => kill_process(getpid(), Signal::KILL).expect("it can be killed"),
            Some(("await", file)) => wait_for_words(&told.home.join(file)).await,
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
