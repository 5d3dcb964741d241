//! All nodes with their derived data, and its propagation along the dependencies. Also the queues
//! of units to evaluate and of units with pending actions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::degraded::DegradedFlags;
use super::event::ObservedUnit;
use super::need::{Components, RequestedTargets};
use super::node::{Counts, DependencyEffect, MissingTargets, NeighbourView, Node, QueueMembership};
use super::phase::{Phase, StopReason};
use crate::Timestamp;
use crate::graph::build::{Adjacency, Edge, Graph, number};
use crate::graph::model::{EdgeKind, InitUnit, Name, Target};

/// The nodes of a graph. Derived data follows from the observed state of the units; after a change
/// of a node, [`touch`](Self::touch) and [`propagate`](Self::propagate) bring it up to date.
#[derive(Debug, Clone, Default)]
pub(super) struct Nodes {
    pub(super) graph: Arc<Graph>,
    /// Nodes of all units in the graph, and of units outside it that still run, sorted by name.
    pub(super) nodes: Vec<Node>,
    pub(super) adjacency: Arc<Adjacency>,
    pub(super) components: Arc<Components>,
    /// Units to evaluate again, by their ranks.
    dirty: RankSet,
    pub(super) degraded: DegradedFlags,
    pub(super) queues: Queues,
    /// Nodes whose status may have changed.
    changed: MarkedUnits,
}

impl Nodes {
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Node> {
        self.nodes.iter()
    }

    pub(super) fn find(&self, name: &Name) -> Option<u32> {
        self.nodes.binary_search_by(|node| node.unit.name.cmp(name)).ok().map(number)
    }

    pub(super) fn get(&self, name: &Name) -> Option<&Node> {
        self.find(name).map(|at| self.node(at))
    }

    pub(super) fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    pub(super) fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    pub(super) fn all(&self) -> std::ops::Range<u32> {
        0..number(self.nodes.len())
    }

    /// Returns the units whose result expires when the requested targets change.
    pub(super) fn expiring_results(&self) -> Vec<u32> {
        self.queues.expiring_results.iter().copied().collect()
    }

    /// Returns the units that may have changed their status since the last call.
    pub(super) fn take_changed(&mut self) -> Vec<Name> {
        self.changed.take().into_iter().map(|at| self.node(at).unit.name.clone()).collect()
    }

    /// Returns the reason for which a unit has to stop.
    pub(super) fn stop_reason(&self, at: u32) -> StopReason {
        let node = self.node(at);
        if !node.needed {
            return if node.masked { StopReason::Masked } else { StopReason::Unneeded };
        }
        if node.observed.restart_requested {
            return StopReason::RestartRequested;
        }
        if node.definition_changed {
            return StopReason::DefinitionChanged;
        }
        let on = node.unit.edges.iter().filter(|(kind, _)| *kind == EdgeKind::DependsOn);
        let lost = on.map(|(_, target)| target).filter(|target| !self.stays_active(target));
        lost.min().cloned().map_or(StopReason::DefinitionChanged, StopReason::DependencyLost)
    }

    fn stays_active(&self, target: &Target) -> bool {
        self.provider(target).is_some_and(|at| self.node(at).view.stays_active())
    }

    /// Marks a unit for evaluation.
    pub(super) fn touch(&mut self, at: u32) {
        self.dirty.insert(self.adjacency.rank(at));
    }

    /// Evaluates the marked units, and all units to which their changes matter. Dependencies are
    /// evaluated before their dependents, so each unit is evaluated once. Only `pulls` edges, which
    /// have no order, may cause a second evaluation.
    pub(super) fn propagate(&mut self) {
        let adjacency = Arc::clone(&self.adjacency);
        while let Some(rank) = self.dirty.pop() {
            self.refresh(&adjacency, adjacency.order()[rank as usize]);
        }
        self.degraded.propagate(&adjacency, |at| self.changed.insert(at));
    }

    fn refresh(&mut self, adjacency: &Adjacency, at: u32) {
        let node = self.node_mut(at);
        let (before, after) = (node.view, node.next_view());
        node.view = after;
        self.changed.insert(at);
        if before != after {
            for link in adjacency.dependents(at) {
                let effects = (before.effect(link.kind), after.effect(link.kind));
                if effects.0 != effects.1 {
                    self.count(link.node, effects);
                }
            }
            if before.stop_state() != after.stop_state() {
                self.unblock(adjacency, at, before, after);
            }
            self.degraded.update(adjacency, at, after.active, after.fulfils_dependents());
        }
        self.update_queues(at);
    }

