//! The clusters that are measured.

use fleet_core::{Machine, Requirements, Resources, Revision, Snapshot, Spread, TargetState, Unit};
use fleet_unitfile::UnitFile;

const ZONES: usize = 3;
const CORE: u64 = 1000;
const GIGABYTE: u64 = 1 << 30;

/// A cluster of one shape in which nobody has a machine.
pub(crate) fn cluster(shape: &str, units: usize, machines: usize) -> Snapshot {
    let mut cluster = Snapshot::default();
    cluster.revision = Revision(1);
    // What all units of the shape `reserve` ask for in all is nine tenths of what there is.
    let offered = units * 4 * 10 / 9 / machines.max(1) + 7;
    for index in 0..machines {
        cluster.put_machine(machine(index, offered as u64 * CORE));
    }
    for index in 0..units {
        let (name, requirements) = match shape {
            "metadata" => (plain_name(index), in_zone(index)),
            "reserve" => (plain_name(index), reserving(index)),
            "conflicts" => (format!("green-{index:06}.service"), conflicting("green-*")),
            "templates" => instance(index, 10, |prefix| conflicting(&format!("{prefix}@*"))),
            "groups" => in_group(index),
            "spread" => instance(index, 100, |_| spreading()),
            _ => (plain_name(index), Requirements::default()),
        };
        cluster.put_unit(unit(&name, requirements));
    }
    cluster
}

pub(crate) fn unit(name: &str, requirements: Requirements) -> Unit {
    let file = UnitFile::parse("[Service]\nExecStart=/bin/true\n").expect("a unit file");
    Unit::new(name.parse().expect("a unit name"), file, requirements, TargetState::Launched)
}

pub(crate) fn machine_id(index: usize) -> String {
    format!("{index:032x}")
}

pub(crate) fn machine(index: usize, cpu: u64) -> Machine {
    let id = machine_id(index).parse().expect("a machine ID");
    let machine = Machine::new(id).with_metadata("zone", &format!("z{}", index % ZONES));
    Machine { offers: Resources { cpu, memory: cpu / CORE * GIGABYTE, disk: 0 }, ..machine }
}

pub(crate) fn plain_name(index: usize) -> String {
    format!("unit-{index:07}.service")
}

fn in_zone(index: usize) -> Requirements {
    let zone = [format!("z{}", index % ZONES)].into();
    let metadata = [(String::from("zone"), zone)].into();
    Requirements { metadata, ..Requirements::default() }
}

fn reserving(index: usize) -> Requirements {
    let cores = index as u64 % 7 + 1;
    let gigabytes = index as u64 * 3 % 7 + 1;
    let reserve = Resources { cpu: cores * CORE, memory: gigabytes * GIGABYTE, disk: 0 };
    Requirements { reserve, ..Requirements::default() }
}

pub(crate) fn conflicting(pattern: &str) -> Requirements {
    let conflicts = vec![pattern.parse().expect("a pattern")];
    Requirements { conflicts, ..Requirements::default() }
}

fn spreading() -> Requirements {
    let spread = vec![Spread { weight: 1, key: String::from("zone") }];
    Requirements { spread, ..Requirements::default() }
}

fn instance(
    index: usize,
    of_each: usize,
    wants: impl FnOnce(&str) -> Requirements,
) -> (String, Requirements) {
    let prefix = format!("app{:06}", index / of_each);
    (format!("{prefix}@{:03}.service", index % of_each), wants(&prefix))
}

fn in_group(index: usize) -> (String, Requirements) {
    let member = |at: usize| format!("group-{:06}-{at}.service", index / 5);
    let peer = match index % 5 {
        0 => None,
        1..4 => Some(member(0)),
        _ => Some(member(1)),
    };
    let machine_of = peer.iter().map(|name| name.parse().expect("a unit name")).collect();
    (member(index % 5), Requirements { machine_of, ..Requirements::default() })
}
