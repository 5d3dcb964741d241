//! How a change of one unit reaches those that it concerns.

use std::sync::Arc;

use super::InitState;
use super::face::{Effect, Face};
use crate::graph::Phase;
use crate::graph::net::Net;

impl InitState {
    /// A unit is to be looked at again.
    pub(super) fn touch(&mut self, at: u32) {
        self.dirty.insert(self.net.rank(at));
    }

    /// Brings up to date whatever follows from the units that were touched. Dependencies come
    /// before those that depend on them, so each unit is looked at once, except along `pulls`.
    pub(super) fn propagate(&mut self) {
        let net = Arc::clone(&self.net);
        while let Some(rank) = self.dirty.pop() {
            self.refresh(&net, net.order()[rank as usize]);
        }
        self.degraded.spread(&net, |at| self.changed.insert(at));
    }

    fn refresh(&mut self, net: &Net, at: u32) {
        let node = self.node_mut(at);
        let (before, after) = (node.face, node.next_face());
        node.face = after;
        self.changed.insert(at);
        if before != after {
            for link in net.by(at) {
                let effects = (before.effect(link.kind), after.effect(link.kind));
                if effects.0 != effects.1 {
                    self.count(link.node, effects);
                }
            }
            if before.presence() != after.presence() {
                self.unblock(net, at, before, after);
            }
            self.degraded.note(net, at, after.active, after.works());
        }
        self.line_up(at);
    }

    /// Counts that a dependency has another effect on a unit. While it is not off, nothing follows
    /// but whether it has lost one.
    fn count(&mut self, at: u32, (before, after): (Effect, Effect)) {
        let node = self.node_mut(at);
        let was_lost = node.is_lost();
        node.counts.replace(before, after);
        if node.seen.phase == Phase::Inactive || node.is_lost() != was_lost {
            self.touch(at);
        }
    }

    /// Tells those that a unit depends on whether it still has to be gone before they stop.
    fn unblock(&mut self, net: &Net, at: u32, before: Face, after: Face) {
        for link in net.on(at) {
            let blocks = (before.blocks(link.kind), after.blocks(link.kind));
            if blocks.0 != blocks.1 {
                self.node_mut(link.node).counts.replace_blocker(blocks.0, blocks.1);
                self.line_up(link.node);
            }
        }
    }

    /// Puts a unit into the queues that it belongs in.
    fn line_up(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        let (before, after) = (node.place, node.next_place());
        if before != after {
            node.place = after;
            self.queues.move_to(at, before, after);
        }
    }
}
