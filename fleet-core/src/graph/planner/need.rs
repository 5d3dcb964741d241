//! Which units the requested targets need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::node::Node;
use super::nodes::Nodes;
use crate::graph::build::Adjacency;
use crate::graph::build::cycle::components_by;
use crate::graph::model::{EdgeKind, Target};

/// The requested and the masked targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestedTargets {
    pub(super) goal: Option<Target>,
    pub(super) extra_targets: BTreeSet<Target>,
    pub(super) mask: BTreeSet<Target>,
}

impl RequestedTargets {
    /// Returns the goal and the extra targets.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Target> {
        self.goal.iter().chain(&self.extra_targets)
    }
}

impl Nodes {
    /// Recomputes which units are masked and needed, and the heights of all units. Called when the
    /// nodes are rebuilt or all requested targets change at once. Never called for an event,
    /// because its cost depends on the size of the graph.
    pub(super) fn recompute_demand(&mut self, requested: &RequestedTargets) {
        let (adjacency, components) = (Arc::clone(&self.adjacency), Arc::clone(&self.components));
        let before: Vec<_> = self.nodes.iter().map(Node::demand_summary).collect();
        self.count_requests(requested);
        let needed = self.needed(&adjacency);
        for (node, &needed) in self.nodes.iter_mut().zip(&needed) {
            (node.masked, node.needed, node.height) = (node.demand.masks > 0, needed, None);
        }
        for at in self.all().filter(|&at| needed[at as usize]) {
            self.update_support(at, &adjacency, &components, |_| {});
        }
        for &at in adjacency.order().iter().rev() {
            self.update_height(at, &adjacency, |_| {});
        }
        for (at, before) in (0..).zip(before) {
            if self.node(at).demand_summary() != before {
                self.touch(at);
            }
        }
    }

    /// Propagates a change of one unit's demand to the units that it requires. Returns the units
    /// whose `needed` flag has changed.
    pub(super) fn propagate_demand_from(&mut self, at: u32) -> Vec<u32> {
        let (adjacency, components) = (Arc::clone(&self.adjacency), Arc::clone(&self.components));
        let node = self.node_mut(at);
        node.masked = node.demand.masks > 0;
        self.touch(at);
        let changed = self.update_needed(at, &adjacency, &components);
        // Dependents come before their dependencies, so each unit is visited once.
        let sort_key = |at: u32| (adjacency.rank(at), at);
        let mut pending: BTreeSet<(u32, u32)> = changed.iter().map(|&at| sort_key(at)).collect();
        while let Some((_, at)) = pending.pop_last() {
            let below = &mut pending;
            let notify = |at: u32| {
                below.insert(sort_key(at));
            };
            if self.update_height(at, &adjacency, notify) {
                self.touch(at);
            }
        }
        changed
    }

    /// Counts the requested and masked targets of each unit.
    fn count_requests(&mut self, requested: &RequestedTargets) {
        self.nodes.iter_mut().for_each(|node| node.demand = Demand::default());
        let wanted: Vec<u32> = requested.targets().filter_map(|goal| self.provider(goal)).collect();
        let masked: Vec<u32> = requested.mask.iter().filter_map(|it| self.provider(it)).collect();
        wanted.into_iter().for_each(|at| self.node_mut(at).demand.wanted += 1);
        masked.into_iter().for_each(|at| self.node_mut(at).demand.masks += 1);
    }

    /// Returns for each unit whether it is needed. The requested units are needed, and so is
    /// everything that they require, directly or indirectly. A masked unit is never needed, so it
    /// does not make its requirements needed either.
    fn needed(&self, adjacency: &Adjacency) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        let mut next: Vec<u32> = self.all().filter(|&at| self.node(at).demand.wanted > 0).collect();
        while let Some(at) = next.pop() {
            if needed[at as usize] || self.node(at).demand.masks > 0 {
                continue;
            }
            needed[at as usize] = true;
            let required = adjacency.dependencies(at).iter().filter(|link| link.kind.requires());
            next.extend(required.map(|link| link.node).filter(|&node| !needed[node as usize]));
        }
        needed
    }

    /// Updates the `needed` flags after a change of one unit's demand, and returns the units whose
    /// flag has changed. The propagation ends, because one call either only sets flags or only
    /// clears them.
    fn update_needed(
        &mut self,
        first: u32,
        adjacency: &Adjacency,
        components: &Components,
    ) -> Vec<u32> {
        let (mut pending, mut changed) = (vec![first], Vec::new());
        while let Some(at) = pending.pop() {
            for other in self.needed_changes(at, adjacency, components) {
                let node = self.node_mut(other);
                node.needed = !node.needed;
                self.touch(other);
                changed.push(other);
                self.update_support(other, adjacency, components, |below| pending.push(below));
            }
        }
        changed
    }

    /// Returns the units that have to change their `needed` flag, after the demand for the unit
    /// `at` has changed. If `at` and other units require each other in a cycle, considers all units
    /// of this component; otherwise considers `at` alone.
    fn needed_changes(&self, at: u32, adjacency: &Adjacency, components: &Components) -> Vec<u32> {
        let Some(component) = components.of_unit(at) else {
            let node = self.node(at);
            let otherwise = node.needed != node.demand.is_required();
            return otherwise.then_some(at).into_iter().collect();
        };
        let called = component.iter().copied().filter(|&at| self.node(at).demand.is_required());
        let mut pending: Vec<u32> = called.collect();
        let mut needed = BTreeSet::new();
        while let Some(at) = pending.pop() {
            if self.node(at).masked || !needed.insert(at) {
                continue;
            }
            let required = adjacency.dependencies(at).iter().filter(|link| link.kind.requires());
            let inside = |at: &u32| component.binary_search(at).is_ok();
            pending.extend(required.map(|link| link.node).filter(inside));
        }
        let otherwise = |at: &u32| self.node(*at).needed != needed.contains(at);
        component.iter().copied().filter(otherwise).collect()
    }

    /// Updates `Demand::support` (the number of needed units that require a unit) of each unit that
    /// `at` requires, after the `needed` flag of `at` has changed. Calls `notify` for each required
    /// unit that gains its first supporter or loses its last.
    fn update_support(
        &mut self,
        at: u32,
        adjacency: &Adjacency,
        components: &Components,
        mut notify: impl FnMut(u32),
    ) {
        let needed = self.node(at).needed;
        for link in adjacency.dependencies(at).iter().filter(|link| link.kind.requires()) {
            if components.same_component(at, link.node) {
                continue;
            }
            let support = &mut self.node_mut(link.node).demand.support;
            let before = *support;
            *support = if needed { before + 1 } else { before - 1 };
            if (before > 0) != (*support > 0) {
                notify(link.node);
            }
        }
    }

    /// Updates the height of a unit: the length of the longest chain of needed units that are
    /// ordered after it. Returns whether the height changed. If so, calls `notify` for each
    /// dependency along an ordering edge, because the height of the dependency may change too.
    fn update_height(
        &mut self,
        at: u32,
        adjacency: &Adjacency,
        mut notify: impl FnMut(u32),
    ) -> bool {
        let node = self.node_mut(at);
        let after = node.needed.then(|| node.demand.above.next());
        let before = std::mem::replace(&mut node.height, after);
        if before == after {
            return false;
        }
        for link in adjacency.dependencies(at).iter().filter(|link| link.kind.orders()) {
            self.node_mut(link.node).demand.above.replace(before, after);
            notify(link.node);
        }
        true
    }
}

