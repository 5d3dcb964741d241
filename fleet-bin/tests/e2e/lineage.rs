//! A machine whose cluster gets another store: a restored or a new one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::wall_time;
use fleet_core::{Epoch, MachineId, TargetState};
use fleet_store::registry::{ExpectUnit, Lineage, NewUnit, PlacementWrites, SetPlacement};
use fleet_store::{EmbeddedStore, Layout, Registry, Store};
use fleet_unitfile::UnitFile;
use serde_json::Value;

use crate::daemon::{is_alive, main_pid, output_text, wait_for};
use crate::run::{Machine, UNIT};

/// Runs work on the store of a stopped daemon.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(work)
}

fn file(seconds: u32) -> String {
    format!("[Service]\nExecStart=/bin/sleep {seconds}\n")
}

/// Runs each content of the unit in turn, so that the machine records several placements.
fn run_contents(machine: &mut Machine, contents: &[u32]) {
    machine.start();
    for seconds in contents {
        let path = machine.path(UNIT);
        std::fs::write(&path, file(*seconds)).unwrap();
        let started = machine.fleetctl(&["start", "--replace", path.to_str().unwrap()]);
        assert!(started.status.success(), "{}", output_text(&started));
        wait_until_sleeping(machine, *seconds);
    }
    machine.end();
}

/// Waits until the unit sleeps for `seconds`. Returns its row from the same check, since a
/// restarted daemon first removes the row of its predecessor.
fn wait_until_sleeping(machine: &Machine, seconds: u32) -> Value {
    wait_for(&format!("the unit sleeps for {seconds} seconds"), || {
        let row = machine.row()?;
        let pid = row["mainPID"].as_i64()?;
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        command.contains(&seconds.to_string()).then_some(row)
    })
}

async fn open(path: &Path) -> EmbeddedStore {
    EmbeddedStore::open(path).await.unwrap()
}

// Holds: I-2
#[test]
fn machine_follows_a_restored_store() {
    let mut machine = Machine::new();
    let (store, backup) = (machine.path("data/store.redb"), machine.path("backup"));
    run_contents(&mut machine, &[1001]);
    block_on(async {
        let store = open(&store).await;
        store.backup(&backup).await.unwrap();
        store.close().await;
    });
    run_contents(&mut machine, &[1002, 1003]);
    std::fs::remove_file(&store).unwrap();
    let second: Lineage = "second".parse().unwrap();
    block_on(EmbeddedStore::restore(&backup, &store, &Layout::default(), &second)).unwrap();
    machine.start();
    wait_until_sleeping(&machine, 1001);
}

/// The new store's revisions are lower than those that the machine remembers of the old one.
// Holds: I-2
#[test]
fn machine_follows_a_recreated_store() {
    let mut machine = Machine::new();
    run_contents(&mut machine, &[1001, 1002, 1003]);
    machine.start();
    let row = wait_until_sleeping(&machine, 1003);
    let id = row["machine"].as_str().unwrap().parse().unwrap();
    machine.end();
    let path = machine.path("data/store.redb");
    std::fs::remove_file(&path).unwrap();
    block_on(recreate_store(&path, id));
    machine.accept_store();
    machine.start();
    wait_until_sleeping(&machine, 1004);
}

// Holds: I-8
#[test]
fn lost_store_ends_no_unit() {
    let mut machine = Machine::new();
    let pid = main_pid(&machine.start_with_unit());
    machine.wait_until_saved(UNIT);
    let backup = machine.path("backup.jsonl");
    let exported = machine.fleetctl(&["export", backup.to_str().unwrap()]);
    assert!(exported.status.success(), "{}", output_text(&exported));
    machine.kill();
    let store = machine.path("data/store.redb");
    std::fs::rename(&store, machine.path("lost")).unwrap();
    machine.start_refused();
    let listed = output_text(&machine.fleetctl(&["list-units"]));
    assert!(listed.contains("fleetd accept-store"), "{listed}");
    let diagnosed = output_text(&machine.fleetctl(&["doctor"]));
    assert!(diagnosed.contains("problem: fleetd refuses its store"), "{diagnosed}");
    let exported = output_text(&machine.fleetctl(&["export"]));
    assert!(exported.contains("the store was emptied or replaced"), "{exported}");
    machine.end();
    assert!(is_alive(pid), "the unit has ended");
    // The backup continues the lost store, without a confirmation.
    std::fs::remove_file(&store).unwrap();
    machine.import_offline(&backup);
    machine.start();
    let row = wait_for("the unit is reported", || machine.row());
    assert_eq!(main_pid(&row), pid);
    // Only a confirmed empty store ends the unit.
    machine.wait_until_saved(UNIT);
    machine.end();
    std::fs::remove_file(&store).unwrap();
    machine.start_refused();
    machine.kill();
    machine.accept_store();
    machine.start();
    wait_for("the unit has ended", || (!is_alive(pid)).then_some(()));
}

/// Creates a store that places the unit, with another content, on this machine.
async fn recreate_store(path: &Path, machine: MachineId) {
    let store = Arc::new(open(path).await);
    let registry = Registry::new(store.clone() as Arc<dyn Store>, Layout::DEFAULT_PREFIX);
    let lineage: Lineage = "second".parse().unwrap();
    let epoch_base = wall_time().as_millis() * 1000;
    registry.lineage(&lineage.with_epoch_base(epoch_base)).await.unwrap();
    let file = UnitFile::parse(file(1004)).unwrap();
    let unit = NewUnit { name: UNIT.parse().unwrap(), file, desired: TargetState::Launched };
    registry.put_unit(unit, ExpectUnit::Absent).await.unwrap();
    let ttl = Duration::from_secs(60);
    let leader = registry.campaign(&machine, ttl).await.unwrap().unwrap();
    let epoch = Epoch(leader.elected().0);
    let place = SetPlacement { unit: UNIT.parse().unwrap(), machine, epoch, previous: None };
    let writes = PlacementWrites { set: vec![place], ..PlacementWrites::default() };
    leader.commit(&writes).await.unwrap();
    leader.resign().await.unwrap();
    drop(registry);
    Arc::into_inner(store).expect("no other reference").close().await;
}
