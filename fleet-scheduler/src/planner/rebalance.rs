//! Rebalancing: moves units from machines with many units to machines with few. Each move must
//! bring the requested [`gain`](Rebalance::gain).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use fleet_core::requirements::Reschedule;

use super::eviction_group::{DisruptionBudget, MoveReason};
use super::{decide, eviction_group, search};
use crate::index::{Cluster, undo_log};
use crate::plan::Plan;
use crate::policy::Ranking;
use crate::rebalance::Rebalance;
use crate::state::{ClassNo, Lookup, MachineNo, OrderNo, PatternNo, State, UnitKind, UnitNo};

/// The machines from which units may move, the fullest first, then by ID.
type Sources = BTreeSet<(Reverse<u32>, u32, MachineNo)>;

/// The state of a rebalancing during planning.
struct RebalanceWork<'a> {
    disruption: DisruptionBudget<'a>,
    moves_left: u32,
    max_group_size: u32,
    gain: u32,
    /// Units that were tried and cannot move, and the units that are tied to these by name.
    immovable: Lookup<UnitNo, ()>,
    /// The units to try on each machine, by name. Units that come to a machine cannot move again,
    /// so they are not added.
    untried: BTreeMap<MachineNo, std::vec::IntoIter<UnitNo>>,
    /// For each class, the highest load limit with which a search for a target has failed. No
    /// machine with at most that load accepts units of the class.
    refused: BTreeMap<ClassNo, u32>,
}

/// The score of the machine that a unit leaves, and the number of instances of its template there.
/// No move may lower the score or increase that number.
struct Baseline {
    unit: UnitNo,
    order: OrderNo,
    template: PatternNo,
    score: i64,
    instances: u32,
}

/// Plans the next moves that spread units more evenly.
pub(super) fn rebalance(cluster: &mut Cluster, request: &Rebalance) -> Plan {
    undo_log::rewind(cluster);
    decide::plan_then(cluster, |cluster| even_out(cluster, request)).0
}

fn even_out(cluster: &mut Cluster, request: &Rebalance) {
    if cluster.state.policy.ranking == Ranking::BinPacking {
        return;
    }
    let mut work = RebalanceWork {
        disruption: DisruptionBudget::new(request.min_available, &request.down),
        moves_left: request.budget,
        max_group_size: request.max_group_size.unwrap_or(u32::MAX),
        gain: request.gain,
        immovable: Lookup::default(),
        untried: BTreeMap::new(),
        refused: BTreeMap::new(),
    };
    let machines = cluster.state.machines.present();
    let mut sources: Sources =
        machines.map(|machine| source_key(&cluster.state, machine)).collect();
    while let Some(source) = sources.pop_first() {
        let least = sources.last().map_or(u32::MAX, |(Reverse(load), ..)| *load);
        if work.moves_left == 0 || source.0.0 < least.saturating_add(work.gain).saturating_add(2) {
            return;
        }
        if let Some((target, before)) = move_one_from(cluster, source.2, &mut work) {
            sources.insert(source_key(&cluster.state, source.2));
            let (_, label, _) = source_key(&cluster.state, target);
            if sources.remove(&(Reverse(before), label, target)) {
                sources.insert(source_key(&cluster.state, target));
            }
        }
    }
}

fn source_key(state: &State, machine: MachineNo) -> (Reverse<u32>, u32, MachineNo) {
    let slot = &state.machines[machine];
    (Reverse(slot.occupancy.load()), slot.label, machine)
}

/// Moves the first unit by name that can leave a machine, together with its eviction group. Returns
/// the target machine and its load before the move, or `None` if no unit can leave.
fn move_one_from(
    cluster: &mut Cluster,
    source: MachineNo,
    work: &mut RebalanceWork<'_>,
) -> Option<(MachineNo, u32)> {
    let mut untried = work
        .untried
        .remove(&source)
        .unwrap_or_else(|| eviction_group::units_by_name(&cluster.state, source).into_iter());
    let found = untried.find_map(|unit| move_unit_from(cluster, unit, source, work));
    work.untried.insert(source, untried);
    found
}

/// Moves a unit away from a machine, together with its eviction group. Returns the target machine
/// and its load before the move, or `None` if the unit cannot leave or has left.
fn move_unit_from(
    cluster: &mut Cluster,
    unit: UnitNo,
    source: MachineNo,
    work: &mut RebalanceWork<'_>,
) -> Option<(MachineNo, u32)> {
    if work.immovable.contains(&unit) || cluster.state.units[unit].machine != source {
        return None;
    }
    let savepoint = undo_log::savepoint(cluster);
    let before = cluster.state.machines[source].occupancy.load();
    let group = eviction_group::detach_group(
        cluster,
        eviction_group::eviction_group(&cluster.state, unit, source),
        source,
        MoveReason::Rebalance,
    );
    let found = move_for_balance(cluster, &group, (source, before), work);
    if found.is_none() {
        undo_log::roll_back(cluster, &savepoint);
        for other in eviction_group::tied_by_name(&cluster.state, unit, source) {
            work.immovable.insert(other, ());
        }
    }
    found
}

