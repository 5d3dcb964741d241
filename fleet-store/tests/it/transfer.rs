//! Moving a cluster from one store to another.

mod files;
mod import;
mod round_trip;
mod v1;

use std::sync::Arc;

use fleet_core::{Intent, Snapshot, Strictness};
use fleet_store::registry::{ExpectUnit, MetadataChange, PlacementWrites, SetPlacement};
use fleet_store::transfer::{Import, ImportError, ImportOptions, ImportReport, import};
use fleet_store::{Layout, Registry};

use crate::support::{TTL, id, memory, name, registry, unit};

/// A cluster with three units, one of them placed, metadata, and intents for two machines.
pub(crate) async fn cluster() -> Registry {
    let registry = registry();
    registry.lineage(&"first".parse().unwrap()).await.unwrap();
    let web = unit("web.service", "[Service]\nExecStart=/bin/web\n", "launched".parse().unwrap());
    let latin = b"# caf\xe9\n[Service]\nExecStart=/bin/db\n".as_slice();
    let db = fleet_store::registry::NewUnit {
        file: fleet_unitfile::UnitFile::parse(latin).unwrap(),
        ..unit("db.service", "", "loaded".parse().unwrap())
    };
    let mould = unit("w@.service", "[Service]\nExecStart=/bin/w %i\n", "inactive".parse().unwrap());
    for unit in [web, db, mould] {
        registry.put_unit(unit, ExpectUnit::Absent).await.unwrap();
    }
    registry.request_restart(&name("web.service")).await.unwrap();
    let (machine, key) = (id("m-2"), "rack".to_owned());
    let change = MetadataChange::Set { machine, key, value: "7".to_owned() };
    registry.patch_metadata(&[change]).await.unwrap();
    for (machine, intent) in
        [("m-3", Intent::Cordoned), ("m-2", Intent::Drained { min_available: 2 })]
    {
        registry.set_intent(&id(machine), Some(intent)).await.unwrap();
    }
    place(&registry, "web.service", "m-1").await;
    registry
}

/// Places a unit as an engine does.
pub(crate) async fn place(registry: &Registry, unit: &str, machine: &str) {
    let leader = registry.campaign(&id("engine"), TTL).await.unwrap().unwrap();
    let epoch = fleet_core::Epoch(leader.elected().0);
    let place = SetPlacement { unit: name(unit), machine: id(machine), epoch, previous: None };
    let writes = PlacementWrites { set: vec![place], ..PlacementWrites::default() };
    leader.commit(&writes).await.unwrap();
    leader.resign().await.unwrap();
}

/// Exports a cluster to a file.
pub(crate) async fn file(registry: &Registry) -> Vec<u8> {
    registry.export().await.unwrap().lines().flatten().collect()
}

pub(crate) fn options() -> ImportOptions {
    ImportOptions { strictness: Strictness::Refuse, ..ImportOptions::default() }
}

pub(crate) fn read(file: &[u8]) -> Result<Import, ImportError> {
    Import::read(file)
}

/// Gives a store a lineage, as its first daemon does.
pub(crate) async fn add_lineage(registry: &Registry) {
    registry.lineage(&"second".parse().unwrap()).await.unwrap();
}

/// Imports a valid file.
pub(crate) async fn import_file(registry: &Registry, file: &[u8]) -> ImportReport {
    add_lineage(registry).await;
    import(registry, read(file).unwrap(), &options()).await.unwrap()
}

pub(crate) async fn snapshot(registry: &Registry) -> Arc<Snapshot> {
    registry.export().await.unwrap().snapshot
}

pub(crate) fn over(store: fleet_store::testing::FaultyStore) -> Registry {
    Registry::new(Arc::new(store), Layout::DEFAULT_PREFIX)
}

pub(crate) fn faulty() -> fleet_store::testing::FaultyStore {
    fleet_store::testing::FaultyStore::new(memory())
}

/// Wraps text to short lines.
pub(crate) fn wrapped(text: &str) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        let mut rest = line;
        while rest.len() > 84 {
            let at = rest[..84].rfind([' ', ',']).map_or(84, |at| at + 1);
            wrapped.extend([rest[..at].trim_end(), "\n  "]);
            rest = &rest[at..];
        }
        wrapped.extend([rest, "\n"]);
    }
    wrapped
}
