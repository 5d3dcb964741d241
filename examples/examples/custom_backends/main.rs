//! A custom store and a custom service manager for fleet.
//!
//! ```text
//! cargo run -p fleet-examples --example custom_backends
//! ```
//!
//! fleet keeps its state in a `Store` and runs units with a `ServiceManager`. Both are traits, and
//! for each there is a public conformance suite that tests implementations. This example implements
//! both traits:
//!
//! - `store.rs` is a store, in one file.
//! - `service_manager.rs` is a service manager that runs units as tokio tasks (`program.rs`).
//! - `cluster.rs` builds a cluster from the two, as `fleetd` does from its own backends.
//! - This file runs the suites; a test of a backend need not do more. Then it shows the cluster at
//!   work: it submits units, simulates a power failure of one machine, and waits until the units
//!   have moved.
//!
//! The program takes a few seconds, because it waits in real time for a lease to expire.
#![expect(clippy::print_stdout, reason = "the program demonstrates its results on standard output")]

mod cluster;
mod program;
mod service_manager;
mod store;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_agent::testing::{Harness, ManagerWithJournals, UnitKind};
use fleet_core::Snapshot;
use fleet_store::Store;
use fleet_store::testing::{FaultInjector, FaultyStore, conformance_under_faults};
use fleet_unitfile::{UnitFile, UnitName};
use tempfile::TempDir;

use cluster::{Cluster, homes};
use service_manager::{TaskMachine, TaskManager};
use store::OwnStore;

const UNITS: [(&str, &str); 5] = [
    ("clock@1.service", "[Service]\nExecStart=tick 100\n[X-Fleet]\nConflicts=clock@*.service\n"),
    ("clock@2.service", "[Service]\nExecStart=tick 100\n[X-Fleet]\nConflicts=clock@*.service\n"),
    ("crier.service", "[Service]\nExecStart=say hear ye\n[X-Fleet]\nMachineOf=lamp.service\n"),
    ("everywhere.service", "[Service]\nExecStart=say here\n[X-Fleet]\nGlobal=true\n"),
    ("lamp.service", "[Service]\nExecStart=say light\n"),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    the_store_keeps_its_promises().await;
    the_service_manager_keeps_its_promises().await?;

    let mut cluster = Cluster::start(&["m1", "m2", "m3"]);
    for (name, text) in UNITS {
        cluster.submit(name, text).await?;
    }
    let before = cluster.wait_until_all_run().await?;
    println!("\n== All units run\n\n{}", placements_text(&before));
    println!("clock@1.service writes {:?}", cluster.output("clock@1.service", 3).await?);

    println!("\n== m3 loses its power\n");
    cluster.power_off("m3");
    let after = cluster.wait_until_all_run().await?;
    println!("{}", placements_text(&after));
    only_those_of_a_lost_machine_move(&before, &after)?;

    cluster.end().await;
    Ok(())
}

/// Runs the complete test of a store, with and without injected faults. If the store violates a
/// guarantee, the suite panics with the name of the guarantee.
async fn the_store_keeps_its_promises() {
    fleet_store::testing::conformance(async || OwnStore::open() as Arc<dyn Store>).await;
    // A store behind a network would inject its own faults, for example by cutting real
    // connections.
    conformance_under_faults(async || {
        let store = FaultyStore::new(OwnStore::open());
        (Arc::new(store.clone()) as Arc<dyn Store>, Arc::new(store) as Arc<dyn FaultInjector>)
    })
    .await;
    println!("the store passes the conformance suite");
}

/// Runs the complete test of a service manager. The `Bench` provides the unit files that the suite
/// needs, because their syntax depends on the service manager.
async fn the_service_manager_keeps_its_promises() -> Result<(), Box<dyn Error>> {
    let (machine, directory) = (TaskMachine::new(), tempfile::tempdir()?);
    fleet_agent::testing::conformance(&Bench { machine, directory }).await;
    println!("the service manager passes the conformance suite");
    Ok(())
}

struct Bench {
    machine: Arc<TaskMachine>,
    directory: TempDir,
}

#[async_trait]
impl Harness for Bench {
    /// Returns a new handle to the machine, like a daemon that starts: the machine and its units
    /// already exist.
    async fn open(&self) -> ManagerWithJournals {
        ManagerWithJournals::new(Arc::new(TaskManager::new(&self.machine)))
    }

    fn can_reload(&self) -> bool {
        false
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn unit(&self, unit: &UnitName, kind: UnitKind) -> UnitFile {
        let program = match kind {
            // A task cannot ignore a stop request, so both cases are the same here.
            UnitKind::RunsForEver | UnitKind::IgnoresStop | UnitKind::Reloads => {
                "tick 1000".to_owned()
            }
            UnitKind::ExitsWith3 => "exit 3".to_owned(),
            UnitKind::Succeeds => "task 0".to_owned(),
            UnitKind::Fails => "task 3".to_owned(),
            UnitKind::HangsInStop => format!("linger \"{}\"", self.gate(unit)),
            UnitKind::Writes => "say one two three".to_owned(),
            UnitKind::WritesMore => "say four".to_owned(),
            UnitKind::Broken => "fly".to_owned(),
            other => panic!("the suite has a new kind of unit: {other:?}"),
        };
        let text = format!("[Service]\nExecStart={program}\n");
        UnitFile::parse(text).expect("every program is one line")
    }
}

fn placements_text(snapshot: &Snapshot) -> String {
    let line = |machine: &_| {
        let here = snapshot.units().filter(|unit| homes(snapshot, unit).contains(&machine));
        let here: Vec<&str> = here.map(|unit| unit.name.as_str()).collect();
        format!("{machine}: {}\n", here.join(", "))
    };
    snapshot.machines().map(|machine| line(&machine.id)).collect()
}

fn only_those_of_a_lost_machine_move(
    before: &Snapshot,
    after: &Snapshot,
) -> Result<(), Box<dyn Error>> {
    for (unit, was) in before.placements() {
        let is = after.placement(unit.as_str()).ok_or("a unit runs without a placement")?;
        if after.machine(was.machine.as_str()).is_some() {
            assert_eq!(is, was, "{unit} should not move");
        } else {
            println!("{unit} has moved from {} to {}", was.machine, is.machine);
            assert!(is.epoch > was.epoch, "the new placement has a later epoch");
        }
    }
    Ok(())
}
