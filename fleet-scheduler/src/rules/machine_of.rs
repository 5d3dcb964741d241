//! `MachineOf=`: every unit that is named is on the machine, too, and of each pattern one that
//! matches.

use fleet_core::{Peer, Refusal};

use super::{Denial, Question};
use crate::index::{Desk, Index, Kind, MachineNo, PeerRef, UnitNo};

/// The first peer that is not on the machine.
pub(super) fn denial(question: &Question<'_>) -> Option<Denial> {
    let index = question.index;
    missing(index, question.unit, |peer| is_there(question, peer)).map(Denial::MachineOf)
}

pub(super) fn told(question: &Question<'_>, at: usize) -> Refusal {
    let slot = &question.index.units.slots[question.unit];
    let wants = slot.requirements.as_ref();
    let peer = wants.and_then(|wants| wants.machine_of.get(at)).cloned();
    Refusal::MachineOf { peer: peer.unwrap_or_else(|| Peer::Named(slot.name().clone())) }
}

/// The place of a unit's first peer of which this is not true.
pub(crate) fn missing(
    index: &Index,
    unit: UnitNo,
    is_there: impl Fn(PeerRef) -> bool,
) -> Option<usize> {
    index.units.slots[unit].peers().iter().position(|peer| !is_there(*peer))
}

fn is_there(question: &Question<'_>, peer: PeerRef) -> bool {
    is_at(question.index, question.unit, peer, question.desk, |other| {
        question.index.is_on(other, question.machine)
    })
}

/// Whether a peer of a unit is at a desk, where named units are asked for by `is_on`.
pub(crate) fn is_at(
    index: &Index,
    unit: UnitNo,
    peer: PeerRef,
    desk: &Desk,
    is_on: impl Fn(UnitNo) -> bool,
) -> bool {
    match peer {
        PeerRef::Named(other) => is_on(other),
        PeerRef::Matching(pattern) => {
            let there = desk.of(pattern).matching;
            // A unit is not its own peer, though the pattern may match it.
            let own = is_on(unit) && index.class(unit).matched.binary_search(&pattern).is_ok();
            there > u32::from(own)
        }
    }
}

/// The units on a machine that lack a peer there, with the place of the first that each lacks.
pub(crate) fn left_behind(index: &Index, machine: MachineNo) -> Vec<(UnitNo, usize)> {
    let desk = &index.machines.slots[machine].desk;
    if desk.tied == 0 {
        return Vec::new();
    }
    let lost = |unit: &UnitNo| {
        let at = missing(index, *unit, |peer| {
            is_at(index, *unit, peer, desk, |other| index.is_on(other, machine))
        });
        at.map(|at| (*unit, at))
    };
    desk.units.iter().filter_map(lost).collect()
}

/// The machine where a unit must be because a single unit that it names is there.
pub(crate) fn seat_of_peer(index: &Index, unit: UnitNo) -> Option<MachineNo> {
    index.units.slots[unit].peers().iter().find_map(|peer| match peer {
        PeerRef::Named(other) if index.units.slots[*other].kind != Kind::Global => {
            index.units.slots[*other].seat.some()
        }
        _ => None,
    })
}
