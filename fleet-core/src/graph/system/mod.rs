//! The state machine of an init: what is wanted, what is known, and what follows.
//!
//! Everything that follows is kept up to date along the dependencies of what changed: each unit
//! shows its neighbours a [`Face`], counts what it sees of theirs, and is looked at again when a
//! count changes that something follows from. So an event costs what it concerns, however many
//! units there are.

mod change;
mod degraded;
mod face;
mod foresee;
mod layout;
mod need;
mod node;
mod observe;
mod propagate;
mod queues;
mod retry;
mod settle;
mod show;
mod verbs;
mod weight;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use self::degraded::Degraded;
pub use self::foresee::{PlannedAction, Preview, UnitPreview};
use self::node::Node;
use self::queues::{Marked, Queues, Ranked};
pub use self::verbs::NotReloadable;
use self::weight::Tangles;
use super::net::{Net, number};
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
    with: BTreeSet<Target>,
    mask: BTreeSet<Target>,
    max_starting: Option<NonZeroU32>,
    unlimited_starts: BTreeSet<Name>,
    /// The units of the graph and those that are not in it any more and still run, by name.
    nodes: Vec<Node>,
    net: Arc<Net>,
    tangles: Arc<Tangles>,
    /// The units to be looked at again, by their ranks.
    dirty: Ranked,
    degraded: Degraded,
    queues: Queues,
    /// How many units are starting, but for those that take no room.
    starting: u32,
    last: Incarnation,
    stale: u64,
    /// What is owed because of events, to be said with the next plan.
    owed: Vec<UnitAction>,
    /// Which nodes may be shown otherwise than before.
    changed: Marked,
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
        seen: Observation,
    ) -> Result<Self, GraphError> {
        let flaw = settings.goal.as_ref().and_then(|goal| graph.goal_flaw(goal, &settings.mask));
        if let Some(flaw) = flaw {
            return Err(flaw);
        }
        let mut system = Self {
            graph: Arc::new(graph),
            goal: settings.goal.clone(),
            with: seen.extra_targets,
            mask: settings.mask.clone(),
            max_starting: settings.max_starting,
            unlimited_starts: settings.unlimited_starts.clone(),
            nodes: Vec::new(),
            net: Arc::default(),
            tangles: Arc::default(),
            dirty: Ranked::default(),
            degraded: Degraded::default(),
            queues: Queues::default(),
            starting: 0,
            last: seen.last,
            stale: 0,
            owed: Vec::new(),
            changed: Marked::default(),
        };
        system.lay_out(seen.units);
        Ok(system)
    }

    /// All that is known of the units, to go on from with [`restore`](Self::restore).
    #[must_use]
    pub fn observation(&self) -> Observation {
        let known = self.nodes.iter().filter(|node| !node.seen.is_default());
        let units = known.map(|node| (node.unit.name.clone(), node.seen.clone())).collect();
        Observation { units, extra_targets: self.with.clone(), last: self.last }
    }

    /// When to ask for what is owed again, if nothing happens before; never if there is nothing to
    /// wait for.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.queues.next_timer()
    }

    /// The incarnation that was begun last.
    #[must_use]
    pub fn last_incarnation(&self) -> Incarnation {
        self.last
    }

    /// How many events were told of incarnations that are over, or of units that there are none of.
    #[must_use]
    pub fn stale_events(&self) -> u64 {
        self.stale
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
