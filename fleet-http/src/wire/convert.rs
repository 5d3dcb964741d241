//! Conversion of domain values to wire types.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fleet_core::health::Health;
use fleet_core::manager::{ManagerInfo, NativeInfo};
use fleet_core::reason::Tally;
use fleet_core::snapshot::Fault;
use fleet_core::{Intent, Placement, Reason, Snapshot};
use fleet_unitfile::UnitName;

use super::{
    JobView, MachineEntity, NearestRefusal, ReasonDetail, ReasonPeer, RefusalCount,
    ResourceAmounts, ScheduleView, ServiceManagerEntity, Time, UnitEntity, UnitOptionEntity,
    UnitStateEntity,
};

/// Converts a unit for lists, with its options but without its source.
pub(crate) fn unit(snapshot: &Snapshot, unit: &fleet_core::Unit) -> UnitEntity {
    let options = unit.file.options().map(option).collect();
    let job = JobView::new(unit, snapshot).map(|job| job.summary());
    let schedule = ScheduleView::new(unit, snapshot).map(|schedule| schedule.summary());
    UnitEntity { job, options, schedule, ..unit_summary(snapshot, unit) }
}

/// Converts a unit for events, without options and source.
pub(crate) fn unit_summary(snapshot: &Snapshot, unit: &fleet_core::Unit) -> UnitEntity {
    let name = unit.name.as_str();
    let placement = snapshot.placement(name);
    // A reason may be one revision older than the placement; an outdated one must not contradict
    // it.
    let reason = snapshot.reason(name).filter(|reason| is_consistent(reason, placement));
    let failures = snapshot.failures_of(name);
    let machine = placement.map(|placement| &placement.machine);
    UnitEntity {
        current_state: snapshot.current(unit).to_string(),
        desired_state: unit.desired.to_string(),
        failures: failures.map_or_else(String::new, |it| it.describe(unit, machine)),
        generation: unit.generation.0,
        global: unit.is_global(),
        hash: unit.hash().to_string(),
        machine_id: placement.map_or_else(String::new, |placement| placement.machine.to_string()),
        name: unit.name.to_string(),
        reason: reason.map_or_else(String::new, ToString::to_string),
        reason_detail: reason.map(|reason| reason_detail(reason)),
        reason_summary: reason.map_or_else(String::new, |reason| reason.summary()),
        ..UnitEntity::default()
    }
}

/// Whether a reason is consistent with the unit's placement.
fn is_consistent(reason: &Reason, placement: Option<&Placement>) -> bool {
    match reason {
        Reason::NotRescheduled { machine }
        | Reason::MachineAwaited { machine }
        | Reason::MayStillRun { machine, .. } => {
            placement.is_some_and(|placement| placement.machine == *machine)
        }
        _ => placement.is_none(),
    }
}

/// Converts a unit with its source, byte for byte.
pub(crate) fn unit_with_source(snapshot: &Snapshot, domain: &fleet_core::Unit) -> UnitEntity {
    let mut entity = unit(snapshot, domain);
    match domain.file.source_str() {
        Some(text) => entity.source = Some(text.to_owned()),
        None => entity.source_base64 = Some(STANDARD.encode(domain.file.source())),
    }
    entity
}

/// Converts a stored unit that cannot be decoded.
pub(crate) fn faulty_unit(name: &UnitName, fault: &Fault) -> UnitEntity {
    UnitEntity { name: name.to_string(), problem: fault.message.clone(), ..UnitEntity::default() }
}

/// Returns the reason that the unit is on no machine, as text.
pub(crate) fn reason_text(snapshot: &Snapshot, unit: &fleet_core::Unit) -> String {
    if let Some(reason) = snapshot.reason(unit.name.as_str()) {
        return reason.to_string();
    }
    if unit.name.is_template() {
        return "it is a template, and only its instances run".to_owned();
    }
    if unit.is_schedule() {
        return "it is a schedule, and only its runs are placed".to_owned();
    }
    if let Some(job) = JobView::new(unit, snapshot).filter(|_| !unit.is_wanted()) {
        return format!("it is a job: {}", job.summary().text);
    }
    if !unit.is_wanted() {
        return "its desired state is inactive".to_owned();
    }
    "no engine has considered the unit yet".to_owned()
}

/// Converts a unit's state on one machine.
pub(crate) fn state(state: &fleet_core::UnitState) -> UnitStateEntity {
    let systemd = &state.systemd;
    let health_problem = match &state.health {
        Some(Health::Unhealthy { message }) => message.clone(),
        _ => String::new(),
    };
    UnitStateEntity {
        requested_state: state.requested.to_string(),
        exit: systemd.exit.map_or_else(String::new, |exit| exit.to_string()),
        generation: state.generation.0,
        hash: state.hash.to_string(),
        health: state.health.as_ref().map_or("", Health::as_str).to_owned(),
        health_problem,
        machine_id: state.machine.to_string(),
        main_pid: systemd.main_pid,
        name: state.unit.to_string(),
        problem: state.problem.clone().unwrap_or_default(),
        restarts: systemd.restarts,
        result: systemd.result.clone().unwrap_or_default(),
        since: systemd.since.map(Time::from),
        systemd_active_state: systemd.active.to_string(),
        systemd_load_state: systemd.load.to_string(),
        systemd_sub_state: systemd.sub.clone(),
    }
}

/// Converts a machine.
pub(crate) fn machine(machine: &fleet_core::Machine) -> MachineEntity {
    MachineEntity {
        absent_for: None,
        cordoned: machine.cordoned,
        hostname: machine.hostname.clone(),
        id: machine.id.to_string(),
        intent: machine.intent.map_or("", intent).to_owned(),
        metadata: machine.metadata.clone(),
        offers: ResourceAmounts {
            cpu: machine.offers.cpu,
            disk: machine.offers.disk,
            memory: machine.offers.memory,
        },
        primary_ip: machine.address.map_or_else(String::new, |address| address.to_string()),
        service_manager: machine.manager.as_deref().map(service_manager),
        version: machine.version.clone(),
    }
}

