//! Reasons why units have no machine. A reason is valid only after every unit that fits somewhere
//! has been placed.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::reason::{NearestMachine, Tally};
use fleet_core::{MachineId, Reason, Refusal};
use fleet_unitfile::UnitName;

use super::replace;
use crate::index::refusal_counts::RefusalSummary;
use crate::index::{Cluster, refusal_counts, undo_log};
use crate::planner::search;
use crate::rules::{Denial, PlacementQuery, Rank, denial, replaces};
use crate::state::{
    ClassNo, Lookup, MachineNo, PatternNo, PeerRef, PeerState, State, UnitKind, UnitNo, WaitState,
};

/// Maximum number of units that a reason lists. For a longer cycle, the reason names only the next
/// unit of the cycle, as a missing peer. For a larger group, the reason does not list the members.
pub(crate) const MAX_LISTED: usize = 64;

/// Reasons shared by several units.
#[derive(Default)]
pub(super) struct ReasonCache {
    by_class: Lookup<ClassNo, Arc<Reason>>,
    by_group: Lookup<UnitNo, Arc<Reason>>,
    /// The first two inactive units that each pattern matches. A pattern never means the unit that
    /// has it, so the second one counts if that unit is the first.
    inactive: Lookup<PatternNo, [Option<UnitNo>; 2]>,
}

/// The first unit of a group that a machine refuses, and the denial.
type GroupDenial = (UnitNo, Denial);

/// Returns the reasons of units without a machine.
pub(super) fn reasons_of(
    cluster: &mut Cluster,
    units: &[UnitNo],
) -> BTreeMap<UnitName, Arc<Reason>> {
    let mut cache = ReasonCache::default();
    let mut reasons = Vec::with_capacity(units.len());
    for unit in units {
        let reason = cached_reason(cluster, *unit, &mut cache);
        reasons.push((cluster.state.units.name(*unit).clone(), reason));
    }
    reasons.into_iter().collect()
}

fn cached_reason(cluster: &mut Cluster, unit: UnitNo, cache: &mut ReasonCache) -> Arc<Reason> {
    if cluster.stranded.contains(&unit) || cluster.state.is_tied(unit) {
        if let Some(reason) = reason_without_machines(cluster, unit, cache) {
            return Arc::new(reason);
        }
    } else {
        let class = cluster.state.units[unit].class;
        if let Some(reason) = cache.by_class.get(&class) {
            return reason.clone();
        }
        let reason = Arc::new(reason_of_class(cluster, unit));
        cache.by_class.insert(class, reason.clone());
        return reason;
    }
    let key = parked_group(&cluster.state, unit);
    if let Some(reason) = key.and_then(|key| cache.by_group.get(&key)) {
        return reason.clone();
    }
    let group = match cluster.state.units[unit].wait {
        WaitState::Unsatisfiable => vec![unit], // It belongs to no group.
        _ => group_of(&cluster.state, unit),
    };
    let reason = Arc::new(reason_by_machines(cluster, &group));
    if let Some(key) = key {
        cache.by_group.insert(key, reason.clone());
    }
    reason
}

/// Returns the key of the group with which a unit is parked, or `None` if the unit is not parked
/// with a group.
fn parked_group(state: &State, unit: UnitNo) -> Option<UnitNo> {
    let slot = &state.units[unit];
    slot.affinity.as_ref().filter(|_| slot.wait == WaitState::Tied).map(|affinity| affinity.group)
}

/// Returns the reason of a unit that no machine accepts. A problem with the unit's peers comes
/// before any refusal, because such a problem applies to every machine.
///
/// If the caller knows a summary of the refusals, it passes the summary in `known`. Otherwise the
/// function counts the refusals.
pub(crate) fn reason(
    cluster: &mut Cluster,
    unit: UnitNo,
    known: Option<&RefusalSummary<Rank>>,
) -> Reason {
    if let Some(reason) = reason_without_machines(cluster, unit, &mut ReasonCache::default()) {
        return reason;
    }
    let group = group_of(&cluster.state, unit);
    match known {
        Some(summary) => reason_from(cluster, &group, summary),
        None => reason_by_machines(cluster, &group),
    }
}

/// Returns a waiting unit together with the waiting units that must be placed with it.
pub(crate) fn group_of(state: &State, unit: UnitNo) -> Vec<UnitNo> {
    let component = state.component(unit);
    let group = component.groups.into_iter().find(|group| group.contains(&unit));
    group.unwrap_or_else(|| vec![unit])
}

