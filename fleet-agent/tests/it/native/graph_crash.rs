//! A supervisor that is killed again and again, at moments that nobody chose, while the units of its
//! graph start, stop and fail. Each next one is held to what was asked and answered before.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet_agent::{InitSnapshot, InitSupervisor, SupervisorConfig, UnitSnapshot};
use fleet_core::graph::{DerivedState, Retry, Settings, Target};

use super::crash::nothing_is_left;
use super::graph::{graph, target};
use super::killing::{Dice, Victim, kill_again_and_again};
use crate::support::{Home, runs, wait_until};

const UNITS: u64 = 50;

/// How many kinds of units there are.
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
        // It begins once the one before is ready, and tells if that is not so.
        WITNESS => format!(
            "depends-on: u{before}\ntype: oneshot\n\
             exec-start: /bin/sh -c 'test -e {} || echo {number} >>{}'",
            home.join(format!("{before}.mark")).display(),
            home.join("too-early").display(),
        ),
        _ => "type: foreground-supervised\nexec-start: /bin/sleep 1000".to_owned(),
    };
    // Some hold together, so that what fails takes others with it.
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

/// The supervisor, in a process of its own. By itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runner_to_be_killed_again() {
    let Some(told) = Victim::told() else { return };
    told.begins();
    let supervisor = open(&told.home, told.plain).await;
    let mut wanted = nothing_is_lost(&supervisor, &told.home).await.desired.extra_targets;
    told.is_open();
    let mut dice = Dice(told.seed);
    loop {
        let one: Target = target(&format!("u{}", dice.below(UNITS)));
        match dice.below(4) {
            0 => {
                note(&told.home, &format!("renew {one}"));
                supervisor.restart(&one).await.expect("it answers");
            }
            1 => drop(supervisor.reset_failed(&one).await.expect("it answers")),
            _ => {
                if !wanted.remove(&one) {
                    wanted.insert(one);
                }
                want(&supervisor, &told.home, &wanted).await;
            }
        }
        wait_a_little(&mut dice).await;
    }
}

/// Not all is asked at once, so that each gets somewhere.
async fn wait_a_little(dice: &mut Dice) {
    tokio::time::sleep(Duration::from_millis(dice.below(3))).await;
}

/// Asks for that beside the goal, and writes down what is certain of it.
async fn want(supervisor: &InitSupervisor, home: &Path, wanted: &BTreeSet<Target>) {
    note(home, &words(wanted));
    supervisor.set_goal(None, wanted.clone()).await.expect("all are provided");
    note(home, "answered");
}

fn words(wanted: &BTreeSet<Target>) -> String {
    wanted.iter().fold("want".to_owned(), |words, it| format!("{words} {it}"))
}

/// Writes a line that outlives the supervisor, whenever it is killed.
fn note(home: &Path, line: &str) {
    let file = File::options().append(true).create(true).open(home.join("ledger"));
    file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
        .expect("it is written");
}

/// What is known from outside.
#[derive(Debug, Default)]
struct Told {
    /// What may be wanted: the last that was answered, and what was asked after it.
    wanted: Vec<BTreeSet<String>>,
    /// The main processes of units that were seen up, and that nothing has ended since.
    seen: BTreeMap<String, u32>,
}

impl Told {
    fn read(home: &Path) -> Self {
        let mut told = Self { wanted: vec![BTreeSet::new()], ..Self::default() };
        let text = std::fs::read_to_string(home.join("ledger")).unwrap_or_default();
        for line in text.lines() {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            match &*words[0] {
                "want" => {
                    let wanted: BTreeSet<String> = words[1..].iter().cloned().collect();
                    told.seen.retain(|unit, _| wanted.contains(unit));
                    told.wanted.push(wanted);
                }
                "answered" => drop(told.wanted.drain(..told.wanted.len() - 1)),
                "renew" => drop(told.seen.remove(&words[1])),
                _ => drop(told.seen.insert(words[1].clone(), words[2].parse().expect("a number"))),
            }
        }
        told
    }
}

/// Holds the supervisor to all that was asked, and writes down what it finds.
async fn nothing_is_lost(supervisor: &InitSupervisor, home: &Path) -> InitSnapshot {
    let told = Told::read(home);
    let wanted = supervisor.snapshot().await.expect("it answers").desired.extra_targets;
    let names = wanted.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert!(told.wanted.contains(&names), "{names:?} is not what was asked: {told:?}");
    wait_until("each unit is up that is needed, but those that fail for ever", async || {
        let units = supervisor.snapshot().await.expect("it answers").units;
        units.iter().all(is_as_it_should_be)
    })
    .await;
    let snapshot = supervisor.snapshot().await.expect("it answers");
    note(home, &words(&wanted));
    note(home, "answered");
    let mut down = Vec::new();
    for unit in &snapshot.units {
        let name = unit.unit.to_string();
        let is_steady = [0, 5, 6].contains(&(number(unit) % KINDS)) && edge(number(unit)).is_none();
        if !unit.report.needed {
            down.push(name);
        } else if is_steady && let Some(pid) = unit.main_pid {
            let seen = told.seen.get(&name);
            assert!(seen.is_none_or(|seen| *seen == pid), "{name} ran on as {seen:?}: {unit:?}");
            if names.contains(&name) {
                note(home, &format!("seen {name} {pid}"));
            }
        }
    }
    nothing_is_left(home, &down);
    let early = std::fs::read_to_string(home.join("too-early")).unwrap_or_default();
    assert_eq!(early, "", "units whose dependencies were not ready");
    snapshot
}

fn number(unit: &UnitSnapshot) -> u64 {
    unit.unit.as_str()[1..].parse().expect("a number")
}

fn is_as_it_should_be(unit: &UnitSnapshot) -> bool {
    let what = &unit.report.state;
    let is_there = matches!(
        what,
        DerivedState::Starting | DerivedState::Active(_) | DerivedState::Stopping(_)
    );
    if !unit.report.needed {
        return !is_there;
    }
    if fails_for_ever(number(unit)) {
        return !matches!(what, DerivedState::Failed { retry: Retry::Never | Retry::GaveUp, .. });
    }
    matches!(what, DerivedState::Active(_)) && unit.main_pid.is_none_or(runs)
}

/// Whether it fails again and again, or what it depends on does.
fn fails_for_ever(number: u64) -> bool {
    let before = (number % KINDS == WITNESS).then(|| number - 1);
    let others = before.into_iter().chain(edge(number));
    number % KINDS == FLAPS || others.into_iter().any(fails_for_ever)
}

async fn is_killed_again_and_again(plain: bool) {
    let place = Home::in_memory();
    let home = PathBuf::from(place.mark());
    let test = "native::graph_crash::runner_to_be_killed_again";
    kill_again_and_again(test, &home, plain).await;
    let supervisor = open(&home, plain).await;
    nothing_is_lost(&supervisor, &home).await;
    let all = (0..UNITS).map(|number| target(&format!("u{number}"))).collect::<BTreeSet<_>>();
    want(&supervisor, &home, &all).await;
    nothing_is_lost(&supervisor, &home).await;
    supervisor.shutdown().await.expect("all stop");
    assert_eq!(place.processes(), [0; 0], "processes were left behind");
}

// Holds: G-3
#[tokio::test]
async fn nothing_runs_twice_or_is_lost_whenever_the_runner_is_killed() {
    is_killed_again_and_again(false).await;
}

#[tokio::test]
async fn nothing_runs_twice_or_is_lost_without_control_groups_either() {
    is_killed_again_and_again(true).await;
}
