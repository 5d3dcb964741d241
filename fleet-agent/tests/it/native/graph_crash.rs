//! Kills a supervisor at random times while the units of its graph start, stop and fail. Each next
//! one is checked against the requests and their answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet_agent::native::{InitSnapshot, InitSupervisor, SupervisorConfig, UnitSnapshot};
use fleet_core::graph::{DerivedState, Retry, Settings, Target};

use super::crash::verify_no_leftovers;
use super::graph::{graph, target};
use super::kill_harness::{KilledDaemonConfig, SmallRng, kill_repeatedly};
use crate::support::{Home, runs, wait_until};

const UNITS: u64 = 50;

/// Number of kinds of units.
const KINDS: u64 = 9;

const FLAPS: u64 = 1;
const SAYS_SO: u64 = 7;
const WITNESS: u64 = 8;

fn unit(number: u64, home: &Path) -> String {
    let place = |name: &str| home.join(format!("{number}.{name}")).display().to_string();
    let (pid, mark) = (place("pid"), place("mark"));
    let before = number.saturating_sub(1);
    let kind = match number % KINDS {
        FLAPS => "type: foreground-supervised\nexec-start: /bin/sh -c 'sleep 0.03; exit 1'".into(),
        2 => "type: oneshot\nexec-start: /bin/sleep 0.02\nexec-start: /bin/true".to_owned(),
        3 => format!(
            "type: background-pidfile\npidfile: {pid}\nstart-timeout: 5s\n\
             exec-start: /bin/sh -c 'setsid sleep 1000 & echo $$! >{pid}'"
        ),
        4 => "type: foreground-supervised\nexec-start-pre: /bin/sleep 0.01\n\
              exec-start: /bin/sleep 1000\nexec-stop: /bin/sleep 0.01\n\
              exec-stop-post: /bin/sleep 0.01"
            .to_owned(),
        5 => "type: foreground-supervised\n\
              exec-start: /bin/sh -c 'setsid sleep 1000 & exec sleep 1000'"
            .to_owned(),
        6 => "type: foreground-supervised\nstop-timeout: 20ms\n\
              exec-start: /bin/sh -c 'trap \"\" TERM; while :; do sleep 1000; done'"
            .to_owned(),
        SAYS_SO => format!(
            "type: foreground-supervised\nready-grep: ^ready\nexec-start-pre: /bin/rm -f {mark}\n\
             exec-start: /bin/sh -c 'sleep 0.03; echo >{mark}; echo ready; exec sleep 1000'"
        ),
        // Starts after the previous unit is ready, and reports if it is not.
        WITNESS => format!(
            "depends-on: u{before}\ntype: oneshot\n\
             exec-start: /bin/sh -c 'test -e {} || echo {number} >>{}'",
            home.join(format!("{before}.mark")).display(),
            home.join("too-early").display(),
        ),
        _ => "type: foreground-supervised\nexec-start: /bin/sleep 1000".to_owned(),
    };
    // Some units are bound to each other, so that failures spread.
    let edge = match edge(number) {
        Some(other) => format!("depends-on: u{other}\n"),
        None if number >= 8 && number % 5 == 1 => format!("waits-for: u{}\n", number - 6),
        None => String::new(),
    };
    format!(
        "unit: u{number}\nprovides: u{number}\n{edge}{kind}\nrestart-delay: 5ms\n\
         restart-factor: 1\nenv: UNIT=u{number}\n"
    )
}

fn edge(number: u64) -> Option<u64> {
    (number >= 8 && number.is_multiple_of(5)).then(|| number - 7)
}

async fn open(home: &Path, plain: bool) -> InitSupervisor {
    let stanzas: String = (0..UNITS).map(|number| unit(number, home)).collect();
    let mut config = SupervisorConfig::new(home.join("native"));
    config.environment.push(("BENCH".to_owned(), home.display().to_string()));
    config.control_groups = !plain;
    let settings = Settings::default();
    InitSupervisor::start(config, graph(&stanzas, &settings), &settings).await.expect("it starts")
}

/// The supervisor, in its own process. Does nothing as a test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supervisor_to_kill_repeatedly() {
    let Some(setup) = KilledDaemonConfig::from_env() else { return };
    setup.begins();
    let supervisor = open(&setup.home, setup.plain).await;
    let mut wanted = verify_state(&supervisor, &setup.home).await.desired.extra_targets;
    setup.is_open();
    let mut dice = SmallRng(setup.seed);
    loop {
        let one: Target = target(&format!("u{}", dice.below(UNITS)));
        match dice.below(4) {
            0 => {
                note(&setup.home, &format!("renew {one}"));
                supervisor.restart(&one).await.expect("the call succeeds");
            }
            1 => drop(supervisor.reset_failed(&one).await.expect("the call succeeds")),
            _ => {
                if !wanted.remove(&one) {
                    wanted.insert(one);
                }
                want(&supervisor, &setup.home, &wanted).await;
            }
        }
        wait_a_little(&mut dice).await;
    }
}

/// Pauses between requests, so that each makes some progress.
async fn wait_a_little(dice: &mut SmallRng) {
    tokio::time::sleep(Duration::from_millis(dice.below(3))).await;
}

