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

/// Effect of one dependency on its dependent. A dependent counts the effects of its dependencies,
/// so it need not evaluate all of them after each change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DependencyEffect {
    /// The dependency makes the dependent stop.
    pub(super) lost: bool,
    /// The dependency blocks the dependent's start.
    pub(super) blocks_start: bool,
    /// The dependent has to wait.
    pub(super) unready: bool,
}

impl NeighbourView {
    /// Returns whether the unit is active and not about to stop.
    pub(super) fn stays_active(self) -> bool {
        self.active && !self.must_stop
    }

    /// Returns whether dependents no longer have to wait for this unit. They do have to wait for an
    /// active unit that is about to stop. Otherwise the order of a plan's steps would decide
    /// whether a waiting unit starts.
    pub(super) fn is_settled(self) -> bool {
        self.stays_active() || self.failed || self.ended || self.blocked || self.masked
    }

    /// Returns whether the unit fulfils its dependents.
    pub(super) fn works(self) -> bool {
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

    /// Returns the part of the view that matters to this unit's dependencies.
    pub(super) fn stop_state(self) -> (bool, bool) {
        (self.stopping, self.must_stop)
    }

    /// Returns whether this unit has to be gone before its dependency can stop. A starting or
    /// active unit with a `depends-on` edge to a dependency that must stop has to stop too. Its own
    /// `must_stop` flag covers that case.
    pub(super) fn delays_stop_of(self, kind: EdgeKind) -> bool {
        kind.orders() && (self.must_stop || self.stopping)
    }
}
