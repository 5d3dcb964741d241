//! Circles of dependencies: who is in one, and the shortest_cycle of each component.

use std::collections::VecDeque;

use super::adjacency::{Adjacency, Link, number};
use super::{DependencyCycle, EdgeKind, InitUnit};
use std::sync::Arc;

/// How many dependencies are looked at in search of the shortest_cycle circle of a component. Beyond, the
/// shortest_cycle that was found is told; one always is.
const MAX_VISITS: usize = 10_000_000;

/// The nodes of a circle, each with how it depends on the next.
type Steps = Vec<(u32, EdgeKind)>;

/// The components of a adjacency: the nodes of each all lead to one another, or one to itself.
pub(super) fn components(adjacency: &Adjacency) -> Vec<Vec<u32>> {
    if adjacency.is_acyclic() {
        return Vec::new();
    }
    components_by(adjacency, EdgeKind::orders)
}

/// The components of a adjacency by dependencies of these kinds alone.
pub(super) fn components_by(adjacency: &Adjacency, counts: fn(EdgeKind) -> bool) -> Vec<Vec<u32>> {
    let mut search = TarjanSearch::new(adjacency, counts);
    for root in 0..number(adjacency.len()) {
        search.visit(root);
    }
    let mut found = search.found;
    found.sort_unstable();
    found
}

/// The shortest_cycle circle of a component, from its smallest name on.
pub(super) fn shortest_cycle(
    adjacency: &Adjacency,
    component: &[u32],
    units: &[Arc<InitUnit>],
) -> DependencyCycle {
    let mut visits = MAX_VISITS;
    let mut best: Option<Steps> = None;
    for &start in component {
        let most = best.as_ref().map_or(usize::MAX, |best| best.len() - 1);
        if let Some(found) = cycle_from(adjacency, component, start, most, &mut visits) {
            best = Some(found);
        }
        if visits == 0 || best.as_ref().is_some_and(|best| best.len() == 1) {
            break;
        }
    }
    // It begins with its smallest name: nodes are numbered in the order of their names, and no
    // later one finds a shorter way through the same circle.
    let steps = best.unwrap_or_default().into_iter();
    let named = steps.map(|(node, kind)| (units[node as usize].name.clone(), kind));
    DependencyCycle { steps: named.collect() }
}

/// The shortest_cycle circle through `start` of at most so many steps, unless it takes too long.
fn cycle_from(
    adjacency: &Adjacency,
    component: &[u32],
    start: u32,
    most: usize,
    visits: &mut usize,
) -> Option<Steps> {
    // For each node of the component: from which one it was reached, how, and in how many steps.
    let mut reached: Vec<Option<(u32, EdgeKind, usize)>> = vec![None; component.len()];
    let place = |node: u32| component.binary_search(&node).ok();
    let mut next = VecDeque::from([(start, 0)]);
    while let Some((node, steps)) = next.pop_front() {
        if steps >= most {
            return None;
        }
        for link in adjacency.dependencies(node).iter().filter(|link| link.kind.orders()) {
            *visits = visits.saturating_sub(1);
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
struct TarjanSearch<'a> {
    adjacency: &'a Adjacency,
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

impl<'a> TarjanSearch<'a> {
    fn new(adjacency: &'a Adjacency, counts: fn(EdgeKind) -> bool) -> Self {
        let nodes = adjacency.len();
        Self {
            adjacency,
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
        let adjacency = self.adjacency;
        let mut calls: Vec<(u32, &[Link])> = vec![(root, adjacency.dependencies(root))];
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
                calls.push((link.node, adjacency.dependencies(link.node)));
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
        let mut component = self.path.split_off(at);
        for &member in &component {
            self.open[member as usize] = false;
        }
        let itself = |link: &Link| link.node == node && (self.counts)(link.kind);
        if component.len() > 1 || self.adjacency.dependencies(node).iter().any(itself) {
            component.sort_unstable();
            self.found.push(component);
        }
    }
}