/// Requests these extra targets, and logs the known facts about the call.
async fn want(supervisor: &InitSupervisor, home: &Path, wanted: &BTreeSet<Target>) {
    note(home, &words(wanted));
    supervisor.set_goal(None, wanted.clone()).await.expect("all are provided");
    note(home, "answered");
}

fn words(wanted: &BTreeSet<Target>) -> String {
    wanted.iter().fold("want".to_owned(), |words, it| format!("{words} {it}"))
}

/// Writes a line that survives a kill of the supervisor.
fn note(home: &Path, line: &str) {
    let file = File::options().append(true).create(true).open(home.join("ledger"));
    file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
        .expect("it is written");
}

/// State known from outside.
#[derive(Debug, Default)]
struct KnownFacts {
    /// Possible targets: those of the last answered call, and of the calls after it.
    wanted: Vec<BTreeSet<String>>,
    /// Main processes of units that were seen active and not stopped since.
    seen: BTreeMap<String, u32>,
}

impl KnownFacts {
    fn read(home: &Path) -> Self {
        let mut facts = Self { wanted: vec![BTreeSet::new()], ..Self::default() };
        let text = std::fs::read_to_string(home.join("ledger")).unwrap_or_default();
        for line in text.lines() {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            match &*words[0] {
                "want" => {
                    let wanted: BTreeSet<String> = words[1..].iter().cloned().collect();
                    facts.seen.retain(|unit, _| wanted.contains(unit));
                    facts.wanted.push(wanted);
                }
                "answered" => drop(facts.wanted.drain(..facts.wanted.len() - 1)),
                "renew" => drop(facts.seen.remove(&words[1])),
                _ => drop(facts.seen.insert(words[1].clone(), words[2].parse().expect("a number"))),
            }
        }
        facts
    }
}

/// Checks the supervisor against all requests, and logs its findings.
async fn verify_state(supervisor: &InitSupervisor, home: &Path) -> InitSnapshot {
    let facts = KnownFacts::read(home);
    let wanted = supervisor.snapshot().await.expect("the call succeeds").desired.extra_targets;
    let names = wanted.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert!(facts.wanted.contains(&names), "{names:?} differs from the requests: {facts:?}");
    wait_until("each needed unit is active, except failing ones", async || {
        let units = supervisor.snapshot().await.expect("the call succeeds").units;
        units.iter().all(is_expected)
    })
    .await;
    let snapshot = supervisor.snapshot().await.expect("the call succeeds");
    note(home, &words(&wanted));
    note(home, "answered");
    let mut down = Vec::new();
    for unit in &snapshot.units {
        let name = unit.unit.to_string();
        let is_steady = [0, 5, 6].contains(&(number(unit) % KINDS)) && edge(number(unit)).is_none();
        if !unit.report.needed {
            down.push(name);
        } else if is_steady && let Some(pid) = unit.main_pid {
            let seen = facts.seen.get(&name);
            assert!(seen.is_none_or(|seen| *seen == pid), "{name} ran on as {seen:?}: {unit:?}");
            if names.contains(&name) {
                note(home, &format!("seen {name} {pid}"));
            }
        }
    }
    verify_no_leftovers(home, &down);
    let early = std::fs::read_to_string(home.join("too-early")).unwrap_or_default();
    assert_eq!(early, "", "units whose dependencies were not ready");
    snapshot
}

fn number(unit: &UnitSnapshot) -> u64 {
    unit.unit.as_str()[1..].parse().expect("a number")
}

fn is_expected(unit: &UnitSnapshot) -> bool {
    let what = &unit.report.state;
    let is_there = matches!(
        what,
        DerivedState::Starting | DerivedState::Active(_) | DerivedState::Stopping(_)
    );
    if !unit.report.needed {
        return !is_there;
    }
    if fails_repeatedly(number(unit)) {
        return !matches!(what, DerivedState::Failed { retry: Retry::Never | Retry::GaveUp, .. });
    }
    matches!(what, DerivedState::Active(_)) && unit.main_pid.is_none_or(runs)
}

/// Returns whether the unit, or a dependency of it, fails repeatedly.
fn fails_repeatedly(number: u64) -> bool {
    let before = (number % KINDS == WITNESS).then(|| number - 1);
    let others = before.into_iter().chain(edge(number));
    number % KINDS == FLAPS || others.into_iter().any(fails_repeatedly)
}

async fn kill_repeatedly_with(plain: bool) {
    let place = Home::in_memory();
    let home = PathBuf::from(place.mark());
    let test = "native::graph_crash::supervisor_to_kill_repeatedly";
    kill_repeatedly(test, &home, plain).await;
    let supervisor = open(&home, plain).await;
    verify_state(&supervisor, &home).await;
    let all = (0..UNITS).map(|number| target(&format!("u{number}"))).collect::<BTreeSet<_>>();
    want(&supervisor, &home, &all).await;
    verify_state(&supervisor, &home).await;
    supervisor.shutdown().await.expect("all stop");
    assert_eq!(place.processes(), [0; 0], "processes were left behind");
}

// Holds: G-3
#[tokio::test]
async fn random_kills_lose_no_unit_and_run_none_twice() {
    kill_repeatedly_with(false).await;
}

#[tokio::test]
async fn random_kills_are_safe_without_control_groups() {
    kill_repeatedly_with(true).await;
}
