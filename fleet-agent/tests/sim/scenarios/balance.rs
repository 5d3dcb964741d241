//! The requested rebalance, and its execution by leaders.

use std::time::Duration;

use fleet_core::rebalancing::RebalanceLimits;
use fleet_core::{Intent, TargetState};

use crate::cluster::{Cluster, TTL};

const UNITS: [&str; 4] = ["a.service", "c.service", "e.service", "l.socket"];

/// Two machines, with all units on the first.
async fn lopsided() -> Cluster {
    let mut cluster = Cluster::start(2).await;
    intend(&mut cluster, Some(Intent::Cordoned)).await;
    for unit in UNITS {
        cluster.launch(unit, "").await;
    }
    cluster.launch("j.timer", "MachineID=m0").await;
    cluster.launch("h.service", "Global=true").await;
    intend(&mut cluster, None).await;
    cluster.wait(Duration::from_secs(1)).await; // until all have told that they are up
    assert_eq!(places(&cluster), [[0], [0], [0], [0]], "nothing moves by itself");
    cluster
}

async fn intend(cluster: &mut Cluster, intent: Option<Intent>) {
    let id = cluster.hosts[1].id().clone();
    cluster.registry.set_intent(&id, intent).await.expect("the store is there");
    cluster.settle().await;
}

async fn order(cluster: &mut Cluster, limits: RebalanceLimits) {
    cluster.registry.request_rebalancing(limits).await.expect("the store is there");
    cluster.settle().await;
}

fn places(cluster: &Cluster) -> Vec<Vec<usize>> {
    UNITS.iter().map(|unit| cluster.active_on(unit)).collect()
}

fn is_ordered(cluster: &Cluster) -> bool {
    cluster.history.now().rebalancing.is_some()
}

// Holds: I-18
#[tokio::test(start_paused = true)]
async fn rebalance_moves_units_one_at_a_time() {
    let mut cluster = lopsided().await;
    let others = ["e.service", "h.service", "j.timer", "l.socket"];
    let pids = |cluster: &Cluster| others.map(|unit| cluster.pid(0, unit));
    let before = pids(&cluster);
    order(&mut cluster, RebalanceLimits::default()).await;
    cluster.wait(TTL).await;
    assert_eq!(places(&cluster), [[1], [1], [0], [0]]);
    assert_eq!(pids(&cluster), before, "a unit that stays is not touched");
    assert!(!is_ordered(&cluster), "no further move is worth it");
    assert_eq!(cluster.active_on("h.service"), [0, 1], "global units are where they were");
    cluster.rest().await;
    // A second request finds nothing to do.
    order(&mut cluster, RebalanceLimits::default()).await;
    assert!(!is_ordered(&cluster));
    assert_eq!(places(&cluster), [[1], [1], [0], [0]]);
}

// Holds: I-18
#[tokio::test(start_paused = true)]
async fn total_move_limit_is_kept() {
    let mut cluster = lopsided().await;
    let limits =
        RebalanceLimits { max_in_flight: 2, max_moves: Some(1), ..RebalanceLimits::default() };
    order(&mut cluster, limits).await;
    cluster.rest().await;
    assert_eq!(places(&cluster), [[1], [0], [0], [0]]);
    assert!(!is_ordered(&cluster));
}

// Holds: I-18
#[tokio::test(start_paused = true)]
async fn new_leader_waits_for_last_moved_unit() {
    let mut cluster = lopsided().await;
    let hung = crate::units::name("a.service");
    cluster.hosts[1].fake().fail_start(&hung, "the test wants it so");
    order(&mut cluster, RebalanceLimits::default()).await;
    let moved = |cluster: &Cluster| {
        let now = cluster.history.now();
        UNITS.map(|unit| now.placement(unit).unwrap().machine.as_str() == "m1")
    };
    for _ in 0..2 {
        cluster.wait(TTL).await;
        assert_eq!(moved(&cluster), [true, false, false, false], "one is under way");
        assert!(is_ordered(&cluster));
        let old = cluster.leader().expect("there is a leader");
        cluster.crash(old);
        cluster.wait(TTL / 3).await;
        cluster.boot(old);
    }
    cluster.hosts[1].fake().clear_failures(&hung);
    let registry = cluster.registry.clone();
    for desired in [TargetState::Loaded, TargetState::Launched] {
        registry.set_desired(&hung, desired).await.expect("it is there");
        cluster.settle().await;
    }
    cluster.wait(TTL * 2).await;
    assert_eq!(places(&cluster), [[1], [1], [0], [0]]);
    cluster.rest().await;
    assert!(!is_ordered(&cluster));
}

#[tokio::test(start_paused = true)]
async fn cancelled_rebalance_moves_no_more_units() {
    let mut cluster = lopsided().await;
    let hung = crate::units::name("a.service");
    cluster.hosts[1].fake().fail_start(&hung, "the test wants it so");
    order(&mut cluster, RebalanceLimits::default()).await;
    cluster.registry.end_rebalancing().await.expect("the store is there");
    cluster.hosts[1].fake().clear_failures(&hung);
    cluster.rest().await;
    assert_eq!(places(&cluster)[1..], [[0], [0], [0]]);
    assert!(!is_ordered(&cluster));
}

#[tokio::test(start_paused = true)]
async fn rebalance_continues_while_an_instance_is_down() {
    let mut cluster = Cluster::start(2).await;
    intend(&mut cluster, Some(Intent::Cordoned)).await;
    let units = ["d@1.service", "d@2.service", "d@3.service"];
    for unit in units {
        cluster.launch(unit, "").await;
    }
    intend(&mut cluster, None).await;
    let failing = crate::units::name("d@4.service");
    cluster.hosts[1].fake().fail_start(&failing, "the test wants it so");
    cluster.launch("d@4.service", "MachineID=m1").await;
    cluster.wait(TTL).await;
    order(&mut cluster, RebalanceLimits { min_available: 3, ..RebalanceLimits::default() }).await;
    cluster.wait(TTL).await;
    assert!(is_ordered(&cluster), "three are up, and would be two");
    assert_eq!(units.map(|unit| cluster.active_on(unit)), [[0], [0], [0]]);
    cluster.hosts[1].fake().clear_failures(&failing);
    cluster.registry.request_restart(&failing).await.expect("it is there");
    cluster.settle().await;
    cluster.wait(TTL).await;
    assert_eq!(units.map(|unit| cluster.active_on(unit)), [[1], [0], [0]]);
    cluster.rest().await;
    assert!(!is_ordered(&cluster));
}
