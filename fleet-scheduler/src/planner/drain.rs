//! Drains: moves units away from machines while enough instances stay up.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Machine, Reason};
use fleet_unitfile::UnitName;

use super::eviction_group::{DisruptionBudget, MoveReason};
use super::reasons::ReasonCache;
use super::{decide, eviction_group, reasons};
use crate::demand::Change;
use crate::drain::{Drain, DrainPlan, HoldReason};
use crate::index::undo_log::LogPosition;
use crate::index::{Cluster, undo_log};
use crate::state::{ClassNo, Lookup, MachineNo, State, UnitKind, UnitNo};

/// The state of a drain during planning.
struct DrainWork<'a> {
    disruption: DisruptionBudget<'a>,
    max_moves: u32,
    moved: u32,
    /// Classes that no machine currently accepts.
    nowhere: Lookup<ClassNo, ()>,
    /// The units of the groups that were tried in vain in this pass. `MachineOf=` ties them by name
    /// to the unit that was tried, so the decision applies to each of them.
    decided: Lookup<UnitNo, Obstruction>,
}

/// The reason for which a group stays; `None` if no machine accepts it.
type Obstruction = Option<HoldReason>;

/// Plans the next moves that empty the machines of a drain.
pub(super) fn drain(cluster: &mut Cluster, drain: &Drain) -> DrainPlan {
    undo_log::rewind(cluster);
    let back = cordon_all(cluster, drain);
    let (plan, held) = decide::plan_then(cluster, |cluster| drain_machines(cluster, drain));
    back.iter().for_each(|change| cluster.change(change));
    DrainPlan { plan, held }
}

/// Cordons the machines of a drain. Returns the changes that undo it.
fn cordon_all(cluster: &mut Cluster, drain: &Drain) -> Vec<Change> {
    let mut back = Vec::new();
    for machine in drained(&cluster.state, drain) {
        let facts = Machine::clone(cluster.state.machines[machine].machine());
        if !facts.cordoned {
            cluster.add_machine(Machine { cordoned: true, ..facts.clone() });
            back.push(Change::AddMachine(facts));
        }
    }
    back
}

/// Returns the present machines of a drain.
fn drained(state: &State, drain: &Drain) -> Vec<MachineNo> {
    let known = drain.machines.iter().filter_map(|id| state.machines.find(id.as_str()));
    known.filter(|machine| state.machines[*machine].is_present()).collect()
}

/// Moves as many units away from the machines as the drain's limits and the placement rules allow.
/// Returns the units that remain, each with its reason.
fn drain_machines(cluster: &mut Cluster, drain: &Drain) -> BTreeMap<UnitName, HoldReason> {
    let mut left = Vec::new();
    for machine in drained(&cluster.state, drain) {
        left.extend(
            eviction_group::units_by_name(&cluster.state, machine)
                .into_iter()
                .map(|unit| (unit, machine)),
        );
    }
    let disruption = DisruptionBudget::new(drain.min_available, &drain.down);
    let mut work = DrainWork {
        disruption,
        max_moves: drain.max_moves,
        moved: 0,
        nowhere: Lookup::default(),
        decided: Lookup::default(),
    };
    let mut held = BTreeMap::new();
    loop {
        // A moved unit may satisfy a pattern of another unit, or may have been in its way.
        let before = work.moved;
        work.decided = Lookup::default();
        left.retain(|(unit, machine)| is_held(cluster, *unit, *machine, &mut work, &mut held));
        if work.moved == before {
            return hold_reasons(cluster, &left, held);
        }
    }
}

/// Tries to move a unit away. Returns whether the unit is still there.
fn is_held(
    cluster: &mut Cluster,
    unit: UnitNo,
    machine: MachineNo,
    work: &mut DrainWork<'_>,
    held: &mut BTreeMap<UnitNo, HoldReason>,
) -> bool {
    if cluster.state.units[unit].machine != machine {
        return false; // It moved with the group of an earlier unit.
    }
    let obstruction = match work.decided.get(&unit) {
        Some(decided) => decided.clone(),
        None => match evict(cluster, unit, machine, work) {
            Ok(()) => return false,
            Err(obstruction) => {
                if cluster.state.is_tied(unit) {
                    for other in eviction_group::tied_by_name(&cluster.state, unit, machine) {
                        work.decided.insert(other, obstruction.clone());
                    }
                }
                obstruction
            }
        },
    };
    match obstruction {
        Some(reason) => held.insert(unit, reason),
        None => held.remove(&unit),
    };
    true
}

/// Moves a unit and its eviction group away from a machine.
fn evict(
    cluster: &mut Cluster,
    unit: UnitNo,
    machine: MachineNo,
    work: &mut DrainWork<'_>,
) -> Result<(), Obstruction> {
    let savepoint = undo_log::savepoint(cluster);
    let start = undo_log::log_position(cluster);
    let group = eviction_group::detach_group(
        cluster,
        eviction_group::eviction_group(&cluster.state, unit, machine),
        machine,
        MoveReason::Drain,
    );
    let may_leave = may_leave(&cluster.state, &group, work).map_err(Some);
    let sent = may_leave.and_then(|()| evict_group(cluster, &group, machine, start, work));
    if sent.is_err() {
        undo_log::roll_back(cluster, &savepoint);
    }
    sent
}

