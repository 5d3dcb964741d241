//! A runner that is killed again and again, at moments that nobody chose, while the units of its
//! graph start, stop and fail.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fleet_agent::{Runner, RunnerConfig, UnitStatus};
use fleet_core::graph::{Settings, Shown, Target};

use super::crash::{Dice, KILLS, runs_of_units};
use super::graph::{graph, target};
use crate::support::{Home, runs, wait_until};

const UNITS: u64 = 50;

/// Where the runner that is to be killed works; set for its process alone.
const PLACE: &str = "FLEET_TEST_CRASHING_RUNNER";
/// What its choices are made from.
const SEED: &str = "FLEET_TEST_SEED";
/// Set if it shall make no control groups.
const PLAIN: &str = "FLEET_TEST_PLAIN";

fn unit(number: u64, home: &Path) -> String {
    let pid = home.join(format!("{number}.pid"));
    let pid = pid.display();
    let kind = match number % 7 {
        0 => "type: foreground-supervised\nexec-start: /bin/sleep 1000".to_owned(),
        1 => "type: foreground-supervised\nrestart-delay: 5ms\nrestart-factor: 1\n\
              exec-start: /bin/sh -c 'sleep 0.03; exit 1'"
            .to_owned(),
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
        _ => "type: foreground-supervised\nstop-timeout: 20ms\n\
              exec-start: /bin/sh -c 'trap \"\" TERM; while :; do sleep 1000; done'"
            .to_owned(),
    };
    // Some hold together, so that what fails takes others with it.
    let edge = match number {
        8.. if number.is_multiple_of(5) => format!("depends-on: u{}\n", number - 7),
        8.. if number % 5 == 1 => format!("waits-for: u{}\n", number - 6),
        _ => String::new(),
    };
    format!("unit: u{number}\nprovides: u{number}\n{edge}{kind}\nenv: UNIT=u{number}\n")
}

async fn open(home: &Path, plain: bool) -> Runner {
    let stanzas: String = (0..UNITS).map(|number| unit(number, home)).collect();
    let mut config = RunnerConfig::new(home.join("native"));
    config.environment.push(("BENCH".to_owned(), home.display().to_string()));
    config.control_groups = !plain;
    let settings = Settings::default();
    Runner::start(config, graph(&stanzas, &settings), &settings).await.expect("it starts")
}

/// The runner, in a process of its own. By itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runner_to_be_killed_again() {
    let Some(home) = std::env::var_os(PLACE) else { return };
    let home = Path::new(&home);
    let seed = std::env::var(SEED).expect("it is set");
    let runner = open(home, std::env::var_os(PLAIN).is_some()).await;
    std::fs::write(home.join(format!("open-{seed}")), "").expect("it is written");
    let mut dice = Dice(seed.parse().expect("a number"));
    let mut wanted = runner.snapshot().await.expect("it answers").wanted.beside;
    loop {
        let one: Target = target(&format!("u{}", dice.below(UNITS)));
        match dice.below(4) {
            0 => drop(runner.renew(&one).await.expect("it answers")),
            1 => drop(runner.reset(&one).await.expect("it answers")),
            _ => {
                if !wanted.remove(&one) {
                    wanted.insert(one);
                }
                runner.set_goal(None, wanted.clone()).await.expect("all are provided");
            }
        }
        wait_a_little(&mut dice).await;
    }
}

/// Not all is asked at once, so that each gets somewhere.
async fn wait_a_little(dice: &mut Dice) {
    tokio::time::sleep(Duration::from_millis(dice.below(3))).await;
}

fn process(home: &Home, seed: u64, plain: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command
        .args(["--exact", "native::graph_crash::runner_to_be_killed_again"])
        .env(PLACE, home.mark())
        .env(SEED, seed.to_string())
        .stdout(Stdio::null());
    if plain {
        command.env(PLAIN, "");
    }
    command.spawn().expect("the test can run itself")
}

/// Lets it live for a while after it has begun.
async fn wait_for_a_moment(home: &Home, seed: u64) {
    let open = home.path(&format!("open-{seed}"));
    wait_until("the runner is open", async || open.exists()).await;
    // Nothing is waited for: this is the choice of the moment in which it is killed.
    tokio::time::sleep(Duration::from_micros(Dice(seed).below(60_000))).await;
}

async fn is_killed_again_and_again(plain: bool) {
    let kills = std::env::var("FLEET_KILLS").ok().and_then(|text| text.parse().ok());
    let home = Home::new();
    for seed in 1..=kills.unwrap_or(KILLS) {
        let mut runner = process(&home, seed, plain);
        wait_for_a_moment(&home, seed).await;
        runner.kill().expect("it can be killed");
        runner.wait().expect("it has ended");
        for (unit, runs) in runs_of_units(home.processes()) {
            assert_eq!(runs.len(), 1, "{unit} runs twice after {seed} kills: {runs:?}");
        }
    }
    let runner = open(Path::new(&home.mark()), plain).await;
    let all = (0..UNITS).map(|number| target(&format!("u{number}"))).collect::<BTreeSet<_>>();
    runner.set_goal(None, all).await.expect("all are provided");
    wait_until("each unit is up, but those that fail for ever", async || {
        let units = runner.snapshot().await.expect("it answers").units;
        units.iter().all(is_as_it_should_be)
    })
    .await;
    runner.shutdown().await.expect("all stop");
    assert_eq!(home.processes(), [0; 0], "processes were left behind");
}

fn is_as_it_should_be(unit: &UnitStatus) -> bool {
    let number: u64 = unit.unit.as_str()[1..].parse().expect("a number");
    let is_up = matches!(unit.state.what, Shown::Active(_));
    // Those that fail again and again, and whoever depends on one of them.
    let flaps = |number: u64| number % 7 == 1;
    flaps(number)
        || (number >= 8 && number.is_multiple_of(5) && flaps(number - 7))
        || (is_up && unit.main_pid.is_none_or(runs))
}

#[tokio::test]
async fn nothing_runs_twice_or_is_lost_whenever_the_runner_is_killed() {
    is_killed_again_and_again(false).await;
}

#[tokio::test]
async fn nothing_runs_twice_or_is_lost_without_control_groups_either() {
    is_killed_again_and_again(true).await;
}
