//! Units that fail or that are changed externally, and their effect on others.

use std::time::Duration;

use fleet_agent::Drift;
use fleet_agent::testing::Behaviour;
use fleet_core::{ActiveState, TargetState};

use crate::cluster::{Cluster, TTL};
use crate::units::name;

// Holds: D-35
#[tokio::test(start_paused = true)]
async fn failed_unit_is_reported_and_stays_placed() {
    let mut cluster = Cluster::start(2).await;
    let unit = name("a.service");
    cluster.hosts.iter().for_each(|host| host.fake().set_behaviour(&unit, Behaviour::Exits(3)));
    cluster.launch("a.service", "").await;
    let placed = cluster.history.now().placement("a.service").cloned();
    let placed = placed.expect("it has a machine");
    cluster.wait(Duration::from_secs(600)).await;
    let now = cluster.history.now();
    assert_eq!(now.placement("a.service"), Some(&placed));
    let state = now.state("a.service", placed.machine.as_str()).expect("it is published");
    let shown = (state.systemd.active, state.systemd.sub.as_str(), state.systemd.result.as_deref());
    assert_eq!(shown, (ActiveState::Failed, "failed", Some("exit-code")));
}

#[tokio::test(start_paused = true)]
async fn drift_is_reported_and_left_alone() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("a.service", "").await;
    cluster.submit("b.service", "", 0, TargetState::Loaded).await;
    let problem = |cluster: &Cluster, unit: &str| {
        let now = cluster.history.now();
        now.state(unit, "m0").expect("it is published").problem.clone()
    };
    for (unit, drift) in [("a.service", Drift::Stopped), ("b.service", Drift::Started)] {
        let calls = cluster.calls();
        cluster.hosts[0].fake().interfere(&name(unit), drift);
        cluster.wait(Duration::from_secs(600)).await;
        assert_eq!(problem(&cluster, unit), Some(drift.to_string()));
        assert_eq!(cluster.calls(), calls, "it is left as it is");
    }
    assert_eq!(cluster.active_on("b.service"), [0]);
    cluster.registry.request_restart(&name("a.service")).await.expect("it is there");
    cluster.settle().await;
    assert_eq!((problem(&cluster, "a.service"), cluster.active_on("a.service").len()), (None, 1));
}

// Holds: I-26, D-36
#[tokio::test(start_paused = true)]
async fn hanging_stop_does_not_block_hundred_starts() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("a.service", "").await;
    cluster.hosts[0].set_trouble("a stop that hangs", true);
    cluster.hosts[0].fake().hang_stop(&name("a.service"));
    cluster.destroy(&name("a.service")).await;
    cluster.settle().await;
    for number in 0..100 {
        cluster.launch(&format!("w@{number}.service"), "").await;
    }
    let running = cluster.hosts[0].units();
    let running = running.iter().filter(|unit| unit.state.active == ActiveState::Active);
    assert_eq!(running.count(), 100);
    assert_eq!(cluster.active_on("a.service"), [0]);
}

/// A unit without a possible machine causes no writes and no searches for other units.
// Holds: I-26
#[tokio::test(start_paused = true)]
async fn unplaceable_and_crashing_units_cost_others_nothing() {
    let mut costs = Vec::new();
    for troubled in [false, true] {
        let mut cluster = Cluster::start(2).await;
        if troubled {
            for number in 0..20 {
                let unit = format!("never@{number}.service");
                cluster.launch(&unit, "MachineMetadata=region=nowhere").await;
            }
            cluster.launch("crashes.service", "MachineMetadata=region=south").await;
        }
        cluster.wait(Duration::from_secs(20)).await;
        let before = (cluster.hosts[0].listings(), cluster.hosts[0].link().commits());
        for number in 0..20 {
            cluster.launch(&format!("w@{number}.service"), "MachineMetadata=region=north").await;
            cluster.hosts[1].fake().crash(&name("crashes.service"));
            cluster.wait(TTL / 3).await;
        }
        let after = (cluster.hosts[0].listings(), cluster.hosts[0].link().commits());
        costs.push((after.0 - before.0, after.1 - before.1));
    }
    assert_eq!(costs[0], costs[1], "listings and writes of the other machine");
}

#[tokio::test(start_paused = true)]
async fn engine_stops_during_a_campaign() {
    let mut cluster = Cluster::start(2).await;
    // Longer than the time limit for the end of a daemon.
    cluster.hosts[1].link().set_delay(Duration::from_secs(1000));
    cluster.wait(TTL).await;
    cluster.end(1).await;
}

#[tokio::test(start_paused = true)]
async fn early_loss_moves_units_with_the_lease() {
    let mut cluster = Cluster::start(2).await;
    cluster.launch("a.service", "").await;
    cluster.wait(TTL / 2).await;
    let leader = cluster.leader().expect("an engine leads");
    let lost = 1 - leader;
    cluster.launch("b.service", "").await;
    let moving: Vec<_> = ["a.service", "b.service"]
        .into_iter()
        .filter(|unit| cluster.active_on(unit) == [lost])
        .collect();
    assert_eq!(moving.len(), 1, "one of the two units");
    cluster.hosts[lost].set_unreachable(true);
    let id = cluster.hosts[lost].id().clone();
    let mut waited = Duration::ZERO;
    while cluster.history.now().machine(id.as_str()).is_some() {
        cluster.wait(Duration::from_millis(100)).await;
        waited += Duration::from_millis(100);
    }
    assert!(waited <= TTL + Duration::from_millis(100), "{waited:?}");
    cluster.wait(Duration::from_millis(500)).await;
    for unit in moving {
        assert!(cluster.active_on(unit).contains(&leader), "{unit}");
    }
}
