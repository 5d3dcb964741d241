//! A mirror that followed all changes equals one that reads the final state, after any writes.

use fleet_core::rebalancing::RebalanceLimits;
use fleet_core::{Epoch, Intent, Placement, Reason, Snapshot, TargetState, UnitState};
use fleet_store::registry::{
    ContentId, ExpectUnit, Key, Leadership, MetadataChange, PlacementWrites, RemovePlacement,
    SetPlacement,
};
use fleet_store::{Mirror, Registry, Transaction};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{TTL, destroy, id, join, mirror, name, registry, soon, state, unit};

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Put {
        unit: usize,
        file: usize,
    },
    Destroy {
        unit: usize,
    },
    Desire {
        unit: usize,
        desired: usize,
    },
    Restart {
        unit: usize,
    },
    Place {
        unit: usize,
        machine: usize,
    },
    RemovePlacement {
        unit: usize,
    },
    Explain {
        unit: usize,
    },
    /// The machine reports a state of a unit.
    Report {
        unit: usize,
        machine: usize,
    },
    Join {
        machine: usize,
    },
    Leave {
        machine: usize,
    },
    Metadata {
        machine: usize,
        key: usize,
        value: usize,
    },
    Intend {
        machine: usize,
        intent: usize,
    },
    /// A rebalancing request; `None` ends it.
    Rebalance {
        at_once: u32,
    },
    /// A value that this version cannot read.
    WriteUnreadable {
        key: usize,
        unit: usize,
        bytes: Vec<u8>,
    },
    Erase {
        key: usize,
        unit: usize,
    },
}

const FILES: [&str; 6] = [
    "[Service]\nExecStart=/bin/true\n",
    "[X-Fleet]\nGlobal=true\n",
    "[X-Fleet]\nConflicts=u*.service\n[Unit]\nDescription=x\n",
    "[X-Fleet]\nMachineID=a\nMachineID=b\n",
    "[X-Fleet]\nMachineOf=u0.service\n",
    "[X-Fleet]\nConflicts=%p-*\n",
];
const MACHINES: [&str; 2] = ["m-0", "m-1"];
const INTENTS: [Option<Intent>; 3] =
    [None, Some(Intent::Cordoned), Some(Intent::Drained { min_available: 2 })];
const VALUES: [&str; 3] = ["", "x", "y"];

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let (unit, machine) = (0..3usize, 0..2usize);
    let bytes = prop_oneof![
        vec(any::<u8>(), 0..8),
        Just(b"{\"v\":1}".to_vec()),
        Just(b"{\"v\":2,\"x\":[1]}".to_vec()),
        Just(FILES[0].as_bytes().to_vec()),
    ];
    prop_oneof![
        4 => (unit.clone(), 0..6usize).prop_map(|(unit, file)| Step::Put { unit, file }),
        1 => unit.clone().prop_map(|unit| Step::Destroy { unit }),
        1 => (unit.clone(), 0..3usize).prop_map(|(unit, desired)| Step::Desire { unit, desired }),
        1 => unit.clone().prop_map(|unit| Step::Restart { unit }),
        2 => (unit.clone(), machine.clone())
            .prop_map(|(unit, machine)| Step::Place { unit, machine }),
        1 => unit.clone().prop_map(|unit| Step::RemovePlacement { unit }),
        1 => unit.clone().prop_map(|unit| Step::Explain { unit }),
        2 => (unit.clone(), machine.clone())
            .prop_map(|(unit, machine)| Step::Report { unit, machine }),
        1 => machine.clone().prop_map(|machine| Step::Join { machine }),
        1 => machine.clone().prop_map(|machine| Step::Leave { machine }),
        1 => (machine.clone(), 0..3usize)
            .prop_map(|(machine, intent)| Step::Intend { machine, intent }),
        2 => (machine, 0..2usize, 0..3usize)
            .prop_map(|(machine, key, value)| Step::Metadata { machine, key, value }),
        1 => (0..3u32).prop_map(|at_once| Step::Rebalance { at_once }),
        3 => (0..5usize, unit.clone(), bytes)
            .prop_map(|(key, unit, bytes)| Step::WriteUnreadable { key, unit, bytes }),
        1 => (0..5usize, unit).prop_map(|(key, unit)| Step::Erase { key, unit }),
    ]
}

fn unit_name(unit: usize) -> String {
    format!("u{unit}.service")
}

/// Returns a key of a kind for which an unreadable value has the same effect with and without a
/// known earlier value.
fn key(kind: usize, unit: usize) -> Key {
    let unit_name = name(&unit_name(unit));
    match kind {
        0 => Key::Unit(unit_name),
        1 => Key::Content(ContentId::of(FILES[unit].as_bytes())),
        2 => Key::Reason(unit_name),
        4 => Key::Rebalancing,
        _ => Key::State(id(MACHINES[0]), unit_name),
    }
}

