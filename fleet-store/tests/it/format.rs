//! The stored keys and values. Daemons of different versions share a store, so this encoding must
//! not change without a new format number.

use fleet_core::health::Health;
use fleet_core::reason::Tally;
use fleet_core::unit::{ExitStatus, LoadState};
use fleet_core::{
    ActiveState, Epoch, Generation, Intent, Reason, Refusal, Revision, SystemdState, TargetState,
    UnitState,
};
use fleet_store::registry::{ExpectUnit, Key, MetadataChange, PlacementWrites, SetPlacement};
use fleet_store::{Mirror, Registry, RegistryError, Transaction, Write};
use fleet_unitfile::UnitHash;

use crate::support::{TTL, id, join, machine, mirror, name, registry, soon, unit};

#[tokio::test(start_paused = true)]
async fn stored_encoding_is_stable() {
    insta::assert_snapshot!("stored_encoding", listed(&one_of_each().await).await);
}

/// Lists everything with line breaks before each field, to keep lines short.
async fn listed(registry: &Registry) -> String {
    let entries = registry.store().read("").await.unwrap().entries;
    let line = |entry: &fleet_store::Entry| {
        let bound = if entry.lease.is_some() { " (leased)" } else { "" };
        format!("{}{bound}\n  {}", entry.key, String::from_utf8_lossy(&entry.value))
    };
    let text = entries.iter().map(line).collect::<Vec<_>>().join("\n");
    // The time of a write is that of the machine.
    let mut parts = text.split("\"written_at\":");
    let first = parts.next().unwrap_or_default().to_owned();
    let text = parts.fold(first, |text, part| {
        text + "\"written_at\":TIME" + part.trim_start_matches(|it: char| it.is_ascii_digit())
    });
    text.replace(",\"", ",\n  \"")
}

async fn one_of_each() -> Registry {
    let registry = registry();
    store_one_of_each(&registry).await;
    registry
}

