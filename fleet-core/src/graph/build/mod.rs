//! Builds the graph of units, or reports all errors in them. Its adjacency lists have numbers as
//! nodes and kinds of edges.

mod assembly;
pub(super) mod cycle;
mod error;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::graph::model::{EdgeKind, ExecOutput, InitUnit, Name, Target, Timeouts};
use assembly::Assembly;

pub use error::{DependencyCycle, GraphError, SettingConflict};

/// Graph of valid units. Every target has one provider, and no unit waits for itself, even
/// indirectly.
///
/// The graph does not depend on the order in which the units are passed.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Sorted by name; a unit's number is its index.
    pub(in crate::graph) units: Vec<Arc<InitUnit>>,
    pub(in crate::graph) providers: BTreeMap<Target, u32>,
    pub(in crate::graph) adjacency: Arc<Adjacency>,
    /// Dependencies of each unit on targets without a provider.
    pub(in crate::graph) missing: BTreeMap<u32, Vec<(EdgeKind, Target)>>,
}

impl Graph {
    /// Maximum number of units in a graph.
    pub const MAX_UNITS: usize = 1 << 20;
    /// Maximum number of dependencies in a graph.
    pub const MAX_EDGES: usize = 1 << 24;

    /// Builds a graph of all units, if none of them has an error.
    ///
    /// # Errors
    ///
    /// Returns every error in the units and the settings.
    pub fn strict(
        units: impl IntoIterator<Item: Into<Arc<InitUnit>>>,
        settings: &Settings,
    ) -> Result<Self, Vec<GraphError>> {
        let (graph, errors) = Assembly::strict(units, settings);
        if errors.is_empty() { Ok(graph) } else { Err(errors) }
    }

    /// Builds a graph of the valid units. Returns it together with the errors of the other units.
    ///
    /// These units are left out:
    ///
    /// - Units with errors of their own, and units that share a name.
    /// - All units of a cycle.
    /// - All but one of the units that provide the same target. The unit with the target's name is
    ///   kept or, without such a unit, the first by name.
    ///
    /// A unit that depends on a missing target stays in the graph. If the kind of the dependency is
    /// `depends-on` or `depends-ms`, the unit never starts.
    pub fn lenient(
        units: impl IntoIterator<Item: Into<Arc<InitUnit>>>,
        settings: &Settings,
    ) -> (Self, Vec<GraphError>) {
        Assembly::lenient(units, settings)
    }

    /// Returns the units, sorted by name.
    pub fn units(&self) -> impl ExactSizeIterator<Item = &Arc<InitUnit>> {
        self.units.iter()
    }

    /// Returns the unit of this name.
    #[must_use]
    pub fn unit(&self, name: &Name) -> Option<&Arc<InitUnit>> {
        self.find(name).map(|at| &self.units[at as usize])
    }

    /// Replaces each unit by the unit of the `earlier` graph that equals it, if there is one. Both
    /// graphs then share one copy in memory. Without sharing, an unchanged definition would be in
    /// memory twice, because a running unit keeps the definition that it was started from.
    pub fn share_unchanged(&mut self, earlier: &Self) {
        for unit in &mut self.units {
            if let Some(same) = earlier.unit(&unit.name).filter(|it| *it == unit) {
                *unit = Arc::clone(same);
            }
        }
    }

    /// Returns whether both graphs consist of the same units in memory, and each target has the
    /// same provider in both.
    pub(in crate::graph) fn is_same_as(&self, other: &Self) -> bool {
        let mut units = self.units.iter().zip(&other.units);
        self.units.len() == other.units.len()
            && units.all(|(one, other)| Arc::ptr_eq(one, other))
            && self.providers == other.providers
    }

    /// Returns the unit that provides this target.
    #[must_use]
    pub fn provider(&self, target: &Target) -> Option<&Arc<InitUnit>> {
        self.providers.get(target).map(|&at| &self.units[at as usize])
    }

    /// Returns the dependencies of a unit, sorted by name, each with the kind of the edge to it. If
    /// several edges lead to a dependency, this is the kind of the strongest. Returns an empty list
    /// if the graph has no unit of this name.
    #[must_use]
    pub fn dependencies(&self, name: &Name) -> Vec<(EdgeKind, &Arc<InitUnit>)> {
        self.find(name).map(|at| self.named(self.adjacency.dependencies(at))).unwrap_or_default()
    }

    /// Returns the dependents of a unit, sorted by name, each with the kind of its edge to the
    /// unit. If a dependent has several such edges, this is the kind of the strongest. Returns an
    /// empty list if the graph has no unit of this name.
    #[must_use]
    pub fn dependents(&self, name: &Name) -> Vec<(EdgeKind, &Arc<InitUnit>)> {
        self.find(name).map(|at| self.named(self.adjacency.dependents(at))).unwrap_or_default()
    }

    fn named(&self, links: &[Link]) -> Vec<(EdgeKind, &Arc<InitUnit>)> {
        links.iter().map(|link| (link.kind, &self.units[link.node as usize])).collect()
    }

    fn find(&self, name: &Name) -> Option<u32> {
        let at = self.units.binary_search_by(|unit| unit.name.cmp(name)).ok()?;
        u32::try_from(at).ok()
    }
}

