//! State machine of an init. It holds the requested targets and the observed units, and determines
//! the actions that follow from them.
//!
//! Derived data (such as whether a unit has to stop) is updated incrementally along the
//! dependencies of a changed unit. Each unit exposes a [`NeighbourView`], and counts the effects
//! that its neighbours' views have on it. A unit is evaluated again only if one of its counts
//! changes in a way that matters to it. The cost of an event therefore depends on the number of
//! affected units, not on the size of the graph.

mod degraded;
mod event;
mod events;
mod need;
mod node;
mod phase;
mod plan;
mod preview;
mod queues;
mod requests;
mod retry;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::Timestamp;
use crate::graph::build::adjacency::{Adjacency, number};
use crate::graph::build::{Graph, GraphError, Settings};
use crate::graph::model::{EdgeKind, InitUnit, Name, Target};
use degraded::DegradedFlags;
use need::Components;
use node::{NeighbourView, Node};
use queues::{MarkedUnits, Queues, RankSet};

pub use event::{
    ActionKind, EventKind, Incarnation, Observation, ObservedUnit, StartRateLimit, UnitAction,
    UnitEvent,
};
pub use phase::{
    Activity, BlockedBy, DerivedState, FailureCause, Phase, Retry, StatusReport, StopOutcome,
    StopReason, WaitReason,
};
pub use preview::{PlannedAction, Preview, UnitPreview};
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
    graph: Arc<Graph>,
    goal: Option<Target>,
    extra_targets: BTreeSet<Target>,
    mask: BTreeSet<Target>,
    max_starting: Option<NonZeroU32>,
    unlimited_starts: BTreeSet<Name>,
    /// Nodes of all units in the graph, and of units outside it that still run, sorted by name.
    nodes: Vec<Node>,
    adjacency: Arc<Adjacency>,
    components: Arc<Components>,
    /// Units to evaluate again, by their ranks.
    dirty: RankSet,
    degraded: DegradedFlags,
    queues: Queues,
    /// Number of starting units, without those exempt from `max_starting`.
    starting: u32,
    last_incarnation: Incarnation,
    stale_events: u64,
    /// Actions caused by events, returned with the next plan.
    pending_actions: Vec<UnitAction>,
    /// Nodes whose status may have changed.
    changed: MarkedUnits,
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
        let mut state = Self {
            graph: Arc::new(graph),
            goal: settings.goal.clone(),
            extra_targets: observed.extra_targets,
            mask: settings.mask.clone(),
            max_starting: settings.max_starting,
            unlimited_starts: settings.unlimited_starts.clone(),
            nodes: Vec::new(),
            adjacency: Arc::default(),
            components: Arc::default(),
            dirty: RankSet::default(),
            degraded: DegradedFlags::default(),
            queues: Queues::default(),
            starting: 0,
            last_incarnation: observed.last,
            stale_events: 0,
            pending_actions: Vec::new(),
            changed: MarkedUnits::default(),
        };
        state.rebuild(observed.units);
        Ok(state)
    }

    /// Returns the observed state, as input for [`restore`](Self::restore).
    #[must_use]
    pub fn observation(&self) -> Observation {
        let known = self.nodes.iter().filter(|node| !node.observed.is_default());
        let units = known.map(|node| (node.unit.name.clone(), node.observed.clone())).collect();
        Observation {
            units,
            extra_targets: self.extra_targets.clone(),
            last: self.last_incarnation,
        }
    }

    /// Returns the time at which [`next_actions`](Self::next_actions) has to be called even if no
    /// event occurs. Returns `None` if no deadline or restart is pending.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.queues.next_timer()
    }

    /// Returns the number of the last start.
    #[must_use]
    pub fn last_incarnation(&self) -> Incarnation {
        self.last_incarnation
    }

    /// Returns the number of ignored events that named a past incarnation or an unknown unit.
    #[must_use]
    pub fn stale_events(&self) -> u64 {
        self.stale_events
    }

    fn find(&self, name: &Name) -> Option<u32> {
        self.nodes.binary_search_by(|node| node.unit.name.cmp(name)).ok().map(number)
    }

    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    fn all(&self) -> std::ops::Range<u32> {
        0..number(self.nodes.len())
    }
}

