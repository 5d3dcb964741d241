//! What a mirror makes of placements that are stored in any number and order: one for each unit.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Epoch, MachineId, Placement};
use fleet_store::testing::FaultyStore;
use fleet_store::{Key, Layout, Mirror, Registry, RemovePlacement, Transaction};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::mirror_resync::caught_up;
use crate::support::{id, mirror, name, registry, submit};

const MACHINES: [&str; 3] = ["m-0", "m-1", "m-2"];
const UNITS: [&str; 2] = ["a.service", "b.service"];

/// What somebody writes who is no registry: a placement of an epoch, one that nobody understands,
/// or that it is gone.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Wrote {
    Epoch(u64),
    Nonsense,
    Nothing,
}

/// Some writes in one step, by unit and machine.
type Step = Vec<((usize, usize), Wrote)>;

fn step() -> impl Strategy<Value = Step> {
    let wrote = prop_oneof![
        4 => (0..4u64).prop_map(Wrote::Epoch),
        1 => Just(Wrote::Nonsense),
        3 => Just(Wrote::Nothing),
    ];
    vec(((0..UNITS.len(), 0..MACHINES.len()), wrote), 1..5)
}

/// All that is stored.
#[derive(Default)]
struct Twin {
    placements: BTreeMap<(usize, usize), Wrote>,
}

impl Twin {
    fn take(&mut self, step: &Step) {
        for (at, wrote) in step {
            match wrote {
                Wrote::Nothing => drop(self.placements.remove(at)),
                wrote => drop(self.placements.insert(*at, *wrote)),
            }
        }
    }

    /// The placements of a unit that can be understood, the one that counts first.
    fn of(&self, unit: usize) -> Vec<Placement> {
        let own = self.placements.iter().filter(|((of, _), _)| *of == unit);
        let read = own.filter_map(|((_, machine), wrote)| match wrote {
            Wrote::Epoch(epoch) => {
                Some(Placement { machine: id(MACHINES[*machine]), epoch: Epoch(*epoch) })
            }
            _ => None,
        });
        let mut read: Vec<_> = read.collect();
        read.sort_by_key(|it| (Reverse(it.epoch), it.machine.clone()));
        read
    }

    /// The machines of the placements of a unit that nobody understands.
    fn unreadable(&self, unit: usize) -> Vec<MachineId> {
        let own = self.placements.iter().filter(|((of, _), _)| *of == unit);
        let unreadable = own.filter(|(_, wrote)| **wrote == Wrote::Nonsense);
        unreadable.map(|((_, machine), _)| id(MACHINES[*machine])).collect()
    }

    /// Whether a mirror shows this; of a faulty unit, what it shows depends on what was before.
    async fn compare(&self, mirror: &Mirror, registry: &Registry) {
        let snapshot = caught_up(mirror, registry).await;
        let strays = mirror.superseded_placements();
        for (number, unit) in UNITS.into_iter().enumerate() {
            let unreadable = self.unreadable(number);
            assert_eq!(snapshot.fault(unit).is_none(), unreadable.is_empty(), "{unit}");
            let stray = strays.iter().filter(|stray| stray.unit == unit).cloned();
            let mut stray: Vec<RemovePlacement> = stray.collect();
            let mut expected = self.of(number);
            if !unreadable.is_empty() {
                // At least nothing is to be taken away, and none counts where another one may.
                assert_eq!(stray, [], "{unit}");
                let counts = snapshot.placement(unit).map(|counts| &counts.machine);
                assert!(counts.is_none_or(|it| unreadable.iter().all(|one| one == it)), "{unit}");
                continue;
            }
            assert_eq!(snapshot.placement(unit), expected.first(), "{unit}");
            expected.drain(..expected.len().min(1));
            expected.sort_by_key(|previous| previous.machine.clone());
            stray.sort_by_key(|stray| stray.previous.machine.clone());
            let stray: Vec<_> = stray.into_iter().map(|stray| stray.previous).collect();
            assert_eq!(stray, expected, "{unit}");
        }
    }
}

async fn write(step: &Step, registry: &Registry) {
    let last: BTreeMap<_, _> = step.iter().copied().collect();
    let write = |all: Transaction, ((unit, machine), wrote): (&(usize, usize), &Wrote)| {
        let key = Key::Placement(id(MACHINES[*machine]), name(UNITS[*unit]));
        let key = registry.layout().key(&key);
        match wrote {
            Wrote::Epoch(epoch) => all.put(key, format!(r#"{{"v":2,"epoch":{epoch}}}"#)),
            Wrote::Nonsense => all.put(key, "?"),
            Wrote::Nothing => all.delete(key),
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
    let (followed, mut twin) = (mirror(&registry).await, Twin::default());
    let link = FaultyStore::new(registry.store().clone());
    let cut = mirror(&Registry::new(Arc::new(link.clone()), Layout::DEFAULT_PREFIX)).await;
    for step in &steps {
        link.cut_watches();
        write(step, &registry).await;
        twin.take(step);
        twin.compare(&followed, &registry).await;
        twin.compare(&cut, &registry).await;
        twin.compare(&mirror(&registry).await, &registry).await;
    }
    // Whatever it was, nothing of it outlives the units.
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

/// Nobody knows which of the two is the later one, so neither machine may be told to stop the unit.
#[tokio::test(start_paused = true)]
async fn placement_does_not_count_beside_an_unreadable_one() {
    let (registry, [a, _]) = (registry(), UNITS);
    submit(&registry, a).await;
    let followed = mirror(&registry).await;
    write(&vec![((0, 0), Wrote::Epoch(1)), ((0, 1), Wrote::Nonsense)], &registry).await;
    for mirror in [followed.clone(), mirror(&registry).await] {
        let snapshot = caught_up(&mirror, &registry).await;
        assert!(snapshot.fault(a).is_some());
        assert_eq!(snapshot.placement(a), None);
        assert_eq!(mirror.superseded_placements(), []);
    }
    write(&vec![((0, 1), Wrote::Nothing)], &registry).await;
    let snapshot = caught_up(&followed, &registry).await;
    assert_eq!(snapshot.placement(a).unwrap().machine, id(MACHINES[0]));
    assert!(snapshot.fault(a).is_none());
}

/// One that nobody understands harms its own unit, be it there before a mirror is or come later.
#[tokio::test(start_paused = true)]
async fn new_mirror_tolerates_an_unreadable_placement() {
    let registry = registry();
    for unit in UNITS {
        submit(&registry, unit).await;
    }
    let follower = mirror(&registry).await;
    write(&vec![((0, 0), Wrote::Nonsense), ((1, 1), Wrote::Epoch(2))], &registry).await;
    for mirror in [follower, mirror(&registry).await] {
        let snapshot = caught_up(&mirror, &registry).await;
        assert!(snapshot.fault(UNITS[0]).is_some() && snapshot.fault(UNITS[1]).is_none());
        let placed = Placement { machine: id(MACHINES[1]), epoch: Epoch(2) };
        assert_eq!(snapshot.placement(UNITS[1]), Some(&placed));
        assert_eq!(snapshot.placements().count(), 1);
    }
}
