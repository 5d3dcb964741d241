//! Kept placements: takes units off their machines if they no longer pass every rule there, and
//! determines which global units fit on a machine.
//!
//! Only machines that have changed are rechecked, and each of them independently of the others.
//! Global units are added after the placed units, in the order of their names. A global unit fits
//! if the machine has matching metadata and the unit conflicts with no unit that is already there.
//!
//! The departure of a unit affects only the units that name it in `MachineOf=`, and the units with
//! a pattern that matches nearly nothing else there. Only these are checked, so a large group costs
//! time in proportion to its size.

use std::sync::Arc;

use fleet_core::{Epoch, Refusal};

use crate::index::undo_log::LeaveReason;
use crate::index::{Cluster, retry_queue, undo_log};
use crate::rules::{Denial, PlacementQuery, machine_of};
use crate::state::{Lookup, MachineNo, Occupancy, PatternNo, PeerRef, State, UnitKind, UnitNo};

/// The units that a machine loses, and its global units.
#[derive(Debug, Default)]
struct RecheckOutcome {
    refused: Vec<(UnitNo, Refusal)>,
    globals: Vec<UnitNo>,
}

/// Rechecks all machines that have changed. Returns the machines that a unit left or came to.
pub(crate) fn recheck_machines(cluster: &mut Cluster) -> Vec<MachineNo> {
    let mut changed_machines = Vec::new();
    for machine in std::mem::take(&mut cluster.dirty) {
        let slot = &mut cluster.state.machines[machine];
        slot.dirty = false;
        if !slot.is_present() {
            continue;
        }
        let before = cluster.log.len();
        recheck_machine(cluster, machine);
        if cluster.log.len() > before {
            changed_machines.push(machine);
        }
    }
    changed_machines
}

fn recheck_machine(cluster: &mut Cluster, machine: MachineNo) {
    if all_pass(&cluster.state, machine) {
        return refit_globals(cluster, machine);
    }
    let outcome = kept_units(cluster, machine);
    for (unit, refusal) in outcome.refused {
        undo_log::unassign(cluster, unit, machine, LeaveReason::Refused(Arc::new(refusal)));
        retry_queue::enqueue(cluster, unit);
        retry_queue::requeue_tied(cluster, unit);
    }
    set_globals(cluster, machine, &outcome.globals);
}

/// Returns whether a cheap check shows that every unit on the machine may stay. `false` means that
/// a full check is necessary.
fn all_pass(state: &State, machine: MachineNo) -> bool {
    let slot = &state.machines[machine];
    let occupancy = &slot.occupancy;
    let passes =
        |unit: &UnitNo| PlacementQuery::new(state, *unit, machine).denial_of_placed().is_none();
    occupancy.tied == 0
        && occupancy.has_no_patterns()
        && occupancy.used().first_over(&slot.machine().offers).is_none()
        && occupancy.units.iter().all(passes)
}

fn kept_units(cluster: &Cluster, machine: MachineNo) -> RecheckOutcome {
    let mut refused = Vec::new();
    let mut candidates = Vec::new();
    for unit in by_seniority(&cluster.state, machine) {
        let query = PlacementQuery::new(&cluster.state, unit, machine);
        match query.denial_of_placed() {
            Some(denial) => refused.push((unit, query.refusal(denial))),
            None => candidates.push(unit),
        }
    }
    loop {
        let mut occupancy = Occupancy::default();
        let rejected = keep_each(&cluster.state, &mut occupancy, machine, &candidates);
        let globals = fit_in(cluster, &mut occupancy, machine);
        let lost = lost(&cluster.state, &occupancy, machine);
        if lost.is_empty() {
            refused.extend(rejected);
            return RecheckOutcome { refused, globals };
        }
        if rejected.is_empty() && cluster.globals.is_empty() {
            // The others accept each other. The next rounds only lose more units like these.
            refused.extend(lost_with(&cluster.state, lost, &occupancy, machine));
            return RecheckOutcome { refused, globals };
        }
        let is_lost: Lookup<UnitNo, ()> = lost.iter().map(|(unit, _)| (*unit, ())).collect();
        candidates.retain(|unit| !is_lost.contains(unit));
        refused.extend(lost);
    }
}

/// Returns the units placed on a machine: unreadable units first, then by epoch, then by name.
fn by_seniority(state: &State, machine: MachineNo) -> Vec<UnitNo> {
    let mut units = state.machines[machine].occupancy.units.clone();
    units.sort_by(|a, b| {
        let key = |unit: &UnitNo| -> (bool, Epoch) {
            let slot = &state.units[*unit];
            (slot.kind != UnitKind::Unreadable, slot.epoch)
        };
        let by_name = || state.units.name(*a).cmp(state.units.name(*b));
        key(a).cmp(&key(b)).then_with(by_name)
    });
    units
}

