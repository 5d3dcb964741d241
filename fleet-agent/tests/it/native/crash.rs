//! A daemon that is killed again and again, at moments that nobody chose, while its units start,
//! stop and fail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::{NativeConfig, NativeManager, ServiceManager};
use fleet_core::{Epoch, Generation};
use fleet_unitfile::UnitFile;

use crate::support::{Bench, Dead, name, runs, wait_until};

const UNITS: u64 = 50;

/// Where the daemon that is to be killed works; set for its process alone.
const DAEMON: &str = "FLEET_TEST_CRASHING_DAEMON";
/// What its choices are made from.
const SEED: &str = "FLEET_TEST_SEED";
/// The variables that it gives to units.
const MARK: &str = "FLEET_TEST_MARK";
/// Set if it shall make no control groups.
const PLAIN: &str = "FLEET_TEST_PLAIN";

/// How often the daemon is killed in each test; `FLEET_KILLS` says otherwise.
pub(super) const KILLS: u64 = 100;

fn service(number: u64, directory: &Path) -> String {
    let pid = directory.join(format!("{number}.pid"));
    let pid = pid.display();
    let kind = match number % 7 {
        0 => "ExecStart=/bin/sleep 1000".to_owned(),
        1 => "ExecStart=/bin/sh -c 'sleep 0.03; exit 1'\nRestart=on-failure\nRestartSec=5ms\n\
              StartLimitBurst=0"
            .to_owned(),
        2 => "Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sleep 0.02\nExecStart=/bin/true"
            .to_owned(),
        3 => format!(
            "Type=forking\nPIDFile={pid}\nTimeoutStartSec=5s\n\
             ExecStart=/bin/sh -c 'setsid sleep 1000 & echo $! >{pid}'"
        ),
        4 => "ExecStartPre=/bin/sleep 0.01\nExecStart=/bin/sleep 1000\n\
              ExecStop=/bin/sleep 0.01\nExecStopPost=/bin/sleep 0.01"
            .to_owned(),
        5 => "ExecStart=/bin/sh -c 'setsid sleep 1000 & exec sleep 1000'".to_owned(),
        _ => "ExecStart=/bin/sh -c 'trap \"\" TERM; while :; do sleep 1000; done'\n\
              TimeoutStopSec=20ms"
            .to_owned(),
    };
    format!("[Service]\nEnvironment=UNIT=%n\n{kind}\n")
}

/// Small numbers that look random; the same seed gives the same.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }
}

/// The daemon, in a process of its own. By itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_to_be_killed_again() {
    let Some(directory) = std::env::var_os(DAEMON) else { return };
    let directory = Path::new(&directory);
    let variable = |name: &str| std::env::var(name).expect("it is set");
    let mut config = NativeConfig::new(directory.join("native"));
    config.environment.push(("BENCH".to_owned(), variable(MARK)));
    config.control_groups = std::env::var_os(PLAIN).is_none();
    let manager = NativeManager::open(config).await.expect("it opens");
    let mut dice = Dice(variable(SEED).parse().expect("a number"));
    for number in 0..UNITS {
        let unit = name(&format!("{number}.service"));
        if manager.get(&unit).await.expect("it answers").is_none() {
            let file = UnitFile::parse(service(number, directory)).expect("it is well formed");
            manager.load(&unit, &file, Epoch(1)).await.expect("it loads");
        }
    }
    std::fs::write(directory.join(format!("open-{}", variable(SEED))), "").expect("it is written");
    loop {
        // Not all at once, so that each gets somewhere.
        let turn = (0..8).map(|_| turn(&manager, &mut dice)).collect::<Vec<_>>();
        for turn in turn {
            turn.await.expect("no panic");
        }
    }
}

