//! Derives the steps of a plan from the undo log, in the order in which they must be applied.

use std::collections::BTreeMap;

use fleet_core::pattern::Peer;
use fleet_core::{MachineId, Refusal};
use fleet_unitfile::UnitName;

use crate::index::Cluster;
use crate::index::undo_log::{LeaveReason, UndoEntry};
use crate::plan::{RemovalReason, Step, StepAction, StepCause};
use crate::state::{Lookup, MachineNo, PeerRef, State, UnitKind, UnitNo};

/// For each unit, the log entry that records its first departure from a machine.
type FirstLeft = Lookup<UnitNo, usize>;

type Removals<'a> = BTreeMap<&'a UnitName, (UnitNo, &'a MachineId, StepCause)>;

/// Returns the steps that lead from the recorded placements to the current assignments, and the
/// units of these steps. `tried` lists the units that were tried and have no machine.
///
/// Removals come first, by name, then moves, then placements. Moves and placements keep the order
/// of the decisions, except that no unit comes before a peer of its `MachineOf=`.
pub(super) fn steps(cluster: &Cluster, tried: &[UnitNo]) -> (Vec<UnitNo>, Vec<Step>) {
    let left = first_left(cluster);
    let removals = removals(cluster, tried, &left);
    let (came, most) = (arrivals(cluster, !left.is_empty()), removals.len() + cluster.log.len());
    let (mut units, mut steps) = (Vec::with_capacity(most), Vec::with_capacity(most));
    for (name, (unit, from, cause)) in removals {
        let action = StepAction::Remove { from: from.clone() };
        units.push(unit);
        steps.push(Step { unit: name.clone(), action, cause });
    }
    let (moves, placements) = sort_arrivals(&cluster.state, &came);
    for unit in moves.into_iter().chain(placements) {
        units.push(unit);
        steps.push(arrival(cluster, unit, &left));
    }
    (units, steps)
}

fn first_left(cluster: &Cluster) -> FirstLeft {
    let mut left = FirstLeft::default();
    for (at, entry) in cluster.log.iter().enumerate() {
        if entry.left.is_some() && is_placeable(&cluster.state, entry.unit) {
            left.get_or_insert(entry.unit, at);
        }
    }
    left
}

fn is_placeable(state: &State, unit: UnitNo) -> bool {
    state.units[unit].kind == UnitKind::Single
}

/// Returns the single units that came to a machine and are still on one, in the order of their last
/// arrivals.
fn arrivals(cluster: &Cluster, some_left: bool) -> Vec<UnitNo> {
    let came =
        |entry: &&UndoEntry| entry.left.is_none() && is_placeable(&cluster.state, entry.unit);
    let came = cluster.log.iter().filter(came).map(|entry| entry.unit);
    if !some_left {
        let mut all = Vec::with_capacity(cluster.log.len());
        all.extend(came);
        return all;
    }
    let mut visited: Lookup<UnitNo, ()> = Lookup::default();
    let last = came.rev().filter(|unit| visited.insert(*unit, ()));
    let mut last: Vec<UnitNo> = last.collect();
    last.retain(|unit| cluster.state.units[*unit].machine != MachineNo::NONE);
    last.reverse();
    last
}

fn removals<'a>(cluster: &'a Cluster, tried: &[UnitNo], left: &FirstLeft) -> Removals<'a> {
    let mut removals = Removals::new();
    for (name, unit) in &cluster.unwanted {
        let slot = &cluster.state.units[*unit];
        let reason = match slot.kind {
            _ if slot.requirements.is_some() && name.is_template() => RemovalReason::Template,
            UnitKind::Global => RemovalReason::Global,
            UnitKind::Inactive => RemovalReason::Inactive,
            _ => RemovalReason::Destroyed,
        };
        let from = cluster.state.machines.id(slot.placed);
        removals.insert(name, (*unit, from, StepCause::NotWanted(reason)));
    }
    for unit in tried {
        let slot = &cluster.state.units[*unit];
        if let Some(placed) = slot.placed.some().filter(|_| slot.is_waiting()) {
            let from = cluster.state.machines.id(placed);
            removals.insert(slot.name(), (*unit, from, cause(cluster, *unit, left)));
        }
    }
    removals
}

