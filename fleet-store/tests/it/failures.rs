//! Counted failures of units: written by the leader, with restarts and moves in the same step.

use std::collections::BTreeMap;

use fleet_core::failures::{FailurePhase, FailureRecord};
use fleet_core::{Epoch, Placement, Snapshot, TargetState, Unit};
use fleet_store::registry::{
    ExpectUnit, Leadership, PlacementWrites, RecordUpdate, SetPlacement, UnitWrite,
};
use fleet_store::{Mirror, Registry, RegistryError};

use crate::support::{TTL, id, mirror, name, registry, soon, unit};

const UNIT: &str = "a.service";

/// A record by which the unit has failed once on m-1.
fn failed_once(unit: &Unit) -> FailureRecord {
    FailureRecord {
        hash: unit.hash(),
        generation: unit.generation,
        machines: BTreeMap::from([(id("m-1"), 1)]),
        total: 1,
        phase: FailurePhase::Restarted { up_since: None },
    }
}

/// Submits a unit, and places it on m-1.
async fn placed_unit(registry: &Registry, mirror: &Mirror) -> (Leadership, Snapshot) {
    let file = "[Service]\nExecStart=/bin/true\n[X-Fleet]\nMoveAfterFailures=1\n";
    let unit = unit(UNIT, file, TargetState::Launched);
    registry.put_unit(unit, ExpectUnit::Any).await.unwrap();
    let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let (machine, epoch) = (id("m-1"), Epoch(5));
    let set = vec![SetPlacement { unit: name(UNIT), machine, epoch, previous: None }];
    let writes = PlacementWrites { set, ..PlacementWrites::default() };
    let revision = leader.commit(&writes).await.unwrap();
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    (leader, Snapshot::clone(&snapshot))
}

#[tokio::test(start_paused = true)]
async fn move_is_one_step_and_gives_machines_to_avoid() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let (leader, snapshot) = placed_unit(&registry, &mirror).await;
    let unit = snapshot.unit(UNIT).unwrap();
    let generation = leader.restarted_generation(unit, &snapshot);
    let next = FailureRecord { generation, ..failed_once(unit) };
    let (name, writes) = (name(UNIT), [UnitWrite::Restart(name(UNIT))]);
    let update = RecordUpdate {
        unit: &name,
        seen: None,
        next: Some(&next),
        writes: &writes,
        snapshot: &snapshot,
    };
    // Nothing is written if the placement is another one.
    let other = Placement { machine: id("m-1"), epoch: Epoch(4) };
    let refused = leader.advance_failures(&update, Some(&other), &mirror).await;
    assert!(matches!(refused, Err(RegistryError::Conflict)), "{refused:?}");
    let placement = snapshot.placement(UNIT);
    let before = mirror.snapshot().revision;
    let revision = leader.advance_failures(&update, placement, &mirror).await.unwrap();
    let moved = soon(mirror.wait_for(revision)).await.unwrap();
    assert_eq!((moved.placement(UNIT), moved.failures_of(UNIT).unwrap().as_ref()), (None, &next));
    let unit = moved.unit(UNIT).unwrap();
    assert_eq!((unit.generation, &unit.requirements.failed_on), (generation, &next.machines));
    let changes = mirror.delta_since(before).changes.unwrap();
    assert!(changes.units.contains(&name) && changes.placements.contains(&name));
    // Another mirror reads the same, and the same leader goes on to place the unit.
    let other = crate::support::mirror(&registry).await.snapshot();
    assert_eq!(other.unit(UNIT).unwrap().requirements, unit.requirements);
    let (machine, epoch) = (id("m-2"), Epoch(revision.0));
    let set = vec![SetPlacement { unit: name.clone(), machine, epoch, previous: None }];
    leader.commit(&PlacementWrites { set, ..PlacementWrites::default() }).await.unwrap();
    // Without a record, the unit avoids no machine.
    let seen = Some(&next);
    let update = RecordUpdate { seen, next: None, writes: &[], snapshot: &moved, unit: &name };
    let revision = leader.advance_failures(&update, None, &mirror).await.unwrap();
    let after = soon(mirror.wait_for(revision)).await.unwrap();
    assert!(after.failures_of(UNIT).is_none());
    assert!(after.unit(UNIT).unwrap().requirements.failed_on.is_empty());
}

#[tokio::test(start_paused = true)]
async fn failures_need_the_leadership_and_the_seen_state() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let (stale, snapshot) = placed_unit(&registry, &mirror).await;
    let next = failed_once(snapshot.unit(UNIT).unwrap());
    let name = name(UNIT);
    let update = RecordUpdate {
        unit: &name,
        seen: None,
        next: Some(&next),
        writes: &[],
        snapshot: &snapshot,
    };
    let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    for removed in [None, snapshot.placement(UNIT)] {
        let late = stale.advance_failures(&update, removed, &mirror).await;
        assert!(matches!(late, Err(RegistryError::Deposed { .. })), "{late:?}");
    }
    leader.advance_failures(&update, None, &mirror).await.unwrap();
    let twice = leader.advance_failures(&update, None, &mirror).await;
    assert!(matches!(twice, Err(RegistryError::Conflict)), "{twice:?}");
    registry.request_restart(&name).await.unwrap();
    let update = RecordUpdate { seen: Some(&next), next: None, ..update };
    let changed = leader.advance_failures(&update, None, &mirror).await;
    assert!(matches!(changed, Err(RegistryError::Conflict)), "{changed:?}");
}