/// Finds another machine for a group that has left `machine`, and assigns the group there. `start`
/// is the log position before the group left. On error, the caller must roll back to that position.
fn evict_group(
    cluster: &mut Cluster,
    group: &[UnitNo],
    machine: MachineNo,
    start: LogPosition,
    work: &mut DrainWork<'_>,
) -> Result<(), Obstruction> {
    let class = cluster.state.group_class(group);
    if class.is_some_and(|class| work.nowhere.contains(&class)) {
        return Err(None);
    }
    let from = (machine, eviction_group::has_replacers(&cluster.state, group));
    if !eviction_group::find_machine_for(cluster, group, from, |cluster, to| {
        eviction_group::assign_group(cluster, group, to)
    }) {
        if let Some(class) = class {
            work.nowhere.insert(class, ());
        }
        return Err(None);
    }
    // The units that made room for the group are not up for a while either.
    let lost = eviction_group::disrupted(
        &cluster.state,
        &work.disruption,
        eviction_group::moved_since(cluster, start).into_iter(),
    );
    if let Some(held) =
        eviction_group::check_min_available(&cluster.state, &mut work.disruption, &lost)
    {
        return Err(Some(held));
    }
    work.disruption.spend(&lost);
    work.moved = work.moved.saturating_add(count(group));
    work.nowhere.clear();
    Ok(())
}

/// Checks whether a group that has been taken off its machine was allowed to leave.
fn may_leave(state: &State, group: &[UnitNo], work: &mut DrainWork<'_>) -> Result<(), HoldReason> {
    let unreadable = |unit: &&UnitNo| state.units[**unit].kind == UnitKind::Unreadable;
    if let Some(unit) = group.iter().find(unreadable) {
        return Err(HoldReason::Unreadable(state.units.name(*unit).clone()));
    }
    let lost = eviction_group::disrupted(state, &work.disruption, group.iter().copied());
    if let Some(held) = eviction_group::check_min_available(state, &mut work.disruption, &lost) {
        return Err(held);
    }
    let most = work.max_moves;
    let together = work.moved.saturating_add(count(group));
    if together > most && (work.moved > 0 || most == 0) {
        return Err(HoldReason::MaxMoves { max_moves: most });
    }
    Ok(())
}

/// Returns the reason of each unit that stays.
fn hold_reasons(
    cluster: &mut Cluster,
    left: &[(UnitNo, MachineNo)],
    mut held: BTreeMap<UnitNo, HoldReason>,
) -> BTreeMap<UnitName, HoldReason> {
    let mut by_class: Lookup<ClassNo, Arc<Reason>> = Lookup::default();
    let mut by_unit: Lookup<UnitNo, Arc<Reason>> = Lookup::default();
    let mut reasons = BTreeMap::new();
    for (unit, machine) in left {
        let reason = held.remove(unit).unwrap_or_else(|| {
            let class = cluster.state.group_class(&[*unit]);
            let cached = class.map_or_else(|| by_unit.get(unit), |class| by_class.get(&class));
            let reason = cached.cloned().unwrap_or_else(|| {
                let all = no_machine_reasons(cluster, *unit, *machine);
                let first = all[0].1.clone();
                all.into_iter().for_each(|(unit, reason)| _ = by_unit.insert(unit, reason));
                first
            });
            if let Some(class) = class {
                by_class.insert(class, reason.clone());
            }
            HoldReason::NowhereElse(reason)
        });
        reasons.insert(cluster.state.units.name(*unit).clone(), reason);
    }
    reasons
}

/// Returns the reasons why no other machine accepts a unit together with its eviction group: first
/// that of the unit, then those of the units that are tied to it by name.
fn no_machine_reasons(
    cluster: &mut Cluster,
    unit: UnitNo,
    machine: MachineNo,
) -> Vec<(UnitNo, Arc<Reason>)> {
    let alike = eviction_group::tied_by_name(&cluster.state, unit, machine);
    let savepoint = undo_log::savepoint(cluster);
    let group = eviction_group::detach_group(
        cluster,
        eviction_group::eviction_group(&cluster.state, unit, machine),
        machine,
        MoveReason::Drain,
    );
    let (mut cache, mut by_machines) = (ReasonCache::default(), None);
    let reasons = alike.into_iter().map(|unit| {
        let reason = match reasons::reason_without_machines(cluster, unit, &mut cache) {
            Some(reason) => reason.into(),
            None => Arc::clone(
                by_machines
                    .get_or_insert_with(|| reasons::reason_by_machines(cluster, &group).into()),
            ),
        };
        (unit, reason)
    });
    let reasons = reasons.collect();
    undo_log::roll_back(cluster, &savepoint);
    reasons
}

fn count(units: &[UnitNo]) -> u32 {
    u32::try_from(units.len()).unwrap_or(u32::MAX)
}
