//! One engine at a time, and only its writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::reason::{NearestMachine, Tally};
use fleet_core::refusal::Rule;
use fleet_core::{Epoch, MachineId, Placement, Reason, Refusal, Resource, Term};
use fleet_store::registry::{Key, Leadership, PlacementWrites, RemovePlacement, SetPlacement};
use fleet_store::testing::FaultyStore;
use fleet_store::{Commit, Layout, Registry, RegistryError, StoreError, Transaction};
use fleet_unitfile::UnitName;

use crate::support::{TTL, destroy, id, memory, mirror, name, registry, soon, submit};

async fn lead(registry: &Registry, machine: &str) -> Leadership {
    registry.campaign(&id(machine), TTL).await.unwrap().expect("no other leader")
}

fn placed(machine: &str, epoch: u64) -> Placement {
    Placement { machine: id(machine), epoch: Epoch(epoch) }
}

fn place(unit: &str, to: Placement, previous: Option<Placement>) -> PlacementWrites {
    let place = SetPlacement { unit: name(unit), machine: to.machine, epoch: to.epoch, previous };
    PlacementWrites { set: vec![place], ..PlacementWrites::default() }
}

fn unplace(unit: &str, previous: Placement) -> PlacementWrites {
    let unplace = RemovePlacement { unit: name(unit), previous };
    PlacementWrites { remove: vec![unplace], ..PlacementWrites::default() }
}

fn reason(unit: &str, reason: Option<Reason>) -> PlacementWrites {
    PlacementWrites { reasons: vec![(name(unit), reason)], ..PlacementWrites::default() }
}

// Holds: I-3
#[tokio::test(start_paused = true)]
async fn leaders_are_exclusive_with_rising_terms() {
    let registry = registry();
    let first = lead(&registry, "m-1").await;
    assert_eq!(first.term(), Term(1));
    assert!(registry.campaign(&id("m-2"), TTL).await.unwrap().is_none());
    first.renew().await.unwrap();
    first.resign().await.unwrap();
    let second = lead(&registry, "m-2").await;
    assert_eq!(second.term(), Term(2));
    assert_eq!(second.elected(), registry.store().read("").await.unwrap().revision);
}

#[tokio::test(start_paused = true)]
async fn restarted_engine_leads_immediately() {
    let registry = registry();
    submit(&registry, "a.service").await;
    let before = lead(&registry, "m-1").await;
    let leader = lead(&registry, "m-1").await;
    assert_eq!(leader.term(), Term(2));
    let late = before.commit(&place("a.service", placed("m-1", 1), None)).await;
    assert!(matches!(late, Err(RegistryError::Deposed { term: Term(1) })));
    assert!(matches!(before.renew().await, Err(RegistryError::Deposed { .. })));
    leader.commit(&place("a.service", placed("m-1", 1), None)).await.unwrap();
    leader.renew().await.unwrap();
}

