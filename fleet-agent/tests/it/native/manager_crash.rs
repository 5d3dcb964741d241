//! A whole manager that is killed again and again, at moments that nobody chose: services that
//! depend on what others run, targets with what they want, and timers.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::{External, NativeConfig, NativeManager, ServiceManager};
use fleet_core::{ActiveState, Epoch, Generation, TargetState};
use fleet_unitfile::UnitFile;

use super::crash::{Dice, KILLS, runs_of_units};
use crate::support::{Bench, Dead, name, runs, wait_until};

/// How many there are of each kind.
const MANY: u64 = 6;

/// Where the manager that is to be killed works; set for its process alone.
const DAEMON: &str = "FLEET_TEST_CRASHING_MANAGER";
/// What its choices are made from.
const SEED: &str = "FLEET_TEST_SEED";

/// Goes on whatever happens to it, unless it is stopped.
const STEADY: &str = "ExecStart=/bin/sleep 1000\nRestart=on-failure\nRestartSec=5ms\n";

fn units(home: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |unit: String, says: &str, rest: &str| {
        let settings = if rest.is_empty() { "" } else { "[Service]\nEnvironment=UNIT=%n\n" };
        let limit = if rest.is_empty() { "" } else { "StartLimitIntervalSec=0\n" };
        all.push((unit, format!("[Unit]\n{limit}{says}\n{settings}{rest}")));
    };
    for number in 0..MANY {
        // Every other one is bound to what somebody else runs.
        let bound = "BindsTo=net.service\nAfter=net.service";
        add(format!("s{number}.service"), if number % 2 == 0 { bound } else { "" }, STEADY);
        add(format!("w{number}.service"), "", STEADY);
        let wants = format!("Wants=w{number}.service w{}.service", (number + 1) % MANY);
        add(format!("t{number}.target"), &wants, "");
        // What a timer starts waits for another unit each time.
        let slow = format!("slow{number}.service");
        let says = format!("Wants={slow}\nAfter={slow}");
        let script = format!("echo run >>{}", home.join(format!("ran{number}")).display());
        let again = "Type=oneshot\nRestart=on-failure\nRestartSec=5ms\n";
        add(slow, "", "Type=oneshot\nExecStart=/bin/sleep 0.02\n");
        let job = format!("{again}ExecStart=/bin/sh -c '{script}'\n");
        add(format!("j{number}.service"), &says, &job);
        add(format!("j{number}.timer"), "[Timer]\nOnActiveSec=1ms", "");
    }
    all
}

fn config(home: &Path, config: &mut NativeConfig) {
    config.external.insert(name("net.service"), External::Path(home.join("net")));
}

/// The manager, in a process of its own. By itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manager_to_be_killed_again() {
    let Some(home) = std::env::var_os(DAEMON) else { return };
    let home = Path::new(&home);
    let seed = std::env::var(SEED).expect("it is set");
    let mut set_up = NativeConfig::new(home.join("native"));
    set_up.environment.push(("BENCH".to_owned(), home.display().to_string()));
    config(home, &mut set_up);
    let manager = NativeManager::open(set_up).await.expect("it opens");
    for (unit, text) in units(home) {
        if manager.get(&name(&unit)).await.expect("it answers").is_none() {
            let file = UnitFile::parse(text).expect("it is well formed");
            manager.load(&name(&unit), &file, Epoch(1)).await.expect("it loads");
        }
    }
    std::fs::write(home.join(format!("open-{seed}")), "").expect("it is written");
    let mut dice = Dice(seed.parse().expect("a number"));
    loop {
        turn(&manager, home, &mut dice).await;
        let manager = Arc::clone(&manager);
        let kind = ["s", "w", "t"][usize::try_from(dice.below(3)).expect("it is small")];
        let end = if kind == "t" { "target" } else { "service" };
        let unit = name(&format!("{kind}{}.{end}", dice.below(MANY)));
        let (verb, generation) = (dice.below(4), Generation(dice.below(1000)));
        let asked = tokio::spawn(async move {
            // Some fail, and that is as it should be.
            match verb {
                0 => drop(manager.stop(&unit).await),
                1 => drop(manager.restart(&unit, generation).await),
                _ => drop(manager.start(&unit, generation).await),
            }
        });
        if dice.below(2) == 0 {
            asked.await.expect("it does not panic");
        }
    }
}

