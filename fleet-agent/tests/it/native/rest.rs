//! Whoever runs units does nothing while nothing happens: not even look whether something does.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fleet_agent::{InitSupervisor, NativeConfig, NativeManager, ServiceManager, SupervisorConfig};
use fleet_core::graph::Settings;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::UnitFile;
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::graph::{graph, target};
use crate::support::{DEADLINE, Home, name, wait_until};

/// Where whoever runs units works; set for its process alone.
const PLACE: &str = "FLEET_TEST_RESTING";
/// Set if it is what runs fleet's units.
const FLEET: &str = "FLEET_TEST_RESTING_FLEET";

const UNITS: usize = 20;
/// They have written something, and do not any more.
const COMMAND: &str = "/bin/sh -c 'echo here; exec sleep 1000'";

/// Whoever runs units, in a process of its own. By itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_rests() {
    let Some(home) = std::env::var_os(PLACE) else { return };
    let home = Path::new(&home);
    let mut term = signal(SignalKind::terminate()).expect("it can be heard");
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
            manager.load(name, &service, Epoch(1)).await.expect("it is taken");
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
        let units = supervisor.snapshot().await.expect("it answers").units;
        units.iter().all(|unit| unit.main_pid.is_some())
    })
    .await;
    begun().await;
    term.recv().await;
    supervisor.shutdown().await.expect("all stop");
}

/// What tells the processes of units from others.
fn mark(home: &Path) -> (String, String) {
    ("BENCH".to_owned(), home.display().to_string())
}

/// Such a process, which ends with its units when it is dropped.
struct Resting(Child);

impl Drop for Resting {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        drop(self.0.wait());
    }
}

fn process(home: &Home, is_fleet: bool) -> Resting {
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command
        .args(["--exact", "native::rest::one_that_rests"])
        .env(PLACE, home.mark())
        .stdout(Stdio::null());
    if is_fleet {
        command.env(FLEET, "");
    }
    Resting(command.spawn().expect("the test can run itself"))
}

/// How often the threads of a process have given up the processor to wait for something. Each time
/// that one is woken it does so again.
fn waits(process: &Resting) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.0.id())).expect("it runs");
    let statuses = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("status")));
    let count = |status: String| {
        let line = status.lines().find_map(|it| it.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    };
    statuses.flatten().map(count).sum::<u64>()
}

/// Waits until it has not been woken for longer than anything that looks now and then would wait.
async fn wait_for_rest(process: &Resting) {
    let rest = async {
        let mut before = waits(process);
        loop {
            tokio::time::sleep(Duration::from_secs(6)).await;
            let now = waits(process);
            if now == before {
                return;
            }
            before = now;
        }
    };
    tokio::time::timeout(2 * DEADLINE, rest).await.expect("it comes to rest");
}

async fn rests(is_fleet: bool) {
    let home = Home::new();
    let process = process(&home, is_fleet);
    let begun = home.path("begun");
    wait_until("all units are up", async || begun.exists()).await;
    wait_for_rest(&process).await;
    drop(process);
    assert_eq!(home.processes(), [0; 0], "processes were left behind");
}

#[tokio::test]
async fn while_units_run_and_nothing_happens_nobody_wakes() {
    tokio::join!(rests(false), rests(true));
}
