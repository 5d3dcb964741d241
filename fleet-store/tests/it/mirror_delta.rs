//! A reader that applies the mirror's deltas always has the same state as the snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Revision, Snapshot};
use fleet_store::mirror::ChangeSet;
use fleet_store::registry::Key;
use fleet_store::testing::FaultyStore;
use fleet_store::{Layout, Mirror, Registry, Transaction};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::mirror_resync::{Step, caught_up, step, take};
use crate::support::{TTL, id, memory, mirror, registry, soon, submit};

/// A copy of the cluster that is only updated with the mirror's deltas.
#[derive(Default)]
struct IncrementalCopy {
    seen: Revision,
    units: BTreeMap<String, String>,
    machines: BTreeMap<String, String>,
    placements: BTreeMap<String, String>,
}

impl IncrementalCopy {
    fn of(snapshot: &Snapshot) -> Self {
        let mut copy = Self::default();
        let mut all = ChangeSet::default();
        all.units.extend(snapshot.units().map(|unit| unit.name.clone()));
        all.units.extend(snapshot.faults().map(|(unit, _)| unit.clone()));
        all.machines.extend(snapshot.machines().map(|machine| machine.id.clone()));
        all.placements.extend(snapshot.placements().map(|(unit, _)| unit.clone()));
        copy.look_at(snapshot, &all);
        copy
    }

    fn look_at(&mut self, snapshot: &Snapshot, changes: &ChangeSet) {
        for unit in &changes.units {
            let now = match (snapshot.unit(unit.as_str()), snapshot.fault(unit.as_str())) {
                (None, None) => None,
                unit_or_fault => Some(format!("{unit_or_fault:?}")),
            };
            set(&mut self.units, unit.as_str(), now);
        }
        for unit in &changes.placements {
            let now = snapshot.placement(unit.as_str()).map(|placement| format!("{placement:?}"));
            set(&mut self.placements, unit.as_str(), now);
        }
        for machine in &changes.machines {
            let now = snapshot.machine(machine.as_str()).map(|machine| format!("{machine:?}"));
            set(&mut self.machines, machine.as_str(), now);
        }
        self.seen = snapshot.revision;
    }

    fn catch_up(&mut self, mirror: &Mirror) {
        let news = mirror.delta_since(self.seen);
        self.look_at(&news.snapshot, &news.changes.expect("too few events"));
        let fresh = Self::of(&news.snapshot);
        assert_eq!(self.units, fresh.units);
        assert_eq!(self.machines, fresh.machines);
        assert_eq!(self.placements, fresh.placements);
    }
}

fn set(map: &mut BTreeMap<String, String>, key: &str, value: Option<String>) {
    match value {
        Some(value) => map.insert(key.to_owned(), value),
        None => map.remove(key),
    };
}

/// One reader catches up after each step, another one only sometimes. Some steps cut the mirror's
/// watch, so that the mirror has to read everything again.
async fn play(steps: Vec<(Step, u8)>) {
    let memory = memory();
    let behind = Registry::new(memory.clone(), Layout::DEFAULT_PREFIX);
    let leader = behind.campaign(&id("m-0"), TTL).await.unwrap().unwrap();
    let store = FaultyStore::new(memory);
    let seen = Registry::new(Arc::new(store.clone()), Layout::DEFAULT_PREFIX);
    let mirror = mirror(&seen).await;
    let (mut eager, mut lazy) = (IncrementalCopy::default(), IncrementalCopy::default());
    for (step, chance) in steps {
        let snapshot = caught_up(&mirror, &behind).await;
        if chance % 8 == 0 {
            store.cut_watches();
        }
        take(step, &behind, &leader, &snapshot).await;
        caught_up(&mirror, &behind).await;
        eager.catch_up(&mirror);
        if chance % 3 == 0 {
            lazy.catch_up(&mirror);
        }
    }
    lazy.catch_up(&mirror);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn applying_deltas_gives_the_snapshot(
        steps in vec((step(), any::<u8>()), 1..40),
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(play(steps));
    }
}

#[tokio::test(start_paused = true)]
async fn candidate_is_woken_when_the_leadership_is_vacant() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let (one, other) = (id("m-1"), id("m-2"));
    soon(mirror.wait_until_vacant(&one)).await.unwrap();
    let leader = registry.campaign(&one, TTL).await.unwrap().unwrap();
    soon(mirror.wait_for(leader.elected())).await.unwrap();
    // It may take over its own earlier leadership.
    soon(mirror.wait_until_vacant(&one)).await.unwrap();
    tokio::time::timeout(TTL / 2, mirror.wait_until_vacant(&other)).await.unwrap_err();
    soon(mirror.wait_until_vacant(&other)).await.unwrap(); // the leadership has expired
    // The owner of an unreadable claim is unknown.
    let key = registry.layout().key(&Key::Leader);
    let newer = Transaction::new().put(key.as_str(), br#"{"v":2}"#.to_vec());
    registry.store().commit(newer).await.unwrap();
    let revision = registry.store().read("").await.unwrap().revision;
    soon(mirror.wait_for(revision)).await.unwrap();
    tokio::time::timeout(TTL * 2, mirror.wait_until_vacant(&one)).await.unwrap_err();
    registry.store().commit(Transaction::new().delete(key)).await.unwrap();
    soon(mirror.wait_until_vacant(&one)).await.unwrap();
    mirror.shutdown();
    assert!(soon(mirror.wait_until_vacant(&one)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn delta_is_none_for_a_reader_too_far_behind() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    submit(&registry, "a.service").await;
    let snapshot = soon(mirror.wait_for(Revision(1))).await.unwrap();
    let news = mirror.delta_since(snapshot.revision);
    assert!(news.is_current && news.changes.unwrap().is_empty());
    assert!(mirror.delta_since(Revision(2)).changes.is_none(), "a future revision");
    // A new mirror does not know earlier changes.
    submit(&registry, "b.service").await;
    let late = self::mirror(&registry).await;
    let news = late.delta_since(Revision(1));
    assert!(news.snapshot.units().len() == 2 && news.changes.is_none());
}

#[tokio::test(start_paused = true)]
async fn small_cluster_keeps_a_short_delta_log() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let key = registry.layout().key(&Key::Unit("a.service".parse().unwrap()));
    for number in 1..=4_200 {
        let change =
            Transaction::new().put(key.as_str(), format!("not a unit, {number}").into_bytes());
        registry.store().commit(change).await.unwrap();
        soon(mirror.wait_for(Revision(number))).await.unwrap();
    }
    assert!(mirror.delta_since(Revision(200)).changes.is_some());
    assert!(mirror.delta_since(Revision(100)).changes.is_none(), "more than is kept");
}