/// Starts a timer once more, if what it elapsed for before has been done.
async fn turn(manager: &NativeManager, home: &Path, dice: &mut Dice) {
    let number = dice.below(MANY);
    if !has_run(manager, home, number).await {
        return;
    }
    let job = manager.get(&name(&format!("j{number}.service"))).await.expect("it answers");
    if job.expect("it is loaded").state.sub != "dead" {
        return;
    }
    let timer = name(&format!("j{number}.timer"));
    let known = manager.get(&timer).await.expect("it answers").expect("it is loaded").known;
    let next = Generation(known.generation.0 + 1);
    let promise = format!("{} {}", next.0, count(home, number));
    let path = home.join(format!("promise{number}"));
    std::fs::write(path.with_extension("new"), promise).expect("it can be written");
    std::fs::rename(path.with_extension("new"), path).expect("it can be renamed");
    manager.restart(&timer, next).await.expect("it restarts");
}

fn count(home: &Path, number: u64) -> usize {
    let ran = std::fs::read_to_string(home.join(format!("ran{number}")));
    ran.unwrap_or_default().lines().count()
}

/// Whether the unit of a timer has run since that timer was last asked to elapse, if it was.
async fn has_run(manager: &NativeManager, home: &Path, number: u64) -> bool {
    let promise = std::fs::read_to_string(home.join(format!("promise{number}")));
    let Ok(promise) = promise else { return true };
    let (generation, before) = promise.split_once(' ').expect("it has both");
    let timer = manager.get(&name(&format!("j{number}.timer"))).await.expect("it answers");
    let known = timer.expect("it is loaded").known.generation;
    // What was not asked before the kill is not owed.
    known.0.to_string() != generation || count(home, number).to_string() != before
}

fn daemon(dead: &Dead, seed: u64) -> Child {
    Command::new(std::env::current_exe().expect("it has a path"))
        .args(["--exact", "native::manager_crash::manager_to_be_killed_again"])
        .env(DAEMON, dead.mark())
        .env(SEED, seed.to_string())
        .stdout(Stdio::null())
        .spawn()
        .expect("the test can run itself")
}

/// Lets it live for a while after it has begun.
async fn wait_for_a_moment(dead: &Dead, seed: u64) {
    let open = dead.path(&format!("open-{seed}"));
    wait_until("the manager is open", async || open.exists()).await;
    // Nothing is waited for: this is the choice of the moment in which it is killed.
    tokio::time::sleep(Duration::from_micros(Dice(seed).below(60_000))).await;
}

#[tokio::test]
async fn nothing_is_lost_of_timers_targets_and_services_whenever_their_manager_is_killed() {
    let kills = std::env::var("FLEET_KILLS").ok().and_then(|text| text.parse().ok());
    let bench = Bench::with(|set_up| {
        let home = set_up.directory.parent().expect("it has one").to_owned();
        std::fs::write(home.join("net"), "").expect("it can be written");
        config(&home, set_up);
    })
    .await;
    let dead = bench.kill().await;
    for seed in 1..=kills.unwrap_or(KILLS) {
        let mut daemon = daemon(&dead, seed);
        wait_for_a_moment(&dead, seed).await;
        daemon.kill().expect("it can be killed");
        daemon.wait().expect("it has ended");
        for (unit, runs) in runs_of_units(dead.processes()) {
            assert_eq!(runs.len(), 1, "{unit} runs twice after {seed} kills: {runs:?}");
        }
    }
    let home = dead.path("");
    let bench = dead.revive().await;
    for number in 0..MANY {
        wait_until(&format!("timer {number} has elapsed"), async || {
            has_run(&bench.manager, &home, number).await
        })
        .await;
        let unit = format!("s{number}.service");
        let asked = bench.get(&unit).await.known.asked;
        let state = bench
            .wait_for(&unit, |state| match asked {
                TargetState::Launched => state.sub == "running",
                _ => matches!(state.active, ActiveState::Inactive | ActiveState::Failed),
            })
            .await;
        assert!(state.main_pid.is_none_or(runs), "{unit}: {state:?}");
        let left = bench.processes_of(&unit);
        assert_eq!(left.is_empty(), state.main_pid.is_none(), "{unit}: {left:?}");
    }
    bench.clean_up().await;
}