fn service_manager(manager: &ManagerInfo) -> ServiceManagerEntity {
    let kind = manager.kind().to_owned();
    match manager {
        ManagerInfo::Systemd => ServiceManagerEntity { kind, ..ServiceManagerEntity::default() },
        ManagerInfo::Native(NativeInfo { root, accept, .. }) => {
            ServiceManagerEntity { accept: accept.clone(), kind, root: *root }
        }
    }
}

pub(super) fn intent(intent: Intent) -> &'static str {
    match intent {
        Intent::Cordoned => "cordoned",
        Intent::Drained { .. } => "drained",
    }
}

fn option(option: fleet_unitfile::OptionView<'_>) -> UnitOptionEntity {
    UnitOptionEntity {
        name: option.name().to_owned(),
        section: option.section().to_owned(),
        value: option.verbatim().into_owned(),
    }
}

/// Converts the reason that a unit is on no machine.
pub(crate) fn reason_detail(reason: &Reason) -> ReasonDetail {
    let of_kind = |kind: &str| ReasonDetail { kind: kind.to_owned(), ..ReasonDetail::default() };
    match reason {
        Reason::NoMachines => of_kind("noMachines"),
        Reason::NoMachineFits { machines, tallies, nearest: closest } => ReasonDetail {
            machines: Some(*machines),
            nearest: closest.as_ref().map(nearest),
            refusals: refusals(tallies),
            ..of_kind("noMachineFits")
        },
        Reason::NoMachineFitsGroup { group, machines, tallies, nearest: closest } => ReasonDetail {
            group: names(group),
            machines: Some(*machines),
            nearest: closest.as_ref().map(nearest),
            refusals: refusals(tallies),
            ..of_kind("noMachineFitsGroup")
        },
        Reason::AttemptLimit => of_kind("attemptLimit"),
        Reason::PeerUnknown { peer } => {
            ReasonDetail { peers: vec![peer_named(peer)], ..of_kind("peerUnknown") }
        }
        Reason::PeerInactive { peer } => {
            ReasonDetail { peers: vec![peer_named(peer)], ..of_kind("peerInactive") }
        }
        Reason::PeersApart { one, other } => {
            let peers = [one, other].map(|(name, machine)| ReasonPeer {
                machine_id: machine.to_string(),
                name: name.to_string(),
            });
            ReasonDetail { peers: peers.into(), ..of_kind("peersApart") }
        }
        Reason::Cycle { units } => ReasonDetail { cycle: names(units), ..of_kind("cycle") },
        Reason::NotRescheduled { machine } => {
            ReasonDetail { machine_id: machine.to_string(), ..of_kind("notRescheduled") }
        }
        Reason::MachineAwaited { machine } => {
            ReasonDetail { machine_id: machine.to_string(), ..of_kind("machineAwaited") }
        }
        Reason::MayStillRun { machine, limit } => ReasonDetail {
            limit: limit.map(|limit| limit.as_secs()),
            machine_id: machine.to_string(),
            ..of_kind("mayStillRun")
        },
        _ => of_kind("other"),
    }
}

fn peer_named(peer: &fleet_core::pattern::Peer) -> ReasonPeer {
    ReasonPeer { machine_id: String::new(), name: peer.to_string() }
}

fn names(units: &[UnitName]) -> Vec<String> {
    units.iter().map(ToString::to_string).collect()
}

fn refusals(tallies: &[Tally]) -> Vec<RefusalCount> {
    let counts = tallies.iter().map(|tally| RefusalCount {
        example: tally.example.to_string(),
        machines: tally.machines,
        rule: tally.refusal.rule_name().to_owned(),
        text: tally.refusal.to_string(),
        unit: tally.unit.as_ref().map_or_else(String::new, ToString::to_string),
    });
    counts.collect()
}

fn nearest(nearest: &fleet_core::reason::NearestMachine) -> NearestRefusal {
    NearestRefusal {
        machine_id: nearest.machine.to_string(),
        rule: nearest.refusal.rule_name().to_owned(),
        text: nearest.refusal.to_string(),
        unit: nearest.unit.as_ref().map_or_else(String::new, ToString::to_string),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fleet_core::failures::{FailurePhase, FailureRecord};
    use fleet_core::{Epoch, Requirements, TargetState, Unit};
    use fleet_unitfile::UnitFile;

    use super::*;

    #[test]
    fn unit_shows_its_counted_failures() {
        let name: UnitName = "a.service".parse().expect("it is a name");
        let file = UnitFile::parse("[Service]\nExecStart=/bin/a\n").expect("it is a file");
        let wants = Requirements::default().with_move_after_failures(3);
        let unit = Unit::new(name.clone(), file, wants, TargetState::Launched);
        let machine = |id: &str| id.parse().expect("it is a machine ID");
        let mut snapshot = Snapshot::default();
        snapshot.place(name.clone(), machine("m2"), Epoch(1));
        assert_eq!(unit_summary(&snapshot, &unit).failures, "");
        let record = FailureRecord {
            hash: unit.hash(),
            generation: unit.generation,
            machines: BTreeMap::from([(machine("m1"), 3)]),
            total: 3,
            phase: FailurePhase::Restarted { up_since: None },
        };
        snapshot.put_failures(name, record);
        let shown = unit_summary(&snapshot, &unit).failures;
        assert_eq!(shown, "failed 3 times on m1: moved to m2");
    }
}
