//! The retry queue: the units to try again.
//!
//! A unit that every machine refuses is parked. It is tried again only after a change that may make
//! a machine accept it. A superfluous attempt costs time; a missed attempt would be a bug.

use super::Cluster;
use crate::state::{Lookup, UnitKind, UnitNo, WaitState};

/// A group that no machine accepts: tied units, or units that replace others.
#[derive(Debug)]
pub(crate) struct WaitingGroup {
    /// The units, in the order in which they are assigned.
    pub(crate) members: Vec<UnitNo>,
    /// Whether the group may find a machine after any unit has arrived on any machine. This is so
    /// in three cases:
    ///
    /// - During the last attempt, several displaced groups had to leave one machine. An arrival
    ///   elsewhere may send the first of them to another machine, and so leave room for the next.
    /// - The cluster has global units.
    /// - A custom rule is retried on any change.
    pub(crate) helped_by_any_arrival: bool,
}

/// Units to try, without duplicates. The queue is never longer than the number of unit slots, no
/// matter how often units change between plans.
#[derive(Debug)]
pub(crate) struct RetryQueue {
    units: Vec<UnitNo>,
    /// Whether a unit number is queued. A queued number may since have been reused for another
    /// unit, which is harmless.
    is_queued: Vec<bool>,
    /// Number of times that the units were taken out, plus one. Until the next time, a waiting unit
    /// that is untried stays untried.
    rounds: u64,
}

impl Default for RetryQueue {
    fn default() -> Self {
        Self { units: Vec::new(), is_queued: Vec::new(), rounds: 1 }
    }
}

impl RetryQueue {
    pub(crate) fn push(&mut self, unit: UnitNo) {
        if self.is_queued.len() <= unit.at() {
            self.is_queued.resize(unit.at() + 1, false);
        }
        if !std::mem::replace(&mut self.is_queued[unit.at()], true) {
            self.units.push(unit);
        }
    }

