//! Kills a daemon at random times while its units start, stop and fail. Each next daemon is checked
//! against the requests and their answers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fleet_agent::{ManagedUnit, NativeConfig, NativeManager, ServiceManager};
use fleet_core::graph::{DerivedState, Retry, StatusReport};
use fleet_core::{Epoch, SystemdState, TargetState};
use fleet_unitfile::{UnitFile, UnitName};
use tokio::task::JoinSet;

use super::kill_harness::{
    KilledDaemonConfig, SmallRng, kill_repeatedly, processes_of_units, wait_between_looks,
};
use super::request_log::{RequestLog, Verb};
use crate::support::{Bench, DEADLINE, groups_below, name};

const UNITS: u64 = 50;

/// Maximum number of concurrent calls.
const AT_ONCE: usize = 16;

/// Number of kinds of units.
const KINDS: u64 = 8;

const FLAPS: u64 = 1;
const ENDS: u64 = 2;
const GIVES_UP: u64 = 7;

/// Maximum number of processes per unit.
const MOST: usize = 3;

/// A start interrupted by a kill counts as a failure.
const AGAIN: &str = "Restart=on-failure\nRestartSec=5ms\nStartLimitBurst=0\n";

fn service(number: u64, home: &Path, plain: bool) -> String {
    let pid = home.join(format!("{number}.pid"));
    let (pid, ran) = (pid.display(), home.join(format!("ran{number}")));
    let ran = ran.display();
    let kind = match number % KINDS {
        0 => format!("ExecStart=/bin/sleep 1000\n{AGAIN}"),
        // Only the control group tells which unit its leftovers belong to.
        FLAPS => {
            let hides = if plain { "" } else { "env -u INVOCATION_ID " };
            format!("ExecStart=/bin/sh -c '{hides}sleep 1000 & sleep 0.03; exit 1'\n{AGAIN}")
        }
        ENDS => format!(
            "Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sleep 0.02\n\
             ExecStart=/bin/sh -c 'echo >>{ran}'\n{AGAIN}"
        ),
        3 => format!(
            "Type=forking\nPIDFile={pid}\nTimeoutStartSec=2s\n{AGAIN}\
             ExecStart=/bin/sh -c 'setsid sleep 1000 & echo $! >{pid}'"
        ),
        4 => format!(
            "ExecStartPre=/bin/sleep 0.01\nExecStart=/bin/sleep 1000\n\
             ExecStop=/bin/sleep 0.01\nExecStopPost=/bin/sleep 0.01\n{AGAIN}"
        ),
        5 => format!("ExecStart=/bin/sh -c 'setsid sleep 1000 & exec sleep 1000'\n{AGAIN}"),
        6 => format!(
            "ExecStart=/bin/sh -c 'trap \"\" TERM; while :; do sleep 1000; done'\n\
             TimeoutStopSec=20ms\n{AGAIN}"
        ),
        _ => format!(
            "ExecStart=/bin/sh -c 'echo >>{ran}; exit 1'\nRestart=on-failure\nRestartSec=1ms"
        ),
    };
    let limit = "StartLimitIntervalSec=1h\nStartLimitBurst=2";
    let limit = if number % KINDS == GIVES_UP { limit } else { "" };
    format!("[Unit]\n{limit}\n[Service]\nEnvironment=UNIT=%n\n{kind}\n")
}

/// The daemon, in its own process. Does nothing as a test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_to_kill_repeatedly() {
    let Some(setup) = KilledDaemonConfig::from_env() else { return };
    let mut config = NativeConfig::new(setup.home.join("native"));
    config.environment.push(("BENCH".to_owned(), setup.home.display().to_string()));
    config.control_groups = !setup.plain;
    setup.begins();
    let manager = NativeManager::open(config).await.expect("it opens");
    let ledger = Arc::new(RequestLog::open(&setup.home));
    load_what_is_missing(&manager, &setup, &ledger).await;
    verify_state(&manager, &setup.home, &ledger).await;
    setup.is_open();
    let mut dice = SmallRng(setup.seed);
    let mut requests = JoinSet::new();
    loop {
        if requests.len() == AT_ONCE {
            requests.join_next().await.expect("there is one").expect("it does not panic");
        }
        let unit = format!("{}.service", dice.below(UNITS));
        let verb = [Verb::Stop, Verb::Restart, Verb::Start, Verb::Start];
        let verb = verb[usize::try_from(dice.below(4)).expect("it is small")];
        requests.spawn(ask(Arc::clone(&manager), Arc::clone(&ledger), unit, verb));
    }
}

/// Loads the missing units. Only the first daemon may miss any.
async fn load_what_is_missing(
    manager: &NativeManager,
    setup: &KilledDaemonConfig,
    ledger: &RequestLog,
) {
    let was_open = !ledger.read().is_empty();
    for number in 0..UNITS {
        let unit = name(&format!("{number}.service"));
        if manager.get(&unit).await.expect("the call succeeds").is_none() {
            assert!(!was_open, "{unit} is lost");
            let file = UnitFile::parse(service(number, &setup.home, setup.plain))
                .expect("it is well formed");
            manager.load(&unit, &file, Epoch(1)).await.expect("it loads");
        }
    }
}

/// Sends a request, and logs the known facts about it.
pub(super) async fn ask(
    manager: Arc<NativeManager>,
    ledger: Arc<RequestLog>,
    unit: String,
    verb: Verb,
) {
    let generation = ledger.ask(&unit, verb);
    let target = name(&unit);
    // Some calls fail because a later one overtakes them.
    match verb {
        Verb::Stop => drop(manager.stop(&target).await),
        Verb::Restart => drop(manager.restart(&target, generation).await),
        Verb::Start => drop(manager.start(&target, generation).await),
    }
    ledger.answered(&unit, generation);
}