    /// Updates the counts of a unit after the effect of one dependency has changed. Marks the unit
    /// for evaluation if the change matters to it. For an inactive unit every change matters, for
    /// any other unit only the loss or the return of a dependency.
    fn count(&mut self, at: u32, (before, after): (DependencyEffect, DependencyEffect)) {
        let node = self.node_mut(at);
        let was_lost = node.has_lost_dependency();
        node.counts.replace(before, after);
        if node.observed.phase == Phase::Inactive || node.has_lost_dependency() != was_lost {
            self.touch(at);
        }
    }

    /// Updates, for each dependency of the unit `at`, the number of dependents that have to stop
    /// before it. Called when `at` has begun or ceased to be one of these dependents.
    fn unblock(
        &mut self,
        adjacency: &Adjacency,
        at: u32,
        before: NeighbourView,
        after: NeighbourView,
    ) {
        for link in adjacency.dependencies(at) {
            let blocks = (before.delays_stop_of(link.kind), after.delays_stop_of(link.kind));
            if blocks.0 != blocks.1 {
                self.node_mut(link.node).counts.replace_dependent_to_stop(blocks.0, blocks.1);
                self.update_queues(link.node);
            }
        }
    }

    /// Moves a unit into the queues that should contain it.
    fn update_queues(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        let (before, after) = (node.queues, node.next_membership());
        if before != after {
            node.queues = after;
            self.queues.update(at, before, after);
        }
    }

    /// Replaces the graph, and rebuilds all nodes from the observed units. A unit that runs but is
    /// not in the graph keeps a node until its processes are gone.
    pub(super) fn rebuild(
        &mut self,
        graph: Graph,
        mut observed: BTreeMap<Name, ObservedUnit>,
        requested: &RequestedTargets,
        unlimited_starts: &BTreeSet<Name>,
    ) {
        self.graph = Arc::new(graph);
        let units = self.graph.units.iter();
        let known = |unit: &Arc<InitUnit>, observed: &mut BTreeMap<Name, ObservedUnit>| {
            let of_unit = observed.remove(&unit.name).unwrap_or_default();
            Node::new(Arc::clone(unit), false, of_unit)
        };
        self.nodes = units.map(|unit| known(unit, &mut observed)).collect();
        self.nodes.extend(observed.into_values().filter_map(orphan));
        self.nodes.sort_by(|a, b| a.unit.name.cmp(&b.unit.name));
        for node in &mut self.nodes {
            node.unlimited_start = unlimited_starts.contains(&node.unit.name);
        }
        self.mark_missing();
        self.adjacency = self.merged_adjacency();
        self.components = Arc::new(Components::of(&self.adjacency));
        self.reset_counts();
        self.recompute_demand(requested);
        self.all().for_each(|at| self.touch(at));
        self.propagate();
    }

    /// Takes the observed state of all units, before a rebuild.
    pub(super) fn take_observed(&mut self) -> BTreeMap<Name, ObservedUnit> {
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        nodes.map(|node| (node.unit.name.clone(), node.observed)).collect()
    }