/// Assigns a group that has left `source` to the first machine for which the move is allowed and
/// brings the requested gain. Returns that machine and its load before the move, or `None` if there
/// is no such machine.
///
/// `before` is the load of the source before the group left. If the result is `None`, the caller
/// must roll back the group's departure.
fn move_for_balance(
    cluster: &mut Cluster,
    group: &[UnitNo],
    (source, before): (MachineNo, u32),
    work: &mut RebalanceWork<'_>,
) -> Option<(MachineNo, u32)> {
    let size = u32::try_from(group.len()).unwrap_or(u32::MAX);
    if size > work.moves_left.min(work.max_group_size) {
        return None;
    }
    if !group.iter().all(|unit| may_be_moved(&cluster.state, *unit, source)) {
        return None;
    }
    // A global unit that takes the free place would undo the gain.
    if cluster.state.machines[source].occupancy.load() != before.saturating_sub(size) {
        return None;
    }
    let lost = eviction_group::disrupted(&cluster.state, &work.disruption, group.iter().copied());
    if eviction_group::check_min_available(&cluster.state, &mut work.disruption, &lost).is_some() {
        return None;
    }
    let most = before.checked_sub(size)?.checked_sub(1)?.checked_sub(work.gain)?;
    let class = plain_class(&cluster.state, group);
    if class.is_some_and(|class| work.refused.get(&class).is_some_and(|known| most <= *known)) {
        return None;
    }
    let baselines: Vec<Baseline> =
        group.iter().map(|unit| baseline(cluster, *unit, source)).collect();
    let mut found = None;
    let from = (source, eviction_group::has_replacers(&cluster.state, group));
    eviction_group::find_machine_for(cluster, group, from, |cluster, to| {
        let load = cluster.state.machines[to].occupancy.load();
        let takes = load <= most
            && baselines.iter().all(|baseline| is_no_worse(cluster, baseline, to))
            && !eviction_group::would_replace(&cluster.state, group, to)
            && eviction_group::assign_group(cluster, group, to);
        if takes {
            found = Some((to, load));
        }
        takes
    });
    if found.is_some() {
        work.disruption.spend(&lost);
        work.moves_left -= size;
        if size > 1 {
            // The source may have become a target, since its load dropped by more than one.
            work.refused.clear();
        }
    } else if let Some(class) = class {
        work.refused.insert(class, most);
    }
    found
}

/// Returns whether a unit that has just left `source` may move for balance. It may not if it is
/// unreadable or a job, has `Reschedule=never`, or came to `source` only in the same plan.
///
/// A move would interrupt a running job, which then begins again.
fn may_be_moved(state: &State, unit: UnitNo, source: MachineNo) -> bool {
    let slot = &state.units[unit];
    let wants = slot.requirements.as_ref();
    slot.kind == UnitKind::Single
        && slot.placed == source
        && wants.is_some_and(|wants| wants.reschedule != Reschedule::Never && !wants.is_job())
}

/// Returns the class of the only unit of a group. The unit must not be tied to others, and must
/// prefer machines by load alone. Returns `None` for all other groups.
///
/// If no machine is found for such a unit, none will be found for other units of the class.
fn plain_class(state: &State, group: &[UnitNo]) -> Option<ClassNo> {
    let class = state.group_class(group)?;
    let wants = &state.classes[class].requirements;
    let plain = wants.prefer.is_empty()
        && wants.failed_on.is_empty()
        && wants.spread.is_empty()
        && state.policy.scores.is_empty()
        && state.policy.ranking == Ranking::LeastLoaded;
    plain.then_some(class)
}

/// Returns the score of the machine that a unit has left, and the number of instances of its
/// template there.
fn baseline(cluster: &mut Cluster, unit: UnitNo, source: MachineNo) -> Baseline {
    let (order, template) = search::refreshed_order(cluster, unit);
    let baseline = Baseline { unit, order, template, score: 0, instances: 0 };
    let (score, instances) = evaluate(cluster, &baseline, source);
    Baseline { score, instances, ..baseline }
}

/// Returns whether a machine is at least as good for a unit as the machine that the unit has left.
/// Its score must not be lower, and its number of instances of the unit's template not higher.
fn is_no_worse(cluster: &Cluster, baseline: &Baseline, machine: MachineNo) -> bool {
    let (score, instances) = evaluate(cluster, baseline, machine);
    score >= baseline.score && instances <= baseline.instances
}

/// Returns the score of a machine for a unit, and the number of instances of the unit's template
/// there. That number is 0 if the ranking does not use it.
fn evaluate(cluster: &Cluster, baseline: &Baseline, machine: MachineNo) -> (i64, u32) {
    let order = &cluster.orders[baseline.order];
    let (against, _) = order.sort_key(machine, baseline.template, &cluster.state);
    let score =
        search::custom_score(&cluster.state, baseline.unit, machine).saturating_sub(against);
    let occupancy = &cluster.state.machines[machine].occupancy;
    let counted =
        baseline.template.some().filter(|_| cluster.state.policy.ranking == Ranking::Spread);
    (score, counted.map_or(0, |template| occupancy.counts_of(template).matching))
}
