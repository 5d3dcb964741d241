//! Epochs and generations remembered from one lineage are compared with those of the next.

use std::sync::Arc;
use std::time::Duration;

use fleet_core::{Epoch, Generation};
use fleet_store::registry::{Lineage, PlacementWrites, SetPlacement};
use fleet_store::testing::FaultyStore;
use fleet_store::{Layout, Registry, RegistryError, StoreError};

use crate::support::{TTL, id, mirror, name, registry, soon, submit};

/// Places and restarts a unit in a store with this lineage, and returns the unit's epoch and
/// generation.
async fn place_and_restart(registry: &Registry, lineage: Option<Lineage>) -> (Epoch, Generation) {
    if let Some(lineage) = lineage {
        assert_eq!(registry.lineage(&lineage).await.unwrap(), lineage);
    }
    submit(registry, "a.service").await;
    let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let epoch = Epoch(leader.elected().0);
    let place = SetPlacement { unit: name("a.service"), machine: id("m-1"), epoch, previous: None };
    let writes = PlacementWrites { set: vec![place], ..PlacementWrites::default() };
    leader.commit(&writes).await.unwrap();
    let (revision, generation) = registry.request_restart(&name("a.service")).await.unwrap();
    let snapshot = soon(mirror(registry).await.wait_for(revision)).await.unwrap();
    (snapshot.placement("a.service").unwrap().epoch, generation)
}

#[tokio::test(start_paused = true)]
async fn later_lineage_has_later_epochs() {
    let lineage = |id: &str| id.parse::<Lineage>().unwrap();
    let (none, first, later) = (registry(), registry(), registry());
    for number in 0..100 {
        submit(&first, &format!("u{number}.service")).await; // revisions that the later one lacks
    }
    let (epoch, generation) = place_and_restart(&none, None).await;
    assert_eq!((epoch, generation), (Epoch(2), Generation(3)));
    let before = place_and_restart(&first, Some(lineage("first"))).await;
    let after = place_and_restart(&later, Some(lineage("later").with_epoch_base(1_000))).await;
    assert!(before.0 < after.0 && before.1 < after.1, "{before:?} {after:?}");
    assert_eq!(after, (Epoch(1_003), Generation(1_004)));
}

/// A leader's decision is refused if it is older than the leader's own last write of placements.
/// The epoch base of the lineage does not affect this comparison.
#[tokio::test(start_paused = true)]
async fn decisions_are_compared_by_revision_in_any_lineage() {
    let registry = registry();
    let lineage: Lineage = "later".parse().unwrap();
    registry.lineage(&lineage.with_epoch_base(1_000)).await.unwrap();
    submit(&registry, "a.service").await;
    submit(&registry, "b.service").await;
    let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let old = Epoch(leader.elected().0);
    let place = |unit: &str| {
        let place =
            SetPlacement { unit: name(unit), machine: id("m-1"), epoch: old, previous: None };
        PlacementWrites { set: vec![place], ..PlacementWrites::default() }
    };
    leader.commit(&place("a.service")).await.unwrap();
    // This was decided before the write that the leader knows of.
    assert!(leader.commit(&place("b.service")).await.is_err());
}

/// An import may raise the epoch base. The history remains the same, so mirrors continue.
#[tokio::test(start_paused = true)]
async fn mirror_follows_a_lineage_with_a_raised_epoch_base() {
    let registry = registry();
    registry.lineage(&"first".parse().unwrap()).await.unwrap();
    let mirror = mirror(&registry).await;
    let mut leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    leader.raise_epochs(Epoch(5_000_000)).await.unwrap();
    submit(&registry, "a.service").await;
    let (revision, generation) = registry.request_restart(&name("a.service")).await.unwrap();
    soon(mirror.wait_for(revision)).await.unwrap();
    assert!(generation > Generation(5_000_000), "{generation:?}");
    assert!(mirror.lineage().unwrap().epoch_base() > 5_000_000);
}

/// A leader keeps the epoch base of its election, so only a new leader uses a raised base.
// Holds: I-2
#[tokio::test(start_paused = true)]
async fn leader_deposed_by_raised_epochs_cannot_place() {
    let (registry, past) = (registry(), Epoch(5_000_000));
    let early = registry.raise_epochs(past).await;
    assert!(matches!(early, Err(RegistryError::NoLineage)), "{early:?}");
    registry.lineage(&"first".parse().unwrap()).await.unwrap();
    submit(&registry, "a.service").await;
    let writes = |epoch| {
        let place =
            SetPlacement { unit: name("a.service"), machine: id("m-1"), epoch, previous: None };
        PlacementWrites { set: vec![place], ..PlacementWrites::default() }
    };
    let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    registry.raise_epochs(past).await.unwrap();
    let late = leader.commit(&writes(Epoch(leader.elected().0))).await;
    assert!(matches!(late, Err(RegistryError::Deposed { .. })), "{late:?}");

    let next = registry.campaign(&id("m-2"), TTL).await.unwrap().expect("no other leader");
    registry.raise_epochs(past).await.unwrap(); // they are later already, so no leader is deposed
    let revision = next.commit(&writes(Epoch(next.elected().0))).await.unwrap();
    let snapshot = soon(mirror(&registry).await.wait_for(revision)).await.unwrap();
    assert!(snapshot.placement("a.service").unwrap().epoch > past);
}

