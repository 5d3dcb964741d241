//! The state machine of an init: what is wanted, what is known, and what follows.
//!
//! Everything that follows is kept up to date along the dependencies of what changed: each unit
//! shows its neighbours a [`NeighbourView`], counts what it sees of theirs, and is looked at again when a
//! count changes that something follows from. So an event costs what it concerns, however many
//! units there are.

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

/// The units of a graph, what is wanted of them, and what is known of them.
///
/// ```
/// use fleet_core::Timestamp;
/// use fleet_core::graph::{
///     Command, UnitEvent, Graph, EventKind, ServiceType, ActionKind, Readiness, Run, Settings, InitState, InitUnit,
/// };
///
/// let start = vec![Command::new("/bin/web", [])];
/// let web = InitUnit {
///     kind: ServiceType::ForegroundSupervised(Readiness::Executed),
///     run: Run { start, ..Run::default() },
///     ..InitUnit::new_virtual("web".parse()?, ["web".parse()?])
/// };
/// let settings = Settings { goal: Some("web".parse()?), ..Settings::default() };
/// let graph = Graph::strict([web], &settings).expect("nothing is wrong with it");
/// let mut system = InitState::new(graph, &settings).expect("its goal is provided");
///
/// let now = Timestamp::from_millis(0);
/// let actions = system.next_actions(now);
/// assert_eq!(actions[0].kind, ActionKind::Start);
/// assert_eq!(system.next_actions(now), [], "it is said once");
///
/// let (unit, incarnation) = (actions[0].unit.clone(), actions[0].incarnation);
/// system.on_event(&UnitEvent { unit, incarnation, kind: EventKind::Ready }, now);
/// assert!(system.is_settled());
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
    /// The units of the graph and those that are not in it any more and still run, by name.
    nodes: Vec<Node>,
    adjacency: Arc<Adjacency>,
    components: Arc<Components>,
    /// The units to be looked at again, by their ranks.
    dirty: RankSet,
    degraded: DegradedFlags,
    queues: Queues,
    /// How many units are starting, but for those that take no room.
    starting: u32,
    last_incarnation: Incarnation,
    stale_events: u64,
    /// What is pending_actions because of events, to be said with the next plan.
    pending_actions: Vec<UnitAction>,
    /// Which nodes may be shown otherwise than before.
    changed: MarkedUnits,
}

impl InitState {
    /// A system of which nothing runs.
    ///
    /// # Errors
    ///
    /// What is wrong with the goal of the settings.
    pub fn new(graph: Graph, settings: &Settings) -> Result<Self, GraphError> {
        Self::restore(graph, settings, Observation::default())
    }

    /// A system that goes on where another one was, which was observed. Units that ran and are not
    /// in the graph are stopped, and what was wanted beside the goal counts as far as it is there.
    ///
    /// # Errors
    ///
    /// What is wrong with the goal of the settings.
    pub fn restore(
        graph: Graph,
        settings: &Settings,
        observed: Observation,
    ) -> Result<Self, GraphError> {
        let error = settings.goal.as_ref().and_then(|goal| graph.goal_error(goal, &settings.mask));
        if let Some(error) = error {
            return Err(error);
        }
        let mut system = Self {
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
        system.rebuild(observed.units);
        Ok(system)
    }

    /// All that is known of the units, to go on from with [`restore`](Self::restore).
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

    /// When to ask for what is pending_actions again, if nothing happens before; never if there is nothing to
    /// wait for.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.queues.next_timer()
    }

    /// The incarnation that was begun last.
    #[must_use]
    pub fn last_incarnation(&self) -> Incarnation {
        self.last_incarnation
    }

    /// How many events were told of incarnations that are over, or of units that there are none of.
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
