//! Engines: leadership, and the basis and the effects of decisions.

use std::time::Duration;

use fleet_core::TargetState;
use fleet_store::Transaction;
use fleet_store::registry::{ExpectUnit, Key, MetadataChange, NewUnit};
use futures_util::future::join_all;

use crate::cluster::{Cluster, TTL};

/// Launches units without requirements.
async fn launch_some(cluster: &mut Cluster) -> [&'static str; 4] {
    let units = ["a.service", "b.service", "c.service", "l.socket"];
    for unit in units {
        cluster.launch(unit, "").await;
    }
    units
}

// Holds: I-3, D-38
#[tokio::test(start_paused = true)]
async fn write_of_deposed_leader_is_refused() {
    let mut cluster = Cluster::start(3).await;
    let old = cluster.leader().expect("there is a leader");
    // The unit reaches the leader just before its term ends, and the decision reaches the store
    // after it.
    cluster.hosts[old].link().set_delay(TTL * 8 / 9);
    cluster.launch("a.service", "").await;
    cluster.wait(TTL * 17 / 18).await;
    let sent = cluster.hosts[old].link().commits();
    assert_eq!(cluster.leader(), Some(old));
    // Later leaders have nothing to decide.
    let unit = crate::units::name("a.service");
    cluster.registry.set_desired(&unit, TargetState::Inactive).await.expect("it is there");
    cluster.wait(TTL * 2).await;
    assert!(cluster.leader().is_some_and(|new| new != old), "another leads");
    assert!(sent > 0 && cluster.history.now().placement("a.service").is_none());
    cluster.heal_and_rest().await;
}

/// An import deposes the leader without leading itself.
#[tokio::test(start_paused = true)]
async fn deposed_leader_without_successor_leads_again() {
    let mut cluster = Cluster::start(1).await;
    let registry = &cluster.registry;
    let depose = Transaction::new().delete(registry.layout().key(&Key::Leader));
    registry.store().commit(depose).await.expect("the store is there");
    cluster.submit("a.service", "", 0, TargetState::Launched).await;
    cluster.wait(Duration::from_secs(2)).await;
    assert_eq!(cluster.active_on("a.service"), [0]);
}

// Holds: I-10
#[tokio::test(start_paused = true)]
async fn new_leader_moves_and_restarts_nothing() {
    let mut cluster = Cluster::start(3).await;
    let units = launch_some(&mut cluster).await;
    cluster.rest().await;
    let old = cluster.leader().expect("there is a leader");
    let (calls, placed) = (cluster.calls(), units.map(|unit| cluster.active_on(unit)));
    cluster.end(old).await;
    cluster.wait(TTL * 2 / 3).await;
    assert!(cluster.leader().is_some_and(|new| new != old), "another leads");
    cluster.boot(old);
    cluster.rest().await;
    let starts = |cluster: &Cluster| units.map(|unit| cluster.active_on(unit));
    assert_eq!((cluster.calls(), starts(&cluster)), (calls, placed));
}

// Holds: I-5, D-37
#[tokio::test(start_paused = true)]
async fn conflicting_units_never_share_a_machine() {
    let mut cluster = Cluster::start(2).await;
    let names = ["d@1.service", "d@2.service", "d@3.service"];
    let registry = cluster.registry.clone();
    let unit = |name: &str| NewUnit {
        name: crate::units::name(name),
        file: crate::units::file("Conflicts=d@*.service", 0),
        desired: TargetState::Launched,
    };
    let submitted = names.map(|name| registry.put_unit(unit(name), ExpectUnit::Any));
    let results = join_all(submitted).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    cluster.rest().await;
    let placed = names.map(|name| cluster.active_on(name)).concat();
    assert_eq!(placed, [0, 1]);
    assert!(cluster.history.now().reason("d@3.service").is_some());
}

// Holds: I-22, D-24
#[tokio::test(start_paused = true)]
async fn unplaced_unit_has_a_reason_until_placed() {
    let mut cluster = Cluster::start(2).await;
    cluster.launch("f.service", "MachineMetadata=region=nowhere").await;
    let now = cluster.history.now();
    let reason = now.reason("f.service").expect("a reason is published at once");
    insta::assert_snapshot!(
        reason,
        @"none of 2 machines fits: MachineMetadata refuses 2 (such as m0: the unit requires \
          region=nowhere, the machine has region=north); nearest is m0: the unit requires \
          region=nowhere, the machine has region=north"
    );
    let (machine, key) = (cluster.hosts[1].id().clone(), "region".to_owned());
    let set = MetadataChange::Set { machine, key, value: "nowhere".to_owned() };
    cluster.registry.patch_metadata(&[set]).await.expect("the store is there");
    cluster.settle().await;
    assert_eq!(cluster.active_on("f.service"), [1]);
    cluster.rest().await;
}

// Holds: I-21
#[tokio::test(start_paused = true)]
async fn units_of_lost_machine_start_elsewhere() {
    let mut cluster = Cluster::start(3).await;
    let units = launch_some(&mut cluster).await;
    cluster.reboot(0);
    cluster.wait(TTL * 2).await;
    for unit in units {
        let on = cluster.active_on(unit);
        assert!(on == [1] || on == [2], "{unit} is on {on:?}");
    }
    cluster.heal_and_rest().await;
}

/// The later placement counts: the unit moves if that is the second one, and stays otherwise.
// Holds: I-1
#[tokio::test(start_paused = true)]
async fn foreign_duplicate_placement_is_removed() {
    for second in [false, true] {
        let mut cluster = Cluster::start(2).await;
        cluster.launch("a.service", "").await;
        let [first] = cluster.active_on("a.service")[..] else { panic!("it is active once") };
        let (other, now) = (1 - first, cluster.history.now().revision.0);
        let epoch = if second { now } else { 1 };
        cluster.place_by_force("a.service", other, epoch).await;
        let expected = if second { other } else { first };
        assert_eq!(cluster.places("a.service").await, [expected]);
        cluster.rest().await;
        assert_eq!(cluster.active_on("a.service"), [expected]);
    }
}

/// It may be left by a delete from a writer without a view of the placements.
// Holds: I-7
#[tokio::test(start_paused = true)]
async fn placement_of_missing_unit_is_removed() {
    let mut cluster = Cluster::start(2).await;
    let now = cluster.history.now().revision.0;
    cluster.place_by_force("gone.service", 1, now).await;
    assert!(cluster.places("gone.service").await.is_empty());
    cluster.rest().await;
}
