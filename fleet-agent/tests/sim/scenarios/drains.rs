//! Drained machines, and the execution of drains by leaders.

use std::time::Duration;

use fleet_core::{Intent, TargetState};

use crate::cluster::{Cluster, TTL};

async fn intend(cluster: &mut Cluster, machine: usize, intent: Option<Intent>) {
    let id = cluster.hosts[machine].id().clone();
    cluster.registry.set_intent(&id, intent).await.expect("the store is there");
    cluster.settle().await;
}

/// Returns the machines of each unit.
fn places(cluster: &Cluster, units: &[&str]) -> Vec<Vec<usize>> {
    units.iter().map(|unit| cluster.active_on(unit)).collect()
}

#[tokio::test(start_paused = true)]
async fn drain_empties_a_machine_and_keeps_it_empty() {
    let mut cluster = Cluster::start(2).await;
    cluster.launch("j.timer", "MachineID=m1").await;
    for unit in ["a.service", "b.service", "c.service"] {
        cluster.launch(unit, "Reschedule=never").await;
    }
    cluster.launch("h.service", "Global=true").await;
    intend(&mut cluster, 1, Some(Intent::Drained { min_available: 0 })).await;
    let units = ["a.service", "b.service", "c.service", "j.timer"];
    assert_eq!(places(&cluster, &units), [[0], [0], [0], [1]]);
    cluster.launch("l.socket", "").await;
    assert_eq!(cluster.active_on("l.socket"), [0]);
    assert_eq!(cluster.active_on("h.service"), [0, 1], "global units are no business of a drain");
    cluster.rest().await;
    intend(&mut cluster, 1, None).await;
    cluster.launch("k.service", "").await;
    assert_eq!(cluster.active_on("k.service"), [1]);
}

// Holds: I-18
#[tokio::test(start_paused = true)]
async fn new_leader_continues_drain_within_limits() {
    let mut cluster = Cluster::start(3).await;
    let units = ["d@1.service", "d@2.service", "d@3.service", "d@4.service"];
    for unit in units {
        cluster.launch(unit, "MachineMetadata=region=north").await;
    }
    assert_eq!(places(&cluster, &units), [[0], [2], [0], [2]]);
    cluster.wait(Duration::from_secs(1)).await; // until all have told that they are up
    // Only one unit may move at a time, and the first one cannot start on its target.
    let hung = crate::units::name("d@1.service");
    cluster.hosts[2].fake().fail_start(&hung, "the test wants it so");
    intend(&mut cluster, 0, Some(Intent::Drained { min_available: 3 })).await;
    cluster.wait(Duration::from_secs(1)).await;
    let now = cluster.history.now();
    assert_eq!(now.placement("d@1.service").unwrap().machine.as_str(), "m2");
    assert_eq!(places(&cluster, &units[1..]), [[2], [0], [2]], "too few would be up");
    let old = cluster.leader().expect("there is a leader");
    cluster.crash(old);
    cluster.wait(TTL / 3).await;
    cluster.boot(old);
    cluster.hosts[2].fake().clear_failures(&hung);
    let registry = cluster.registry.clone();
    for desired in [TargetState::Loaded, TargetState::Launched] {
        registry.set_desired(&hung, desired).await.expect("it is there");
        cluster.wait(TTL).await;
    }
    cluster.wait(TTL * 2).await;
    assert_eq!(places(&cluster, &units), [[2], [2], [2], [2]]);
    cluster.rest().await;
}
