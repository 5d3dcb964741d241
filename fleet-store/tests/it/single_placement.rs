//! A unit never gets two placements, for any writes based on any outdated state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{Epoch, Generation, MachineId, Placement, Snapshot, TargetState};
use fleet_store::registry::{
    AdoptedUnit, Key, Leadership, PlacementWrites, RemovePlacement, SetPlacement,
};
use fleet_store::testing::FaultyStore;
use fleet_store::{Layout, Mirror, Registry, RegistryError, StoreError};
use fleet_unitfile::UnitName;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{TTL, id, memory, mirror, name, registry, soon, submit, unit};

const MACHINES: [&str; 3] = ["m-0", "m-1", "m-2"];
const UNITS: [&str; 2] = ["a.service", "b.service"];
const FILE: &str = "[Service]\nExecStart=/bin/true\n";

/// An operation of a writer. `view` is the age of the state on which the operation is based: the
/// number of later observations.
#[derive(Debug, Clone)]
enum Step {
    Look,
    Campaign {
        candidate: usize,
    },
    Place {
        leader: usize,
        view: usize,
        unit: usize,
        machine: usize,
    },
    RemovePlacement {
        leader: usize,
        view: usize,
        unit: usize,
    },
    Adopt {
        leader: usize,
        unit: usize,
        machine: usize,
    },
    Submit {
        unit: usize,
    },
    Destroy {
        view: usize,
        unit: usize,
    },
    /// Imports a cluster whose machines remember later epochs.
    Raise,
}

fn step() -> impl Strategy<Value = Step> {
    let (unit, machine) = (0..UNITS.len(), 0..MACHINES.len());
    let (leader, view) = (0..3usize, prop_oneof![3 => Just(0usize), 1 => 1..4usize]);
    prop_oneof![
        3 => Just(Step::Look),
        1 => (0..2usize).prop_map(|candidate| Step::Campaign { candidate }),
        5 => (leader.clone(), view.clone(), unit.clone(), machine.clone())
            .prop_map(|(leader, view, unit, machine)| Step::Place { leader, view, unit, machine }),
        1 => (leader.clone(), view.clone(), unit.clone())
            .prop_map(|(leader, view, unit)| Step::RemovePlacement { leader, view, unit }),
        2 => (leader, unit.clone(), machine)
            .prop_map(|(leader, unit, machine)| Step::Adopt { leader, unit, machine }),
        2 => unit.clone().prop_map(|unit| Step::Submit { unit }),
        2 => (view, unit).prop_map(|(view, unit)| Step::Destroy { view, unit }),
        1 => Just(Step::Raise),
    ]
}

/// All writers.
struct Writers {
    registry: Registry,
    /// Leaders, latest last. Earlier ones do not know that they were replaced.
    leaders: Vec<Leadership>,
    /// Observed states, latest last, as mirrors that no longer follow.
    views: Vec<Mirror>,
}

impl Writers {
    async fn new() -> Self {
        let mut writers = Self { registry: registry(), leaders: vec![], views: vec![] };
        writers.registry.lineage(&"first".parse().unwrap()).await.unwrap();
        writers.take(&Step::Campaign { candidate: 0 }).await;
        writers.take(&Step::Look).await;
        writers
    }

    fn leader(&self, back: usize) -> &Leadership {
        &self.leaders[self.leaders.len().saturating_sub(1 + back)]
    }

    fn view(&self, back: usize) -> &Mirror {
        &self.views[self.views.len().saturating_sub(1 + back)]
    }

    async fn take(&mut self, step: &Step) {
        match *step {
            Step::Look => {
                let mirror = mirror(&self.registry).await;
                mirror.shutdown();
                self.views.push(mirror);
            }
            Step::Campaign { candidate } => {
                if let Some(before) = self.leaders.last() {
                    // The leadership has expired, but the leader does not know.
                    tokio::time::advance(TTL * 2).await;
                    assert!(before.renew().await.is_err());
                }
                let candidate = id(MACHINES[candidate]);
                self.leaders.extend(self.registry.campaign(&candidate, TTL).await.unwrap());
            }
            Step::Place { leader, view, unit, machine } => {
                let (seen, unit) = (self.view(view).snapshot(), name(UNITS[unit]));
                let previous = seen.placement(unit.as_str()).cloned();
                let (machine, epoch) = (id(MACHINES[machine]), Epoch(seen.revision.0));
                let place = vec![SetPlacement { unit, machine, epoch, previous }];
                let writes = PlacementWrites { set: place, ..PlacementWrites::default() };
                drop(self.leader(leader).commit(&writes).await);
            }
            Step::RemovePlacement { leader, view, unit } => {
                let previous = self.view(view).snapshot().placement(UNITS[unit]).cloned();
                let unit = name(UNITS[unit]);
                let unplace = previous
                    .map(|previous| RemovePlacement { unit, previous })
                    .into_iter()
                    .collect();
                let writes = PlacementWrites { remove: unplace, ..PlacementWrites::default() };
                drop(self.leader(leader).commit(&writes).await);
            }
            Step::Adopt { leader, unit, machine } => {
                let unit = self::unit(UNITS[unit], FILE, TargetState::Launched);
                let machine = Some(id(MACHINES[machine]));
                let adopted = AdoptedUnit { unit, generation: Generation::ZERO, machine };
                drop(self.leader(leader).adopt(&[adopted]).await);
            }
            Step::Submit { unit } => submit(&self.registry, UNITS[unit]).await,
            Step::Destroy { view, unit } => {
                drop(self.registry.destroy(&name(UNITS[unit]), self.view(view)).await);
            }
            Step::Raise => {
                let past = self.registry.export().await.unwrap().max_epoch;
                self.registry.raise_epochs(past).await.unwrap();
            }
        }
    }
}