async fn store_one_of_each(registry: &Registry) {
    for unit_name in ["a.service", "b.service"] {
        let unit = unit(unit_name, "[Service]\nExecStart=/bin/true\n", TargetState::Launched);
        registry.put_unit(unit, ExpectUnit::Absent).await.unwrap();
    }
    registry.lineage(&"first".parse().unwrap()).await.unwrap();
    let presence = join(registry, "m-1").await;
    presence.publish_states(&[state()], &[]).await.unwrap();
    let set = MetadataChange::Set {
        machine: id("m-1"),
        key: "disk/0".to_owned(),
        value: "ssd".to_owned(),
    };
    registry.patch_metadata(&[set]).await.unwrap();
    registry.set_intent(&id("m-2"), Some(Intent::Drained { min_available: 2 })).await.unwrap();
    let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let place = SetPlacement {
        unit: name("a.service"),
        machine: id("m-1"),
        epoch: Epoch(7),
        previous: None,
    };
    let reasons = vec![(name("b.service"), Some(reason()))];
    let writes = PlacementWrites { set: vec![place], reasons, ..PlacementWrites::default() };
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
        requested: TargetState::Launched,
        epoch: Epoch(7),
        generation: Generation(2),
        systemd,
        problem: None,
        health: None,
        output: Vec::new(),
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

/// States that earlier versions stored have no health, as the one in `stored_encoding`.
#[tokio::test(start_paused = true)]
async fn health_is_stored_with_the_state() {
    let registry = registry();
    let presence = join(&registry, "m-1").await;
    let message = "é".repeat(4000);
    let stored = |message: &str| Health::Unhealthy { message: message.to_owned() };
    for (health, expected, text) in [
        (Health::Starting, Health::Starting, "\"health\":\"starting\""),
        (Health::Healthy, Health::Healthy, "\"health\":\"healthy\""),
        (stored("no"), stored("no"), "\"health\":{\"unhealthy\":\"no\"}"),
        (stored(&message), stored(&message[..4096]), "é\"}"),
    ] {
        let state = UnitState { health: Some(health), ..state() };
        let revision = presence.publish_states(&[state], &[]).await.unwrap();
        let entries = registry.store().read("").await.unwrap().entries;
        let has_text = |value: &[u8]| String::from_utf8_lossy(value).contains(text);
        assert!(entries.iter().any(|entry| has_text(&entry.value)), "{text}");
        let snapshot = mirror(&registry).await.wait_for(revision).await.unwrap();
        let read = snapshot.state("a.service", "m-1").unwrap();
        assert_eq!(read.health, Some(expected));
    }
}

/// A value of a later format is reported, affects nothing else, and is not overwritten.
// Holds: I-12
#[tokio::test(start_paused = true)]
async fn newer_value_is_refused_and_unchanged() {
    let registry = registry();
    store_one_of_each(&registry).await;
    let before = registry.store().read("").await.unwrap().entries;
    // A newer lineage means a newer layout; such a store is not read at all.
    let lineage = registry.layout().key(&Key::Lineage);
    let is_value =
        |value: &[u8]| value.starts_with(b"{\"v\":1,") || value.starts_with(b"{\"v\":2,");
    let values = before.iter().filter(|entry| is_value(&entry.value) && entry.key != lineage);
    for entry in values {
        let newer = br#"{"v":3,"unheard":["of"]}"#.to_vec();
        let lease = entry.lease;
        let put = Write::Put { key: entry.key.clone(), value: newer, lease };
        registry.store().commit(Transaction::new().write(put)).await.unwrap();
    }
    let written = registry.store().read("").await.unwrap();
    let snapshot = soon(mirror(&registry).await.wait_for(written.revision)).await.unwrap();
    // Units become faults and machines stay present; states, reasons and metadata are unknown.
    assert_eq!((snapshot.units().len(), snapshot.faults().len()), (0, 2));
    assert!(snapshot.machine("m-1").is_some());
    assert_eq!((snapshot.states().count(), snapshot.reasons().len()), (0, 0));

    let newer = |result: Result<(), RegistryError>| {
        let Err(RegistryError::Value { source, .. }) = result else { panic!("{result:?}") };
        assert!(source.to_string().contains("upgrade fleet"), "{source}");
    };
    let again = unit("a.service", "[Service]\nExecStart=/bin/false\n", TargetState::Loaded);
    newer(registry.put_unit(again, ExpectUnit::Any).await.map(drop));
    newer(registry.set_desired(&name("a.service"), TargetState::Inactive).await.map(drop));
    newer(registry.request_restart(&name("a.service")).await.map(drop));
    let taken = registry.join(machine("m-1"), "token", TTL).await;
    assert!(matches!(taken, Err(RegistryError::MachineTaken { .. })), "{taken:?}");
    assert!(registry.campaign(&id("m-1"), TTL).await.unwrap().is_none(), "another leader exists");
    assert_eq!(registry.store().read("").await.unwrap().entries, written.entries);
}

/// A daemon that looks for placements under other keys would find none and place all units again.
// Holds: I-8
#[tokio::test(start_paused = true)]
async fn store_of_another_layout_is_refused_and_unchanged() {
    for (format, message) in [(1, "export the cluster with the older"), (3, "upgrade")] {
        let registry = registry();
        let lineage = registry.layout().key(&Key::Lineage);
        let there = Transaction::new()
            .put(lineage.as_str(), format!(r#"{{"v":{format},"id":"first"}}"#))
            .put("/fleet/placements/a.service", r#"{"v":1,"machine":"m-1","epoch":7}"#);
        registry.store().commit(there).await.unwrap();
        let before = registry.store().read("").await.unwrap();

        let refused = |result: Result<(), RegistryError>| {
            let Err(RegistryError::Value { key, source }) = result else { panic!("{result:?}") };
            assert!(key == lineage && source.to_string().contains(message), "{source}");
        };
        refused(registry.lineage(&"other".parse().unwrap()).await.map(drop));
        refused(registry.campaign(&id("m-1"), TTL).await.map(drop));
        refused(registry.export().await.map(drop));
        let mirror = Mirror::start(&registry);
        tokio::time::timeout(TTL, mirror.wait_current()).await.unwrap_err();
        assert_eq!(mirror.snapshot().revision, Revision::ZERO);
        assert_eq!(registry.store().read("").await.unwrap(), before);
    }
}

/// Values without any of their optional fields.
#[tokio::test(start_paused = true)]
async fn values_without_optional_fields_are_read() {
    let registry = registry();
    let golden = [
        (
            "contents/86943ac9f3754cb90f8dd38bf6da7b0cad074592",
            "{\"v\":1}\n[Service]\nExecStart=/bin/true\n",
        ),
        ("engine/term", r#"{"v":1,"term":41}"#),
        (
            "machines/m-1",
            r#"{"v":1,"id":"m-1","token":"t","joined":1,"address":null,
            "metadata":{"region":"eu"},"version":"1.0.0"}"#,
        ),
        ("metadata/m-1/disk", r#"{"v":1,"value":"ssd"}"#),
        ("placements/m-1/a.service", r#"{"v":2,"epoch":7}"#),
        ("reasons/b.service", r#"{"v":1,"reason":"no_machines"}"#),
        (
            "states/m-1/a.service",
            r#"{"v":1,"hash":"abababababababababababababababababababab",
            "requested":"launched","epoch":7,"generation":0,"load":"loaded","active":"active",
            "sub":"running"}"#,
        ),
        (
            "units/a.service",
            r#"{"v":1,"content":"86943ac9f3754cb90f8dd38bf6da7b0cad074592",
            "desired":"launched","generation":3}"#,
        ),
    ];
    let put =
        |all: Transaction, (key, value): (&str, &str)| all.put(format!("/fleet/{key}"), value);
    registry.store().commit(golden.into_iter().fold(Transaction::new(), put)).await.unwrap();
    let snapshot = mirror(&registry).await.snapshot();
    let unit = snapshot.unit("a.service").unwrap();
    assert_eq!((unit.desired, unit.generation), (TargetState::Launched, Generation(3)));
    assert_eq!(snapshot.placement("a.service").unwrap().epoch, Epoch(7));
    assert_eq!(snapshot.state("a.service", "m-1").unwrap().systemd.sub, "running");
    assert_eq!(snapshot.reason("b.service").map(|reason| &**reason), Some(&Reason::NoMachines));
    let metadata = &snapshot.machine("m-1").unwrap().metadata;
    assert_eq!((metadata["region"].as_str(), metadata["disk"].as_str()), ("eu", "ssd"));
    assert_eq!(registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap().term().0, 42);
}
