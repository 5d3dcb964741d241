//! Partitioned machines with drifting clocks and slow stops: a unit with `OnPartition=stop` never
//! runs twice (I-1), whatever is decided meanwhile.
//!
//! Daemons that are down for longer than a moment are left out, since they stop nothing.

use std::time::Duration;

use fleet_core::TargetState;
use fleet_unitfile::UnitName;

use crate::campaign::run_all;
use crate::cluster::{Cluster, TTL};
use crate::host::Host;
use crate::operation::{OnMachine, OnUnit, Operation};
use crate::rng::Rng;
use crate::units::{STOPPED, name, own_requirement};

/// Default number of seeds.
const RUNS: u64 = 120;

/// Number of operations before a cluster is healed.
const LENGTH: usize = 60;

/// Rates of clocks in thousandths: no two differ by more than a hundredth.
const RATES: [u32; 5] = [995, 998, 1000, 1002, 1004];

// Holds: I-1, D-38
#[test]
fn fenced_unit_never_runs_twice() {
    run_all(RUNS, story);
}

async fn story(seed: u64, log: &mut Vec<String>) {
    let mut rng = Rng::new(seed);
    let machines = 2 + rng.below(3);
    let make = |hosts: &[Host]| {
        hosts.iter().for_each(|host| host.set_rate(*rng.pick(&RATES)));
        hosts.iter().for_each(|host| host.watch_others(hosts));
    };
    let mut cluster = Cluster::start_with(machines, make).await;
    for unit in STOPPED.into_iter().chain(["a.service", "c.service"]) {
        cluster.launch(unit, own_requirement(&name(unit))).await;
    }
    for _ in 0..LENGTH {
        happen(&mut cluster, &mut rng, machines, log).await;
        cluster.settle().await;
    }
    log.push("all is healed".to_owned());
    cluster.heal_and_rest().await;
}

/// Performs one operation, and records it.
async fn happen(cluster: &mut Cluster, rng: &mut Rng, machines: usize, log: &mut Vec<String>) {
    let machine = rng.below(machines);
    let operation = match rng.below(20) {
        0..4 => on(machine, OnMachine::Away(true)),
        4..8 => on(machine, OnMachine::Away(false)),
        8 => on(machine, OnMachine::Delay(Duration::from_millis(1 << rng.below(14)))),
        9 => on(machine, OnMachine::Delay(Duration::ZERO)),
        10 => on(machine, OnMachine::CutWatches),
        11 => on(machine, OnMachine::LoseAnswers(1)),
        12 => on(machine, if rng.below(3) == 0 { OnMachine::Reboot } else { OnMachine::Crash }),
        13 => {
            let unit = draw(rng);
            on(machine, OnMachine::Unit { unit, what: OnUnit::HangStop })
        }
        14 => desire(rng),
        _ => Operation::Wait(TTL * u32::try_from(rng.below(20)).unwrap_or(0) / 8),
    };
    log.push(operation.to_string());
    operation.happen(cluster).await;
    // The daemon is restarted.
    cluster.boot(machine);
}

fn on(machine: usize, what: OnMachine) -> Operation {
    Operation::OnMachine { machine, what }
}

fn desire(rng: &mut Rng) -> Operation {
    let all = [TargetState::Launched, TargetState::Loaded, TargetState::Inactive];
    Operation::Desire { unit: draw(rng), desired: *rng.pick(&all) }
}

fn draw(rng: &mut Rng) -> UnitName {
    name(STOPPED[rng.below(STOPPED.len())])
}
