//! A mirror of a large cluster: its loading time, its memory, and the cost of a change.

use std::sync::Arc;
use std::time::Instant;

use fleet_core::unit::LoadState;
use fleet_core::{ActiveState, Epoch, Generation, Metadata, SystemdState, TargetState, UnitState};
use fleet_store::registry::{ExpectUnit, MachineRecord, NewUnit, PlacementWrites, SetPlacement};
use fleet_store::{Layout, MemoryStore, Mirror, Registry};

use crate::{heap, micros, report, spread, unit, unit_of};

pub(crate) const UNITS: usize = 100_000;
const MACHINES: usize = 1_000;
const LEASE: std::time::Duration = std::time::Duration::from_secs(3600);

pub(crate) async fn measure() {
    one_cluster("alike", |number| unit_of(number, 0)).await;
    one_cluster("distinct", unit).await;
}

async fn one_cluster(name: &str, unit: fn(usize) -> NewUnit) {
    let registry = Registry::new(Arc::new(MemoryStore::new()), Layout::DEFAULT_PREFIX);
    fill(&registry, unit).await;
    let before = heap::live();
    let (begin, cpu) = (Instant::now(), cpu_seconds());
    let mirror = Mirror::start(&registry);
    let snapshot = mirror.wait_current().await.expect("it runs");
    report(&format!("mirror_{name}_load_s"), begin.elapsed().as_secs_f64());
    report(&format!("mirror_{name}_load_cpu_s"), cpu_seconds() - cpu);
    assert_eq!((snapshot.units().len(), snapshot.states().count()), (UNITS, UNITS));
    let held = (heap::live() - before) as f64 / UNITS as f64;
    let contents = content_bytes(unit) as f64;
    report(&format!("mirror_{name}_bytes_a_unit"), held);
    if name == "distinct" {
        report("mirror_distinct_bytes_a_unit_beside_contents", held - contents);
    }
    changes(name, &registry, &mirror).await;
}

/// Processor time used so far, on a system with 100 ticks per second like Linux. On a busy machine,
/// processor time is more meaningful than elapsed time.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("a process");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |index: usize| fields[index].parse::<f64>().expect("a number of ticks");
    (ticks(11) + ticks(12)) / 100.0
}

/// Returns the memory of a parsed unit file.
fn content_bytes(unit: fn(usize) -> NewUnit) -> usize {
    let before = heap::live();
    let units: Vec<_> = (0..1000).map(|number| unit(number).file).collect();
    (heap::live() - before - 8 * units.len()) / units.len()
}

/// Measures a change from the write until a reader sees it, while the previous snapshot is held.
async fn changes(name: &str, registry: &Registry, mirror: &Mirror) {
    let (mut times, mut copied) = (Vec::new(), 0);
    for number in 0..1000 {
        let held = mirror.snapshot();
        let unit = unit_of(number * 97 % UNITS, 0).name;
        let (before, begin) = (heap::live(), Instant::now());
        let (revision, _) = registry.request_restart(&unit).await.expect("a write");
        let news = mirror.wait_for(revision).await.expect("it runs");
        times.push(begin.elapsed());
        copied += heap::live().saturating_sub(before);
        assert_ne!(news.revision, held.revision);
    }
    let (median, p99) = spread(times);
    report(&format!("mirror_{name}_change_seen_median_us"), micros(median));
    report(&format!("mirror_{name}_change_seen_p99_us"), micros(p99));
    report(&format!("mirror_{name}_change_copies_bytes"), copied as f64 / 1000.0);
}

pub(crate) async fn fill(registry: &Registry, unit: fn(usize) -> NewUnit) {
    for number in 0..UNITS {
        registry.put_unit(unit(number), ExpectUnit::Absent).await.expect("a write");
    }
    let leader = registry.campaign(&id(0), LEASE).await.expect("a store").expect("no leader");
    let place = |number: usize| SetPlacement {
        unit: unit_of(number, 0).name,
        machine: id(number % MACHINES),
        epoch: Epoch(leader.elected().0),
        previous: None,
    };
    let place = (0..UNITS).map(place).collect();
    let writes = PlacementWrites { set: place, ..PlacementWrites::default() };
    leader.commit(&writes).await.expect("a write");
    for machine in 0..MACHINES {
        report_states(registry, machine).await;
    }
}

async fn report_states(registry: &Registry, machine: usize) {
    let metadata = Metadata::from([("region".to_owned(), "eu".to_owned())]);
    let version = "1.0.0".to_owned();
    let record = MachineRecord { metadata, version, ..MachineRecord::new(id(machine)) };
    let presence = registry.join(record, "token", LEASE).await.expect("a write");
    let units = (machine..UNITS).step_by(MACHINES).map(|number| unit_of(number, number));
    let state = |unit: NewUnit| UnitState {
        unit: unit.name,
        machine: id(machine),
        hash: unit.file.hash(),
        requested: TargetState::Launched,
        epoch: Epoch(1),
        generation: Generation::ZERO,
        systemd: SystemdState {
            main_pid: Some(4711),
            ..SystemdState::new(LoadState::Loaded, ActiveState::Active, "running")
        },
        problem: None,
        health: None,
        output: Vec::new(),
    };
    let states: Vec<UnitState> = units.map(state).collect();
    presence.publish_states(&states, &[]).await.expect("a write");
}

fn id(number: usize) -> fleet_core::MachineId {
    format!("{number:032x}").parse().expect("a machine ID")
}
