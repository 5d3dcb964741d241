//! Which units the goal needs, and how much depends on each.

use std::sync::Arc;

use super::System;
use crate::graph::net::Net;

impl System {
    /// Finds out anew which units are masked, which are needed, and how many are above each. This
    /// looks at all units, and is done when something else is wanted, never for an event.
    pub(super) fn weigh(&mut self) {
        let net = Arc::clone(&self.net);
        let masked = self.masked();
        let needed = self.needed(&net, &masked);
        let heights = heights(&net, &needed);
        for at in self.all() {
            let (masked, needed) = (masked[at as usize], needed[at as usize]);
            let height = heights[at as usize];
            let node = self.node_mut(at);
            if (node.masked, node.needed, node.height) != (masked, needed, height) {
                (node.masked, node.needed, node.height) = (masked, needed, height);
                self.touch(at);
            }
        }
    }

    fn masked(&self) -> Vec<bool> {
        let mut masked = vec![false; self.nodes.len()];
        for target in &self.mask {
            if let Some(at) = self.provider(target) {
                masked[at as usize] = true;
            }
        }
        masked
    }

    /// The least set of units with the goal's, and with all that they require. What is masked is
    /// not looked behind.
    fn needed(&self, net: &Net, masked: &[bool]) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        let goals = self.goal.iter().chain(&self.with);
        let mut next: Vec<u32> = goals.filter_map(|goal| self.provider(goal)).collect();
        while let Some(at) = next.pop() {
            if needed[at as usize] || masked[at as usize] {
                continue;
            }
            needed[at as usize] = true;
            let required = net.on(at).iter().filter(|link| link.kind.requires());
            next.extend(required.map(|link| link.node).filter(|&node| !needed[node as usize]));
        }
        needed
    }
}

fn heights(net: &Net, needed: &[bool]) -> Vec<u32> {
    let mut heights = vec![0; needed.len()];
    for &at in net.order().iter().rev().filter(|&&at| needed[at as usize]) {
        let above = heights[at as usize] + 1;
        for link in net.on(at).iter().filter(|link| link.kind.orders()) {
            let height = &mut heights[link.node as usize];
            if needed[link.node as usize] {
                *height = above.max(*height);
            }
        }
    }
    heights
}