/// Adds each candidate to an empty occupancy if it is compatible with the candidates added before
/// it. Returns the other candidates, each with its refusal.
fn keep_each(
    state: &State,
    occupancy: &mut Occupancy,
    machine: MachineNo,
    candidates: &[UnitNo],
) -> Vec<(UnitNo, Refusal)> {
    let mut rejected = Vec::new();
    for unit in candidates {
        let slot = &state.units[*unit];
        let query = PlacementQuery { occupancy, ..PlacementQuery::new(state, *unit, machine) };
        let denial = query.denial_by_others().filter(|_| slot.kind != UnitKind::Unreadable);
        if let Some(denial) = denial {
            rejected.push((*unit, query.refusal(denial)));
            continue;
        }
        occupancy.add(state.class(*unit), !slot.peers().is_empty());
        occupancy.units.push(*unit);
    }
    rejected
}

/// Returns the units of an occupancy that lack a peer of their `MachineOf=` on that machine, each
/// with its refusal.
fn lost(state: &State, occupancy: &Occupancy, machine: MachineNo) -> Vec<(UnitNo, Refusal)> {
    if occupancy.tied == 0 {
        return Vec::new();
    }
    let mut there: Vec<UnitNo> =
        occupancy.units.iter().chain(&occupancy.globals).copied().collect();
    there.sort_unstable();
    let is_on = |unit: UnitNo| there.binary_search(&unit).is_ok();
    let lacks = |unit: &UnitNo| {
        let at = machine_of::missing(state, *unit, |peer| {
            machine_of::is_at(state, *unit, peer, occupancy, is_on)
        })?;
        let query = PlacementQuery { occupancy, ..PlacementQuery::new(state, *unit, machine) };
        Some((*unit, query.refusal(Denial::MachineOf(at))))
    };
    occupancy.units.iter().filter_map(lacks).collect()
}

/// Returns the units of an occupancy that are lost, and those that lack a peer without them, each
/// with its refusal.
fn lost_with(
    state: &State,
    mut lost: Vec<(UnitNo, Refusal)>,
    occupancy: &Occupancy,
    machine: MachineNo,
) -> Vec<(UnitNo, Refusal)> {
    let mut departures = Departures::among(state, machine, occupancy);
    let mut more: Vec<UnitNo> = lost.iter().map(|(unit, _)| *unit).collect();
    while !more.is_empty() {
        more = departures.leave_all(&more);
        lost.extend(more.iter().filter_map(|unit| {
            let missing = Denial::MachineOf(departures.first_missing(*unit)?);
            Some((*unit, PlacementQuery::new(state, *unit, machine).refusal(missing)))
        }));
    }
    lost
}

/// Adds the global units that fit on a machine to an occupancy that contains only the placed units.
/// Returns the added units.
pub(super) fn fit_in(
    cluster: &Cluster,
    occupancy: &mut Occupancy,
    machine: MachineNo,
) -> Vec<UnitNo> {
    for unit in cluster.globals.values() {
        let query =
            PlacementQuery { occupancy, ..PlacementQuery::new(&cluster.state, *unit, machine) };
        if query.denial_of_global().is_none() {
            occupancy.add(cluster.state.class(*unit), false);
            occupancy.globals.push(*unit);
        }
    }
    occupancy.globals.clone()
}

/// Recomputes the global units of a machine.
///
/// The call is required after a unit has left the machine, because other global units may then fit.
/// It is not required after a unit has come. The machine accepted the new unit only because it
/// conflicts with no global unit there, so all of these stay. The global units that were refused
/// before stay refused.
pub(super) fn refit_globals(cluster: &mut Cluster, machine: MachineNo) {
    if cluster.globals.is_empty() {
        return;
    }
    let mut occupancy = Occupancy::default();
    for unit in &cluster.state.machines[machine].occupancy.units {
        occupancy.add(cluster.state.class(*unit), false);
    }
    let fitted = fit_in(cluster, &mut occupancy, machine);
    set_globals(cluster, machine, &fitted);
}