/// Splits arrivals into moves and placements. A move that has to wait for a placement is listed
/// among the placements. Units that have returned to the machine of their placement are left out.
fn sort_arrivals(state: &State, came: &[UnitNo]) -> (Vec<UnitNo>, Vec<UnitNo>) {
    let (mut moves, mut placements) = (Vec::new(), Vec::with_capacity(came.len()));
    let mut late: Lookup<UnitNo, ()> = Lookup::default();
    for unit in came {
        let slot = &state.units[*unit];
        if slot.placed == slot.machine {
            continue;
        }
        if slot.placed == MachineNo::NONE {
            placements.push(*unit);
        } else if slot.peers().iter().any(|peer| is_late(state, *unit, *peer, &late)) {
            late.insert(*unit, ());
            placements.push(*unit);
        } else {
            moves.push(*unit);
        }
    }
    (moves, placements)
}

/// Returns whether the step of a moved unit's peer is among the placements, which follow the moves.
/// The step of the moved unit must then be there too. If the peer is a pattern, one such unit on
/// the same machine is enough.
fn is_late(state: &State, unit: UnitNo, peer: PeerRef, late: &Lookup<UnitNo, ()>) -> bool {
    let comes_late = |other: UnitNo| {
        let slot = &state.units[other];
        let is_new = slot.kind == UnitKind::Single && slot.placed == MachineNo::NONE;
        late.contains(&other) || is_new && slot.machine != MachineNo::NONE
    };
    match peer {
        PeerRef::Named(other) => comes_late(other),
        PeerRef::Matching(pattern) => {
            let current = state.units[unit].machine;
            let is_on_same_machine = |other: &UnitNo| state.units[*other].machine == current;
            state.members(pattern).filter(is_on_same_machine).any(comes_late)
        }
    }
}

fn arrival(cluster: &Cluster, unit: UnitNo, left: &FirstLeft) -> Step {
    let slot = &cluster.state.units[unit];
    let to = cluster.state.machines.id(slot.machine).clone();
    let action = match slot.placed.some() {
        None => StepAction::Place { machine: to },
        Some(from) => StepAction::Move { from: cluster.state.machines.id(from).clone(), to },
    };
    Step { unit: slot.name().clone(), action, cause: cause(cluster, unit, left) }
}

/// Returns the cause of a unit's step: the reason why the unit is not on its recorded machine.
fn cause(cluster: &Cluster, unit: UnitNo, left: &FirstLeft) -> StepCause {
    let slot = &cluster.state.units[unit];
    let Some(placed) = slot.placed.some() else {
        let wants = slot.requirements.as_ref();
        let failures = wants.map(|wants| wants.failed_on.values());
        let times = failures.map_or(0, |counts| counts.fold(0, |sum, it| it.saturating_add(sum)));
        return if times > 0 { StepCause::Failed { times } } else { StepCause::Wanted };
    };
    if !cluster.state.machines[placed].is_present() {
        return StepCause::MachineGone;
    }
    let name = |unit: UnitNo| cluster.state.units.name(unit).clone();
    let entry = left.get(&unit).map(|at| &cluster.log[*at].left);
    match entry.and_then(Option::as_ref) {
        Some(LeaveReason::Refused(refusal)) => match refusal.as_ref() {
            Refusal::MachineOf { peer: Peer::Named(peer) } if slot.machine.some().is_some() => {
                StepCause::FollowsPeer(peer.clone())
            }
            _ => StepCause::Refused(refusal.clone()),
        },
        Some(LeaveReason::ReplacedBy(by)) => StepCause::ReplacedBy(name(*by)),
        Some(LeaveReason::Follows(head)) => StepCause::FollowsPeer(name(*head)),
        Some(LeaveReason::Drained) => StepCause::Drained,
        Some(LeaveReason::Rebalanced) => StepCause::Rebalanced,
        Some(LeaveReason::Refitted) | None => StepCause::Wanted,
    }
}
