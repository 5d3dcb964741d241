//! Propagation of a unit's changes to its neighbours.

use std::sync::Arc;

use super::InitState;
use super::neighbour::{DependencyEffect, NeighbourView};
use crate::graph::Phase;
use crate::graph::adjacency::Adjacency;

impl InitState {
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
}
