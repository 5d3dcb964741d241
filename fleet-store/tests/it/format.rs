//! The keys and values as they are stored. Daemons of different versions share a store, so what is
//! written here must not change without a new format number.

use fleet_core::{
    ActiveState, Epoch, ExitStatus, Generation, LoadState, Reason, Refusal, SystemdState, Tally,
    TargetState, UnitState,
};
use fleet_store::{ExpectUnit, MetadataChange, Place, PlacementWrites, Registry};
use fleet_unitfile::UnitHash;

use crate::support::{TTL, id, join, name, registry, unit};

#[tokio::test(start_paused = true)]
async fn what_is_stored_keeps_its_form() {
    let registry = registry();
    store_one_of_each(&registry).await;
    let entries = registry.store().read("").await.unwrap().entries;
    let line = |entry: &fleet_store::Entry| {
        let bound = if entry.lease.is_some() { " (leased)" } else { "" };
        format!("{}{bound}\n  {}", entry.key, String::from_utf8_lossy(&entry.value))
    };
    let text = entries.iter().map(line).collect::<Vec<_>>().join("\n");
    // Broken before each field, so that a line fits.
    insta::assert_snapshot!(text.replace(",\"", ",\n  \""), @r#"
    /fleet/contents/86943ac9f3754cb90f8dd38bf6da7b0cad074592
      [Service]
    ExecStart=/bin/true

    /fleet/engine/leader (leased)
      {"v":1,
      "machine":"m-1",
      "term":1}
    /fleet/engine/term
      {"v":1,
      "term":1}
    /fleet/machines/m-1 (leased)
      {"v":1,
      "id":"m-1",
      "token":"token",
      "joined":1,
      "address":"192.0.2.7",
      "metadata":{"region":"eu"},
      "version":"1.0.0"}
    /fleet/metadata/m-1/disk/0
      {"v":1,
      "value":"ssd"}
    /fleet/placements/a.service
      {"v":1,
      "machine":"m-1",
      "epoch":7}
    /fleet/reasons/b.service
      {"v":1,
      "reason":{"no_machine_fits":{"machines":1,
      "tallies":[{"machines":1,
      "example":"m-1",
      "refusal":{"machine_metadata":{"key":"disk",
      "wanted":["nvme"],
      "found":null}}}]}}}
    /fleet/states/m-1/a.service (leased)
      {"v":1,
      "hash":"abababababababababababababababababababab",
      "asked":"launched",
      "epoch":7,
      "generation":2,
      "load":"loaded",
      "active":"failed",
      "sub":"failed",
      "result":"exit-code",
      "exit":{"code":1},
      "restarts":3}
    /fleet/units/a.service
      {"v":1,
      "content":"86943ac9f3754cb90f8dd38bf6da7b0cad074592",
      "desired":"launched",
      "generation":0}
    /fleet/units/b.service
      {"v":1,
      "content":"86943ac9f3754cb90f8dd38bf6da7b0cad074592",
      "desired":"launched",
      "generation":0}
    "#);
}

async fn store_one_of_each(registry: &Registry) {
    for unit_name in ["a.service", "b.service"] {
        let unit = unit(unit_name, "[Service]\nExecStart=/bin/true\n", TargetState::Launched);
        registry.put_unit(unit, ExpectUnit::Absent).await.unwrap();
    }
    let presence = join(registry, "m-1").await;
    presence.publish_states(&[state()], &[]).await.unwrap();
    let set = MetadataChange::Set {
        machine: id("m-1"),
        key: "disk/0".to_owned(),
        value: "ssd".to_owned(),
    };
    registry.patch_metadata(&[set]).await.unwrap();
    let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let place = Place { unit: name("a.service"), machine: id("m-1"), epoch: Epoch(7), was: None };
    let reasons = vec![(name("b.service"), Some(reason()))];
    let writes = PlacementWrites { place: vec![place], reasons, ..PlacementWrites::default() };
    leader.commit(&writes).await.unwrap();
}

fn state() -> UnitState {
    let systemd = SystemdState {
        result: Some("exit-code".to_owned()),
        exit: Some(ExitStatus::Code(1)),
        restarts: 3,
        ..SystemdState::new(LoadState::Loaded, ActiveState::Failed, "failed")
    };
    UnitState {
        unit: name("a.service"),
        machine: id("m-1"),
        hash: UnitHash::from_bytes([0xab; 20]),
        asked: TargetState::Launched,
        epoch: Epoch(7),
        generation: Generation(2),
        systemd,
        problem: None,
    }
}

fn reason() -> Reason {
    let refusal = Refusal::MachineMetadata {
        key: "disk".to_owned(),
        wanted: vec!["nvme".to_owned()],
        found: None,
    };
    let tally = Tally { machines: 1, example: id("m-1"), unit: None, refusal };
    Reason::NoMachineFits { machines: 1, tallies: vec![tally], nearest: None }
}
