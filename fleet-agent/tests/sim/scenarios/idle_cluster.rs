//! An idle cluster: the requests of its daemons to the store, which must not grow with the units.

use std::sync::Arc;
use std::time::Duration;

use fleet_core::TargetState;
use fleet_store::registry::{ExpectUnit, NewUnit};
use fleet_store::testing::FaultyStore;
use fleet_store::{Layout, MemoryStore, Registry, Store as _};

use crate::cluster::{Daemon, TTL};
use crate::host::Host;
use crate::units::{file, name};

/// Observed time of an idle cluster.
const MINUTES: Duration = Duration::from_secs(1200);

async fn wait(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Returns the numbers of reads, commits and lease renewals of a cluster's daemons, once all units
/// run.
async fn asked_at_rest(machines: usize, units: usize) -> [usize; 3] {
    let store = Arc::new(MemoryStore::new());
    store_units(&Registry::new(store.clone(), Layout::DEFAULT_PREFIX), units).await;
    let host = |machine| {
        let id = format!("m{machine}").parse().expect("the machine ID is well formed");
        Host::new(id, FaultyStore::new(store.clone()), store.clone())
    };
    let hosts: Vec<Host> = (0..machines).map(host).collect();
    let daemons: Vec<Daemon> =
        hosts.iter().enumerate().map(|(machine, host)| Daemon::start(machine, host)).collect();
    wait(TTL * 3).await;

    let (before, revision) = (asked(&hosts), store.read("").await.expect("it is there").revision);
    wait(MINUTES).await;
    let after = asked(&hosts);
    let snapshot = daemons[0].mirror.current().expect("nothing is wrong");
    assert_eq!((snapshot.placements().count(), snapshot.states().count()), (units, units));
    assert_eq!(snapshot.revision, revision, "something was written");
    [0, 1, 2].map(|kind| after[kind] - before[kind])
}

async fn store_units(registry: &Registry, units: usize) {
    for number in 0..units {
        let unit = NewUnit {
            name: name(&format!("u{number}.service")),
            file: file("", number % 10),
            desired: TargetState::Launched,
        };
        registry.put_unit(unit, ExpectUnit::Absent).await.expect("the store is there");
    }
}

fn asked(hosts: &[Host]) -> [usize; 3] {
    let sum = |count: fn(&FaultyStore) -> usize| hosts.iter().map(|host| count(host.link())).sum();
    [sum(FaultyStore::reads), sum(FaultyStore::commits), sum(FaultyStore::renewals)]
}

// Holds: I-25, D-29
#[tokio::test(start_paused = true)]
async fn idle_cluster_only_renews_leases() {
    // A machine renews its presence, and the leader its leadership, three times per lease time.
    let renewals =
        |machines: usize| (machines + 1) * (MINUTES.as_secs() / (TTL.as_secs() / 3)) as usize;
    for (machines, units) in [(5, 1_000), (5, 10), (3, 10)] {
        let asked = asked_at_rest(machines, units).await;
        assert_eq!(asked, [0, 0, renewals(machines)], "{machines} machines, {units} units");
    }
}
