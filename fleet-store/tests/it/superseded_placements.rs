//! For any stored placements in any order, a mirror shows at most one for each unit.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Epoch, MachineId, Placement};
use fleet_store::registry::{Key, RemovePlacement};
use fleet_store::testing::FaultyStore;
use fleet_store::{Layout, Mirror, Registry, Transaction};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::mirror_resync::caught_up;
use crate::support::{id, mirror, name, registry, submit};

const MACHINES: [&str; 3] = ["m-0", "m-1", "m-2"];
const UNITS: [&str; 2] = ["a.service", "b.service"];

/// A write that bypasses the registry: a placement with an epoch, an unreadable one, or a deletion.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ForeignWrite {
    Epoch(u64),
    Unreadable,
    Delete,
}

/// Writes of one step, by unit and machine.
type Step = Vec<((usize, usize), ForeignWrite)>;

fn step() -> impl Strategy<Value = Step> {
    let written = prop_oneof![
        4 => (0..4u64).prop_map(ForeignWrite::Epoch),
        1 => Just(ForeignWrite::Unreadable),
        3 => Just(ForeignWrite::Delete),
    ];
    vec(((0..UNITS.len(), 0..MACHINES.len()), written), 1..5)
}

/// All stored placements.
#[derive(Default)]
struct Model {
    placements: BTreeMap<(usize, usize), ForeignWrite>,
}

impl Model {
    fn take(&mut self, step: &Step) {
        for (at, written) in step {
            match written {
                ForeignWrite::Delete => drop(self.placements.remove(at)),
                written => drop(self.placements.insert(*at, *written)),
            }
        }
    }

    /// Returns the readable placements of a unit, starting with the one that counts.
    fn of(&self, unit: usize) -> Vec<Placement> {
        let own = self.placements.iter().filter(|((of, _), _)| *of == unit);
        let read = own.filter_map(|((_, machine), written)| match written {
            ForeignWrite::Epoch(epoch) => {
                Some(Placement { machine: id(MACHINES[*machine]), epoch: Epoch(*epoch) })
            }
            _ => None,
        });
        let mut read: Vec<_> = read.collect();
        read.sort_by_key(|it| (Reverse(it.epoch), it.machine.clone()));
        read
    }

    /// Returns the machines with unreadable placements of a unit.
    fn unreadable(&self, unit: usize) -> Vec<MachineId> {
        let own = self.placements.iter().filter(|((of, _), _)| *of == unit);
        let unreadable = own.filter(|(_, written)| **written == ForeignWrite::Unreadable);
        unreadable.map(|((_, machine), _)| id(MACHINES[*machine])).collect()
    }

    /// Compares a mirror with the model. The placement shown for a unit with a fault is not
    /// compared exactly, because it depends on earlier states.
    async fn compare(&self, mirror: &Mirror, registry: &Registry) {
        let snapshot = caught_up(mirror, registry).await;
        let superseded = mirror.superseded_placements();
        for (number, unit) in UNITS.into_iter().enumerate() {
            let unreadable = self.unreadable(number);
            assert_eq!(snapshot.fault(unit).is_none(), unreadable.is_empty(), "{unit}");
            let own = superseded.iter().filter(|own| own.unit == unit).cloned();
            let mut own: Vec<RemovePlacement> = own.collect();
            let mut expected = self.of(number);
            if !unreadable.is_empty() {
                // No placement may be removed, and none counts if another one may.
                assert_eq!(own, [], "{unit}");
                let counts = snapshot.placement(unit).map(|counts| &counts.machine);
                assert!(counts.is_none_or(|it| unreadable.iter().all(|one| one == it)), "{unit}");
                continue;
            }
            assert_eq!(snapshot.placement(unit), expected.first(), "{unit}");
            expected.drain(..expected.len().min(1));
            expected.sort_by_key(|previous| previous.machine.clone());
            own.sort_by_key(|own| own.previous.machine.clone());
            let own: Vec<_> = own.into_iter().map(|own| own.previous).collect();
            assert_eq!(own, expected, "{unit}");
        }
    }
}