pub(super) fn reason_without_machines(
    cluster: &Cluster,
    unit: UnitNo,
    cache: &mut ReasonCache,
) -> Option<Reason> {
    if cluster.stranded.contains(&unit) {
        let machine = cluster.state.machines.id(cluster.state.units[unit].placed).clone();
        return Some(Reason::NotRescheduled { machine });
    }
    missing_peer(&cluster.state, unit, cache)
        .or_else(|| cycle_reason(&cluster.state, unit))
        .or_else(|| peers_apart(&cluster.state, unit))
}

/// Returns the reason for the first peer, in the order written, that no participating unit
/// satisfies: the peer is inactive or unknown. Returns `None` if there is no such peer.
fn missing_peer(state: &State, unit: UnitNo, cache: &mut ReasonCache) -> Option<Reason> {
    let slot = &state.units[unit];
    let unsatisfiable = |peer: &PeerRef| state.peer_state(unit, *peer) == PeerState::Unsatisfiable;
    let at = slot.peers().iter().position(unsatisfiable)?;
    let peer = slot.requirements.as_ref()?.machine_of.get(at)?.clone();
    let is_inactive = |other: UnitNo| state.units[other].kind == UnitKind::Inactive;
    let inactive = match slot.peers()[at] {
        PeerRef::Named(other) => is_inactive(other),
        PeerRef::Matching(pattern) => {
            let found = cache.inactive.get(&pattern).copied().unwrap_or_else(|| {
                let mut found = state.matching(pattern).filter(|other| is_inactive(*other));
                [found.next(), found.next()]
            });
            cache.inactive.insert(pattern, found);
            found.into_iter().flatten().any(|other| other != unit)
        }
    };
    Some(if inactive { Reason::PeerInactive { peer } } else { Reason::PeerUnknown { peer } })
}

fn cycle_reason(state: &State, unit: UnitNo) -> Option<Reason> {
    let cycle = state.shortest_cycle(unit, MAX_LISTED)?;
    Some(Reason::Cycle { units: names_of(state, &cycle) })
}

/// Returns the reason that two peers named in `MachineOf=` are on different machines, or `None` if
/// no two are. The reason names the first peer, in the order written, that has a machine, and the
/// next peer on another machine.
fn peers_apart(state: &State, unit: UnitNo) -> Option<Reason> {
    let mut assigned = state.units[unit].peers().iter().filter_map(|peer| match peer {
        PeerRef::Named(other) => Some((*other, state.units[*other].machine.some()?)),
        PeerRef::Matching(_) => None,
    });
    let one = assigned.next()?;
    let other = assigned.find(|(_, machine)| *machine != one.1)?;
    let named = |(unit, machine): (UnitNo, MachineNo)| -> (UnitName, MachineId) {
        (state.units.name(unit).clone(), state.machines.id(machine).clone())
    };
    Some(Reason::PeersApart { one: named(one), other: named(other) })
}

fn names_of(state: &State, units: &[UnitNo]) -> Vec<UnitName> {
    units.iter().map(|unit| state.units.name(*unit).clone()).collect()
}

pub(super) fn reason_by_machines(cluster: &mut Cluster, group: &[UnitNo]) -> Reason {
    let summary = count_refusals(cluster, group);
    reason_from(cluster, group, &summary)
}

/// Returns the reason of a unit that is not tied to others. The reason applies to all waiting units
/// of the same class.
fn reason_of_class(cluster: &mut Cluster, unit: UnitNo) -> Reason {
    if let Some(summary) = search::count_refusals_of_few(cluster, unit) {
        return reason_from(cluster, &[unit], &summary);
    }
    match refusal_counts::cached_refusals(cluster, unit) {
        Some(summary) => reason_from(cluster, &[unit], &summary),
        None => reason_by_machines(cluster, &[unit]),
    }
}

