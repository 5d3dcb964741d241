//! `MachineOf=`: every named unit, and a matching unit for each pattern, is on the same machine.

use fleet_core::Refusal;
use fleet_core::pattern::Peer;

use super::{Denial, PlacementQuery};
use crate::state::{MachineNo, Occupancy, PeerRef, State, UnitKind, UnitNo};

/// Returns a denial if a peer is not on the machine. The denial holds the first such peer.
pub(super) fn denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    let state = query.state;
    missing(state, query.unit, |peer| is_there(query, peer)).map(Denial::MachineOf)
}

pub(super) fn refusal_for(query: &PlacementQuery<'_>, at: usize) -> Refusal {
    let slot = &query.state.units[query.unit];
    let wants = slot.requirements.as_ref();
    let peer = wants.and_then(|wants| wants.machine_of.get(at)).cloned();
    Refusal::MachineOf { peer: peer.unwrap_or_else(|| Peer::Named(slot.name().clone())) }
}

/// Returns the index of a unit's first peer for which `is_there` returns false.
pub(crate) fn missing(
    state: &State,
    unit: UnitNo,
    is_there: impl Fn(PeerRef) -> bool,
) -> Option<usize> {
    state.units[unit].peers().iter().position(|peer| !is_there(*peer))
}

fn is_there(query: &PlacementQuery<'_>, peer: PeerRef) -> bool {
    is_at(query.state, query.unit, peer, query.occupancy, |other| {
        query.state.is_on(other, query.machine)
    })
}

/// Returns whether a peer that a unit requires is on a machine. `occupancy` describes the units on
/// that machine, and `is_on` returns whether a given unit is there.
pub(crate) fn is_at(
    state: &State,
    unit: UnitNo,
    peer: PeerRef,
    occupancy: &Occupancy,
    is_on: impl Fn(UnitNo) -> bool,
) -> bool {
    match peer {
        PeerRef::Named(other) => is_on(other),
        PeerRef::Matching(pattern) => {
            let there = occupancy.counts_of(pattern).matching;
            // A unit is not its own peer, even if the pattern matches it.
            let own = is_on(unit) && state.class(unit).matched.binary_search(&pattern).is_ok();
            there > u32::from(own)
        }
    }
}

/// Returns the units on a machine that lack a peer there, each with the index of its first missing
/// peer.
pub(crate) fn left_behind(state: &State, machine: MachineNo) -> Vec<(UnitNo, usize)> {
    let occupancy = &state.machines[machine].occupancy;
    if occupancy.tied == 0 {
        return Vec::new();
    }
    let lost = |unit: &UnitNo| {
        let at = missing(state, *unit, |peer| {
            is_at(state, *unit, peer, occupancy, |other| state.is_on(other, machine))
        });
        at.map(|at| (*unit, at))
    };
    occupancy.units.iter().filter_map(lost).collect()
}

/// Returns the machine that a unit must join: that of the first non-global unit that its
/// `MachineOf=` names and that has a machine. Returns `None` if there is no such unit.
pub(crate) fn machine_of_peer(state: &State, unit: UnitNo) -> Option<MachineNo> {
    state.units[unit].peers().iter().find_map(|peer| match peer {
        PeerRef::Named(other) if state.units[*other].kind != UnitKind::Global => {
            state.units[*other].machine.some()
        }
        _ => None,
    })
}
