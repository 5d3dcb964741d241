//! Kills a manager at random times: services with external dependencies, targets with wanted units,
//! and timers. Each next manager is checked against the requests and their answers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fleet_agent::native::External;
use fleet_agent::{ManagedUnit, NativeConfig, NativeManager, ServiceManager};
use fleet_core::graph::StatusReport;
use fleet_core::{Epoch, TargetState};
use fleet_unitfile::UnitFile;
use tokio::task::JoinSet;

use super::crash::{ask, is_under_way, settled, verify_no_leftovers};
use super::kill_harness::{KilledDaemonConfig, SmallRng, kill_repeatedly, wait_between_looks};
use super::request_log::{Call, RequestLog, UnitHistory, Verb};
use crate::support::{Bench, name, wait_until};

/// Number of units of each kind.
const MANY: u64 = 6;

/// Maximum number of concurrent calls.
const AT_ONCE: usize = 8;

/// Runs until it is stopped.
const STEADY: &str = "ExecStart=/bin/sleep 1000\nRestart=on-failure\nRestartSec=5ms\n";

fn units(home: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |unit: String, options: &str, rest: &str| {
        let settings = if rest.is_empty() { "" } else { "[Service]\nEnvironment=UNIT=%n\n" };
        let limit = if rest.is_empty() { "" } else { "StartLimitIntervalSec=0\n" };
        all.push((unit, format!("[Unit]\n{limit}{options}\n{settings}{rest}")));
    };
    for number in 0..MANY {
        // Every other one is bound to an external unit.
        let bound = "BindsTo=net.service\nAfter=net.service";
        add(format!("s{number}.service"), if number % 2 == 0 { bound } else { "" }, STEADY);
        add(format!("w{number}.service"), "", STEADY);
        let wants = format!("Wants=w{number}.service w{}.service", (number + 1) % MANY);
        add(format!("t{number}.target"), &wants, "");
        // The unit of a timer waits for another unit each time.
        let slow = format!("slow{number}.service");
        let options = format!("Wants={slow}\nAfter={slow}");
        let script = format!("echo run >>{}", home.join(format!("ran{number}")).display());
        let again = "Type=oneshot\nRestart=on-failure\nRestartSec=5ms\n";
        add(slow, "", "Type=oneshot\nExecStart=/bin/sleep 0.02\n");
        let job = format!("{again}ExecStart=/bin/sh -c '{script}'\n");
        add(format!("j{number}.service"), &options, &job);
        add(format!("j{number}.timer"), "[Timer]\nOnActiveSec=1ms", "");
    }
    all
}

fn config(home: &Path, config: &mut NativeConfig) {
    config.external.insert(name("net.service"), External::Path(home.join("net")));
}

/// The manager, in its own process. Does nothing as a test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manager_to_kill_repeatedly() {
    let Some(setup) = KilledDaemonConfig::from_env() else { return };
    let mut set_up = NativeConfig::new(setup.home.join("native"));
    set_up.environment.push(("BENCH".to_owned(), setup.home.display().to_string()));
    config(&setup.home, &mut set_up);
    setup.begins();
    let manager = NativeManager::open(set_up).await.expect("it opens");
    let ledger = Arc::new(RequestLog::open(&setup.home));
    load_what_is_missing(&manager, &setup.home, &ledger).await;
    verify_state(&manager, &setup.home, &ledger).await;
    setup.is_open();
    let mut dice = SmallRng(setup.seed);
    let mut requests = JoinSet::new();
    for number in 0..MANY {
        // The others must not elapse again.
        if dice.below(2) == 0 {
            let (manager, ledger) = (Arc::clone(&manager), Arc::clone(&ledger));
            requests.spawn(elapse_repeatedly(manager, ledger, setup.home.clone(), number));
        }
    }
    let most = AT_ONCE + requests.len();
    loop {
        if requests.len() == most {
            requests.join_next().await.expect("there is one").expect("it does not panic");
        }
        let kind = ["s", "w", "t"][usize::try_from(dice.below(3)).expect("it is small")];
        let end = if kind == "t" { "target" } else { "service" };
        let unit = format!("{kind}{}.{end}", dice.below(MANY));
        let verb = [Verb::Stop, Verb::Restart, Verb::Start, Verb::Start];
        let verb = verb[usize::try_from(dice.below(4)).expect("it is small")];
        requests.spawn(ask(Arc::clone(&manager), Arc::clone(&ledger), unit, verb));
    }
}

