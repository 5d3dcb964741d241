//! The measured clusters.

use fleet_core::requirements::{Preference, Spread};
use fleet_core::{
    Epoch, Expression, Machine, Requirements, Resources, Revision, Snapshot, TargetState, Unit,
};
use fleet_unitfile::UnitFile;

const ZONES: usize = 3;
const CORE: u64 = 1000;
const GIGABYTE: u64 = 1 << 30;
const NO_RESOURCES: Resources = Resources { cpu: 0, memory: 0, disk: 0 };

/// Creates a cluster of a shape. No unit is placed, except in the shapes that measure a later
/// operation. In these, all units are placed except those that wait.
pub(crate) fn cluster(shape: &str, units: usize, machines: usize) -> Snapshot {
    let mut cluster = Snapshot::default();
    cluster.revision = Revision(1);
    // The reservations of the shape `reserve` add up to nine tenths of the capacity.
    let offered = units * 4 * 10 / 9 / machines.max(1) + 7;
    for index in 0..machines {
        let machine = machine(index, offered as u64 * CORE);
        cluster.put_machine(match shape {
            "pinned" => machine.with_metadata("host", &format!("h{index}")),
            _ => machine,
        });
    }
    for index in 0..units {
        let (name, requirements) = match shape {
            "metadata" => (plain_name(index), in_zone(index)),
            "reserve" => (plain_name(index), reserving(index)),
            "conflicts" => (format!("green-{index:06}.service"), conflicting("green-*")),
            "templates" => instance(index, 10, |prefix| conflicting(&format!("{prefix}@*"))),
            "groups" => in_group(index),
            "spread" => instance(index, 100, |_| spreading()),
            "pinned" => (plain_name(index), on_host(index % machines.max(1))),
            "patterns" => (plain_name(index), conflicting(&format!("*-{index:07}.service"))),
            "followers" => follower(index),
            "replaced" => replacing(index, Resources::default()),
            "stuck" => replacing(index, Resources { cpu: offered as u64 * CORE, ..NO_RESOURCES }),
            "waiting" => filling(index, machines, offered as u64 * CORE),
            "restart" if index.is_multiple_of(10) => (plain_name(index), too_much(index + offered)),
            "star" => following(index, 0),
            "chain" => following(index, index.saturating_sub(1)),
            "bound" => bound(index, units),
            "common_pattern" => common_pattern(index),
            "unmatched" => matching(index, "unit-*x.service"),
            "prefer" => (plain_name(index), preferring(index)),
            "expression" => (plain_name(index), demanding(index)),
            "packed" => (plain_name(index), reserving_own(index)),
            "blocked_conflicts" => (plain_name(index), conflicting("blocked*")),
            "blocked_replaces" => (plain_name(index), replaces("blocked*")),
            _ => (plain_name(index), Requirements::default()),
        };
        let place = match shape {
            "stuck" => Some(index / 2),
            "waiting" => Some(index).filter(|index| *index < machines),
            "restart" if !index.is_multiple_of(10) => Some(index),
            _ => None,
        };
        cluster.put_unit(unit(&name, requirements));
        if let Some(place) = place {
            let machine = machine_id(place % machines.max(1)).parse().expect("a machine ID");
            cluster.place(name.parse().expect("a unit name"), machine, Epoch(1));
        }
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
    Requirements::default().with_metadata(metadata)
}

fn reserving(index: usize) -> Requirements {
    let cores = index as u64 % 7 + 1;
    let gigabytes = index as u64 * 3 % 7 + 1;
    let reserve = Resources { cpu: cores * CORE, memory: gigabytes * GIGABYTE, disk: 0 };
    Requirements::default().with_reserve(reserve)
}

pub(crate) fn conflicting(pattern: &str) -> Requirements {
    let conflicts = vec![pattern.parse().expect("a pattern")];
    Requirements::default().with_conflicts(conflicts)
}

fn replaces(pattern: &str) -> Requirements {
    let replaces = vec![pattern.parse().expect("a pattern")];
    Requirements::default().with_replaces(replaces)
}

fn on_host(host: usize) -> Requirements {
    let metadata = [(String::from("host"), [format!("h{host}")].into())].into();
    Requirements::default().with_metadata(metadata)
}

fn too_much(cores: usize) -> Requirements {
    let reserve = Resources { cpu: cores as u64 * CORE, ..NO_RESOURCES };
    Requirements::default().with_reserve(reserve)
}

/// Returns a unit of a pair: the leader, or the unit that follows it by a pattern.
fn follower(index: usize) -> (String, Requirements) {
    let pair = index / 2;
    if index.is_multiple_of(2) {
        return (format!("lead-{pair:06}.service"), Requirements::default());
    }
    let machine_of = vec![format!("*ead-{pair:06}.service").parse().expect("a pattern")];
    (format!("side-{pair:06}.service"), Requirements::default().with_machine_of(machine_of))
}

/// Returns a unit with a reservation, or one that replaces it.
fn replacing(index: usize, reserve: Resources) -> (String, Requirements) {
    let pair = index / 2;
    if index.is_multiple_of(2) {
        let wants = Requirements::default().with_reserve(reserve);
        return (format!("old-{pair:06}.service"), wants);
    }
    (format!("new-{pair:06}.service"), replaces(&format!("old-{pair:06}.service")))
}

/// Returns a unit that fills its machine or, from the index `machines` on, a unit that replaces
/// such a unit.
fn filling(index: usize, machines: usize, cpu: u64) -> (String, Requirements) {
    let reserve = Resources { cpu, ..NO_RESOURCES };
    match index.checked_sub(machines) {
        None => (plain_name(index), Requirements::default().with_reserve(reserve)),
        Some(at) => {
            let wants = replaces(&plain_name(at)).with_reserve(reserve);
            (format!("new-{at:06}.service"), wants)
        }
    }
}

/// Returns a unit that follows an earlier one. The first unit follows none.
fn following(index: usize, leader: usize) -> (String, Requirements) {
    match index {
        0 => (plain_name(0), Requirements::default()),
        _ => matching(index, &plain_name(leader)),
    }
}

fn matching(index: usize, peer: &str) -> (String, Requirements) {
    let machine_of = vec![peer.parse().expect("a peer")];
    (plain_name(index), Requirements::default().with_machine_of(machine_of))
}

/// Returns a unit of a star that only the machines of the first zone accept, because of its last
/// unit.
fn bound(index: usize, units: usize) -> (String, Requirements) {
    let (name, wants) = following(index, 0);
    if index + 1 < units {
        return (name, wants);
    }
    (name, in_zone(0).with_machine_of(wants.machine_of))
}

fn common_pattern(index: usize) -> (String, Requirements) {
    if index.is_multiple_of(2) {
        return (format!("lead@{index:06}.service"), Requirements::default());
    }
    matching(index, "lead@*.service")
}

fn preferring(index: usize) -> Requirements {
    let prefer = vec![Preference { weight: 1, expression: expression(index) }];
    Requirements::default().with_prefer(prefer)
}

fn demanding(index: usize) -> Requirements {
    Requirements::default().with_metadata_expr(expression(index))
}

fn expression(index: usize) -> Expression {
    let text = format!("zone = z{} or zone = a{index}", index % ZONES);
    text.parse().expect("an expression")
}

/// Returns a unit with a reservation that no other unit has.
fn reserving_own(index: usize) -> Requirements {
    let cpu = reserving(index).reserve.cpu;
    let reserve = Resources { cpu, memory: index as u64, ..NO_RESOURCES };
    Requirements::default().with_reserve(reserve)
}

fn spreading() -> Requirements {
    let spread = vec![Spread { weight: 1, key: String::from("zone") }];
    Requirements::default().with_spread(spread)
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
    (member(index % 5), Requirements::default().with_machine_of(machine_of))
}
