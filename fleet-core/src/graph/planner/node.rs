//! State per unit, as the unit and its neighbours see it.

use std::cmp::Reverse;
use std::sync::Arc;

use super::event::ObservedUnit;
use super::need::Demand;
use super::phase::{Activity, FailureCause, Phase};
use crate::Timestamp;
use crate::graph::model::{EdgeKind, InitUnit};

/// Node of one unit.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) unit: Arc<InitUnit>,
    /// Whether the unit is outside the graph.
    pub(super) orphan: bool,
    pub(super) observed: ObservedUnit,
    pub(super) needed: bool,
    pub(super) masked: bool,
    /// Whether the running definition differs from the current one so that the unit has to be
    /// restarted.
    pub(super) definition_changed: bool,
    /// Whether the unit's start is exempt from `max_starting`.
    pub(super) unlimited_start: bool,
    pub(super) missing: MissingTargets,
    pub(super) demand: Demand,
    /// Length of the longest chain of needed units that are ordered after this unit. `None` if this
    /// unit is not needed.
    pub(super) height: Option<u32>,
    pub(super) counts: Counts,
    pub(super) view: NeighbourView,
    pub(super) queues: QueueMembership,
}

/// Dependencies on targets without a provider.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MissingTargets {
    /// Whether a target of a `depends-on` dependency has no provider.
    pub(super) depends_on: bool,
    /// Whether a target of a `depends-on`, `depends-ms` or `requisite` dependency has no provider.
    pub(super) hard: bool,
    /// Whether a target of a dependency of any requiring kind has no provider.
    pub(super) any: bool,
}

/// Numbers of neighbours that affect a unit: for each effect, the dependencies that have it, and
/// the dependents that have to stop before the unit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    lost: u32,
    blocks_start: u32,
    unready: u32,
    pub(super) dependents_to_stop: u32,
}

/// Queues that contain the unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct QueueMembership {
    pub(super) reset: bool,
    pub(super) expiring_results: bool,
    pub(super) stop: bool,
    pub(super) unlimited_start: bool,
    pub(super) start: Option<Reverse<u32>>,
    pub(super) reload: bool,
    pub(super) timer: Option<Timestamp>,
}

impl Node {
    pub(super) fn new(unit: Arc<InitUnit>, orphan: bool, observed: ObservedUnit) -> Self {
        let mut node = Self {
            definition_changed: false,
            unlimited_start: false,
            unit,
            orphan,
            observed,
            needed: false,
            masked: false,
            missing: MissingTargets::default(),
            demand: Demand::default(),
            height: None,
            counts: Counts::default(),
            view: NeighbourView::default(),
            queues: QueueMembership::default(),
        };
        node.take_over_definition();
        node
    }

    /// Takes over the current definition for a starting or active unit, unless that needs a
    /// restart.
    pub(super) fn take_over_definition(&mut self) {
        self.definition_changed = definition_changed(&self.unit, self.orphan, &self.observed);
        let phase = self.observed.phase;
        let runs = phase == Phase::Starting || phase.is_active();
        if runs && !self.orphan && !self.definition_changed && self.observed.definition.is_some() {
            self.observed.definition = Some(Arc::clone(&self.unit));
        }
    }

    /// Returns the definition of the current incarnation.
    pub(super) fn running_definition(&self) -> &InitUnit {
        self.observed.definition.as_ref().unwrap_or(&self.unit)
    }

    /// Returns whether the last run has failed or completed, and none of its processes is left.
    pub(super) fn is_at_rest(&self) -> bool {
        matches!(self.observed.phase, Phase::Failed | Phase::Completed) && !self.observed.processes
    }

    pub(super) fn has_lost_dependency(&self) -> bool {
        self.counts.lost > 0 || self.missing.depends_on
    }

    /// Computes the current view.
    pub(super) fn next_view(&self) -> NeighbourView {
        let phase = self.observed.phase;
        let active = phase.is_active();
        let stoppable = active || phase == Phase::Starting;
        let dooming = self.counts.blocks_start > 0 || self.missing.hard;
        NeighbourView {
            needed: self.needed,
            masked: self.masked,
            active,
            failed: phase == Phase::Failed,
            ended: phase == Phase::Completed,
            stopping: phase == Phase::Stopping,
            must_stop: stoppable
                && (!self.needed || self.restarts_after_stop() || self.has_lost_dependency()),
            blocked: self.needed && phase == Phase::Inactive && dooming,
        }
    }