/// Loads the missing units. Only the first daemon may miss any.
async fn load_what_is_missing(manager: &NativeManager, home: &Path, ledger: &RequestLog) {
    let was_open = !ledger.read().is_empty();
    for (unit, text) in units(home) {
        if manager.get(&name(&unit)).await.expect("the call succeeds").is_none() {
            assert!(!was_open, "{unit} is lost");
            let file = UnitFile::parse(text).expect("it is well formed");
            manager.load(&name(&unit), &file, Epoch(1)).await.expect("it loads");
        }
    }
}

/// Restarts a timer whenever its last elapse has been handled.
async fn elapse_repeatedly(
    manager: Arc<NativeManager>,
    ledger: Arc<RequestLog>,
    home: PathBuf,
    number: u64,
) {
    loop {
        let before = count(&home, number);
        let unit = format!("j{number}.timer");
        ask(Arc::clone(&manager), Arc::clone(&ledger), unit, Verb::Restart).await;
        while count(&home, number) == before || !rest(&manager, number).await {
            wait_between_looks().await;
        }
    }
}

/// Returns whether a timer and its unit are idle.
async fn rest(manager: &NativeManager, number: u64) -> bool {
    let timer = sub(manager, format!("j{number}.timer")).await;
    let job = sub(manager, format!("j{number}.service")).await;
    ["elapsed", "dead"].contains(&&*timer) && job == "dead"
}

async fn sub(manager: &NativeManager, unit: String) -> String {
    let unit = manager.get(&name(&unit)).await.expect("the call succeeds");
    unit.expect("it is loaded").state.sub
}

fn count(home: &Path, number: u64) -> u64 {
    let ran = std::fs::read_to_string(home.join(format!("ran{number}")));
    ran.unwrap_or_default().lines().count() as u64
}

/// Checks the manager against all requests, and logs its findings.
async fn verify_state(manager: &NativeManager, home: &Path, ledger: &RequestLog) {
    let all = ledger.read();
    let history = |unit: &str| all.get(unit).cloned().unwrap_or_default();
    let found = settled(manager, rests).await;
    for (unit, now) in &found {
        assert!(
            history(unit).allows(now),
            "{now:?} differs from the requests: {:?}",
            history(unit)
        );
    }
    let mut seen = Vec::new();
    for number in 0..MANY {
        let single = format!("s{number}.service");
        let is_launched = found[&single].known.requested == TargetState::Launched;
        assert_eq!(found[&single].state.main_pid.is_some(), is_launched, "{:?}", found[&single]);
        verify_steady_service(&history(&single), &found[&single]);
        verify_wanted_service(&history, &found, number);
        let ran = verify_timer(manager, home, (&history, &found), number).await;
        seen.push((&found[&format!("j{number}.timer")], ran));
    }
    let others = found.values().filter(|it| it.unit.as_str().starts_with(['s', 't', 'w']));
    seen.extend(others.map(|unit| (unit, unit.state.main_pid.unwrap_or(0).into())));
    ledger.see(seen);
    let is_down = |unit: &&ManagedUnit| unit.state.sub == "dead";
    let steady = found.values().filter(|it| it.unit.as_str().starts_with('s')).filter(is_down);
    verify_no_leftovers(home, &steady.map(|it| it.unit.to_string()).collect::<Vec<_>>());
}

/// Returns whether a unit is in its expected state. The units of timers are checked together with
/// these.
fn rests(unit: &ManagedUnit, decided: Option<&StatusReport>) -> bool {
    let is_up = match unit.unit.as_str() {
        name if name.starts_with('j') || name.starts_with("slow") => return true,
        name if name.starts_with('t') => unit.state.sub == "active",
        _ => unit.state.sub == "running" && unit.state.main_pid.is_some(),
    };
    let is_inactive = ["dead", "failed"].contains(&&*unit.state.sub);
    let is_needed = decided.is_some_and(|state| state.needed);
    !is_under_way(decided) && if is_needed { is_up } else { is_inactive }
}

