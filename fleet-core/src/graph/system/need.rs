//! Which units the goal needs, and how much depends on each.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::InitState;
use super::node::Node;
use super::weight::{Tangles, Weight};
use crate::graph::net::Net;

impl InitState {
    /// Finds out anew which units are masked, which are needed, and how many are above each. This
    /// looks at all units, and is done when much is wanted otherwise, never for an event.
    pub(super) fn weigh(&mut self) {
        let (net, tangles) = (Arc::clone(&self.net), Arc::clone(&self.tangles));
        let before: Vec<_> = self.nodes.iter().map(Node::verdict).collect();
        self.count_wishes();
        let needed = self.needed(&net);
        for (node, &needed) in self.nodes.iter_mut().zip(&needed) {
            (node.masked, node.needed, node.height) = (node.weight.masks > 0, needed, None);
        }
        for at in self.all().filter(|&at| needed[at as usize]) {
            self.support_by(at, &net, &tangles, |_| {});
        }
        for &at in net.order().iter().rev() {
            self.weigh_height(at, &net, |_| {});
        }
        for (at, before) in (0..).zip(before) {
            if self.node(at).verdict() != before {
                self.touch(at);
            }
        }
    }

    /// Finds out what follows from another weight of one unit, along what it requires, and tells
    /// who is needed otherwise than before.
    pub(super) fn weigh_from(&mut self, at: u32) -> Vec<u32> {
        let (net, tangles) = (Arc::clone(&self.net), Arc::clone(&self.tangles));
        let node = self.node_mut(at);
        node.masked = node.weight.masks > 0;
        self.touch(at);
        let changed = self.weigh_needs(at, &net, &tangles);
        // Dependents come before what they depend on, so that each is looked at once.
        let place = |at: u32| (net.rank(at), at);
        let mut open: BTreeSet<(u32, u32)> = changed.iter().map(|&at| place(at)).collect();
        while let Some((_, at)) = open.pop_last() {
            let below = &mut open;
            let tell = |at: u32| {
                below.insert(place(at));
            };
            if self.weigh_height(at, &net, tell) {
                self.touch(at);
            }
        }
        changed
    }

    /// Counts who is wanted and masked, and nothing else.
    fn count_wishes(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.weight = Weight::default());
        let goals = self.goal.iter().chain(&self.with);
        let wanted: Vec<u32> = goals.filter_map(|goal| self.provider(goal)).collect();
        let masked: Vec<u32> = self.mask.iter().filter_map(|it| self.provider(it)).collect();
        wanted.into_iter().for_each(|at| self.node_mut(at).weight.wanted += 1);
        masked.into_iter().for_each(|at| self.node_mut(at).weight.masks += 1);
    }

    /// The least set of units with the goal's, and with all that they require. What is masked is
    /// not looked behind.
    fn needed(&self, net: &Net) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        let mut next: Vec<u32> = self.all().filter(|&at| self.node(at).weight.wanted > 0).collect();
        while let Some(at) = next.pop() {
            if needed[at as usize] || self.node(at).weight.masks > 0 {
                continue;
            }
            needed[at as usize] = true;
            let required = net.on(at).iter().filter(|link| link.kind.requires());
            next.extend(required.map(|link| link.node).filter(|&node| !needed[node as usize]));
        }
        needed
    }

    /// Which units are needed otherwise since one has another weight. Either all of them are needed
    /// now, or none is, so nobody is looked at for ever.
    fn weigh_needs(&mut self, first: u32, net: &Net, tangles: &Tangles) -> Vec<u32> {
        let (mut open, mut changed) = (vec![first], Vec::new());
        while let Some(at) = open.pop() {
            for other in self.otherwise_needed(at, net, tangles) {
                let node = self.node_mut(other);
                node.needed = !node.needed;
                self.touch(other);
                changed.push(other);
                self.support_by(other, net, tangles, |below| open.push(below));
            }
        }
        changed
    }

    /// Those of a unit and its tangle that are needed and should not be, or the other way round.
    fn otherwise_needed(&self, at: u32, net: &Net, tangles: &Tangles) -> Vec<u32> {
        let Some(tangle) = tangles.around(at) else {
            let node = self.node(at);
            let otherwise = node.needed != node.weight.is_called_for();
            return otherwise.then_some(at).into_iter().collect();
        };
        let called = tangle.iter().copied().filter(|&at| self.node(at).weight.is_called_for());
        let mut open: Vec<u32> = called.collect();
        let mut needed = BTreeSet::new();
        while let Some(at) = open.pop() {
            if self.node(at).masked || !needed.insert(at) {
                continue;
            }
            let required = net.on(at).iter().filter(|link| link.kind.requires());
            let inside = |at: &u32| tangle.binary_search(at).is_ok();
            open.extend(required.map(|link| link.node).filter(inside));
        }
        let otherwise = |at: &u32| self.node(*at).needed != needed.contains(at);
        tangle.iter().copied().filter(otherwise).collect()
    }

    /// Counts a unit for those that it requires, or not any more, as it is needed or not, and tells
    /// for whom that makes a difference.
    fn support_by(&mut self, at: u32, net: &Net, tangles: &Tangles, mut tell: impl FnMut(u32)) {
        let needed = self.node(at).needed;
        for link in net.on(at).iter().filter(|link| link.kind.requires()) {
            if tangles.has_both(at, link.node) {
                continue;
            }
            let support = &mut self.node_mut(link.node).weight.support;
            let before = *support;
            *support = if needed { before + 1 } else { before - 1 };
            if (before > 0) != (*support > 0) {
                tell(link.node);
            }
        }
    }

    /// Finds out the height of a unit, and tells for whom that may make a difference. Returns
    /// whether it is another one.
    fn weigh_height(&mut self, at: u32, net: &Net, mut tell: impl FnMut(u32)) -> bool {
        let node = self.node_mut(at);
        let after = node.needed.then(|| node.weight.above.next());
        let before = std::mem::replace(&mut node.height, after);
        if before == after {
            return false;
        }
        for link in net.on(at).iter().filter(|link| link.kind.orders()) {
            self.node_mut(link.node).weight.above.replace(before, after);
            tell(link.node);
        }
        true
    }
}

impl Node {
    /// What of a unit is weighed.
    fn verdict(&self) -> (bool, bool, Option<u32>) {
        (self.masked, self.needed, self.height)
    }
}