/// Central settings. The default has no goal and no limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Target that the init maintains.
    pub goal: Option<Target>,
    /// Maximum number of units that are starting at once; `None` means no limit.
    pub max_starting: Option<NonZeroU32>,
    /// Units that do not count toward `max_starting` while they start.
    pub unlimited_starts: BTreeSet<Name>,
    /// Chosen provider of each target that several units provide.
    pub alternatives: BTreeMap<Target, Name>,
    /// Masked targets: the unit that provides one must not start.
    pub mask: BTreeSet<Target>,
    /// Output of units that set none and have no readiness line; `None` means their logs.
    pub output: Option<ExecOutput>,
    /// Timeouts of units that set none.
    pub timeouts: Timeouts,
}

/// One end of a dependency, stored at a node: the kind of the edge, and the node at its other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::graph) struct Link {
    pub(in crate::graph) kind: EdgeKind,
    pub(in crate::graph) node: u32,
}

/// A dependency: dependent, kind, dependency.
pub(in crate::graph) type Edge = (u32, EdgeKind, u32);

/// Dependencies in both directions, with a topological order along ordering edges.
#[derive(Debug, Clone, Default)]
pub(in crate::graph) struct Adjacency {
    dependencies: SparseRows,
    dependents: SparseRows,
    order: Vec<u32>,
    rank: Vec<u32>,
}

/// Links of all nodes in one vector (compressed sparse rows). The links of node `n` are those from
/// index `starts[n]` up to, but not including, index `starts[n + 1]`.
#[derive(Debug, Clone, Default)]
struct SparseRows {
    starts: Vec<u32>,
    links: Vec<Link>,
}

impl Adjacency {
    /// Builds the adjacency of `nodes` nodes. If several edges connect the same two nodes, only the
    /// strongest edge is kept.
    ///
    /// If ordering edges form a cycle, [`order`](Self::order) lacks the nodes of the cycle and all
    /// nodes that wait for it.
    pub(in crate::graph) fn new(nodes: usize, mut edges: Vec<Edge>) -> Self {
        keep_strongest(&mut edges);
        let dependencies =
            SparseRows::new(nodes, edges.iter().map(|&(from, kind, to)| (from, kind, to)));
        let dependents =
            SparseRows::new(nodes, edges.iter().map(|&(from, kind, to)| (to, kind, from)));
        let mut adjacency = Self { dependencies, dependents, order: Vec::new(), rank: Vec::new() };
        adjacency.order = adjacency.sorted(nodes);
        adjacency.rank = vec![0; nodes];
        for (rank, &node) in (0..).zip(&adjacency.order) {
            adjacency.rank[node as usize] = rank;
        }
        adjacency
    }

    pub(in crate::graph) fn len(&self) -> usize {
        self.rank.len()
    }

    /// Returns whether no ordering edges form a cycle.
    pub(in crate::graph) fn is_acyclic(&self) -> bool {
        self.order.len() == self.rank.len()
    }

    /// Returns the dependencies of a node.
    pub(in crate::graph) fn dependencies(&self, node: u32) -> &[Link] {
        self.dependencies.of(node)
    }

    /// Returns the dependents of a node.
    pub(in crate::graph) fn dependents(&self, node: u32) -> &[Link] {
        self.dependents.of(node)
    }

    /// Returns the nodes in topological order: dependencies before dependents. Nodes that cannot be
    /// ordered because of a cycle are missing.
    pub(in crate::graph) fn order(&self) -> &[u32] {
        &self.order
    }

    /// Returns the position of a node in the topological order.
    pub(in crate::graph) fn rank(&self, node: u32) -> u32 {
        self.rank[node as usize]
    }

    fn sorted(&self, nodes: usize) -> Vec<u32> {
        let orders = |links: &[Link]| links.iter().filter(|link| link.kind.orders()).count();
        let all = 0..number(nodes);
        let mut left: Vec<usize> =
            all.clone().map(|node| orders(self.dependencies(node))).collect();
        let mut order: Vec<u32> = all.filter(|&node| left[node as usize] == 0).collect();
        order.reserve(nodes - order.len());
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            next += 1;
            for link in self.dependents(node).iter().filter(|link| link.kind.orders()) {
                let left = &mut left[link.node as usize];
                *left -= 1;
                if *left == 0 {
                    order.push(link.node);
                }
            }
        }
        order
    }
}

impl SparseRows {
    fn new(nodes: usize, edges: impl Iterator<Item = Edge> + Clone) -> Self {
        let mut starts = vec![0; nodes + 1];
        for (from, ..) in edges.clone() {
            starts[from as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let none = Link { kind: EdgeKind::After, node: 0 };
        let mut links = vec![none; starts[nodes] as usize];
        let mut next = starts.clone();
        for (from, kind, node) in edges {
            let at = &mut next[from as usize];
            links[*at as usize] = Link { kind, node };
            *at += 1;
        }
        Self { starts, links }
    }

    fn of(&self, node: u32) -> &[Link] {
        let node = node as usize;
        &self.links[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}

/// Keeps only the strongest edge between each pair of nodes. A `pulls` edge and an `after` edge
/// between the same nodes become one `waits-for` edge, which has the effect of both. A `requisite`
/// edge that the other one makes needed becomes a `depends-ms` edge.
fn keep_strongest(edges: &mut Vec<Edge>) {
    edges.sort_unstable_by_key(|&(from, kind, to)| (from, to, kind));
    edges.dedup_by(|later, kept| {
        let same = (later.0, later.2) == (kept.0, kept.2);
        if same && (kept.1, later.1) == (EdgeKind::Pulls, EdgeKind::After) {
            kept.1 = EdgeKind::WaitsFor;
        }
        if same && kept.1 == EdgeKind::Requisite && later.1.requires() {
            kept.1 = EdgeKind::DependsMs;
        }
        same
    });
}

/// Converts a node count to 32 bits; graphs are far smaller.
pub(in crate::graph) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
