//! Departures: units that leave a machine, and the units there that lack a peer without them.
//!
//! A departure affects only the units that name the departed unit in `MachineOf=`, and the units
//! with a pattern that matches nearly nothing else there. Only these are checked, so a large group
//! costs time in proportion to its size.

use crate::state::{Lookup, MachineNo, Occupancy, PatternNo, PeerRef, State, UnitNo};

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
