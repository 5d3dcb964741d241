//! Engines: who decides, on what, and what becomes of it.

use std::time::Duration;

use fleet_core::TargetState;
use fleet_store::MetadataChange;
use futures_util::future::join_all;

use crate::cluster::{Cluster, TTL};

/// Units without requirements, launched.
async fn launch_some(cluster: &mut Cluster) -> [&'static str; 4] {
    let units = ["a.service", "b.service", "c.service", "l.socket"];
    for unit in units {
        cluster.launch(unit, "").await;
    }
    units
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_overtaken_decides_nothing_more() {
    let mut cluster = Cluster::start(3).await;
    let old = cluster.leader().expect("somebody leads");
    // What the leader sends now takes longer to arrive than it leads without a sign of life.
    cluster.hosts[old].link().set_delay(TTL * 2 / 3);
    cluster.launch("a.service", "").await;
    cluster.wait(TTL * 2 / 3).await;
    cluster.hosts[old].set_away(true);
    cluster.wait(TTL * 2).await;
    let new = cluster.leader().expect("somebody leads");
    assert_ne!(new, old);
    assert_eq!(cluster.active_on("a.service").len(), 1);
    cluster.heal_and_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_moves_and_restarts_nothing() {
    let mut cluster = Cluster::start(3).await;
    let units = launch_some(&mut cluster).await;
    cluster.rest().await;
    let old = cluster.leader().expect("somebody leads");
    let (calls, placed) = (cluster.calls(), units.map(|unit| cluster.active_on(unit)));
    cluster.end(old).await;
    cluster.wait(TTL * 2 / 3).await;
    assert!(cluster.leader().is_some_and(|new| new != old), "another leads");
    cluster.boot(old);
    cluster.rest().await;
    let starts = |cluster: &Cluster| units.map(|unit| cluster.active_on(unit));
    assert_eq!((cluster.calls(), starts(&cluster)), (calls, placed));
}

#[tokio::test(start_paused = true)]
async fn units_that_conflict_never_meet_even_if_they_come_at_once() {
    let mut cluster = Cluster::start(2).await;
    let names = ["d@1.service", "d@2.service", "d@3.service"];
    let registry = cluster.registry.clone();
    let unit = |name: &str| fleet_store::NewUnit {
        name: crate::units::name(name),
        file: crate::units::file("Conflicts=d@*.service", 0),
        desired: TargetState::Launched,
    };
    let submitted = names.map(|name| registry.put_unit(unit(name), fleet_store::ExpectUnit::Any));
    let results = join_all(submitted).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    cluster.rest().await;
    let placed = names.map(|name| cluster.active_on(name)).concat();
    assert_eq!(placed, [0, 1]);
    assert!(cluster.history.now().reason("d@3.service").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_unit_without_a_machine_has_a_reason_until_there_is_one() {
    let mut cluster = Cluster::start(2).await;
    cluster.launch("f.service", "MachineMetadata=region=nowhere").await;
    let now = cluster.history.now();
    let reason = now.reason("f.service").expect("a reason is published at once");
    insta::assert_snapshot!(
        reason,
        @"none of 2 machines fits: MachineMetadata refuses 2 (such as m0: the unit wants \
          region=nowhere, the machine has region=north)"
    );
    let (machine, key) = (cluster.hosts[1].id().clone(), "region".to_owned());
    let set = MetadataChange::Set { machine, key, value: "nowhere".to_owned() };
    cluster.registry.patch_metadata(&[set]).await.expect("the store is there");
    cluster.settle().await;
    assert_eq!(cluster.active_on("f.service"), [1]);
    cluster.rest().await;
}

#[tokio::test(start_paused = true)]
async fn units_of_a_machine_that_is_gone_come_up_elsewhere() {
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

#[tokio::test(start_paused = true)]
async fn a_cluster_at_rest_writes_nothing() {
    let mut cluster = Cluster::start(3).await;
    launch_some(&mut cluster).await;
    cluster.rest().await;
    let reads = || cluster.hosts.iter().map(|host| host.link().reads()).sum::<usize>();
    let (before, revision) = (reads(), cluster.history.revision());
    cluster.wait(Duration::from_secs(600)).await;
    assert_eq!(cluster.history.revision(), revision);
    let reads = cluster.hosts.iter().map(|host| host.link().reads()).sum::<usize>();
    // Those who do not lead look twice in a lease whether somebody does; nothing is listed.
    let looks = reads - before;
    assert!(looks > 0 && looks <= 2 * 600 / 3 + 2, "{looks}");
}