/// Returns the stored placements by unit.
async fn stored(registry: &Registry) -> BTreeMap<UnitName, Vec<MachineId>> {
    let mut stored: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for entry in registry.store().read("/fleet/placements/").await.unwrap().entries {
        let Some(Key::Placement(machine, unit)) = registry.layout().parse(&entry.key) else {
            panic!("{} is no placement", entry.key);
        };
        stored.entry(unit).or_default().push(machine);
    }
    stored
}

/// State remembered by machines: the latest epoch and generation of each unit, and the highest
/// epoch.
#[derive(Default)]
struct MachineMemory {
    orders: BTreeMap<UnitName, Placement>,
    raised: Epoch,
}

impl MachineMemory {
    /// Checks that each changed placement has a later epoch, even if the unit was destroyed
    /// meanwhile.
    fn compare(&mut self, cluster: &Snapshot) {
        for (unit, now) in cluster.placements() {
            let before = self.orders.insert(unit.clone(), now.clone());
            if before.as_ref() != Some(now) {
                let is_later = before.as_ref().is_none_or(|before| before.epoch < now.epoch);
                assert!(is_later && self.raised < now.epoch, "{unit}: {before:?}, then {now:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    // Holds: I-1, I-2
    #[test]
    fn unit_never_has_two_placements(steps in vec(step(), 1..40)) {
        let play = async {
            let (mut writers, mut remembered) = (Writers::new().await, MachineMemory::default());
            for step in &steps {
                let before = writers.registry.export().await.unwrap().max_epoch;
                writers.take(step).await;
                if let Step::Raise = step {
                    remembered.raised = before;
                }
                let stored = stored(&writers.registry).await;
                assert!(stored.values().all(|machines| machines.len() == 1), "{stored:?}");
                remembered.compare(&writers.registry.export().await.unwrap().snapshot);
            }
        };
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(play);
    }
}

#[tokio::test(start_paused = true)]
async fn decision_placing_a_unit_twice_is_refused() {
    let registry = registry();
    submit(&registry, UNITS[0]).await;
    let leader = registry.campaign(&id("m-0"), TTL).await.unwrap().unwrap();
    let epoch = Epoch(leader.elected().0);
    let place = |machine| SetPlacement {
        unit: name(UNITS[0]),
        machine: id(machine),
        epoch,
        previous: None,
    };
    let place = vec![place("m-1"), place("m-2")];
    let twice = leader.commit(&PlacementWrites { set: place, ..PlacementWrites::default() }).await;
    assert!(matches!(twice, Err(RegistryError::Store(StoreError::Invalid(_)))), "{twice:?}");
    assert!(stored(&registry).await.is_empty());
}

/// Otherwise a machine that remembers the earlier unit would ignore the new one.
#[tokio::test(start_paused = true)]
async fn adopted_placements_are_later_than_placed_ones() {
    let mut writers = Writers::new().await;
    let mut remembered = MachineMemory::default();
    for step in [
        Step::Submit { unit: 0 },
        Step::Look,
        Step::Place { leader: 0, view: 0, unit: 0, machine: 0 },
        Step::Look,
        Step::Destroy { view: 0, unit: 0 },
        Step::Adopt { leader: 0, unit: 0, machine: 1 },
    ] {
        writers.take(&step).await;
        remembered.compare(&writers.registry.export().await.unwrap().snapshot);
    }
    assert_eq!(remembered.orders[&name(UNITS[0])].machine, id(MACHINES[1]));
}

/// A cluster, and a mirror of it that can be delayed.
struct LaggingMirror {
    registry: Registry,
    leader: Leadership,
    link: FaultyStore,
    mirror: Mirror,
}

impl LaggingMirror {
    async fn new() -> Self {
        let link = FaultyStore::new(memory());
        let slow = Registry::new(Arc::new(link.clone()), Layout::DEFAULT_PREFIX);
        // The same cluster without the delay.
        let registry = Registry::new(link.inner(), Layout::DEFAULT_PREFIX);
        submit(&registry, UNITS[0]).await;
        let leader = registry.campaign(&id("m-0"), TTL).await.unwrap().unwrap();
        let mirror = mirror(&slow).await;
        Self { registry, leader, link, mirror }
    }

    async fn see(&self) -> Arc<Snapshot> {
        let revision = self.registry.store().read("").await.unwrap().revision;
        soon(self.mirror.wait_for(revision)).await.unwrap()
    }

    /// Places the unit with a current mirror.
    async fn place(&self, machine: &str) {
        let seen = self.registry.export().await.unwrap().snapshot;
        let previous = seen.placement(UNITS[0]).cloned();
        let (machine, epoch) = (id(machine), Epoch(seen.revision.0));
        let place = vec![SetPlacement { unit: name(UNITS[0]), machine, epoch, previous }];
        let writes = PlacementWrites { set: place, ..PlacementWrites::default() };
        self.leader.commit(&writes).await.unwrap();
    }

    async fn destroy(&self) {
        self.registry.destroy(&name(UNITS[0]), &self.mirror).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn destroy_with_a_current_mirror_needs_no_read() {
    for place in [None, Some("m-1")] {
        let cluster = LaggingMirror::new().await;
        if let Some(machine) = place {
            cluster.place(machine).await;
        }
        cluster.see().await;
        let seeing = Registry::new(Arc::new(cluster.link.clone()), Layout::DEFAULT_PREFIX);
        let (reads, commits) = (cluster.link.reads(), cluster.link.commits());
        seeing.destroy(&name(UNITS[0]), &cluster.mirror).await.unwrap();
        assert_eq!((cluster.link.reads(), cluster.link.commits()), (reads, commits + 1));
        assert!(stored(&cluster.registry).await.is_empty());
    }
}

// Holds: I-7
#[tokio::test(start_paused = true)]
async fn unit_placed_while_destroyed_leaves_nothing() {
    for places in [&["m-1"][..], &["m-1", "m-2"]] {
        let cluster = LaggingMirror::new().await;
        let (unseen, seen) = places.split_last().unwrap();
        for machine in seen {
            cluster.place(machine).await;
        }
        cluster.see().await;
        cluster.link.set_delay(Duration::from_millis(100));
        cluster.place(unseen).await;
        cluster.destroy().await;
        assert!(stored(&cluster.registry).await.is_empty(), "{places:?}");
    }
}

// Holds: I-7
#[tokio::test(start_paused = true)]
async fn recreated_unit_leaves_nothing_when_destroyed() {
    let cluster = LaggingMirror::new().await;
    cluster.place("m-1").await;
    cluster.see().await;
    cluster.link.set_delay(Duration::from_millis(100));
    crate::support::destroy(&cluster.registry, UNITS[0]).await.unwrap();
    submit(&cluster.registry, UNITS[0]).await;
    cluster.place("m-2").await;
    cluster.destroy().await;
    assert!(stored(&cluster.registry).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn destroy_with_a_lost_response_is_atomic() {
    for happened in [true, false] {
        let cluster = LaggingMirror::new().await;
        cluster.place("m-1").await;
        cluster.see().await;
        let broken = Registry::new(Arc::new(cluster.link.clone()), Layout::DEFAULT_PREFIX);
        match happened {
            true => cluster.link.lose_responses(1),
            false => cluster.link.lose_requests(1),
        }
        let unknown = broken.destroy(&name(UNITS[0]), &cluster.mirror).await;
        assert!(matches!(unknown, Err(RegistryError::Store(StoreError::Unknown(_)))));
        assert_eq!(stored(&cluster.registry).await.is_empty(), happened);
        let again = broken.destroy(&name(UNITS[0]), &cluster.mirror).await;
        assert_eq!(matches!(again, Err(RegistryError::NotFound { .. })), happened, "{again:?}");
        assert!(stored(&cluster.registry).await.is_empty());
    }
}

/// The unit is destroyed as requested, and an engine removes the remaining placement.
#[tokio::test(start_paused = true)]
async fn destroy_works_with_a_lagging_mirror() {
    let cluster = LaggingMirror::new().await;
    cluster.see().await;
    cluster.link.set_unreachable(true);
    cluster.place("m-1").await;
    cluster.destroy().await;
    let left = cluster.registry.export().await.unwrap().snapshot;
    assert!(left.unit(UNITS[0]).is_none());
    assert_eq!(left.placement(UNITS[0]).unwrap().machine, id("m-1"));
    let again = cluster.registry.destroy(&name(UNITS[0]), &cluster.mirror).await;
    assert!(matches!(again, Err(RegistryError::NotFound { .. })), "{again:?}");
}