pub(crate) async fn take(step: Step, registry: &Registry, leader: &Leadership, seen: &Snapshot) {
    let write = |writes: PlacementWrites| async move {
        drop(leader.commit(&writes).await);
    };
    match step {
        Step::Put { unit, file } => {
            let unit = self::unit(&unit_name(unit), FILES[file], TargetState::Loaded);
            // A record of a newer format is not overwritten.
            drop(registry.put_unit(unit, ExpectUnit::Any).await);
        }
        Step::Destroy { unit } => drop(destroy(registry, &unit_name(unit)).await),
        Step::Desire { unit, desired } => {
            let desired = TargetState::ALL[desired];
            drop(registry.set_desired(&name(&unit_name(unit)), desired).await);
        }
        Step::Restart { unit } => drop(registry.request_restart(&name(&unit_name(unit))).await),
        Step::Place { unit, machine } => {
            let unit = name(&unit_name(unit));
            let previous: Option<Placement> = seen.placement(unit.as_str()).cloned();
            let (machine, epoch) = (id(MACHINES[machine]), Epoch(seen.revision.0));
            let place = vec![SetPlacement { unit, machine, epoch, previous }];
            write(PlacementWrites { set: place, ..PlacementWrites::default() }).await;
        }
        Step::RemovePlacement { unit } => {
            let unit = name(&unit_name(unit));
            let previous = seen.placement(unit.as_str()).cloned();
            let unplace =
                previous.map(|previous| RemovePlacement { unit, previous }).into_iter().collect();
            write(PlacementWrites { remove: unplace, ..PlacementWrites::default() }).await;
        }
        Step::Explain { unit } => {
            let reasons = vec![(name(&unit_name(unit)), Some(Reason::NoMachines))];
            write(PlacementWrites { reasons, ..PlacementWrites::default() }).await;
        }
        Step::Report { unit, machine } => {
            let machine = MACHINES[machine];
            let state = UnitState { machine: id(machine), ..state(&unit_name(unit), "failed") };
            join(registry, machine).await.publish_states(&[state], &[]).await.unwrap();
        }
        Step::Join { machine } => drop(join(registry, MACHINES[machine]).await),
        Step::Leave { machine } => {
            join(registry, MACHINES[machine]).await.leave().await.unwrap();
        }
        Step::Metadata { machine, key, value } => {
            let (key, value) = (["region", "disk"][key].to_owned(), VALUES[value].to_owned());
            let set = MetadataChange::Set { machine: id(MACHINES[machine]), key, value };
            registry.patch_metadata(&[set]).await.unwrap();
        }
        Step::Intend { machine, intent } => {
            let machine = id(MACHINES[machine]);
            registry.set_intent(&machine, INTENTS[intent]).await.unwrap();
        }
        Step::Rebalance { at_once: 0 } => drop(registry.end_rebalancing().await.unwrap()),
        Step::Rebalance { at_once } => {
            let limits = RebalanceLimits { max_in_flight: at_once, ..RebalanceLimits::default() };
            registry.request_rebalancing(limits).await.unwrap();
        }
        Step::WriteUnreadable { key, unit, bytes } => {
            let put = Transaction::new().put(registry.layout().key(&self::key(key, unit)), bytes);
            registry.store().commit(put).await.unwrap();
        }
        Step::Erase { key, unit } => {
            let key = registry.layout().key(&self::key(key, unit));
            registry.store().commit(Transaction::new().delete(key)).await.unwrap();
        }
    }
}

pub(crate) async fn caught_up(mirror: &Mirror, registry: &Registry) -> Snapshot {
    let revision = registry.store().read("").await.unwrap().revision;
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    Snapshot::clone(&snapshot)
}

async fn play(steps: Vec<Step>) {
    let registry = registry();
    let leader = registry.campaign(&id("m-0"), TTL).await.unwrap().unwrap();
    let followed = mirror(&registry).await;
    for step in steps {
        let seen = caught_up(&followed, &registry).await;
        take(step, &registry, &leader, &seen).await;
        let (followed, fresh) = (caught_up(&followed, &registry).await, mirror(&registry).await);
        let fresh = caught_up(&fresh, &registry).await;
        assert_eq!(format!("{followed:#?}"), format!("{fresh:#?}"));
    }
    let unused = followed.unused_contents();
    assert_eq!(unused, mirror(&registry).await.unused_contents());
    // Collecting them has no visible effect.
    let before = caught_up(&followed, &registry).await;
    assert_eq!(registry.collect_contents(&unused).await.unwrap(), unused.len());
    let mut after = caught_up(&followed, &registry).await;
    after.revision = before.revision;
    assert_eq!(format!("{before:#?}"), format!("{after:#?}"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn followed_and_fresh_mirrors_are_equal(steps in vec(step(), 1..25)) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(play(steps));
    }
}
