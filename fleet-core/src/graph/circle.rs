//! Circles of dependencies: who is in one, and the shortest of each tangle.

use std::collections::VecDeque;

use super::net::{Link, Net, number};
use super::{DependencyCycle, EdgeKind, InitUnit};
use std::sync::Arc;

/// How many dependencies are looked at in search of the shortest circle of a tangle. Beyond, the
/// shortest that was found is told; one always is.
const MOST_LOOKS: usize = 10_000_000;

/// The nodes of a circle, each with how it depends on the next.
type Steps = Vec<(u32, EdgeKind)>;

/// The tangles of a net: the nodes of each all lead to one another, or one to itself.
pub(super) fn tangles(net: &Net) -> Vec<Vec<u32>> {
    if net.is_acyclic() {
        return Vec::new();
    }
    tangles_by(net, EdgeKind::orders)
}

/// The tangles of a net by dependencies of these kinds alone.
pub(super) fn tangles_by(net: &Net, counts: fn(EdgeKind) -> bool) -> Vec<Vec<u32>> {
    let mut search = Search::new(net, counts);
    for root in 0..number(net.len()) {
        search.visit(root);
    }
    let mut found = search.found;
    found.sort_unstable();
    found
}

/// The shortest circle of a tangle, from its smallest name on.
pub(super) fn shortest(net: &Net, tangle: &[u32], units: &[Arc<InitUnit>]) -> DependencyCycle {
    let mut looks = MOST_LOOKS;
    let mut best: Option<Steps> = None;
    for &start in tangle {
        let most = best.as_ref().map_or(usize::MAX, |best| best.len() - 1);
        if let Some(found) = circle_from(net, tangle, start, most, &mut looks) {
            best = Some(found);
        }
        if looks == 0 || best.as_ref().is_some_and(|best| best.len() == 1) {
            break;
        }
    }
    // It begins with its smallest name: nodes are numbered in the order of their names, and no
    // later one finds a shorter way through the same circle.
    let steps = best.unwrap_or_default().into_iter();
    let named = steps.map(|(node, kind)| (units[node as usize].name.clone(), kind));
    DependencyCycle { steps: named.collect() }
}

/// The shortest circle through `start` of at most so many steps, unless it takes too long.
fn circle_from(
    net: &Net,
    tangle: &[u32],
    start: u32,
    most: usize,
    looks: &mut usize,
) -> Option<Steps> {
    // For each node of the tangle: from which one it was reached, how, and in how many steps.
    let mut reached: Vec<Option<(u32, EdgeKind, usize)>> = vec![None; tangle.len()];
    let place = |node: u32| tangle.binary_search(&node).ok();
    let mut next = VecDeque::from([(start, 0)]);
    while let Some((node, steps)) = next.pop_front() {
        if steps >= most {
            return None;
        }
        for link in net.on(node).iter().filter(|link| link.kind.orders()) {
            *looks = looks.saturating_sub(1);
            let Some(at) = place(link.node) else { continue };
            if reached[at].is_some() {
                continue;
            }
            reached[at] = Some((node, link.kind, steps + 1));
            if link.node == start {
                return Some(walk_back(start, |node| place(node).and_then(|at| reached[at])));
            }
            next.push_back((link.node, steps + 1));
        }
    }
    None
}

fn walk_back(start: u32, reached: impl Fn(u32) -> Option<(u32, EdgeKind, usize)>) -> Steps {
    let mut steps = Vec::new();
    let mut node = start;
    while let Some((before, kind, _)) = reached(node) {
        steps.push((before, kind));
        node = before;
        if node == start {
            break;
        }
    }
    steps.reverse();
    steps
}

/// Tarjan's search for strongly connected components, with a stack of its own: chains of units are
/// longer than the stack of a thread is deep.
struct Search<'a> {
    net: &'a Net,
    counts: fn(EdgeKind) -> bool,
    /// When each node was seen first, from 1 on; 0 if it was not.
    seen: Vec<u32>,
    /// The earliest node that each is known to lead back to.
    low: Vec<u32>,
    open: Vec<bool>,
    path: Vec<u32>,
    count: u32,
    found: Vec<Vec<u32>>,
}

impl<'a> Search<'a> {
    fn new(net: &'a Net, counts: fn(EdgeKind) -> bool) -> Self {
        let nodes = net.len();
        Self {
            net,
            counts,
            seen: vec![0; nodes],
            low: vec![0; nodes],
            open: vec![false; nodes],
            path: Vec::new(),
            count: 0,
            found: Vec::new(),
        }
    }

    fn visit(&mut self, root: u32) {
        if self.seen[root as usize] != 0 {
            return;
        }
        let net = self.net;
        let mut calls: Vec<(u32, &[Link])> = vec![(root, net.on(root))];
        self.enter(root);
        while let Some((node, links)) = calls.last_mut() {
            let node = *node;
            let Some((link, rest)) = links.split_first() else {
                calls.pop();
                self.leave(node);
                if let Some(&(above, _)) = calls.last() {
                    self.lower(above, self.low[node as usize]);
                }
                continue;
            };
            *links = rest;
            let to = link.node as usize;
            if !(self.counts)(link.kind) {
                continue;
            }
            if self.seen[to] == 0 {
                self.enter(link.node);
                calls.push((link.node, net.on(link.node)));
            } else if self.open[to] {
                self.lower(node, self.seen[to]);
            }
        }
    }

    fn enter(&mut self, node: u32) {
        self.count += 1;
        self.seen[node as usize] = self.count;
        self.low[node as usize] = self.count;
        self.open[node as usize] = true;
        self.path.push(node);
    }

    fn lower(&mut self, node: u32, to: u32) {
        let low = &mut self.low[node as usize];
        *low = (*low).min(to);
    }

    fn leave(&mut self, node: u32) {
        if self.low[node as usize] != self.seen[node as usize] {
            return;
        }
        let at = self.path.iter().rposition(|&open| open == node).unwrap_or_default();
        let mut tangle = self.path.split_off(at);
        for &member in &tangle {
            self.open[member as usize] = false;
        }
        let itself = |link: &Link| link.node == node && (self.counts)(link.kind);
        if tangle.len() > 1 || self.net.on(node).iter().any(itself) {
            tangle.sort_unstable();
            self.found.push(tangle);
        }
    }
}