/// Replaces the global units of a machine.
pub(super) fn set_globals(cluster: &mut Cluster, machine: MachineNo, fitted: &[UnitNo]) {
    let present = cluster.state.machines[machine].occupancy.globals.clone();
    for unit in present.iter().filter(|unit| !fitted.contains(unit)) {
        undo_log::unassign(cluster, *unit, machine, LeaveReason::Refitted);
        requeue_followers(cluster, *unit);
    }
    for unit in fitted.iter().filter(|unit| !present.contains(unit)) {
        undo_log::assign(cluster, *unit, machine);
        requeue_followers(cluster, *unit);
    }
}

/// Queues again the units that have a `MachineOf=` pattern that matches this global unit, which has
/// just come or left.
///
/// A pattern ties units to a waiting unit only while no matching unit is on any machine. The call
/// therefore has an effect only if this unit is the first match on any machine, or was the last.
fn requeue_followers(cluster: &mut Cluster, unit: UnitNo) {
    let mut matched =
        cluster.state.class(unit).matched.iter().map(|it| &cluster.state.patterns[*it]);
    if matched.any(|pattern| !pattern.followers.is_empty() && pattern.assigned <= 1) {
        retry_queue::requeue_tied(cluster, unit);
    }
}

/// The units that have left one machine.
pub(super) struct Departures<'a> {
    state: &'a State,
    machine: MachineNo,
    /// The units on the machine before the departures.
    occupancy: &'a Occupancy,
    gone: Lookup<UnitNo, ()>,
    /// Number of departed units that a pattern matches, for the patterns of `MachineOf=`.
    gone_matching: Lookup<PatternNo, u32>,
}

impl<'a> Departures<'a> {
    pub(super) fn new(state: &'a State, machine: MachineNo) -> Self {
        let occupancy = &state.machines[machine].occupancy;
        let (gone, gone_matching) = (Lookup::default(), Lookup::default());
        Self { state, machine, occupancy, gone, gone_matching }
    }

    /// Starts with some units of the machine, as if the others had never been there. `occupancy`
    /// describes these units. It must contain all global units.
    pub(super) fn among(state: &'a State, machine: MachineNo, occupancy: &'a Occupancy) -> Self {
        let kept: Lookup<UnitNo, ()> = occupancy.units.iter().map(|unit| (*unit, ())).collect();
        let mut departures = Self { occupancy, ..Self::new(state, machine) };
        for unit in &state.machines[machine].occupancy.units {
            if !kept.contains(unit) {
                departures.gone.insert(*unit, ());
            }
        }
        departures
    }

    pub(super) fn is_gone(&self, unit: UnitNo) -> bool {
        self.gone.contains(&unit)
    }

    /// Removes a unit. Returns units that now lack a peer, among them all that did not before.
    pub(super) fn leave(&mut self, unit: UnitNo) -> Vec<UnitNo> {
        if !self.gone.insert(unit, ()) {
            return Vec::new();
        }
        let mut affected = self.state.units[unit].followers().to_vec();
        for pattern in &self.state.class(unit).matched {
            let followers = &self.state.patterns[*pattern].followers;
            if followers.is_empty() {
                continue;
            }
            let gone = self.gone_matching.get_or_insert(*pattern, 0);
            *gone += 1;
            // A follower that the pattern matches is not its own peer.
            if self.occupancy.counts_of(*pattern).matching <= *gone + 1 {
                let there = &self.occupancy.units;
                affected.extend(if followers.len() < there.len() { followers } else { there });
            }
        }
        affected.retain(|other| {
            self.state.units[*other].machine == self.machine
                && !self.is_gone(*other)
                && self.first_missing(*other).is_some()
        });
        affected
    }

    /// Removes several units. Returns the units that now lack a peer, by name, without duplicates.
    pub(super) fn leave_all(&mut self, units: &[UnitNo]) -> Vec<UnitNo> {
        let mut affected: Vec<UnitNo> = units.iter().flat_map(|unit| self.leave(*unit)).collect();
        affected.retain(|unit| !self.is_gone(*unit));
        self.state.units.sort(&mut affected);
        affected.dedup();
        affected
    }

    /// Returns the index of the first peer that a unit on the machine lacks.
    pub(super) fn first_missing(&self, unit: UnitNo) -> Option<usize> {
        let peers = self.state.units[unit].peers();
        peers.iter().position(|peer| match *peer {
            PeerRef::Named(other) => self.is_gone(other) || !self.state.is_on(other, self.machine),
            PeerRef::Matching(pattern) => {
                let gone = self.gone_matching.get(&pattern).copied().unwrap_or(0);
                let own = self.state.class(unit).matched.binary_search(&pattern).is_ok();
                self.occupancy.counts_of(pattern).matching <= gone + u32::from(own)
            }
        })
    }
}
