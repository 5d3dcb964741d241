//! The queue of attempts. The next attempt is always for the first unit, by name, that may get a
//! machine.
//!
//! *Waiting replacers* replace other units, and no machine accepts them. Trying all machines for
//! them in every plan would be too slow. A unit that arrives on a machine never helps a waiting
//! replacer, so a retry can succeed only if some machine may now accept a unit that it refused
//! before: the replacer itself, or a unit that must leave for it. There are two exceptions:
//!
//! - A group is always retried if several units have to leave or to arrive together.
//! - Every group is retried if a tied unit has changed or if the cluster has global units.
//!
//! The *limit of attempts* ends a plan that would otherwise never end, whether by a defect of the
//! planner or by a custom rule that contradicts itself. A plan makes progress with every kept
//! assignment. Without progress, each waiting unit is tried once, and at most once more because of
//! earlier changes. Further attempts cannot succeed. A plan with very many assignments moves units
//! to and fro.

use std::collections::BTreeMap;

use fleet_unitfile::UnitName;

use super::replace;
use crate::index::retry_queue::WaitingGroup;
use crate::index::{Cluster, retry_queue};
use crate::rules::{PlacementQuery, replaces};
use crate::state::{MachineNo, State, UnitNo, WaitState};

/// The units to try in a plan.
#[derive(Debug, Default)]
pub(super) struct AttemptQueue {
    /// The units known at the start, sorted by name.
    first: Vec<UnitNo>,
    at: usize,
    /// The units added later.
    later: BTreeMap<UnitName, UnitNo>,
    /// The units that were tried without success. Some units may occur twice, or may have been
    /// placed since.
    pub(super) tried: Vec<UnitNo>,
    /// The units that were parked without an attempt, because the plan reached its limit.
    pub(super) given_up: Vec<UnitNo>,
    pub(super) counter: AttemptCounter,
}

/// Returns the next unit to try.
pub(super) fn next_attempt(cluster: &mut Cluster, queue: &mut AttemptQueue) -> Option<UnitNo> {
    loop {
        take_untried(cluster, queue);
        let first = queue.first.get(queue.at).copied();
        let later = queue.later.first_key_value().map(|(_, unit)| *unit);
        let unit = match (first, later) {
            (Some(one), Some(other))
                if cluster.state.units.name(other) <= cluster.state.units.name(one) =>
            {
                other
            }
            (Some(one), _) => one,
            (None, later) => later?,
        };
        if Some(unit) == later {
            queue.later.pop_first();
        } else {
            queue.at += 1;
        }
        if cluster.state.units[unit].wait == WaitState::Queued {
            return Some(unit);
        }
    }
}

/// Moves all untried units into the queue.
fn take_untried(cluster: &mut Cluster, queue: &mut AttemptQueue) {
    requeue_for_loosened_machines(cluster);
    while !cluster.retry_queue.is_empty() {
        let mut untried = cluster.retry_queue.take();
        untried.retain(|unit| take_one(cluster, *unit, queue));
        cluster.log.reserve(untried.len()); // Most of them will be placed.
        if queue.first.is_empty() {
            cluster.state.units.sort(&mut untried);
            queue.first = untried;
        } else {
            let named =
                untried.into_iter().map(|unit| (cluster.state.units.name(unit).clone(), unit));
            queue.later.extend(named);
        }
    }
}

/// Handles an untried unit. Returns whether it still has to be queued.
fn take_one(cluster: &mut Cluster, unit: UnitNo, queue: &mut AttemptQueue) -> bool {
    match cluster.state.units[unit].wait {
        WaitState::Stranded => queue.tried.push(unit),
        WaitState::Untried if cluster.state.is_tied(unit) => enqueue_tied(cluster, unit, queue),
        WaitState::Untried => {
            cluster.state.units[unit].wait = WaitState::Queued;
            return true;
        }
        _ => {}
    }
    false
}

/// Queues the groups that this unit and all units tied to it form. Each group is represented by its
/// first unit by name. Units with an unsatisfiable `MachineOf=` are parked instead.
fn enqueue_tied(cluster: &mut Cluster, unit: UnitNo, queue: &mut AttemptQueue) {
    let component = cluster.state.component(unit);
    for unit in component.unsatisfiable {
        retry_queue::forget_waiting(cluster, unit);
        retry_queue::park_unsatisfiable(cluster, unit);
        queue.tried.push(unit);
    }
    for group in component.groups {
        for member in &group {
            retry_queue::forget_waiting(cluster, *member);
        }
        let first = group.iter().min_by_key(|unit| cluster.state.units.name(**unit));
        if let Some(first) = first {
            queue.later.insert(cluster.state.units.name(*first).clone(), *first);
        }
        retry_queue::queue_group(cluster, group);
    }
}