/// Builds the reason from a summary of refusals.
fn reason_from<R>(cluster: &mut Cluster, group: &[UnitNo], summary: &RefusalSummary<R>) -> Reason {
    let Ok(machines @ 1..) = u32::try_from(cluster.state.machines.count()) else {
        return Reason::NoMachines;
    };
    let tallies = summary.tallies.values().filter_map(|(machines, machine)| {
        let (unit, refusal) = named_refusal(cluster, group, *machine)?;
        let example = cluster.state.machines.id(*machine).clone();
        Some(Tally { machines: *machines, example, unit, refusal })
    });
    let tallies = tallies.collect();
    let nearest = summary.nearest.as_ref().and_then(|(_, _, machine)| {
        let (unit, refusal) = named_refusal(cluster, group, *machine)?;
        Some(NearestMachine { machine: cluster.state.machines.id(*machine).clone(), unit, refusal })
    });
    if group.len() == 1 || group.len() > MAX_LISTED {
        return Reason::NoMachineFits { machines, tallies, nearest };
    }
    let mut names = names_of(&cluster.state, group);
    names.sort();
    Reason::NoMachineFitsGroup { group: names, machines, tallies, nearest }
}

/// Counts the refusals of a group over all machines.
fn count_refusals(cluster: &mut Cluster, group: &[UnitNo]) -> RefusalSummary<Rank> {
    let mut summary = RefusalSummary::new();
    let machines: Vec<MachineNo> = cluster.state.machines.present().collect();
    for machine in machines {
        if let Some((_, denial)) = group_denial(cluster, group, machine) {
            summary.add(denial.rank(), cluster.state.machines[machine].occupancy.load(), machine);
        }
    }
    summary
}

/// Returns the refusal of a group by a machine, and the name of the refused unit if the group has
/// several units. Returns `None` if the machine accepts the group.
fn named_refusal(
    cluster: &mut Cluster,
    group: &[UnitNo],
    machine: MachineNo,
) -> Option<(Option<UnitName>, Refusal)> {
    let (unit, _, refusal) = refused(cluster, group, machine)?;
    let refused_unit = (group.len() > 1).then(|| cluster.state.units.name(unit).clone());
    Some((refused_unit, refusal))
}

/// Returns the first unit of a group that a machine refuses, with the rank of the refusing rule and
/// the refusal in full. Returns `None` if the machine accepts the group.
pub(crate) fn refused(
    cluster: &mut Cluster,
    group: &[UnitNo],
    machine: MachineNo,
) -> Option<(UnitNo, Rank, Refusal)> {
    if let Some(unit) = plain_unit(&cluster.state, group) {
        let query = PlacementQuery::new(&cluster.state, unit, machine);
        let denial = query.denial()?;
        return Some((unit, denial.rank(), query.refusal(denial)));
    }
    try_group(cluster, group, machine, |cluster, unit, denial| {
        let leaving = replace::leaving(
            &cluster.state,
            &replaces::replaced(&cluster.state, unit, machine),
            machine,
        );
        let query = PlacementQuery {
            leaving: &leaving,
            ..PlacementQuery::new(&cluster.state, unit, machine)
        };
        (unit, denial.rank(), query.refusal(denial))
    })
}

fn group_denial(
    cluster: &mut Cluster,
    group: &[UnitNo],
    machine: MachineNo,
) -> Option<GroupDenial> {
    match plain_unit(&cluster.state, group) {
        Some(unit) => denial(&cluster.state, unit, machine).map(|denial| (unit, denial)),
        None => try_group(cluster, group, machine, |_, unit, denial| (unit, denial)),
    }
}

/// Returns the only unit of a group, if that unit replaces no other unit. For such a unit, a
/// machine can be checked without a tentative assignment.
fn plain_unit(state: &State, group: &[UnitNo]) -> Option<UnitNo> {
    let [unit] = group else { return None };
    state.class(*unit).replaces.is_empty().then_some(*unit)
}

/// Assigns a group to a machine tentatively and rolls back. If the machine refuses a unit of the
/// group, calls `made` with that unit and the denial before the rollback. Returns the result of
/// `made`, or `None` if the machine accepts the group.
fn try_group<T>(
    cluster: &mut Cluster,
    group: &[UnitNo],
    machine: MachineNo,
    made: impl FnOnce(&Cluster, UnitNo, Denial) -> T,
) -> Option<T> {
    let savepoint = undo_log::savepoint(cluster);
    let mut refused = None;
    for (at, unit) in group.iter().enumerate() {
        if let Err(denial) = replace::try_assign(cluster, *unit, machine, &group[..at], &mut 0) {
            refused = Some((*unit, denial));
            break;
        }
    }
    let reasons = refused.map(|(unit, denial)| made(cluster, unit, denial));
    undo_log::roll_back(cluster, &savepoint);
    reasons
}
