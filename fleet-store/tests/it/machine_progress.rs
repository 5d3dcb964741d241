//! A machine's agent is woken only by changes that affect the machine.

use fleet_core::{Epoch, Intent, Revision, TargetState};
use fleet_store::mirror::MachineProgress;
use fleet_store::registry::{
    ExpectUnit, Key, Leadership, MetadataChange, PlacementWrites, SetPlacement,
};
use fleet_store::{Mirror, Registry, Transaction};
use tokio::sync::watch::Receiver;

use crate::support::{TTL, destroy, id, join, mirror, name, registry, soon, submit, unit};

const GLOBAL: &str = "[X-Fleet]\nGlobal=true\n";

/// A cluster with a watch of the machine `m-1`.
struct WatchedMachine {
    registry: Registry,
    leader: Leadership,
    mirror: Mirror,
    concern: Receiver<MachineProgress>,
}

impl WatchedMachine {
    async fn new() -> Self {
        let registry = registry();
        for unit in ["mine.service", "theirs.service", "free.service"] {
            submit(&registry, unit).await;
        }
        let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
        let mirror = mirror(&registry).await;
        let concern = mirror.watch_machine(&id("m-1"));
        let mut watched = Self { registry, leader, mirror, concern };
        watched.place("mine.service", "m-1").await;
        watched.place("theirs.service", "m-2").await;
        watched.was_notified().await;
        watched
    }

    async fn place(&self, unit: &str, machine: &str) {
        let seen = self.caught_up().await;
        let previous = seen.placement(unit).cloned();
        let (unit, machine) = (name(unit), id(machine));
        let place = vec![SetPlacement { unit, machine, epoch: Epoch(seen.revision.0), previous }];
        let writes = PlacementWrites { set: place, ..PlacementWrites::default() };
        self.leader.commit(&writes).await.unwrap();
    }

    async fn caught_up(&self) -> std::sync::Arc<fleet_core::Snapshot> {
        let revision = self.registry.store().read("").await.unwrap().revision;
        soon(self.mirror.wait_for(revision)).await.unwrap()
    }

    /// Waits for the mirror, and returns whether the receiver was notified.
    async fn was_notified(&mut self) -> bool {
        self.caught_up().await;
        let woken = self.concern.has_changed().unwrap();
        self.concern.mark_unchanged();
        woken
    }

    async fn raw(&self, write: Transaction) {
        self.registry.store().commit(write).await.unwrap();
    }

    fn key(&self, key: &Key) -> String {
        self.registry.layout().key(key)
    }
}

// Holds: I-25
#[tokio::test(start_paused = true)]
async fn change_elsewhere_wakes_no_machine() {
    let mut it = WatchedMachine::new().await;
    it.place("free.service", "m-2").await;
    assert!(!it.was_notified().await, "a unit was placed on another machine");
    it.place("theirs.service", "m-3").await;
    assert!(!it.was_notified().await, "a unit moved between other machines");
    submit(&it.registry, "new.service").await;
    assert!(!it.was_notified().await, "a unit was added");
    it.registry.set_desired(&name("theirs.service"), TargetState::Loaded).await.unwrap();
    assert!(!it.was_notified().await, "another machine's unit changed its desired state");
    destroy(&it.registry, "theirs.service").await.unwrap();
    assert!(!it.was_notified().await, "another machine's unit was destroyed");
    let _present = join(&it.registry, "m-2").await;
    it.registry.set_intent(&id("m-2"), Some(Intent::Cordoned)).await.unwrap();
    assert!(!it.was_notified().await, "another machine joined and was cordoned");
}