/// Checks the daemon against all requests, and logs its findings.
async fn verify_state(manager: &NativeManager, home: &Path, ledger: &RequestLog) {
    let (all, mut down) = (ledger.read(), Vec::new());
    let of = |unit: &str| unit.trim_end_matches(".service").parse().expect("a number");
    let rests = |unit: &ManagedUnit, state: Option<&StatusReport>| {
        rests(of(unit.unit.as_str()), unit, state)
    };
    for (unit, found) in settled(manager, rests).await {
        let number: u64 = of(&unit);
        let history = all.get(&unit).cloned().unwrap_or_default();
        assert!(history.allows(&found), "{found:?} differs from the requests: {history:?}");
        let what = observed_value(number, home, &found.state);
        let is_up = found.known.requested == TargetState::Launched;
        if is_up
            && number % KINDS != FLAPS
            && let Some(same) = history.is_same(&found)
        {
            assert_eq!(what == history.seen.what, same, "{what} is seen, {found:?}, {history:?}");
        }
        if !is_up {
            down.push(unit);
        }
        ledger.see([(&found, what)]);
    }
    verify_no_leftovers(home, &down);
}

/// Waits until all units are settled, and returns them: the planner has handled them, and nothing
/// is in progress.
pub(super) async fn settled(
    manager: &NativeManager,
    rests: impl Fn(&ManagedUnit, Option<&StatusReport>) -> bool,
) -> BTreeMap<String, ManagedUnit> {
    let begin = Instant::now();
    loop {
        let decided = manager.snapshot().await.expect("the call succeeds").units;
        let state = |unit: &UnitName| {
            decided.iter().find(|it| it.unit.as_str() == unit.as_str()).map(|it| &it.report)
        };
        let all = manager.list().await.expect("the call succeeds");
        let late = all.iter().filter(|it| !rests(it, state(&it.unit)));
        let late: Vec<_> = late.map(|it| (it, state(&it.unit))).collect();
        if late.is_empty() {
            return all.into_iter().map(|it| (it.unit.to_string(), it)).collect();
        }
        // The test process waits twice as long.
        assert!(begin.elapsed() < DEADLINE / 2, "units not settled: {late:?}");
        wait_between_looks().await;
    }
}

/// Returns whether the state of a unit is about to change.
pub(super) fn is_under_way(state: Option<&StatusReport>) -> bool {
    state.is_some_and(|state| {
        matches!(state.state, DerivedState::Starting | DerivedState::Stopping(_))
    })
}

fn has_given_up(state: Option<&StatusReport>) -> bool {
    state.is_some_and(|state| {
        matches!(state.state, DerivedState::Failed { retry: Retry::GaveUp, .. })
    })
}

/// Returns whether a unit is in its expected state, which is final except for flapping units.
fn rests(number: u64, unit: &ManagedUnit, decided: Option<&StatusReport>) -> bool {
    let (sub, result) = (unit.state.sub.as_str(), unit.state.result.as_deref());
    let is_launched = unit.known.requested == TargetState::Launched;
    let is_inactive = ["dead", "failed"].contains(&sub);
    match number % KINDS {
        FLAPS if is_launched => !is_inactive,
        _ if is_under_way(decided) => false,
        _ if !is_launched => is_inactive,
        ENDS => sub == "exited",
        // A run that has just ended looks like the last one.
        GIVES_UP => sub == "failed" && result == Some("exit-code") && has_given_up(decided),
        _ => sub == "running" && unit.state.main_pid.is_some(),
    }
}

/// Returns a value that changes with each start of the unit: its main process, or its number of
/// runs.
fn observed_value(number: u64, home: &Path, state: &SystemdState) -> u64 {
    match number % KINDS {
        FLAPS => 0,
        ENDS | GIVES_UP => {
            let ran = std::fs::read_to_string(home.join(format!("ran{number}")));
            ran.unwrap_or_default().lines().count() as u64
        }
        _ => state.main_pid.unwrap_or(0).into(),
    }
}

/// Checks that nothing is left of stopped units, nor of earlier runs of active ones.
pub(super) fn verify_no_leftovers(home: &Path, down: &[String]) {
    for (unit, found) in processes_of_units(home) {
        let most = if down.contains(&unit) { 0 } else { MOST };
        assert!(found.len() <= most, "{unit} has left processes: {found:?}");
    }
    let groups = groups_below(home).unwrap_or_default();
    let of = |unit: &str| groups.iter().filter(|it| it.starts_with(&format!("{unit}."))).count();
    for unit in down {
        assert_eq!(of(unit), 0, "{unit} has left control groups: {groups:?}");
    }
}

async fn kill_repeatedly_with(plain: bool) {
    let bench = Bench::in_memory(|config| config.control_groups = !plain).await;
    let dead = bench.kill().await;
    let (home, test) = (dead.home(), "native::crash::daemon_to_kill_repeatedly");
    kill_repeatedly(test, &home, plain).await;
    let bench = dead.revive().await;
    verify_state(&bench.manager, &home, &RequestLog::open(&home)).await;
    bench.clean_up().await;
}

#[tokio::test]
async fn random_kills_lose_no_unit_and_run_none_twice() {
    kill_repeatedly_with(false).await;
}

#[tokio::test]
async fn random_kills_are_safe_without_control_groups() {
    kill_repeatedly_with(true).await;
}
