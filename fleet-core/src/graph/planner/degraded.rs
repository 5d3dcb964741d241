//! Degraded units: active units with a dependency that does not work or is itself degraded.
//!
//! No decision of the planner depends on the degraded flags, and one event may change the flags of
//! most units. Therefore the flags are stored apart from the nodes, in a few bytes per unit, and
//! are propagated only after all other changes.

use super::nodes::RankSet;
use crate::graph::build::{Adjacency, number};
use crate::graph::model::EdgeKind;

/// Degraded flag of each unit, with the data it is derived from.
#[derive(Debug, Clone, Default)]
pub(super) struct DegradedFlags {
    units: Vec<DegradedState>,
    /// Units whose flag has to change, by their ranks.
    pending: RankSet,
}

/// State of one unit as its dependents see it.
#[derive(Debug, Clone, Copy)]
struct DegradedState {
    /// Number of reasons to be degraded: one for each dependency that does not work or is degraded
    /// itself, and one for all missing dependencies together.
    reasons: u32,
    active: bool,
    /// Whether the unit fulfils its dependents.
    fulfils_dependents: bool,
    degraded: bool,
}

impl DegradedFlags {
    /// Creates the flags of units that are all inactive, so that no unit is degraded yet. Each unit
    /// already counts its required dependencies as reasons, because none of them works. `lacking`
    /// yields, for each unit, whether the unit depends on a target that no unit provides.
    pub(super) fn new(adjacency: &Adjacency, lacking: impl Iterator<Item = bool>) -> Self {
        let state = |(at, lacks)| {
            let idle =
                adjacency.dependencies(at).iter().filter(|link| link.kind.requires()).count();
            let reasons = number(idle) + u32::from(lacks);
            DegradedState { reasons, active: false, fulfils_dependents: false, degraded: false }
        };
        Self {
            units: (0..).zip(lacking).map(state).collect(),
            pending: RankSet::new(adjacency.len()),
        }
    }

    /// Returns whether a unit is degraded.
    pub(super) fn is_degraded(&self, at: u32) -> bool {
        self.units[at as usize].degraded
    }

    /// Returns whether a unit degrades its active dependents along edges of this kind. It does if:
    ///
    /// - the edges require the unit, and the unit does not work
    /// - the edges both require and order, and the unit is itself degraded
    pub(super) fn is_reason(&self, at: u32, kind: EdgeKind) -> bool {
        let state = self.units[at as usize];
        (!state.fulfils_dependents && kind.requires()) || (state.degraded && spreads(kind))
    }

    /// Updates whether a unit is active and whether it works.
    pub(super) fn update(
        &mut self,
        adjacency: &Adjacency,
        at: u32,
        active: bool,
        fulfils_dependents: bool,
    ) {
        let state = &mut self.units[at as usize];
        let fulfilled = std::mem::replace(&mut state.fulfils_dependents, fulfils_dependents);
        if std::mem::replace(&mut state.active, active) != active {
            self.enqueue_if_due(adjacency, at);
        }
        if fulfilled != fulfils_dependents {
            self.adjust_reasons(adjacency, at, !fulfils_dependents, EdgeKind::requires);
        }
    }

    /// Updates the degraded flags, and calls `note` for each unit whose flag changes. Dependencies
    /// are evaluated before their dependents, so each unit is evaluated once.
    pub(super) fn propagate(&mut self, adjacency: &Adjacency, mut note: impl FnMut(u32)) {
        while let Some(rank) = self.pending.pop() {
            let at = adjacency.order()[rank as usize];
            let state = &mut self.units[at as usize];
            if state.is_due() {
                state.degraded = !state.degraded;
                let degraded = state.degraded;
                self.adjust_reasons(adjacency, at, degraded, spreads);
                note(at);
            }
        }
    }

    /// Adds one reason to the selected dependents of a unit, or removes one.
    fn adjust_reasons(
        &mut self,
        adjacency: &Adjacency,
        at: u32,
        more: bool,
        ways: impl Fn(EdgeKind) -> bool,
    ) {
        for link in adjacency.dependents(at).iter().filter(|link| ways(link.kind)) {
            let reasons = &mut self.units[link.node as usize].reasons;
            let before = *reasons;
            *reasons = if more { before + 1 } else { before - 1 };
            if (before > 0) != (*reasons > 0) {
                self.enqueue_if_due(adjacency, link.node);
            }
        }
    }

    fn enqueue_if_due(&mut self, adjacency: &Adjacency, at: u32) {
        if self.units[at as usize].is_due() {
            self.pending.insert(adjacency.rank(at));
        }
    }
}

impl DegradedState {
    /// Returns whether the flag has to change.
    fn is_due(self) -> bool {
        self.degraded != (self.active && self.reasons > 0)
    }
}

/// Returns whether a degraded dependency makes its dependents along edges of this kind degraded.
/// Only edges that both require and order do so, because other edges may form cycles. In a cycle,
/// all units would keep each other degraded.
fn spreads(kind: EdgeKind) -> bool {
    kind.requires() && kind.orders()
}
