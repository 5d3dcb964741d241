//! Builds the nodes from a graph and the observed units.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::InitState;
use super::degraded::DegradedFlags;
use super::demand::Components;
use super::node::{Counts, MissingTargets, Node};
use super::queues::{MarkedUnits, Queues, RankSet};
use crate::graph::adjacency::{Adjacency, Edge, number};
use crate::graph::{EdgeKind, Graph, InitUnit, Name, ObservedUnit, Phase, Target};

impl InitState {
    /// Rebuilds all nodes from the graph and the observed units. A unit that runs but is not in the
    /// graph keeps a node until its processes are gone.
    pub(super) fn rebuild(&mut self, mut observed: BTreeMap<Name, ObservedUnit>) {
        let units = self.graph.units.iter();
        let known = |unit: &Arc<InitUnit>, observed: &mut BTreeMap<Name, ObservedUnit>| {
            let of_unit = observed.remove(&unit.name).unwrap_or_default();
            Node::new(Arc::clone(unit), false, of_unit)
        };
        self.nodes = units.map(|unit| known(unit, &mut observed)).collect();
        self.nodes.extend(observed.into_values().filter_map(orphan));
        self.nodes.sort_by(|a, b| a.unit.name.cmp(&b.unit.name));
        for node in &mut self.nodes {
            node.unlimited_start = self.unlimited_starts.contains(&node.unit.name);
        }
        self.starting = number(self.nodes.iter().filter(|node| is_starting(node)).count());
        self.mark_missing();
        self.adjacency = self.merged_adjacency();
        self.components = Arc::new(Components::of(&self.adjacency));
        self.reset_counts();
        self.recompute_demand();
        self.all().for_each(|at| self.touch(at));
        self.propagate();
    }

    fn mark_missing(&mut self) {
        let graph = Arc::clone(&self.graph);
        for (&at, missing) in &graph.missing {
            let kinds = || missing.iter().map(|&(kind, _)| kind);
            let node = self.node_of(at);
            self.node_mut(node).missing = MissingTargets {
                depends_on: kinds().any(|kind| kind == EdgeKind::DependsOn),
                hard: kinds().any(|kind| kind <= EdgeKind::DependsMs),
                any: kinds().any(EdgeKind::requires),
            };
        }
    }

    /// Returns the edges of the graph, together with the edges of running units outside the graph.
    /// These additional edges preserve the order in which units stop. If they would close a cycle,
    /// first those that lead from the graph to such units are left out, then all of them.
    fn merged_adjacency(&self) -> Arc<Adjacency> {
        if self.nodes.len() == self.graph.units.len() {
            return Arc::clone(&self.graph.adjacency);
        }
        let node_numbers: Vec<u32> = self.all().filter(|&at| !self.node(at).orphan).collect();
        let node = |at: u32| node_numbers[at as usize];
        let adjacency = &self.graph.adjacency;
        let links = |at| adjacency.dependencies(at).iter().map(move |link| (at, link));
        let edges = (0..number(node_numbers.len())).flat_map(links);
        let edges: Vec<Edge> =
            edges.map(|(at, link)| (node(at), link.kind, node(link.node))).collect();
        // Edges of an earlier graph may close a cycle with current ones.
        for left in [self.orphan_edges(true), self.orphan_edges(false)] {
            let adjacency =
                Adjacency::new(self.nodes.len(), edges.iter().copied().chain(left).collect());
            if adjacency.is_acyclic() {
                return Arc::new(adjacency);
            }
        }
        Arc::new(Adjacency::new(self.nodes.len(), edges))
    }

    /// Returns the edges from each orphan (a running unit outside the graph) to the units that it
    /// waits for. If `on_them` is set, also returns the edges from running units of the graph to
    /// orphans. All these edges have the kind `After`, because they only order stops.
    fn orphan_edges(&self, on_them: bool) -> Vec<Edge> {
        let orphans = || self.all().filter(|&at| self.node(at).orphan);
        let provided = |at| self.node(at).unit.provides.iter().map(move |target| (target, at));
        let by_target: BTreeMap<&Target, u32> = orphans().flat_map(provided).collect();
        let mut edges = Vec::new();
        for at in self.all().filter(|&at| on_them || self.node(at).orphan) {
            let node = self.node(at);
            let Some(definition) = node.observed.definition.as_ref() else { continue };
            for (_, target) in definition.edges.iter().filter(|(kind, _)| kind.orders()) {
                let provider = self.provider(target).filter(|_| node.orphan);
                let to = by_target.get(target).copied().into_iter().chain(provider);
                edges.extend(to.filter(|&to| to != at).map(|to| (at, EdgeKind::After, to)));
            }
        }
        edges
    }

    /// Empties the queues, and sets the counts of each unit as if all units were inactive and not
    /// needed. A default `NeighbourView` describes such a unit.
    fn reset_counts(&mut self) {
        let adjacency = Arc::clone(&self.adjacency);
        self.dirty = RankSet::new(adjacency.len());
        self.queues = Queues::default();
        self.changed = MarkedUnits::new(adjacency.len());
        self.degraded =
            DegradedFlags::new(&adjacency, self.nodes.iter().map(|node| node.missing.any));
        let (nothing, blank) = Default::default();
        for at in self.all() {
            let mut counts = Counts::default();
            for link in adjacency.dependencies(at) {
                let view: super::neighbour::NeighbourView = blank;
                counts.replace(nothing, view.effect(link.kind));
            }
            self.node_mut(at).counts = counts;
        }
    }

    /// Returns the node of the unit that provides a target.
    pub(super) fn provider(&self, target: &Target) -> Option<u32> {
        self.graph.providers.get(target).map(|&at| self.node_of(at))
    }

    /// Returns the node of a unit of the graph.
    fn node_of(&self, at: u32) -> u32 {
        if self.nodes.len() == self.graph.units.len() {
            return at;
        }
        self.find(&self.graph.units[at as usize].name).unwrap_or(at)
    }

    /// Replaces the graph and keeps the observed units.
    pub(super) fn take_graph(&mut self, graph: Graph) {
        self.graph = Arc::new(graph);
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        self.rebuild(nodes.map(|node| (node.unit.name.clone(), node.observed)).collect());
    }
}

/// Returns the node of a unit outside the graph, or `None` if the unit has no processes.
fn orphan(observed: ObservedUnit) -> Option<Node> {
    let definition = observed.definition.clone()?;
    let left = observed.phase.is_busy() || observed.processes;
    left.then(|| Node::new(definition, true, observed))
}

fn is_starting(node: &Node) -> bool {
    node.observed.phase == Phase::Starting && !node.unlimited_start
}