    pub(super) fn is_startable(&self) -> bool {
        let ready = self.counts.unready == 0 && !self.missing.hard;
        self.needed && self.observed.phase == Phase::Inactive && !self.observed.processes && ready
    }

    /// Computes the queues that should contain the unit.
    pub(super) fn next_membership(&self) -> QueueMembership {
        let startable = self.is_startable();
        let is_free = self.unit.is_virtual() || self.unlimited_start;
        let runs =
            matches!(self.observed.phase, Phase::Active(Activity::Running | Activity::Exited));
        QueueMembership {
            reset: self.result_is_obsolete(),
            expiring_results: self.result_expires(),
            stop: self.view.must_stop && self.counts.dependents_to_stop == 0,
            unlimited_start: startable && is_free,
            start: (startable && !is_free).then(|| Reverse(self.height.unwrap_or(0))),
            reload: self.observed.reload_requested && runs && !self.view.must_stop,
            timer: self.timer(),
        }
    }

    /// Returns whether the result of the unit is discarded when the requested targets change. This
    /// is so for an unneeded unit that has failed or is stopping (the stop may still fail).
    pub(super) fn result_expires(&self) -> bool {
        !self.needed && matches!(self.observed.phase, Phase::Failed | Phase::Stopping)
    }

    /// Returns whether the unit starts again after this run, regardless of the result.
    pub(super) fn restarts_after_stop(&self) -> bool {
        self.definition_changed || self.observed.restart_requested
    }

    /// Returns whether the unit's result can be dropped because the unit is not needed. The result
    /// of a failed stop is an exception: it is kept until the requested targets change.
    fn result_is_obsolete(&self) -> bool {
        let kept = self.observed.cause.is_some_and(FailureCause::is_failed_stop);
        !self.needed
            && match self.observed.phase {
                Phase::Failed => !kept,
                Phase::Completed => true,
                Phase::Inactive => self.observed.attempts > 0,
                Phase::Starting | Phase::Active(_) | Phase::Stopping => false,
            }
    }

    fn timer(&self) -> Option<Timestamp> {
        match self.observed.phase {
            Phase::Failed | Phase::Completed if !self.needed || self.observed.processes => None,
            Phase::Failed | Phase::Completed => self.observed.retry_at,
            _ => self.observed.deadline,
        }
    }
}

impl Counts {
    /// Replaces the effect of one dependency.
    pub(super) fn replace(&mut self, before: DependencyEffect, after: DependencyEffect) {
        self.lost = recount(self.lost, before.lost, after.lost);
        self.blocks_start = recount(self.blocks_start, before.blocks_start, after.blocks_start);
        self.unready = recount(self.unready, before.unready, after.unready);
    }

    /// Updates the number of dependents that have to stop before this unit, after one dependent has
    /// changed. `before` is `true` if that dependent had to stop before this unit until now, and
    /// `after` if it has to from now on.
    pub(super) fn replace_dependent_to_stop(&mut self, before: bool, after: bool) {
        self.dependents_to_stop = recount(self.dependents_to_stop, before, after);
    }
}

/// Returns the number of items with a property, after the property of one item has changed from
/// `before` to `after`. If the item had the property, it is included in `count`, so the subtraction
/// cannot underflow.
fn recount(count: u32, before: bool, after: bool) -> u32 {
    count + u32::from(after) - u32::from(before)
}

/// Returns whether a busy unit has to be restarted to get its current definition.
fn definition_changed(unit: &InitUnit, orphan: bool, observed: &ObservedUnit) -> bool {
    let Some(runs) = observed.definition.as_deref().filter(|_| !orphan) else { return false };
    match observed.phase {
        Phase::Starting => runs.needs_new_start_for(unit),
        Phase::Active(_) => runs.needs_restart_for(unit),
        Phase::Stopping => runs.runs_otherwise(unit),
        Phase::Inactive | Phase::Failed | Phase::Completed => false,
    }
}

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
        use EdgeKind::{After, DependsMs, DependsOn, Pulls, Requisite, WaitsFor};
        let is_obstacle = self.failed || self.blocked || self.masked;
        DependencyEffect {
            lost: kind == DependsOn && !self.stays_active(),
            blocks_start: match kind {
                DependsOn => is_obstacle || self.ended,
                DependsMs => is_obstacle,
                Requisite => is_obstacle || self.ended || !(self.active || self.needed),
                WaitsFor | Pulls | After => false,
            },
            unready: match kind {
                DependsOn | Requisite => !self.stays_active(),
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