#[tokio::test(start_paused = true)]
async fn change_affecting_a_machine_wakes_it() {
    let mut it = WatchedMachine::new().await;
    it.place("free.service", "m-1").await;
    assert!(it.was_notified().await, "a unit was added");
    it.registry.set_desired(&name("mine.service"), TargetState::Loaded).await.unwrap();
    assert!(it.was_notified().await, "its unit changed its desired state");
    it.place("mine.service", "m-2").await;
    assert!(it.was_notified().await, "its unit moved away");
    it.place("mine.service", "m-1").await;
    assert!(it.was_notified().await, "its unit came back");
    it.place("mine.service", "m-1").await;
    assert!(it.was_notified().await, "its unit was placed again with a later epoch");
    destroy(&it.registry, "mine.service").await.unwrap();
    assert!(it.was_notified().await, "its unit was destroyed");
    let present = join(&it.registry, "m-1").await;
    assert!(it.was_notified().await, "the machine joined");
    it.registry.set_intent(&id("m-1"), Some(Intent::Cordoned)).await.unwrap();
    assert!(it.was_notified().await, "the machine got an intent");
    let (machine, key, value) = (id("m-1"), "disk".to_owned(), "ssd".to_owned());
    let set = MetadataChange::Set { machine, key, value };
    it.registry.patch_metadata(&[set]).await.unwrap();
    assert!(it.was_notified().await, "its metadata was set");
    present.leave().await.unwrap();
    assert!(it.was_notified().await, "the machine left");
}

#[tokio::test(start_paused = true)]
async fn global_or_unreadable_unit_wakes_every_machine() {
    let mut it = WatchedMachine::new().await;
    let global = |file| unit("global.service", file, TargetState::Launched);
    it.registry.put_unit(global(GLOBAL), ExpectUnit::Any).await.unwrap();
    assert!(it.was_notified().await, "a global unit was added");
    it.registry.put_unit(global("[Service]\n"), ExpectUnit::Any).await.unwrap();
    assert!(it.was_notified().await, "the unit is no longer global");
    let record = it.key(&Key::Unit(name("theirs.service")));
    it.raw(Transaction::new().put(record, "?")).await;
    assert!(it.was_notified().await, "a unit became unreadable");
    it.place("theirs.service", "m-3").await;
    assert!(it.was_notified().await, "an unreadable unit was placed elsewhere");
    submit(&it.registry, "theirs.service").await;
    assert!(it.was_notified().await, "the unit is readable again");
}

/// A placement on another machine can supersede the placement of the same unit on this machine.
#[tokio::test(start_paused = true)]
async fn machine_with_superseded_placement_is_woken() {
    let mut it = WatchedMachine::new().await;
    let other = it.key(&Key::Placement(id("m-3"), name("mine.service")));
    it.raw(Transaction::new().put(&other, r#"{"v":2,"epoch":1}"#)).await;
    assert!(!it.was_notified().await, "a superseded placement elsewhere");
    it.raw(Transaction::new().put(&other, r#"{"v":2,"epoch":99}"#)).await;
    assert!(it.was_notified().await, "the other placement counts now");
    it.raw(Transaction::new().delete(&other)).await;
    assert!(it.was_notified().await, "its own placement counts again");
}

#[tokio::test(start_paused = true)]
async fn gap_wakes_every_machine() {
    let store = fleet_store::testing::FaultyStore::new(crate::support::memory());
    let registry = Registry::new(std::sync::Arc::new(store.clone()), "/fleet/");
    let mirror = mirror(&registry).await;
    let mut concern = mirror.watch_machine(&id("m-1"));
    assert_eq!(*concern.borrow(), MachineProgress { revision: Revision::ZERO, is_current: true });
    store.set_unreachable(true);
    soon(concern.wait_for(|concern| !concern.is_current)).await.unwrap();
    store.set_unreachable(false);
    submit(&registry, "theirs.service").await;
    let again = *soon(concern.wait_for(|concern| concern.is_current)).await.unwrap();
    assert_eq!(again.revision, mirror.snapshot().revision);
    mirror.shutdown();
    soon(concern.wait_for(|concern| concern.revision > Revision(99))).await.unwrap_err();
    assert!(mirror.watch_machine(&id("m-1")).changed().await.is_err(), "the channel is closed");
}