// Holds: I-3
#[tokio::test(start_paused = true)]
async fn expired_leader_is_replaced_and_cannot_write() {
    let registry = registry();
    submit(&registry, "a.service").await;
    let stale = lead(&registry, "m-1").await;
    tokio::time::advance(TTL * 2).await;
    let deposed = |result: Result<(), RegistryError>| {
        assert!(matches!(result, Err(RegistryError::Deposed { term: Term(1) })), "{result:?}");
    };
    deposed(stale.renew().await);
    // Before and after another election.
    deposed(stale.commit(&place("a.service", placed("m-1", 1), None)).await.map(drop));
    let leader = lead(&registry, "m-2").await;
    deposed(stale.commit(&place("a.service", placed("m-1", 1), None)).await.map(drop));
    leader.commit(&place("a.service", placed("m-2", 2), None)).await.unwrap();
    deposed(stale.commit(&unplace("a.service", placed("m-2", 2))).await.map(drop));
    deposed(stale.commit(&reason("a.service", Some(Reason::NoMachines))).await.map(drop));
    // The old leader resigns late; that must not end the new leadership.
    stale.resign().await.unwrap();
    leader.renew().await.unwrap();
    leader.commit(&unplace("a.service", placed("m-2", 2))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn placements_are_added_moved_and_removed() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    submit(&registry, "a.service").await;
    let leader = lead(&registry, "m-1").await;
    leader.commit(&reason("a.service", Some(Reason::NoMachines))).await.unwrap();
    let (here, there) = (placed("m-1", 5), placed("m-2", 6));
    let reasons = vec![(name("a.service"), None)];
    let first = PlacementWrites { reasons, ..place("a.service", here.clone(), None) };
    let revision = leader.commit(&first).await.unwrap();
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    assert_eq!(snapshot.placement("a.service"), Some(&here));
    assert_eq!(snapshot.reason("a.service"), None, "a unit that is placed has no reason");
    let moved = place("a.service", there.clone(), Some(here));
    let revision = leader.commit(&moved).await.unwrap();
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    assert_eq!(snapshot.placement("a.service"), Some(&there));
    let revision = leader.commit(&unplace("a.service", there)).await.unwrap();
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    assert_eq!(snapshot.placement("a.service"), None);
}

// Holds: I-4, I-5
#[tokio::test(start_paused = true)]
async fn decision_on_changed_state_is_a_conflict() {
    let registry = registry();
    submit(&registry, "a.service").await;
    let leader = lead(&registry, "m-1").await;
    let (old, present) = (placed("m-1", 5), placed("m-2", 6));
    let seen = leader.elected().0;
    leader.commit(&place("a.service", present.clone(), None)).await.unwrap();
    let stale = [
        place("a.service", placed("m-3", seen), None),
        place("a.service", placed("m-3", 7), Some(old.clone())),
        unplace("a.service", old),
        place("gone.service", placed("m-3", 7), None),
        unplace("gone.service", present),
        reason("gone.service", Some(Reason::NoMachines)),
    ];
    let before = registry.store().read("").await.unwrap();
    for writes in stale {
        let result = leader.commit(&writes).await;
        assert!(matches!(result, Err(RegistryError::Conflict)), "{writes:?}: {result:?}");
    }
    assert_eq!(registry.store().read("").await.unwrap(), before);
    leader.commit(&reason("gone.service", None)).await.unwrap();
}

// Holds: I-7
#[tokio::test(start_paused = true)]
async fn concurrently_destroyed_unit_gets_no_placement() {
    let registry = registry();
    submit(&registry, "a.service").await;
    let leader = lead(&registry, "m-1").await;
    destroy(&registry, "a.service").await.unwrap();
    let late = leader.commit(&place("a.service", placed("m-1", 1), None)).await;
    assert!(matches!(late, Err(RegistryError::Conflict)));
    assert_eq!(registry.store().read("/fleet/placements/").await.unwrap().entries, []);
}

/// A leader that missed the result of its own write decides on an outdated state. The condition on
/// the placements' version detects that.
// Holds: I-5
#[tokio::test(start_paused = true)]
async fn unacknowledged_write_is_detected_by_the_next_decision() {
    let store = FaultyStore::new(memory());
    let registry = Registry::new(Arc::new(store.clone()), Layout::DEFAULT_PREFIX);
    submit(&registry, "a.service").await;
    let leader = lead(&registry, "m-1").await;
    let seen = leader.elected().0;
    store.lose_responses(1);
    let unknown = leader.commit(&place("a.service", placed("m-1", seen), None)).await;
    assert!(matches!(unknown, Err(RegistryError::Store(StoreError::Unknown(_)))), "{unknown:?}");
    let before = registry.store().read("/fleet/placements/").await.unwrap().entries;
    assert_eq!(before.len(), 1);
    let again = leader.commit(&place("a.service", placed("m-2", seen), None)).await;
    assert!(matches!(again, Err(RegistryError::Conflict)), "{again:?}");
    assert_eq!(registry.store().read("/fleet/placements/").await.unwrap().entries, before);
    // The next term starts after that write.
    let leader = lead(&registry, "m-1").await;
    let again = leader.commit(&place("a.service", placed("m-2", seen), None)).await;
    assert!(matches!(again, Err(RegistryError::Conflict)), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn many_placements_take_few_steps_and_all_arrive() {
    // Each unit that had a reason needs one more write.
    for (count, had_reasons, most) in [(10_000, false, 100), (126, true, 2), (0, false, 0)] {
        let registry = registry();
        let mirror = mirror(&registry).await;
        let units: Vec<UnitName> = (0..count).map(|i| name(&format!("u{i}.service"))).collect();
        for unit in &units {
            submit(&registry, unit.as_str()).await;
        }
        let leader = lead(&registry, "m-1").await;
        let epoch = Epoch(leader.elected().0);
        let to_place = |unit: &UnitName| SetPlacement {
            unit: unit.clone(),
            machine: id("m-1"),
            epoch,
            previous: None,
        };
        let place = units.iter().map(to_place).collect();
        let reasons = units.iter().filter(|_| had_reasons).map(|unit| (unit.clone(), None));
        let reasons = reasons.collect();
        let writes = PlacementWrites { set: place, reasons, ..PlacementWrites::default() };
        let revision = leader.commit(&writes).await.unwrap();
        let steps = revision.0 - leader.elected().0;
        assert!(steps <= most, "{count} placements took {steps} steps");
        let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
        assert_eq!(snapshot.placements().len(), units.len());
    }
}

// Holds: I-22
#[tokio::test(start_paused = true)]
async fn every_reason_round_trips() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let leader = lead(&registry, "m-1").await;
    for (i, reason) in reasons().into_iter().enumerate() {
        let unit = format!("u{i}.service");
        submit(&registry, &unit).await;
        let revision = leader.commit(&self::reason(&unit, Some(reason.clone()))).await.unwrap();
        let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
        assert_eq!(snapshot.reason(&unit).map(|found| &**found), Some(&reason));
        let revision = leader.commit(&self::reason(&unit, None)).await.unwrap();
        let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
        assert_eq!(snapshot.reason(&unit), None);
    }
}

fn refusals() -> Vec<Refusal> {
    let peer = name("peer.service");
    vec![
        Refusal::Cordon {},
        Refusal::MachineId { wanted: id("m-9") },
        Refusal::MachineMetadata {
            key: "disk".to_owned(),
            wanted: vec!["ssd".to_owned(), "nvme".to_owned()],
            found: Some("hdd".to_owned()),
        },
        Refusal::MachineMetadata { key: "disk".to_owned(), wanted: Vec::new(), found: None },
        Refusal::MachineMetadataExpr { failed: "cores > 4".into(), found: "no cores".into() },
        Refusal::MachineOf { peer: peer.clone().into() },
        Refusal::MachineOf { peer: "db@*.service".parse().unwrap() },
        Refusal::Conflicts {
            with: peer.clone(),
            pattern: "web@[^1]*.service".parse().unwrap(),
            by_other: true,
        },
        Refusal::MaxPerMachine { template: name("web@.service"), limit: 2, count: 3 },
        Refusal::Reserve { resource: Resource::Cpu, wanted: 1500, free: 1, offered: 1000 },
        Refusal::Reserve { resource: Resource::Memory, wanted: u64::MAX, free: 0, offered: 0 },
        Refusal::Reserve { resource: Resource::Disk, wanted: 1, free: 0, offered: 0 },
        Refusal::Replaces { with: peer, by_other: false },
        Refusal::Custom { rule: "quota".into(), detail: "no more of this customer".into() },
    ]
}

fn reasons() -> Vec<Reason> {
    let peer = name("peer.service");
    let tally =
        |refusal| Tally { machines: 3, example: id("m-1"), unit: Some(name("a.service")), refusal };
    let tallies: Vec<Tally> = refusals().into_iter().map(tally).collect();
    let nearest = |unit| NearestMachine { machine: id("m-2"), unit, refusal: Refusal::Cordon {} };
    let group = vec![name("a.service"), peer.clone()];
    vec![
        Reason::NoMachines,
        Reason::NoMachineFits { machines: 3, tallies: tallies.clone(), nearest: None },
        Reason::NoMachineFits { machines: 3, tallies: Vec::new(), nearest: Some(nearest(None)) },
        Reason::NoMachineFitsGroup {
            group: group.clone(),
            machines: 3,
            tallies,
            nearest: Some(nearest(Some(peer.clone()))),
        },
        Reason::AttemptLimit,
        Reason::PeerUnknown { peer: peer.clone().into() },
        Reason::PeerUnknown { peer: "db@*.service".parse().unwrap() },
        Reason::PeerInactive { peer: peer.clone().into() },
        Reason::PeersApart { one: (peer, id("m-1")), other: (name("b.service"), id("m-2")) },
        Reason::Cycle { units: group },
        Reason::NotRescheduled { machine: id("m-3") },
        Reason::MachineAwaited { machine: id("m-3") },
        Reason::MayStillRun { machine: id("m-3"), limit: Some(std::time::Duration::from_secs(97)) },
        Reason::MayStillRun { machine: id("m-3"), limit: None },
    ]
}

#[test]
fn reason_test_covers_every_rule() {
    let rules: Vec<Rule> = refusals().iter().map(Refusal::rule).collect();
    let missing = Rule::ALL.into_iter().filter(|rule| !rules.contains(rule));
    assert_eq!(missing.collect::<Vec<_>>(), []);
}

#[tokio::test(start_paused = true)]
async fn unreadable_term_prevents_elections() {
    let store = memory();
    let registry = Registry::new(store.clone(), Layout::DEFAULT_PREFIX);
    for value in ["", "{\"v\":2,\"era\":7}", "{\"v\":1,\"term\":-1}"] {
        let put = Transaction::new().put(registry.layout().key(&Key::Term), value);
        assert!(matches!(store.commit(put).await.unwrap(), Commit::Applied(_)));
        let refused = registry.campaign(&id("m-1"), TTL).await;
        assert!(matches!(refused, Err(RegistryError::Value { .. })), "{refused:?}");
    }
    let leader = store.read(&registry.layout().key(&Key::Leader)).await.unwrap();
    assert_eq!(leader.entries, []);
}

#[tokio::test(start_paused = true)]
async fn swapping_units_never_share_a_machine_between_steps() {
    const MANY: usize = 150;
    let registry = registry();
    let leader = lead(&registry, "m-1").await;
    let at = |unit: usize, epoch| placed(&format!("m-{}", unit % MANY), epoch);
    let place = |unit: usize, to: Placement, previous| SetPlacement {
        unit: name(&format!("u-{unit}.service")),
        machine: to.machine,
        epoch: to.epoch,
        previous,
    };
    for unit in 0..MANY {
        submit(&registry, &format!("u-{unit}.service")).await;
    }
    let first = (0..MANY).map(|unit| place(unit, at(unit, 1), None)).collect();
    leader.commit(&PlacementWrites { set: first, ..PlacementWrites::default() }).await.unwrap();
    let from = registry.store().read("").await.unwrap().revision;
    let mut watch = registry.store().watch("/fleet/placements/", from).await.unwrap();
    let moves = (0..MANY).map(|unit| place(unit, at(unit + 1, 2), Some(at(unit, 1)))).collect();
    let moves = PlacementWrites { set: moves, ..PlacementWrites::default() };
    let written = leader.commit(&moves).await.unwrap();

    let mut machines: BTreeMap<UnitName, MachineId> =
        (0..MANY).map(|unit| (name(&format!("u-{unit}.service")), at(unit, 1).machine)).collect();
    loop {
        let step = soon(watch.next()).await.unwrap();
        for change in &step.changes {
            let Some(Key::Placement(machine, unit)) = registry.layout().parse(&change.key) else {
                panic!("{} is no placement", change.key);
            };
            match &change.value {
                Some(_) => assert_eq!(machines.insert(unit, machine), None, "it has two"),
                None => assert_eq!(machines.remove(&unit), Some(machine)),
            }
        }
        let taken: BTreeSet<_> = machines.values().collect();
        assert_eq!(taken.len(), machines.len(), "two are on one machine at {}", step.revision);
        if step.revision == written {
            break;
        }
    }
    assert_eq!(machines.len(), MANY);
}