async fn write(step: &Step, registry: &Registry) {
    let last: BTreeMap<_, _> = step.iter().copied().collect();
    let write = |all: Transaction, ((unit, machine), written): (&(usize, usize), &ForeignWrite)| {
        let key = Key::Placement(id(MACHINES[*machine]), name(UNITS[*unit]));
        let key = registry.layout().key(&key);
        match written {
            ForeignWrite::Epoch(epoch) => all.put(key, format!(r#"{{"v":2,"epoch":{epoch}}}"#)),
            ForeignWrite::Unreadable => all.put(key, "?"),
            ForeignWrite::Delete => all.delete(key),
        }
    };
    let all = last.iter().fold(Transaction::new(), write);
    registry.store().commit(all).await.unwrap();
}

async fn play(steps: Vec<Step>) {
    let registry = registry();
    for unit in UNITS {
        submit(&registry, unit).await;
    }
    let (followed, mut model) = (mirror(&registry).await, Model::default());
    let link = FaultyStore::new(registry.store().clone());
    let cut = mirror(&Registry::new(Arc::new(link.clone()), Layout::DEFAULT_PREFIX)).await;
    for step in &steps {
        link.cut_watches();
        write(step, &registry).await;
        model.take(step);
        model.compare(&followed, &registry).await;
        model.compare(&cut, &registry).await;
        model.compare(&mirror(&registry).await, &registry).await;
    }
    // No placement may outlive the units.
    for unit in UNITS {
        registry.destroy(&name(unit), &followed).await.unwrap();
    }
    assert_eq!(registry.store().read("/fleet/placements/").await.unwrap().entries, []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn placement_that_counts_is_independent_of_order(
        steps in vec(step(), 1..20)
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(play(steps));
    }
}

/// It is unknown which of the two placements has the higher epoch, so neither machine may stop the
/// unit.
#[tokio::test(start_paused = true)]
async fn placement_does_not_count_beside_an_unreadable_one() {
    let (registry, [a, _]) = (registry(), UNITS);
    submit(&registry, a).await;
    let followed = mirror(&registry).await;
    write(&vec![((0, 0), ForeignWrite::Epoch(1)), ((0, 1), ForeignWrite::Unreadable)], &registry)
        .await;
    for mirror in [followed.clone(), mirror(&registry).await] {
        let snapshot = caught_up(&mirror, &registry).await;
        assert!(snapshot.fault(a).is_some());
        assert_eq!(snapshot.placement(a), None);
        assert_eq!(mirror.superseded_placements(), []);
    }
    write(&vec![((0, 1), ForeignWrite::Delete)], &registry).await;
    let snapshot = caught_up(&followed, &registry).await;
    assert_eq!(snapshot.placement(a).unwrap().machine, id(MACHINES[0]));
    assert!(snapshot.fault(a).is_none());
}

/// An unreadable placement affects only its own unit, whether it exists before the mirror or not.
#[tokio::test(start_paused = true)]
async fn new_mirror_tolerates_an_unreadable_placement() {
    let registry = registry();
    for unit in UNITS {
        submit(&registry, unit).await;
    }
    let follower = mirror(&registry).await;
    write(&vec![((0, 0), ForeignWrite::Unreadable), ((1, 1), ForeignWrite::Epoch(2))], &registry)
        .await;
    for mirror in [follower, mirror(&registry).await] {
        let snapshot = caught_up(&mirror, &registry).await;
        assert!(snapshot.fault(UNITS[0]).is_some() && snapshot.fault(UNITS[1]).is_none());
        let placed = Placement { machine: id(MACHINES[1]), epoch: Epoch(2) };
        assert_eq!(snapshot.placement(UNITS[1]), Some(&placed));
        assert_eq!(snapshot.placements().count(), 1);
    }
}
