//! State machine of an init. It holds the requested targets and the observed units, and determines
//! the actions that follow from them.
//!
//! Derived data (such as whether a unit has to stop) is updated incrementally along the
//! dependencies of a changed unit. Each unit exposes a [`NeighbourView`], and counts the effects
//! that its neighbours' views have on it. A unit is evaluated again only if one of its counts
//! changes in a way that matters to it. The cost of an event therefore depends on the number of
//! affected units, not on the size of the graph.

mod degraded;
mod demand;
mod events;
mod layout;
mod need;
mod neighbour;
mod node;
mod plan;
mod preview;
mod propagate;
mod queries;
mod queues;
mod requests;
mod retry;
mod transitions;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use self::degraded::DegradedFlags;
use self::demand::Components;
use self::node::Node;
pub use self::preview::{PlannedAction, Preview, UnitPreview};
use self::queues::{MarkedUnits, Queues, RankSet};
pub use self::requests::NotReloadable;
use super::adjacency::{Adjacency, number};
use super::{Graph, GraphError, Incarnation, Name, Observation, Settings, Target, UnitAction};
use crate::Timestamp;

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
