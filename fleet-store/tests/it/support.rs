//! Helpers for several tests.

use std::sync::Arc;
use std::time::Duration;

use fleet_core::unit::{ExitStatus, LoadState};
use fleet_core::{
    ActiveState, Epoch, Generation, MachineId, Metadata, Revision, SystemdState, TargetState,
    UnitState,
};
use fleet_store::registry::{ExpectUnit, MachineRecord, NewUnit, Presence};
use fleet_store::{Layout, MemoryStore, Mirror, Registry, RegistryError, Store};
use fleet_unitfile::{UnitFile, UnitHash, UnitName};

pub(crate) const TTL: Duration = Duration::from_secs(30);

/// Waits for an expected event; fails instead of hanging.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, work).await.expect("the event happens within a minute")
}

pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

pub(crate) fn registry() -> Registry {
    Registry::new(memory(), Layout::DEFAULT_PREFIX)
}

pub(crate) async fn mirror(registry: &Registry) -> Mirror {
    let mirror = Mirror::start(registry);
    soon(mirror.wait_current()).await.unwrap();
    mirror
}

pub(crate) fn name(text: &str) -> UnitName {
    text.parse().unwrap()
}

pub(crate) fn id(text: &str) -> MachineId {
    text.parse().unwrap()
}

pub(crate) fn unit(unit: &str, file: &str, desired: TargetState) -> NewUnit {
    NewUnit { name: name(unit), file: UnitFile::parse(file).unwrap(), desired }
}

pub(crate) async fn submit(registry: &Registry, unit_name: &str) {
    let unit = unit(unit_name, "[Service]\nExecStart=/bin/true\n", TargetState::Launched);
    registry.put_unit(unit, ExpectUnit::Any).await.unwrap();
}

/// Destroys a unit with a current mirror.
pub(crate) async fn destroy(registry: &Registry, unit: &str) -> Result<Revision, RegistryError> {
    let mirror = mirror(registry).await;
    registry.destroy(&name(unit), &mirror).await
}

pub(crate) fn machine(machine: &str) -> MachineRecord {
    let metadata = Metadata::from([("region".to_owned(), "eu".to_owned())]);
    let address = Some("192.0.2.7".parse().unwrap());
    let version = "1.0.0".to_owned();
    MachineRecord { address, metadata, version, ..MachineRecord::new(id(machine)) }
}

pub(crate) async fn join(registry: &Registry, name: &str) -> Presence {
    registry.join(machine(name), "token", TTL).await.unwrap()
}

/// A state of a unit on machine `m-1` with this sub-state.
pub(crate) fn state(unit: &str, sub: &str) -> UnitState {
    let systemd = SystemdState {
        result: Some("exit-code".to_owned()),
        main_pid: Some(7),
        exit: Some(ExitStatus::Signal(9)),
        restarts: 3,
        ..SystemdState::new(LoadState::Loaded, ActiveState::Failed, sub)
    };
    UnitState {
        unit: name(unit),
        machine: id("m-1"),
        hash: UnitHash::from_bytes([7; 20]),
        requested: TargetState::Launched,
        epoch: Epoch(4),
        generation: Generation(2),
        systemd,
        problem: Some("no such file".to_owned()),
        health: None,
        output: Vec::new(),
    }
}