/// The step that changes the epoch base also deposes the leader, even if its response is lost.
#[tokio::test(start_paused = true)]
async fn lost_response_of_raising_epochs_still_deposes_the_leader() {
    let registry = registry();
    registry.lineage(&"first".parse().unwrap()).await.unwrap();
    submit(&registry, "a.service").await;
    let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let store = FaultyStore::new(registry.store().clone());
    let broken = Registry::new(Arc::new(store.clone()), Layout::DEFAULT_PREFIX);
    store.lose_responses(1);
    let unknown = broken.raise_epochs(Epoch(5_000_000)).await;
    assert!(matches!(unknown, Err(RegistryError::Store(StoreError::Unknown(_)))), "{unknown:?}");
    let (unit, epoch) = (name("a.service"), Epoch(leader.elected().0));
    let place = vec![SetPlacement { unit, machine: id("m-1"), epoch, previous: None }];
    let late = leader.commit(&PlacementWrites { set: place, ..PlacementWrites::default() }).await;
    assert!(matches!(late, Err(RegistryError::Deposed { .. })), "{late:?}");
}

/// Otherwise the deposed leader would continue to plan beside the new one.
#[tokio::test(start_paused = true)]
async fn leader_deposed_by_raised_epochs_fails_to_renew() {
    let registry = registry();
    registry.lineage(&"first".parse().unwrap()).await.unwrap();
    let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    registry.raise_epochs(Epoch(5_000_000)).await.unwrap();
    let lost = leader.renew().await;
    assert!(matches!(lost, Err(RegistryError::Deposed { .. })), "{lost:?}");
}

/// Returns the same cluster through a store that delays each call by these milliseconds.
fn slow(registry: &Registry, delay: u64) -> Registry {
    let store = FaultyStore::new(registry.store().clone());
    store.set_delay(Duration::from_millis(delay));
    Registry::new(Arc::new(store), Layout::DEFAULT_PREFIX)
}

/// The base changes between the candidate's read and its election.
// Holds: I-2
#[tokio::test(start_paused = true)]
async fn election_with_an_outdated_epoch_base_fails() {
    let past = Epoch(5_000_000);
    let (mut elected, mut beaten) = (0, 0);
    for delay in 1..12 {
        let registry = registry();
        registry.lineage(&"first".parse().unwrap()).await.unwrap();
        submit(&registry, "a.service").await;
        let candidate = id("m-1");
        let (candidates, others) = (slow(&registry, 6), slow(&registry, delay));
        let (leader, raised) =
            tokio::join!(candidates.campaign(&candidate, TTL), others.raise_epochs(past));
        raised.unwrap();
        let Some(leader) = leader.unwrap() else {
            beaten += 1;
            continue;
        };
        let (unit, epoch) = (name("a.service"), Epoch(leader.elected().0));
        let place = vec![SetPlacement { unit, machine: id("m-1"), epoch, previous: None }];
        let placed =
            leader.commit(&PlacementWrites { set: place, ..PlacementWrites::default() }).await;
        match placed {
            Err(RegistryError::Deposed { .. }) => continue,
            placed => drop(placed.unwrap()),
        }
        elected += 1;
        let snapshot = registry.export().await.unwrap().snapshot;
        assert!(snapshot.placement("a.service").unwrap().epoch > past, "{delay}");
    }
    assert!(elected > 0 && beaten > 0, "{elected} {beaten}");
}

/// Epochs beyond the limit could neither be increased nor imported elsewhere.
#[tokio::test(start_paused = true)]
async fn epoch_beyond_the_limit_is_refused() {
    let registry = registry();
    let lineage = registry.lineage(&"first".parse().unwrap()).await.unwrap();
    let mut leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    for past in [u64::MAX, 1 << 53, (1 << 52) + 1] {
        let (by_leader, by_others) =
            (leader.raise_epochs(Epoch(past)).await, registry.raise_epochs(Epoch(past)).await);
        for refused in [by_leader, by_others] {
            let is_refused = matches!(refused, Err(RegistryError::Store(StoreError::Invalid(_))));
            assert!(is_refused, "{past}: {refused:?}");
        }
    }
    assert_eq!(registry.lineage(&lineage).await.unwrap(), lineage);
    leader.raise_epochs(Epoch(1 << 52)).await.unwrap();
    let (mut lines, mut reader) =
        (registry.export().await.unwrap().lines(), fleet_store::transfer::ExportReader::new());
    assert!(lines.all(|line| reader.push(&line, &mut |_, _| {}).is_ok()));
}
