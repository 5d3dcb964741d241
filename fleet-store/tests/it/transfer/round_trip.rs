//! Any cluster round-trips through its export.

use std::collections::BTreeMap;

use fleet_core::Intent;
use fleet_store::Registry;
use fleet_store::registry::{ExpectUnit, MetadataChange, NewUnit};
use fleet_unitfile::UnitFile;
use proptest::prelude::*;

use super::{file, import_file, place, snapshot};
use crate::support::{id, name, registry};

/// A generated unit: its text, desired state and machine.
type GeneratedUnit = (Vec<u8>, u8, Option<u8>);

/// A generated cluster: units, the metadata of a machine, and intents.
type Cluster =
    (BTreeMap<String, GeneratedUnit>, BTreeMap<String, String>, BTreeMap<u8, Option<u32>>);

fn clusters() -> impl Strategy<Value = Cluster> {
    let text = prop_oneof![
        "[a-z ]{0,20}".prop_map(|it| format!("[Service]\nExecStart=/bin/{it}\n").into_bytes()),
        Just(b"# \xff\xfe\n[Service]\r\nExecStart=/bin/a\r\n".to_vec()),
        "\\PC{0,20}".prop_map(|it| format!("[Unit]\nDescription=a {it}\n").into_bytes()),
    ];
    let unit = (text, 0..3_u8, proptest::option::of(0..3_u8));
    let units = proptest::collection::btree_map("[a-z]{1,3}(@[0-9]?)?\\.service", unit, 0..12);
    let pairs = proptest::collection::btree_map("[a-z.]{1,3}", "\\PC{0,5}", 0..4);
    let min_available = proptest::option::of(0..3_u32);
    (units, pairs, proptest::collection::btree_map(0..4_u8, min_available, 0..3))
}

async fn build((units, pairs, intents): &Cluster) -> Registry {
    let registry = registry();
    for (machine, min_available) in intents {
        let intent = min_available
            .map_or(Intent::Cordoned, |min_available| Intent::Drained { min_available });
        registry.set_intent(&id(&format!("m-{machine}")), Some(intent)).await.unwrap();
    }
    for (text, (source, desired, machine)) in units {
        let unit = name(text);
        let states = ["inactive", "loaded", "launched"];
        let desired = if unit.is_template() { "inactive" } else { states[usize::from(*desired)] };
        let file = UnitFile::parse(source.as_slice()).unwrap();
        let new = NewUnit { name: unit, file, desired: desired.parse().unwrap() };
        registry.put_unit(new, ExpectUnit::Absent).await.unwrap();
        if let Some(machine) = machine.filter(|_| desired != "inactive") {
            place(&registry, text, &format!("m-{machine}")).await;
        }
    }
    for (key, value) in pairs {
        let (machine, key, value) = (id("m-0"), key.clone(), value.clone());
        let change = MetadataChange::Set { machine, key, value };
        registry.patch_metadata(&[change]).await.unwrap();
    }
    registry
}

/// Returns all lines except the first, which depends on the store, and the last, whose checksum
/// covers the first.
fn inner(file: &[u8]) -> Vec<&str> {
    let lines: Vec<&str> = std::str::from_utf8(file).unwrap().lines().collect();
    lines[1..lines.len() - 1].to_vec()
}

proptest! {
    // Holds: I-13
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn cluster_round_trips_through_an_export(cluster in clusters()) {
        let units = &cluster.0;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let source = build(&cluster).await;
            let written = file(&source).await;
            prop_assert_eq!(&written, &file(&source).await, "the same cluster, other bytes");
            let target = registry();
            let report = import_file(&target, &written).await;
            prop_assert_eq!(report.created, units.len() as u64);
            let placements = snapshot(&source).await.placements().len() as u64;
            prop_assert_eq!(report.placements_kept, placements);
            prop_assert_eq!(report.mismatches, Some(Vec::new()));
            let again = file(&target).await;
            prop_assert_eq!(inner(&written), inner(&again));
            prop_assert!(std::str::from_utf8(&written).unwrap().contains(&report.content));
            // A second import changes nothing.
            let report = import_file(&target, &written).await;
            prop_assert_eq!((report.created, report.unchanged), (0, units.len() as u64));
            let last = file(&target).await;
            prop_assert_eq!(inner(&again), inner(&last));
            Ok(())
        })?;
    }
}
