//! What a unit shows to those that it has dependencies with, and what they make of it.

use crate::graph::EdgeKind;

/// All that the neighbours of a unit go by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NeighbourView {
    pub(super) needed: bool,
    pub(super) masked: bool,
    /// It is up.
    pub(super) active: bool,
    pub(super) failed: bool,
    pub(super) ended: bool,
    pub(super) stopping: bool,
    pub(super) must_stop: bool,
    pub(super) blocked: bool,
}

/// What a dependent makes of one dependency. Each is counted, so that the dependent need not look
/// at all of them again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DependencyEffect {
    /// It takes the dependent down.
    pub(super) lost: bool,
    /// It keeps the dependent from ever starting, as things are.
    pub(super) blocks_start: bool,
    /// The dependent does not start yet.
    pub(super) unready: bool,
}

impl NeighbourView {
    /// Whether it is up, and not about to go.
    pub(super) fn stays_active(self) -> bool {
        self.active && !self.must_stop
    }

    /// Whether there is nothing more to wait for. A unit that is up and about to go is waited for
    /// again: otherwise it would depend on the order of the steps of a plan whether a unit that
    /// waits for it starts.
    pub(super) fn is_settled(self) -> bool {
        self.stays_active() || self.failed || self.ended || self.blocked || self.masked
    }

    /// Whether it does what others depend on it for.
    pub(super) fn works(self) -> bool {
        self.active || self.ended
    }

    /// What it is to a dependent.
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

    /// All that those go by that it depends on.
    pub(super) fn stop_state(self) -> (bool, bool) {
        (self.stopping, self.must_stop)
    }

    /// Whether, as a dependent, it has to be gone before its dependency stops. A hard dependent has
    /// to whatever it does; but one that is starting or up must stop, too, if its dependency must.
    pub(super) fn delays_stop_of(self, kind: EdgeKind) -> bool {
        kind.orders() && (self.must_stop || self.stopping)
    }
}
