//! Which units are degraded: those that are up while something that they depend on does not work,
//! or is degraded itself.
//!
//! No decision hangs on it, and one event may make it so of most units of a system. Hence it is
//! kept beside the nodes, in a few bytes for each, and spreads on its own after all else has.

use super::queues::RankSet;
use crate::graph::EdgeKind;
use crate::graph::adjacency::{Adjacency, number};

/// How well each unit does.
#[derive(Debug, Clone, Default)]
pub(super) struct DegradedFlags {
    units: Vec<Health>,
    /// Those that are degraded by now and were not, or the other way round, by their ranks.
    pending: RankSet,
}

/// How well a unit does, as its dependents know it.
#[derive(Debug, Clone, Copy)]
struct Health {
    /// How many reasons it has to be degraded: each dependency that does not work, each that is
    /// degraded, and that it depends on what nobody provides.
    reasons: u32,
    active: bool,
    /// It does what others depend on it for.
    works: bool,
    degraded: bool,
}

impl DegradedFlags {
    /// That of units none of which works yet. In their order it is given who depends on what nobody
    /// provides.
    pub(super) fn new(adjacency: &Adjacency, lacking: impl Iterator<Item = bool>) -> Self {
        let health = |(at, lacks)| {
            let idle =
                adjacency.dependencies(at).iter().filter(|link| link.kind.requires()).count();
            let reasons = number(idle) + u32::from(lacks);
            Health { reasons, active: false, works: false, degraded: false }
        };
        Self {
            units: (0..).zip(lacking).map(health).collect(),
            pending: RankSet::new(adjacency.len()),
        }
    }

    /// Whether a unit is degraded.
    pub(super) fn is_degraded(&self, at: u32) -> bool {
        self.units[at as usize].degraded
    }

    /// Whether a unit gives those that depend on it so a reason to be degraded.
    pub(super) fn is_reason(&self, at: u32, kind: EdgeKind) -> bool {
        let health = self.units[at as usize];
        (!health.works && kind.requires()) || (health.degraded && spreads(kind))
    }

    /// Takes note of whether a unit is up, and whether it works.
    pub(super) fn update(&mut self, adjacency: &Adjacency, at: u32, active: bool, works: bool) {
        let health = &mut self.units[at as usize];
        let worked = std::mem::replace(&mut health.works, works);
        if std::mem::replace(&mut health.active, active) != active {
            self.enqueue_if_due(adjacency, at);
        }
        if worked != works {
            self.adjust_reasons(adjacency, at, !works, EdgeKind::requires);
        }
    }

    /// Works out who is degraded by now, and notes for whom that is new. Each unit is looked at
    /// once, after all that it depends on.
    pub(super) fn propagate(&mut self, adjacency: &Adjacency, mut note: impl FnMut(u32)) {
        while let Some(rank) = self.pending.pop() {
            let at = adjacency.order()[rank as usize];
            let health = &mut self.units[at as usize];
            if health.is_due() {
                health.degraded = !health.degraded;
                let degraded = health.degraded;
                self.adjust_reasons(adjacency, at, degraded, spreads);
                note(at);
            }
        }
    }

    /// Gives those that depend on a unit in some ways one more reason, or one less.
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

impl Health {
    /// Whether it is degraded by now and was not, or the other way round.
    fn is_due(self) -> bool {
        self.degraded != (self.active && self.reasons > 0)
    }
}

/// Whether those that depend so on a degraded unit are degraded, too. What does not keep an order
/// may lead in circles, in which all would keep one another degraded.
fn spreads(kind: EdgeKind) -> bool {
    kind.requires() && kind.orders()
}