impl InitState {
    /// Returns the graph of the units.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the goal.
    #[must_use]
    pub fn goal(&self) -> Option<&Target> {
        self.goal.as_ref()
    }

    /// Returns the goal and the extra targets.
    pub fn requested_targets(&self) -> impl Iterator<Item = &Target> {
        self.goal.iter().chain(&self.extra_targets)
    }

    /// Returns the status of a unit, or `None` if the unit is not in the graph and has no
    /// processes.
    #[must_use]
    pub fn status(&self, unit: &Name) -> Option<StatusReport> {
        let at = self.find(unit).filter(|&at| is_visible(self.node(at)))?;
        let node = self.node(at);
        Some(StatusReport {
            state: self.derive_state(node),
            needed: node.needed,
            degraded: self.degraded.is_degraded(at),
            since: node.observed.since,
            incarnation: node.observed.incarnation,
            attempts: node.observed.attempts,
            failures: node.observed.failures,
            reload_failed: node.observed.reload_failed,
        })
    }

    /// Returns the definition by which a unit runs, and by which it will be stopped. Returns `None`
    /// if the unit has no run.
    #[must_use]
    pub fn running(&self, unit: &Name) -> Option<&Arc<InitUnit>> {
        self.find(unit).and_then(|at| self.node(at).observed.definition.as_ref())
    }

    /// Returns the units that the next plan restarts because their last run has ended.
    #[must_use]
    pub fn due_restarts(&self, now: Timestamp) -> Vec<Name> {
        let due = self.queues.timers.iter().take_while(|&&(timer, _)| timer <= now);
        let nodes = due.map(|&(_, at)| self.node(at));
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
        let node = self.find(unit).map(|at| self.node(at)).filter(|node| is_visible(node))?;
        Some(node.observed.phase == Phase::Inactive && (node.masked || !node.needed))
    }

    /// Returns whether a unit is inactive.
    #[must_use]
    pub fn is_inactive(&self, unit: &Name) -> bool {
        self.find(unit).is_some_and(|at| self.node(at).observed.phase == Phase::Inactive)
    }

    /// Returns whether a reload is requested that has not begun.
    #[must_use]
    pub fn has_pending_reload(&self, unit: &Name) -> bool {
        self.find(unit).is_some_and(|at| self.node(at).observed.reload_requested)
    }

    /// Returns the names of all units in the graph, and of units outside it that still run.
    pub fn units(&self) -> impl Iterator<Item = &Name> {
        self.nodes.iter().filter(|node| is_visible(node)).map(|node| &node.unit.name)
    }

    /// Returns the names of the units that may have changed their status since the last call,
    /// including units that no longer exist. A unit that stays degraded or waiting is not included
    /// if only the reasons change. But the units that cause such a change are included.
    pub fn take_changed(&mut self) -> Vec<Name> {
        self.changed.take().into_iter().map(|at| self.node(at).unit.name.clone()).collect()
    }

    /// Returns whether a target is active only by coincidence: its unit is needed, but only for
    /// other targets that the unit provides.
    #[must_use]
    pub fn is_coincidental(&self, target: &Target) -> bool {
        let Some(at) = self.provider(target).filter(|&at| self.node(at).needed) else {
            return false;
        };
        let names = |node: &Node| {
            node.unit.edges.iter().any(|(kind, name)| kind.requires() && name == target)
        };
        let mut dependents = self.adjacency.dependents(at).iter().map(|link| self.node(link.node));
        !self.requested_targets().any(|goal| goal == target)
            && !dependents.any(|node| node.needed && names(node))
    }

    /// Returns the targets that make a unit degraded, sorted by name. The list is empty if the unit
    /// is not degraded.
    #[must_use]
    pub fn degraded_by(&self, unit: &Name) -> Vec<Target> {
        let Some(at) = self.find(unit).filter(|&at| self.degraded.is_degraded(at)) else {
            return Vec::new();
        };
        self.collect_targets(self.node(at), |kind, provider| {
            let keeps = provider
                .map_or(kind.requires(), |provider| self.degraded.is_reason(provider, kind));
            keeps.then_some(())
        })
        .into_iter()
        .map(|(target, ())| target)
        .collect()
    }

