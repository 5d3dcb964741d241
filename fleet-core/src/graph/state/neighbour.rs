//! The part of a unit's state that its neighbours see, and the effect of the unit on its
//! neighbours.

use crate::graph::EdgeKind;

/// The part of a unit's state that its neighbours depend on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NeighbourView {
    pub(super) needed: bool,
    pub(super) masked: bool,
    /// Whether the unit is active.
    pub(super) active: bool,
    pub(super) failed: bool,
    pub(super) ended: bool,
    pub(super) stopping: bool,
    pub(super) must_stop: bool,
    pub(super) blocked: bool,
}

/// Effect of one dependency on its dependent. The dependent counts the dependencies that have each
/// effect, so that a change of one dependency does not require a look at all others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DependencyEffect {
    /// Whether the dependency makes the dependent stop.
    pub(super) lost: bool,
    /// Whether the dependency blocks the dependent's start.
    pub(super) blocks_start: bool,
    /// Whether the dependent has to wait for the dependency.
    pub(super) unready: bool,
}

impl NeighbourView {
    /// Returns whether the unit is active and not about to stop.
    pub(super) fn stays_active(self) -> bool {
        self.active && !self.must_stop
    }

    /// Returns whether dependents no longer have to wait for this unit. That is so if the unit is
    /// active, has failed or completed, or cannot start.
    ///
    /// An active unit that has to stop is not settled. Otherwise a waiting dependent would start or
    /// not, depending on the order in which the planner handles the two units.
    pub(super) fn is_settled(self) -> bool {
        self.stays_active() || self.failed || self.ended || self.blocked || self.masked
    }

    /// Returns whether the unit fulfils its dependents.
    pub(super) fn fulfils_dependents(self) -> bool {
        self.active || self.ended
    }

    /// Returns the effect of this unit on a dependent.
    pub(super) fn effect(self, kind: EdgeKind) -> DependencyEffect {
        use EdgeKind::{After, DependsMs, DependsOn, Pulls, WaitsFor};
        let is_obstacle = self.failed || self.blocked || self.masked;
        DependencyEffect {
            lost: kind == DependsOn && !self.stays_active(),
            blocks_start: match kind {
                DependsOn => is_obstacle || self.ended,
                DependsMs => is_obstacle,
                WaitsFor | Pulls | After => false,
            },
            unready: match kind {
                DependsOn => !self.stays_active(),
                DependsMs => !self.stays_active() && !self.ended,
                WaitsFor => !self.is_settled(),
                After => self.needed && !self.is_settled(),
                Pulls => false,
            },
        }
    }

    /// Returns the flags `stopping` and `must_stop`, which decide when this unit's dependencies can
    /// stop.
    pub(super) fn stop_state(self) -> (bool, bool) {
        (self.stopping, self.must_stop)
    }

    /// Returns whether a dependency along an edge of this kind can stop only after this unit. This
    /// is so if the edge orders the two units, and this unit is stopping or has to stop.
    pub(super) fn delays_stop_of(self, kind: EdgeKind) -> bool {
        kind.orders() && (self.must_stop || self.stopping)
    }
}
