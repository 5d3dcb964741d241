//! State machine of an init. It holds the requested targets and the observed units, and determines
//! the actions that follow from them.
//!
//! Derived data (such as whether a unit has to stop) is updated incrementally along the
//! dependencies of a changed unit. Each unit exposes a `NeighbourView`, and counts the effects
//! that its neighbours' views have on it. A unit is evaluated again only if one of its counts
//! changes in a way that matters to it. The cost of an event therefore depends on the number of
//! affected units, not on the size of the graph.
//!
//! Three types build on each other:
//!
//! | type | modules | holds |
//! |---|---|---|
//! | `InitState` | this one, `requests` | the requested and masked targets; the public functions |
//! | `Units` | `transitions`, `event`, `plan` | the phases, and the actions that changes cause |
//! | `Nodes` | `nodes`, `need`, `status` | one `Node` per unit, with its derived data |
//!
//! `degraded` is a part of `Nodes`. The data that callers see are in `event`, `phase` and `plan`.
//! `retry` is the restart policy. `plan` also runs the planner ahead on a copy, as a preview.

mod degraded;
mod event;
mod need;
mod node;
mod nodes;
mod phase;
mod plan;
mod requests;
mod retry;
mod status;
mod transitions;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::Timestamp;
use crate::graph::build::{Graph, GraphError, Settings};
use crate::graph::model::{InitUnit, Name, Target};
use need::RequestedTargets;
use status::is_visible;
use transitions::Units;

pub use event::{
    ActionKind, EventKind, Incarnation, Observation, ObservedUnit, StartRateLimit, UnitAction,
    UnitEvent,
};
pub use phase::{
    Activity, BlockedBy, DerivedState, FailureCause, Phase, Retry, StatusReport, StopOutcome,
    StopReason, WaitReason,
};
pub use plan::{PlannedAction, Preview, UnitPreview};
pub use requests::NotReloadable;

/// Units of a graph, with the requested targets and the observed state of each unit.
///
/// ```
/// use fleet_core::Timestamp;
/// use fleet_core::graph::{
///     ActionKind, Command, EventKind, Graph, InitState, InitUnit, Readiness, Run, ServiceType,
///     Settings, UnitEvent,
/// };
///
/// let start = vec![Command::new("/bin/web", [])];
/// let web = InitUnit {
///     kind: ServiceType::ForegroundSupervised(Readiness::Executed),
///     run: Run { start, ..Run::default() },
///     ..InitUnit::new_virtual("web".parse()?, ["web".parse()?])
/// };
/// let settings = Settings { goal: Some("web".parse()?), ..Settings::default() };
/// let graph = Graph::strict([web], &settings).expect("the unit is valid");
/// let mut state = InitState::new(graph, &settings).expect("the goal is provided");
///
/// let now = Timestamp::from_millis(0);
/// let actions = state.next_actions(now);
/// assert_eq!(actions[0].kind, ActionKind::Start);
/// assert_eq!(state.next_actions(now), [], "each action is returned once");
///
/// let (unit, incarnation) = (actions[0].unit.clone(), actions[0].incarnation);
/// state.on_event(&UnitEvent { unit, incarnation, kind: EventKind::Ready }, now);
/// assert!(state.is_settled());
/// # Ok::<(), fleet_core::graph::InvalidName>(())
/// ```
#[derive(Debug, Clone)]
pub struct InitState {
    units: Units,
    requested: RequestedTargets,
    unlimited_starts: BTreeSet<Name>,
}

impl InitState {
    /// Creates the state of an init in which no unit runs.
    ///
    /// # Errors
    ///
    /// Returns an error if no unit provides the goal of the settings, or if the goal's unit is
    /// masked.
    pub fn new(graph: Graph, settings: &Settings) -> Result<Self, GraphError> {
        Self::restore(graph, settings, Observation::default())
    }

    /// Restores the state of an init from an observation. Units that run but are not in the graph
    /// are stopped. An extra target has no effect while no unit provides it.
    ///
    /// # Errors
    ///
    /// Returns an error if no unit provides the goal of the settings, or if the goal's unit is
    /// masked.
    pub fn restore(
        graph: Graph,
        settings: &Settings,
        observed: Observation,
    ) -> Result<Self, GraphError> {
        let error = settings.goal.as_ref().and_then(|goal| graph.goal_error(goal, &settings.mask));
        if let Some(error) = error {
            return Err(error);
        }
        let requested = RequestedTargets {
            goal: settings.goal.clone(),
            extra_targets: observed.extra_targets,
            mask: settings.mask.clone(),
        };
        let unlimited_starts = settings.unlimited_starts.clone();
        let mut units = Units {
            max_starting: settings.max_starting,
            last_incarnation: observed.last,
            ..Units::default()
        };
        units.rebuild(graph, observed.units, &requested, &unlimited_starts);
        Ok(Self { units, requested, unlimited_starts })
    }

    /// Returns the observed state, as input for [`restore`](Self::restore).
    #[must_use]
    pub fn observation(&self) -> Observation {
        let known = self.units.nodes.iter().filter(|node| !node.observed.is_default());
        let units = known.map(|node| (node.unit.name.clone(), node.observed.clone())).collect();
        Observation {
            units,
            extra_targets: self.requested.extra_targets.clone(),
            last: self.units.last_incarnation,
        }
    }