    fn derive_state(&self, node: &Node) -> DerivedState {
        let observed = &node.observed;
        match observed.phase {
            Phase::Inactive if node.masked => DerivedState::Masked,
            Phase::Inactive if !node.needed => DerivedState::Disabled,
            Phase::Inactive => DerivedState::Waiting(self.wait_reason(node)),
            Phase::Starting => DerivedState::Starting,
            Phase::Active(activity) => DerivedState::Active(activity),
            Phase::Stopping => {
                DerivedState::Stopping(observed.outcome.as_ref().and_then(stop_reason))
            }
            Phase::Failed => DerivedState::Failed {
                cause: observed
                    .cause
                    .unwrap_or(FailureCause::Exit(crate::graph::model::Exit::Unknown)),
                retry: retry(node),
                stuck: observed.processes,
            },
            Phase::Completed => DerivedState::Completed(retry(node)),
        }
    }

    fn wait_reason(&self, node: &Node) -> WaitReason {
        if node.view.blocked {
            return WaitReason::Blocked(self.collect_targets(node, |kind, provider| {
                blocked_by(kind, provider.map(|at| self.node(at).view))
            }));
        }
        let waiting_for = self.collect_targets(node, |kind, provider| {
            provider.is_some_and(|at| self.node(at).view.effect(kind).unready).then_some(())
        });
        if !waiting_for.is_empty() {
            return WaitReason::Dependencies(
                waiting_for.into_iter().map(|(target, ())| target).collect(),
            );
        }
        if node.observed.processes {
            return WaitReason::LeftoverProcesses;
        }
        let full = self.max_starting.is_some_and(|most| self.starting >= most.get());
        if full { WaitReason::Slot } else { WaitReason::NextPlan }
    }

    /// Returns the targets that a unit depends on and for which `select` returns a value, each with
    /// its value, sorted by name. `select` gets the edge kind and the node of the target's
    /// provider, if there is one.
    fn collect_targets<T>(
        &self,
        node: &Node,
        select: impl Fn(EdgeKind, Option<u32>) -> Option<T>,
    ) -> Vec<(Target, T)> {
        let mut found: Vec<(Target, T)> = Vec::new();
        let mut edges: Vec<&(EdgeKind, Target)> = node.unit.edges.iter().collect();
        edges.sort_by(|a, b| (&a.1, a.0).cmp(&(&b.1, b.0)));
        for (kind, target) in edges {
            let provider = self.provider(target);
            let known = found.last().is_some_and(|(last, _)| last == target);
            if let Some(selected) = select(*kind, provider).filter(|_| !known) {
                found.push((target.clone(), selected));
            }
        }
        found
    }
}

/// Returns whether the unit has a status.
fn is_visible(node: &Node) -> bool {
    !node.orphan || node.observed.phase.is_busy() || node.observed.processes
}

fn blocked_by(kind: EdgeKind, provider: Option<NeighbourView>) -> Option<BlockedBy> {
    let Some(view) = provider else {
        return (kind <= EdgeKind::DependsMs).then_some(BlockedBy::Missing);
    };
    if !view.effect(kind).blocks_start {
        return None;
    }
    let table = [
        (view.masked, BlockedBy::Masked),
        (view.failed, BlockedBy::Failed),
        (view.ended, BlockedBy::Completed),
    ];
    let found = table.into_iter().find(|(found, _)| *found);
    Some(found.map_or(BlockedBy::Blocked, |(_, blocked_by)| blocked_by))
}

fn stop_reason(outcome: &StopOutcome) -> Option<StopReason> {
    match outcome {
        StopOutcome::Inactive(reason) => Some(reason.clone()),
        StopOutcome::Failed(cause) => Some(StopReason::Failed(*cause)),
        StopOutcome::Completed(_) => Some(StopReason::Completed),
        StopOutcome::Skipped => Some(StopReason::Skipped),
        StopOutcome::SelfInitiated => None,
    }
}

/// Returns whether and when a unit is restarted. A scheduled restart is ignored if the unit is not
/// needed.
fn retry(node: &Node) -> Retry {
    match (node.observed.retry_at.filter(|_| node.needed), node.observed.gave_up) {
        (Some(at), _) => Retry::At(at),
        (None, true) => Retry::GaveUp,
        (None, false) => Retry::Never,
    }
}

impl UnitAction {
    /// Returns whether the action starts a new incarnation.
    #[must_use]
    pub fn is_start(&self) -> bool {
        self.kind == ActionKind::Start
    }
}