impl Node {
    /// Returns the derived demand of a unit.
    fn demand_summary(&self) -> (bool, bool, Option<u32>) {
        (self.masked, self.needed, self.height)
    }
}

/// Demand for one unit.
#[derive(Debug, Clone, Default)]
pub(super) struct Demand {
    /// Number of the unit's targets that are the goal or an extra target.
    pub(super) wanted: u32,
    /// Number of the unit's targets that are masked.
    pub(super) masks: u32,
    /// Number of needed units outside the unit's own component that require the unit.
    pub(super) support: u32,
    /// Heights of the needed units that are ordered after the unit.
    pub(super) above: Heights,
}

/// A multiset of heights.
#[derive(Debug, Clone, Default)]
pub(super) struct Heights(Vec<(u32, u32)>);

/// Groups of units that require each other in a cycle: strongly connected components along
/// requiring edges. Each component is evaluated as a whole. Requirements within it do not count as
/// demand, because its units would otherwise keep each other needed forever.
#[derive(Debug, Default)]
pub(super) struct Components {
    all: Vec<Vec<u32>>,
    of: BTreeMap<u32, usize>,
}

impl Demand {
    /// Returns whether demand from outside the unit's component makes the unit needed.
    pub(super) fn is_required(&self) -> bool {
        self.masks == 0 && (self.wanted > 0 || self.support > 0)
    }
}

impl Heights {
    /// Replaces one height.
    pub(super) fn replace(&mut self, before: Option<u32>, after: Option<u32>) {
        if let Some(before) = before {
            self.remove(before);
        }
        if let Some(after) = after {
            match self.position(after) {
                Ok(at) => self.0[at].1 += 1,
                Err(at) => self.0.insert(at, (after, 1)),
            }
        }
    }

    /// Returns the height of a unit, where `self` holds the heights of the units that are ordered
    /// after it. The result is one more than the highest of them, or zero if there are none.
    pub(super) fn next(&self) -> u32 {
        self.0.last().map_or(0, |&(height, _)| height + 1)
    }

    fn remove(&mut self, height: u32) {
        let Ok(at) = self.position(height) else { return };
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.remove(at);
        }
    }

    fn position(&self, height: u32) -> Result<usize, usize> {
        self.0.binary_search_by_key(&height, |&(height, _)| height)
    }
}

impl Components {
    /// Finds the components. Without `pulls` edges there are none, because all other requiring
    /// edges also order, and ordering edges form no cycle.
    pub(super) fn of(adjacency: &Adjacency) -> Self {
        let mut pulls = adjacency.order().iter().flat_map(|&at| adjacency.dependencies(at));
        if !pulls.any(|link| link.kind == EdgeKind::Pulls) {
            return Self::default();
        }
        let all = components_by(adjacency, EdgeKind::requires);
        let members = |(number, component): (usize, &Vec<u32>)| {
            component.iter().map(move |&at| (at, number)).collect::<Vec<_>>()
        };
        let of = all.iter().enumerate().flat_map(members).collect();
        Self { all, of }
    }

    /// Returns the component that contains a unit, if any.
    pub(super) fn of_unit(&self, at: u32) -> Option<&[u32]> {
        self.of.get(&at).map(|&number| &*self.all[number])
    }

    /// Returns whether two units belong to one component.
    pub(super) fn same_component(&self, one: u32, other: u32) -> bool {
        let component = self.of.get(&one);
        component.is_some() && component == self.of.get(&other)
    }
}