fn turn(manager: &Arc<NativeManager>, dice: &mut Dice) -> tokio::task::JoinHandle<()> {
    let manager = Arc::clone(manager);
    let unit = name(&format!("{}.service", dice.below(UNITS)));
    let (verb, generation) = (dice.below(4), Generation(dice.below(1000)));
    tokio::spawn(async move {
        // Some fail, and that is as it should be.
        match verb {
            0 => drop(manager.stop(&unit).await),
            1 => drop(manager.restart(&unit, generation).await),
            _ => drop(manager.start(&unit, generation).await),
        }
    })
}

fn daemon(dead: &Dead, seed: u64, plain: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command
        .args(["--exact", "native::crash::daemon_to_be_killed_again"])
        .env(DAEMON, dead.path(""))
        .env(SEED, seed.to_string())
        .env(MARK, dead.mark())
        .stdout(Stdio::null());
    if plain {
        command.env(PLAIN, "");
    }
    command.spawn().expect("the test can run itself")
}

/// Lets it live for a while after it has begun.
async fn wait_for_a_moment(dead: &Dead, seed: u64) {
    let open = dead.path(&format!("open-{seed}"));
    wait_until("the daemon is open", async || open.exists()).await;
    // Nothing is waited for: this is the choice of the moment in which it is killed.
    tokio::time::sleep(Duration::from_micros(Dice(seed).below(60_000))).await;
}

/// While there is no daemon: the runs of each unit that have processes.
pub(super) fn runs_of_units(processes: Vec<u32>) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pid in processes {
        let text = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let value = |name: &str| {
            let mut variables = text.split('\0').filter_map(|it| it.split_once('='));
            variables.find(|it| it.0 == name).map(|it| it.1.to_owned())
        };
        // What a process was given is gone piece by piece while it ends.
        let run = value("INVOCATION_ID").filter(|run| run.len() == 32);
        if let (Some(unit), Some(run)) = (value("UNIT"), run) {
            all.entry(unit).or_default().insert(run);
        }
    }
    all
}

async fn is_killed_again_and_again(plain: bool) {
    let kills = std::env::var("FLEET_KILLS").ok().and_then(|text| text.parse().ok());
    let bench = Bench::with(|config| config.control_groups = !plain).await;
    let mut dead = bench.kill().await;
    for seed in 1..=kills.unwrap_or(KILLS) {
        let mut daemon = daemon(&dead, seed, plain);
        wait_for_a_moment(&dead, seed).await;
        daemon.kill().expect("it can be killed");
        daemon.wait().expect("it has ended");
        for (unit, runs) in runs_of_units(dead.processes()) {
            assert_eq!(runs.len(), 1, "{unit} runs twice after {seed} kills: {runs:?}");
        }
    }
    dead = settled(dead).await;
    let bench = dead.revive().await;
    bench.clean_up().await;
}

/// Sees that the next daemon knows each unit as it is, and has every process.
async fn settled(dead: Dead) -> Dead {
    let bench = dead.revive().await;
    let units = bench.manager.list().await.expect("it answers");
    assert_eq!(units.len(), usize::try_from(UNITS).expect("it is small"), "one is lost");
    for number in 0..UNITS {
        let unit = format!("{number}.service");
        // Those that fail begin again and again.
        let rests = ["dead", "failed", "running", "exited"];
        let state = bench
            .wait_for(&unit, |state| rests.contains(&state.sub.as_str()) || number % 7 == 1)
            .await;
        if state.sub == "running" && number % 7 != 1 {
            assert!(state.main_pid.is_some_and(runs), "{unit}: {state:?}");
        }
        if state.main_pid.is_none() && number % 7 != 1 {
            assert_eq!(bench.processes_of(&unit), [0; 0], "{unit} has left processes: {state:?}");
        }
    }
    bench.kill().await
}

#[tokio::test]
async fn nothing_runs_twice_or_is_lost_whenever_the_daemon_is_killed() {
    is_killed_again_and_again(false).await;
}

#[tokio::test]
async fn nothing_runs_twice_or_is_lost_without_control_groups_either() {
    is_killed_again_and_again(true).await;
}