/// Queues again the units that a changed machine may accept now although it refused them before.
/// For example, another unit may have left the machine.
fn requeue_for_loosened_machines(cluster: &mut Cluster) {
    let end = cluster.orders.loosened_machines.end();
    if end == cluster.loosened_seen {
        return;
    }
    let since = cluster.orders.loosened_machines.since(cluster.loosened_seen);
    let mut machines: Option<Vec<MachineNo>> = since.map(<[_]>::to_vec);
    cluster.loosened_seen = end;
    if let Some(machines) = &mut machines {
        machines.sort_unstable();
        machines.dedup();
        machines.retain(|machine| cluster.state.machines[*machine].is_present());
    }
    refresh_retryable(cluster, machines.as_deref());
    requeue_classes(cluster, machines.as_deref());
    requeue_groups(cluster, machines.as_deref());
}

/// Updates the set of classes that are worth retrying. Classes for which a filter or a cordon
/// excludes every machine are left out. `machines` lists the machines that may have changed; `None`
/// stands for all machines.
fn refresh_retryable(cluster: &mut Cluster, machines: Option<&[MachineNo]>) {
    let State { classes, filters, machines: known, .. } = &mut cluster.state;
    classes.refresh_retryable(cluster.orders.facts_version, |class| {
        let takes = |machine: &MachineNo| filters.takes(class.filter, *machine, known);
        machines.is_some_and(|all| !all.iter().any(takes))
    });
}

fn requeue_classes(cluster: &mut Cluster, machines: Option<&[MachineNo]>) {
    let mut requeued = Vec::new();
    let round = cluster.state.classes.round;
    for number in cluster.state.classes.retryable() {
        let class = &cluster.state.classes[number];
        let first = class.parked.values().next().filter(|_| class.requeued_in != round);
        let Some(first) = first else { continue };
        let takes = |machine: &MachineNo| {
            PlacementQuery::new(&cluster.state, *first, *machine).denial().is_none()
        };
        if machines.is_none_or(|machines| machines.iter().any(takes)) {
            requeued.push((number, *first));
        }
    }
    for (class, first) in requeued {
        cluster.state.classes[class].requeued_in = round;
        retry_queue::requeue(cluster, first);
    }
}

fn requeue_groups(cluster: &mut Cluster, machines: Option<&[MachineNo]>) {
    let may_take = |machine: &MachineNo, members: &[UnitNo]| {
        let mut queries =
            members.iter().map(|unit| PlacementQuery::new(&cluster.state, *unit, *machine));
        queries.all(|query| query.denial_within_group().is_none())
    };
    let is_affected = |(first, group): &(&UnitNo, &WaitingGroup)| {
        machines.is_none_or(|all| match cluster.sensitive_groups.contains(first) {
            true => may_help(&cluster.state, group, all),
            false => all.iter().any(|machine| may_take(machine, &group.members)),
        })
    };
    let requeued: Vec<UnitNo> =
        cluster.groups.iter().filter(is_affected).map(|(first, _)| *first).collect();
    requeued.into_iter().for_each(|first| retry_queue::requeue(cluster, first));
}

/// Queues again the units that may find a machine because this unit has come to one.
pub(super) fn requeue_after_arrival(cluster: &mut Cluster, unit: UnitNo) {
    let tied = cluster.state.is_tied(unit);
    if tied {
        retry_queue::requeue_tied(cluster, unit);
    }
    if !cluster.sensitive_groups.is_empty() {
        let touched = |first: &&UnitNo| tied || cluster.groups[*first].helped_by_any_arrival;
        let requeued: Vec<UnitNo> =
            cluster.sensitive_groups.iter().filter(touched).copied().collect();
        requeued.into_iter().for_each(|first| retry_queue::requeue(cluster, first));
    }
}

/// Maximum number of replaced units to check. If a unit replaces more units than this, trying to
/// place the unit is cheaper than the check.
const MAX_REPLACED: usize = 256;

/// Queues again the groups that may find a machine although each machine still refuses every unit
/// that it refused before.
pub(super) fn requeue_sensitive_groups(cluster: &mut Cluster) {
    let all = cluster.ties_changed || !cluster.globals.is_empty();
    let is_affected = |first: &&UnitNo| all || !only_loosening_helps(&cluster.groups[*first]);
    let requeued: Vec<UnitNo> =
        cluster.sensitive_groups.iter().filter(is_affected).copied().collect();
    requeued.into_iter().for_each(|first| retry_queue::requeue(cluster, first));
}