/// Checks a service that never exits: it is active if requested, and keeps running.
fn verify_steady_service(history: &UnitHistory, found: &ManagedUnit) {
    let is_launched = found.known.requested == TargetState::Launched;
    assert!(!is_launched || found.state.main_pid.is_some(), "{found:?}, {history:?}");
    let pid: u64 = found.state.main_pid.unwrap_or(0).into();
    if is_launched && let Some(same) = history.is_same(found) {
        assert_eq!(pid == history.seen.what, same, "{found:?}, {history:?}");
    }
}

/// Checks a service that targets want: it is active if it or one of the targets was started, unless
/// it was stopped since.
fn verify_wanted_service(
    history: &impl Fn(&str) -> UnitHistory,
    found: &BTreeMap<String, ManagedUnit>,
    number: u64,
) {
    let unit = format!("w{number}.service");
    let now = &found[&unit];
    let is_up = now.state.main_pid.is_some();
    let targets = [number, (number + MANY - 1) % MANY].map(|number| format!("t{number}.target"));
    let targets = targets.map(|target| (history(&target), found[&target].clone()));
    let history = history(&unit);
    if let Some(up) = is_to_be_up(&history, now, &targets) {
        assert_eq!(up, is_up, "{now:?}, {history:?}, {targets:?}");
    }
    verify_steady_service(&history, now);
    let pid: u64 = now.state.main_pid.unwrap_or(0).into();
    if history.calls.is_empty() && targets.iter().all(|(history, _)| history.calls.is_empty()) {
        assert_eq!(pid, history.seen.what, "{now:?}, {history:?}, {targets:?}");
    }
}

/// Returns whether a service must be active; `None` if it may be either.
fn is_to_be_up(
    history: &UnitHistory,
    found: &ManagedUnit,
    targets: &[(UnitHistory, ManagedUnit)],
) -> Option<bool> {
    let is_launched = |unit: &ManagedUnit| unit.known.requested == TargetState::Launched;
    if is_launched(found) {
        return Some(true);
    }
    if !targets.iter().any(|(_, target)| is_launched(target)) {
        return Some(false);
    }
    let is_quiet = targets.iter().all(|(history, _)| history.calls.is_empty());
    let is_last = |stop: &&Call| {
        let is_stop = stop.verb == Verb::Stop && stop.answered_at.is_some();
        is_stop && is_quiet && history.is_over_before(stop.sent_at)
    };
    if history.calls.iter().any(|stop| is_last(&stop)) {
        return Some(false);
    }
    let starts =
        targets.iter().filter(|(_, target)| is_launched(target)).filter_map(|(history, it)| {
            history.calls.iter().find(|call| call.generation == it.known.generation.0)
        });
    let mut starts = starts.filter(|start| history.is_over_before(start.sent_at));
    starts.next().map(|_| true)
}

/// Checks a timer: it elapses exactly once for each start. Returns the number of elapses.
async fn verify_timer(
    manager: &NativeManager,
    home: &Path,
    (history, found): (&impl Fn(&str) -> UnitHistory, &BTreeMap<String, ManagedUnit>),
    number: u64,
) -> u64 {
    let unit = format!("j{number}.timer");
    let history = history(&unit);
    let timer = &found[&unit];
    let generation = timer.known.generation.0;
    let done = history.calls.iter().position(|call| call.generation == generation);
    let least = history.seen.what + done.map_or(0, |at| at as u64 + 1);
    wait_until(&format!("{unit} has elapsed: {least} of {history:?}"), async || {
        count(home, number) >= least && rest(manager, number).await
    })
    .await;
    let ran = count(home, number);
    assert!(done.is_some() || ran == least, "{unit} has elapsed once more: {ran}, {history:?}");
    ran
}

#[tokio::test]
async fn random_kills_lose_no_timer_target_or_service() {
    let bench = Bench::in_memory(|set_up| {
        let home = set_up.directory.parent().expect("it has one").to_owned();
        std::fs::write(home.join("net"), "").expect("it can be written");
        config(&home, set_up);
    })
    .await;
    let dead = bench.kill().await;
    let (home, test) = (dead.home(), "native::manager_crash::manager_to_kill_repeatedly");
    kill_repeatedly(test, &home, false).await;
    let bench = dead.revive().await;
    verify_state(&bench.manager, &home, &RequestLog::open(&home)).await;
    bench.clean_up().await;
}