    /// Returns the time at which [`next_actions`](Self::next_actions) has to be called even if no
    /// event occurs. Returns `None` if no deadline or restart is pending.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.units.nodes.queues.next_timer()
    }

    /// Returns the number of the last start.
    #[must_use]
    pub fn last_incarnation(&self) -> Incarnation {
        self.units.last_incarnation
    }

    /// Returns the number of ignored events that named a past incarnation or an unknown unit.
    #[must_use]
    pub fn stale_events(&self) -> u64 {
        self.units.stale_events
    }

    /// Returns the graph of the units.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.units.nodes.graph
    }

    /// Returns the goal.
    #[must_use]
    pub fn goal(&self) -> Option<&Target> {
        self.requested.goal.as_ref()
    }

    /// Returns the goal and the extra targets.
    pub fn requested_targets(&self) -> impl Iterator<Item = &Target> {
        self.requested.targets()
    }

    /// Returns the definition by which a unit runs, and by which it will be stopped. Returns `None`
    /// if the unit has no run.
    #[must_use]
    pub fn running(&self, unit: &Name) -> Option<&Arc<InitUnit>> {
        self.units.nodes.get(unit)?.observed.definition.as_ref()
    }

    /// Returns the units that the next plan restarts because their last run has ended.
    #[must_use]
    pub fn due_restarts(&self, now: Timestamp) -> Vec<Name> {
        let due = self.units.nodes.queues.timers.iter().take_while(|&&(timer, _)| timer <= now);
        let nodes = due.map(|&(_, at)| self.units.nodes.node(at));
        let restarts = nodes.filter(|node| {
            let is_over = matches!(node.observed.phase, Phase::Failed | Phase::Completed);
            is_over && !node.exceeds_start_limit(now)
        });
        restarts.map(|node| node.unit.name.clone()).collect()
    }

    /// Returns whether a unit is inactive and stays inactive, because it is masked or not needed.
    /// Returns `None` for a unit without a [`status`](Self::status). This is cheaper than `status`,
    /// which also computes the reasons for waiting.
    #[must_use]
    pub fn stays_inactive(&self, unit: &Name) -> Option<bool> {
        let node = self.units.nodes.get(unit).filter(|node| is_visible(node))?;
        Some(node.observed.phase == Phase::Inactive && (node.masked || !node.needed))
    }

    /// Returns whether a unit is inactive.
    #[must_use]
    pub fn is_inactive(&self, unit: &Name) -> bool {
        self.units.nodes.get(unit).is_some_and(|node| node.observed.phase == Phase::Inactive)
    }

    /// Returns whether a reload is requested that has not begun.
    #[must_use]
    pub fn has_pending_reload(&self, unit: &Name) -> bool {
        self.units.nodes.get(unit).is_some_and(|node| node.observed.reload_requested)
    }

    /// Returns the names of all units in the graph, and of units outside it that still run.
    pub fn units(&self) -> impl Iterator<Item = &Name> {
        self.units.nodes.iter().filter(|node| is_visible(node)).map(|node| &node.unit.name)
    }

    /// Returns the names of the units that may have changed their status since the last call,
    /// including units that no longer exist. A unit that stays degraded or waiting is not included
    /// if only the reasons change. But the units that cause such a change are included.
    pub fn take_changed(&mut self) -> Vec<Name> {
        self.units.nodes.take_changed()
    }

    /// Returns the status of a unit, or `None` if the unit is not in the graph and has no
    /// processes.
    #[must_use]
    pub fn status(&self, unit: &Name) -> Option<StatusReport> {
        self.units.nodes.status(unit, self.units.is_full())
    }

    /// Returns whether a target is active only by coincidence: its unit is needed, but only for
    /// other targets that the unit provides.
    #[must_use]
    pub fn is_coincidental(&self, target: &Target) -> bool {
        self.units.nodes.is_coincidental(target, &self.requested)
    }

    /// Returns the targets that make a unit degraded, sorted by name. The list is empty if the unit
    /// is not degraded.
    #[must_use]
    pub fn degraded_by(&self, unit: &Name) -> Vec<Target> {
        self.units.nodes.degraded_by(unit)
    }

    /// Handles an event and returns whether it had an effect. An event that is impossible in the
    /// current phase is ignored. An event of a past incarnation or of an unknown unit is ignored
    /// and counted.
    pub fn on_event(&mut self, event: &UnitEvent, now: Timestamp) -> bool {
        self.units.on_event(event, now)
    }

    /// Returns the actions that are due and records them as done. The caller has to carry out the
    /// actions and report their results as events. Kills come first, then stops, reloads and
    /// starts. Of the starts, the most urgent come first: those with the longest chain of waiting
    /// dependents.
    pub fn next_actions(&mut self, now: Timestamp) -> Vec<UnitAction> {
        self.units.next_actions(now)
    }

    /// Returns whether no action is pending and no unit is starting or stopping.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.units.is_settled()
    }

    /// Computes the actions that follow if every start and stop succeeds and no time passes. Failed
    /// units are therefore not restarted. Units that are already stopping are assumed to finish at
    /// the same time, although in reality any of them may finish first.
    ///
    /// To preview a change, apply it to a copy of the state and call this function on the copy. The
    /// result is the plan that the planner would carry out.
    #[must_use]
    pub fn preview(self, now: Timestamp) -> Preview {
        plan::preview(self, now)
    }
}

impl UnitAction {
    /// Returns whether the action starts a new incarnation.
    #[must_use]
    pub fn is_start(&self) -> bool {
        self.kind == ActionKind::Start
    }
}