/// Returns whether a group with a replacer may find a machine because the machines in `loosened`
/// may accept units that they refused before.
pub(super) fn may_help(state: &State, group: &WaitingGroup, loosened: &[MachineNo]) -> bool {
    let [unit] = group.members[..] else { return true };
    !only_loosening_helps(group)
        || state.policy.is_custom()
        || loosened.iter().any(|machine| may_replace(state, unit, *machine))
        || may_go_to_any(state, unit, loosened)
}

/// Returns whether a machine may accept a unit after the units that it replaces there have left.
fn may_replace(state: &State, unit: UnitNo, machine: MachineNo) -> bool {
    let leaving = replace::leaving(state, &replaces::replaced(state, unit, machine), machine);
    let query = PlacementQuery { leaving: &leaving, ..PlacementQuery::new(state, unit, machine) };
    query.denial_within_group().is_none()
}

/// Returns whether a machine in `loosened` may accept a unit that `unit` replaces. If so, the
/// replaced unit could move there, and `unit` could take its place.
fn may_go_to_any(state: &State, unit: UnitNo, loosened: &[MachineNo]) -> bool {
    let patterns = state.class(unit).replaces.iter();
    let others = patterns.flat_map(|pattern| state.matching(*pattern));
    let mut assigned = others.filter_map(|other| {
        let current = state.units[other].machine.some()?;
        replaces::replaces_by_number(state, unit, other).then_some((other, current))
    });
    let goes = |(other, current): (UnitNo, MachineNo)| {
        let to = |machine: &&MachineNo| **machine != current;
        let takes =
            |to: &MachineNo| PlacementQuery::new(state, other, *to).denial_within_group().is_none();
        loosened.iter().filter(to).any(takes) && may_replace(state, unit, current)
    };
    assigned.by_ref().take(MAX_REPLACED).any(goes) || assigned.next().is_some()
}

/// Returns whether a group can find a machine only after some machine accepts a unit that it
/// refused before. Ties to other units are ignored.
fn only_loosening_helps(group: &WaitingGroup) -> bool {
    !group.helped_by_any_arrival && group.members.len() == 1
}

/// Counter of the attempts in one plan.
#[derive(Debug, Default)]
pub(super) struct AttemptCounter {
    /// Attempts since the last kept assignment.
    fruitless: usize,
    /// Length of the undo log after the last kept assignment.
    log_length: usize,
    /// Length of the undo log at the first attempt.
    start: Option<usize>,
    is_exhausted: bool,
}

/// Sizes of an index that determine the limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanSize {
    /// Number of assignments that the units can have: one per unit, or one per machine for a global
    /// unit.
    pub(super) assignments: usize,
    pub(super) log_length: usize,
}

impl AttemptCounter {
    /// Attempts without progress per unit.
    const MAX_FRUITLESS: usize = 4;
    /// Assignments and removals per possible assignment.
    const MAX_CHANGES: usize = 32;
    /// Attempts and changes that are always allowed.
    const MIN: usize = 1024;

    /// Counts an attempt that is about to be made. Returns whether the plan may still make it.
    pub(super) fn count(&mut self, size: PlanSize) -> bool {
        let PlanSize { assignments, log_length } = size;
        let changes = log_length.saturating_sub(*self.start.get_or_insert(log_length));
        if log_length == self.log_length {
            self.fruitless += 1;
        } else {
            (self.fruitless, self.log_length) = (0, log_length);
        }
        self.is_exhausted |= self.fruitless > Self::MIN + Self::MAX_FRUITLESS * assignments
            || changes > Self::MIN + Self::MAX_CHANGES * assignments;
        !self.is_exhausted
    }

    /// Returns whether the limit was reached.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Creates a counter that allows no attempt.
    #[cfg(test)]
    pub(super) fn exhausted() -> Self {
        Self { is_exhausted: true, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of attempts that are allowed if the undo log grows by `growth` entries
    /// before each attempt.
    fn allowed(assignments: usize, growth: usize) -> usize {
        let mut counter = AttemptCounter::default();
        let sizes = (0..).map(|at| PlanSize { assignments, log_length: 7 + at * growth });
        sizes.take_while(|size| counter.count(*size)).count()
    }

    #[test]
    fn attempts_end_without_progress_and_without_end_of_changes() {
        assert_eq!(allowed(0, 0), 1025, "no progress");
        assert_eq!(allowed(100, 0), 1425, "no progress");
        assert_eq!(allowed(100, 1), 1024 + 3200 + 1, "a change before each attempt");
        assert_eq!(allowed(100, 100), 43, "many changes before each attempt");
    }
}
