//! An idle supervisor does not wake up, not even to poll.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fleet_agent::native::{InitSupervisor, SupervisorConfig};
use fleet_agent::{NativeConfig, NativeManager, ServiceManager};
use fleet_core::graph::Settings;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::UnitFile;
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::graph::{graph, target};
use crate::support::{DEADLINE, Home, name, wait_until};

/// Directory of the supervisor; set for its process only.
const PLACE: &str = "FLEET_TEST_RESTING";
/// Set if the process runs the units of fleet.
const FLEET: &str = "FLEET_TEST_RESTING_FLEET";

const UNITS: usize = 20;
/// Writes some output once.
const COMMAND: &str = "/bin/sh -c 'echo here; exec sleep 1000'";

/// The supervisor, in its own process. Does nothing as a test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_supervisor_process() {
    let Some(home) = std::env::var_os(PLACE) else { return };
    let home = Path::new(&home);
    let mut term = signal(SignalKind::terminate()).expect("the signal can be handled");
    let begun = async || std::fs::write(home.join("begun"), "").expect("it is written");
    if std::env::var_os(FLEET).is_some() {
        let mut config = NativeConfig::new(home.join("native"));
        config.environment.push(mark(home));
        let manager = NativeManager::open(config).await;
        let manager = manager.expect("it opens");
        let names: Vec<_> = (0..UNITS).map(|number| name(&format!("u{number}.service"))).collect();
        for name in &names {
            let service = UnitFile::parse(format!("[Service]\nExecStart={COMMAND}\n"));
            let service = service.expect("it is well formed");
            manager.load(name, &service, Epoch(1)).await.expect("it can be loaded");
            manager.start(name, Generation(1)).await.expect("it starts");
        }
        begun().await;
        term.recv().await;
        for name in &names {
            manager.stop(name).await.expect("it stops");
        }
        return;
    }
    let unit = |number| {
        format!(
            "unit: u{number}\ntype: foreground-supervised\nprovides: u{number}\n\
             ready-grep: ^here$\nexec-start: {COMMAND}\n"
        )
    };
    let stanzas: String = (0..UNITS).map(unit).collect();
    let (mut config, settings) = (SupervisorConfig::new(home.join("native")), Settings::default());
    config.environment.push(mark(home));
    let supervisor = InitSupervisor::start(config, graph(&stanzas, &settings), &settings).await;
    let supervisor = supervisor.expect("it starts");
    let all = (0..UNITS).map(|number| target(&format!("u{number}"))).collect();
    supervisor.set_goal(None, all).await.expect("all are provided");
    wait_until("all are up", async || {
        let units = supervisor.snapshot().await.expect("the call succeeds").units;
        units.iter().all(|unit| unit.main_pid.is_some())
    })
    .await;
    begun().await;
    term.recv().await;
    supervisor.shutdown().await.expect("all stop");
}

/// Returns the environment variable that marks the processes of the units.
fn mark(home: &Path) -> (String, String) {
    ("BENCH".to_owned(), home.display().to_string())
}

/// A supervisor process, which is killed with its units when dropped.
struct SupervisorProcess(Child);

impl Drop for SupervisorProcess {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        drop(self.0.wait());
    }
}

fn process(home: &Home, is_fleet: bool) -> SupervisorProcess {
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command
        .args(["--exact", "native::idle::idle_supervisor_process"])
        .env(PLACE, home.mark())
        .stdout(Stdio::null());
    if is_fleet {
        command.env(FLEET, "");
    }
    SupervisorProcess(command.spawn().expect("the test can run itself"))
}

/// Returns the number of voluntary context switches of the process's threads. Each wake-up adds
/// one.
fn context_switches(process: &SupervisorProcess) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.0.id())).expect("it runs");
    let statuses = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("status")));
    let count = |status: String| {
        let line = status.lines().find_map(|it| it.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    };
    statuses.flatten().map(count).sum::<u64>()
}

/// Waits until the process was not woken for longer than any plausible polling interval.
async fn wait_until_idle(process: &SupervisorProcess) {
    let rest = async {
        let mut before = context_switches(process);
        loop {
            tokio::time::sleep(Duration::from_secs(6)).await;
            let now = context_switches(process);
            if now == before {
                return;
            }
            before = now;
        }
    };
    tokio::time::timeout(2 * DEADLINE, rest).await.expect("it becomes idle");
}

async fn stays_idle(is_fleet: bool) {
    let home = Home::new();
    let process = process(&home, is_fleet);
    let begun = home.path("begun");
    wait_until("all units are up", async || begun.exists()).await;
    wait_until_idle(&process).await;
    drop(process);
    assert_eq!(home.processes(), [0; 0], "processes were left behind");
}

#[tokio::test]
async fn idle_supervisor_does_not_wake_up() {
    tokio::join!(stays_idle(false), stays_idle(true));
}
