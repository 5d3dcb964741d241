//! Formats clusters and events as scenario commands.

use fleet_core::pattern::Peer;
use fleet_core::requirements::Reschedule;
use fleet_core::{Machine, MachineId, Placement, Requirements, Resource, Snapshot, Unit};
use fleet_unitfile::UnitName;

/// Returns all commands that create a cluster.
pub(super) fn cluster(cluster: &Snapshot) -> String {
    let machines = cluster.machines().map(|it| machine(it));
    let units = cluster.units().map(|it| unit(it));
    let faults = cluster.faults().map(|(name, _)| unreadable(name));
    let placements = cluster.placements().map(|(name, at)| placed(name, at));
    machines.chain(units).chain(faults).chain(placements).map(|line| line + "\n").collect()
}

pub(super) fn machine(machine: &Machine) -> String {
    let mut text = format!("machine {}", machine.id);
    for (key, value) in &machine.metadata {
        text += &format!(" {key}={value}");
    }
    if !machine.offers.is_zero() {
        text += " offers";
    }
    for resource in Resource::ALL {
        let amount = machine.offers[resource];
        if amount > 0 {
            text += &format!(" {resource}={}", resource.format(amount));
        }
    }
    if machine.cordoned {
        text += " cordoned";
    }
    text
}

pub(super) fn gone(machine: &MachineId) -> String {
    format!("gone {machine}")
}

pub(super) fn unit(unit: &Unit) -> String {
    let mut text = format!("unit {} {}", unit.name, unit.desired);
    for option in options(&unit.requirements) {
        text += &format!("\n  {option}");
    }
    text
}

pub(super) fn destroyed(unit: &UnitName) -> String {
    format!("destroy {unit}")
}

pub(super) fn unreadable(unit: &UnitName) -> String {
    format!("unreadable {unit}")
}

pub(super) fn placed(unit: &UnitName, placement: &Placement) -> String {
    format!("placed {unit} {} {}", placement.machine, placement.epoch)
}

pub(super) fn unplaced(unit: &UnitName) -> String {
    format!("unplaced {unit}")
}

/// Returns the section with these requirements.
pub(super) fn section(requirements: &Requirements) -> String {
    let options = options(requirements);
    if options.is_empty() {
        return String::new();
    }
    format!("[X-Fleet]\n{}\n", options.join("\n"))
}

fn options(wants: &Requirements) -> Vec<String> {
    let mut lines = Vec::new();
    if wants.global {
        lines.push("Global=true".to_owned());
    }
    lines.extend(wants.machine_id.iter().map(|id| format!("MachineID={id}")));
    lines.extend(wants.machine_of.iter().map(|peer| format!("MachineOf={}", Peer::as_str(peer))));
    for (key, values) in &wants.metadata {
        lines.extend(values.iter().map(|value| format!("MachineMetadata={key}={value}")));
    }
    lines.extend(wants.metadata_expr.iter().map(|expr| format!("MachineMetadataExpr={expr}")));
    lines.extend(wants.conflicts.iter().map(|pattern| format!("Conflicts={pattern}")));
    lines.extend(wants.replaces.iter().map(|pattern| format!("Replaces={pattern}")));
    lines.extend(wants.max_per_machine.iter().map(|limit| format!("MaxPerMachine={limit}")));
    lines.extend(reservations(wants));
    lines.extend(wants.prefer.iter().map(|it| format!("Prefer={}: {}", it.weight, it.expression)));
    lines.extend(wants.spread.iter().map(|it| format!("Spread={}: {}", it.weight, it.key)));
    let failures = wants.failed_on.iter();
    lines.extend(failures.map(|(machine, count)| format!("# failed on {machine}: {count}")));
    if wants.reschedule == Reschedule::Never {
        lines.push("Reschedule=never".to_owned());
    }
    if let Some(job) = &wants.job {
        lines.push("RunOnce=true".to_owned());
        lines.extend(job.schedule.iter().map(|it| format!("Schedule={}", it.calendar)));
    }
    lines
}

fn reservations(wants: &Requirements) -> impl Iterator<Item = String> {
    let options = ["ReserveCPU", "ReserveMemory", "ReserveDisk"];
    let reserved = Resource::ALL.into_iter().zip(options);
    let reserved = reserved.filter(|(resource, _)| wants.reserve[*resource] > 0);
    reserved
        .map(|(resource, option)| format!("{option}={}", resource.format(wants.reserve[resource])))
}