    /// Takes all units out.
    pub(crate) fn take(&mut self) -> Vec<UnitNo> {
        self.rounds += 1;
        let units = std::mem::take(&mut self.units);
        units.iter().for_each(|unit| self.is_queued[unit.at()] = false);
        units
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Reserves capacity for the units of a load.
    pub(super) fn reserve(&mut self, count: usize) {
        self.units.reserve(count);
        self.is_queued.reserve(count);
    }
}

/// Queues a waiting unit for an attempt.
pub(crate) fn enqueue(cluster: &mut Cluster, unit: UnitNo) {
    cluster.state.units[unit].wait = WaitState::Untried;
    cluster.retry_queue.push(unit);
}

/// Queues a parked unit again, together with its group.
pub(crate) fn requeue(cluster: &mut Cluster, unit: UnitNo) {
    match cluster.state.units[unit].wait {
        WaitState::No | WaitState::Untried | WaitState::Stranded => {}
        WaitState::Queued => {
            if cluster.state.is_tied(unit) {
                requeue_group(cluster, unit);
            }
        }
        WaitState::Parked => {
            unpark(cluster, unit);
            enqueue(cluster, unit);
        }
        WaitState::Unsatisfiable => {
            cluster.unsatisfiable.remove(&unit);
            enqueue(cluster, unit);
        }
        WaitState::Tied => requeue_group(cluster, unit),
    }
}

/// Queues the whole group with which a unit was queued or parked.
fn requeue_group(cluster: &mut Cluster, unit: UnitNo) {
    let first = cluster.state.units.affinity_mut(unit).group;
    cluster.sensitive_groups.remove(&first);
    let members = cluster.groups.remove(&first).map_or_else(Vec::new, |group| group.members);
    for member in members.into_iter().chain([unit]) {
        if matches!(cluster.state.units[member].wait, WaitState::Tied | WaitState::Queued) {
            enqueue(cluster, member);
        }
    }
}

fn unpark(cluster: &mut Cluster, unit: UnitNo) {
    let slot = &cluster.state.units[unit];
    let class = &mut cluster.state.classes[slot.class];
    class.parked.remove(slot.name());
    if class.parked.is_empty() {
        cluster.state.classes.unpark(slot.class);
    }
}

/// Records that a unit no longer waits. Queues the units of its group again.
pub(crate) fn forget_waiting(cluster: &mut Cluster, unit: UnitNo) {
    requeue(cluster, unit);
    if cluster.state.units[unit].wait == WaitState::Stranded {
        cluster.stranded.remove(&unit);
    }
    cluster.state.units[unit].wait = WaitState::No;
}

/// Queues the waiting units that are tied to a changed unit, directly or through other units.
///
/// The search ends at untried units. Before the next attempt, each of them is grouped again with
/// all units that are tied to it then. A tie that ends before that is a change of one of its two
/// units, and the other one is queued for it.
pub(crate) fn requeue_tied(cluster: &mut Cluster, unit: UnitNo) {
    if !cluster.state.is_tied(unit) {
        return;
    }
    cluster.ties_changed = true;
    let mut visited: Lookup<UnitNo, ()> = Lookup::default();
    visited.insert(unit, ());
    let mut all = vec![unit];
    let mut next = 0;
    while let Some(at) = all.get(next).copied() {
        next += 1;
        if at != unit && cluster.state.units[at].wait == WaitState::Untried {
            continue;
        }
        let named = cluster
            .state
            .waiting_peers(at)
            .filter(|_| cluster.state.units[at].kind == UnitKind::Single);
        let mut others: Vec<UnitNo> = named.collect();
        others.extend(cluster.state.units[at].followers());
        take_pattern_followers(cluster, at, &mut others);
        for other in others {
            if cluster.state.units[other].is_waiting() && visited.insert(other, ()) {
                all.push(other);
            }
        }
    }
    all.into_iter().for_each(|unit| requeue(cluster, unit));
}

/// Adds the units without a machine that have a pattern in their `MachineOf=` that matches this
/// unit. Leaves out the patterns with followers that are all untried.
///
/// The caller must queue all of them.
fn take_pattern_followers(cluster: &mut Cluster, unit: UnitNo, followers: &mut Vec<UnitNo>) {
    let Some(class) = cluster.state.units[unit].class.some() else { return };
    let round = cluster.retry_queue.rounds;
    for pattern in &cluster.state.classes[class].matched {
        let slot = &mut cluster.state.patterns[*pattern];
        if !slot.unplaced_followers.is_empty()
            && std::mem::replace(&mut slot.requeued_in, round) != round
        {
            followers.extend(&slot.unplaced_followers);
        }
    }
}

/// Parks a unit that every machine refuses.
pub(crate) fn park(cluster: &mut Cluster, unit: UnitNo) {
    let slot = &mut cluster.state.units[unit];
    slot.wait = WaitState::Parked;
    let class = &mut cluster.state.classes[slot.class];
    class.parked.insert(slot.name().clone(), unit);
    cluster.state.classes.park(slot.class, cluster.orders.facts_version);
}

/// Parks a group that no machine accepts.
pub(crate) fn park_group(
    cluster: &mut Cluster,
    members: Vec<UnitNo>,
    sensitive: bool,
    helped_by_any_arrival: bool,
) {
    let first = put_group(cluster, members, WaitState::Tied, helped_by_any_arrival);
    if sensitive {
        cluster.sensitive_groups.extend(first);
    }
}

/// Records a group that is to be tried.
pub(crate) fn queue_group(cluster: &mut Cluster, members: Vec<UnitNo>) {
    put_group(cluster, members, WaitState::Queued, false);
}

fn put_group(
    cluster: &mut Cluster,
    members: Vec<UnitNo>,
    wait: WaitState,
    helped_by_any_arrival: bool,
) -> Option<UnitNo> {
    let first = members.iter().copied().min()?;
    for member in &members {
        cluster.state.units[*member].wait = wait;
        cluster.state.units.affinity_mut(*member).group = first;
    }
    cluster.groups.insert(first, WaitingGroup { members, helped_by_any_arrival });
    Some(first)
}

/// Parks a unit with an unsatisfiable `MachineOf=`.
pub(crate) fn park_unsatisfiable(cluster: &mut Cluster, unit: UnitNo) {
    cluster.state.units[unit].wait = WaitState::Unsatisfiable;
    cluster.unsatisfiable.insert(unit);
}