    fn mark_missing(&mut self) {
        let graph = Arc::clone(&self.graph);
        for (&at, missing) in &graph.missing {
            let kinds = || missing.iter().map(|&(kind, _)| kind);
            let node = self.node_of(at);
            self.node_mut(node).missing = MissingTargets {
                depends_on: kinds().any(|kind| kind == EdgeKind::DependsOn),
                hard: kinds().any(|kind| kind <= EdgeKind::Requisite),
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
                let view: NeighbourView = blank;
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
}

/// Returns the node of a unit outside the graph, or `None` if the unit has no processes.
fn orphan(observed: ObservedUnit) -> Option<Node> {
    let definition = observed.definition.clone()?;
    let left = observed.phase.is_busy() || observed.processes;
    left.then(|| Node::new(definition, true, observed))
}

/// A set of numbers below a bound, from which the smallest number is removed first. A set of ranks
/// therefore yields each unit after the unit's dependencies.
///
/// The numbers are stored as bits. A second level of bits marks the words that are not empty, so
/// that the smallest number is found fast.
#[derive(Debug, Clone, Default)]
pub(super) struct RankSet {
    words: Vec<u64>,
    filled: Vec<u64>,
    /// All words of `filled` before this one are empty.
    first: usize,
    count: u32,
}

impl RankSet {
    /// Creates an empty set for numbers below `bound`.
    pub(super) fn new(bound: usize) -> Self {
        let words = bound.div_ceil(64);
        Self { words: vec![0; words], filled: vec![0; words.div_ceil(64)], first: 0, count: 0 }
    }

    pub(super) fn insert(&mut self, rank: u32) {
        let word = rank as usize / 64;
        let (before, bit) = (self.words[word], 1 << (rank % 64));
        if before & bit == 0 {
            self.words[word] |= bit;
            self.filled[word / 64] |= 1 << (word % 64);
            self.first = self.first.min(word / 64);
            self.count += 1;
        }
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        while self.filled[self.first] == 0 {
            self.first += 1;
        }
        let at = self.first * 64 + self.filled[self.first].trailing_zeros() as usize;
        let rank = number(at) * 64 + self.words[at].trailing_zeros();
        self.words[at] &= self.words[at] - 1;
        if self.words[at] == 0 {
            self.filled[self.first] &= self.filled[self.first] - 1;
        }
        Some(rank)
    }
}

/// A set of units.
#[derive(Debug, Clone, Default)]
pub(super) struct MarkedUnits {
    marks: Vec<bool>,
    units: Vec<u32>,
}

impl MarkedUnits {
    /// Creates an empty set for units below `bound`.
    pub(super) fn new(bound: usize) -> Self {
        Self { marks: vec![false; bound], units: Vec::new() }
    }

    pub(super) fn insert(&mut self, at: u32) {
        if !std::mem::replace(&mut self.marks[at as usize], true) {
            self.units.push(at);
        }
    }

    /// Removes and returns all units in order.
    pub(super) fn take(&mut self) -> Vec<u32> {
        let mut units = std::mem::take(&mut self.units);
        units.sort_unstable();
        units.iter().for_each(|&at| self.marks[at as usize] = false);
        units
    }
}

/// Units with pending actions, in the order in which the actions are taken.
#[derive(Debug, Clone, Default)]
pub(super) struct Queues {
    pub(super) resets: BTreeSet<u32>,
    /// Units whose result expires when the requested targets change.
    pub(super) expiring_results: BTreeSet<u32>,
    pub(super) stops: BTreeSet<u32>,
    /// Startable units that are exempt from `max_starting`.
    pub(super) unlimited_starts: BTreeSet<u32>,
    /// Startable units: greatest height first, then by name.
    pub(super) starts: BTreeSet<(Reverse<u32>, u32)>,
    pub(super) reloads: BTreeSet<u32>,
    pub(super) timers: BTreeSet<(Timestamp, u32)>,
}

impl Queues {
    /// Moves a unit from its previous queues to its current ones.
    pub(super) fn update(&mut self, at: u32, before: QueueMembership, after: QueueMembership) {
        sync(&mut self.resets, at, before.reset, after.reset);
        sync(&mut self.expiring_results, at, before.expiring_results, after.expiring_results);
        sync(&mut self.stops, at, before.stop, after.stop);
        sync(&mut self.unlimited_starts, at, before.unlimited_start, after.unlimited_start);
        sync(&mut self.reloads, at, before.reload, after.reload);
        if before.start != after.start {
            before.start.map(|height| self.starts.remove(&(height, at)));
            after.start.map(|height| self.starts.insert((height, at)));
        }
        if before.timer != after.timer {
            before.timer.map(|timer| self.timers.remove(&(timer, at)));
            after.timer.map(|timer| self.timers.insert((timer, at)));
        }
    }

    pub(super) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first().map(|&(timer, _)| timer)
    }
}

fn sync(queue: &mut BTreeSet<u32>, at: u32, before: bool, after: bool) {
    if after && !before {
        queue.insert(at);
    } else if before && !after {
        queue.remove(&at);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::RankSet;

    const BOUND: u32 = 3 * 64 * 64 + 5;

    proptest! {
        /// Each step inserts a number (`Some`) or removes the smallest (`None`). Two of the three
        /// ranges are so short that many numbers share a word of the bit set.
        #[test]
        fn rank_set_pops_in_ascending_order(
            steps in prop::collection::vec(
                prop::option::of(prop_oneof![0..BOUND, 0..130u32, BOUND - 130..BOUND]),
                0..400,
            )
        ) {
            let (mut ranked, mut naive) = (RankSet::new(BOUND as usize), BTreeSet::new());
            for step in steps {
                match step {
                    Some(rank) => {
                        ranked.insert(rank);
                        naive.insert(rank);
                    }
                    None => prop_assert_eq!(ranked.pop(), naive.pop_first()),
                }
            }
            while let Some(rank) = naive.pop_first() {
                prop_assert_eq!(ranked.pop(), Some(rank));
            }
            prop_assert_eq!(ranked.pop(), None);
        }
    }
}
