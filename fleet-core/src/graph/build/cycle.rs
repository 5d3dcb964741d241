//! Detection of dependency cycles, and the shortest cycle of each component.

use std::collections::VecDeque;
use std::sync::Arc;

use super::error::DependencyCycle;
use super::{Adjacency, Link, number};
use crate::graph::model::{EdgeKind, InitUnit};

/// Maximum number of edges that the search for the shortest cycle of a component visits. Once it is
/// reached, no further start node is tried, and the shortest cycle found so far is used. There is
/// always one, because the search from the first start node is never cut short.
const MAX_VISITS: usize = 10_000_000;

/// Nodes of a cycle, each with the kind of its edge to the next node.
type Steps = Vec<(u32, EdgeKind)>;

/// Returns the strongly connected components along ordering edges: sets of nodes that all wait for
/// one another. A single node is a component only if it has an edge to itself.
pub(super) fn components(adjacency: &Adjacency) -> Vec<Vec<u32>> {
    if adjacency.is_acyclic() {
        return Vec::new();
    }
    components_by(adjacency, EdgeKind::orders)
}

/// Returns the strongly connected components along the edges that `counts` selects.
pub(in crate::graph) fn components_by(
    adjacency: &Adjacency,
    counts: fn(EdgeKind) -> bool,
) -> Vec<Vec<u32>> {
    let mut search = TarjanSearch::new(adjacency, counts);
    for root in 0..number(adjacency.len()) {
        search.visit(root);
    }
    let mut found = search.found;
    found.sort_unstable();
    found
}

/// Returns the shortest cycle of a component, starting at its smallest name.
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
    // The cycle starts with its smallest name: nodes are numbered in the order of their names, and
    // a later start node finds no shorter path through the same cycle.
    let steps = best.unwrap_or_default().into_iter();
    let named = steps.map(|(node, kind)| (units[node as usize].name.clone(), kind));
    DependencyCycle { steps: named.collect() }
}

/// Returns the shortest cycle of the component through `start`, or `None` if there is none with at
/// most `most` steps. `visits` is the number of edges that the whole search may still visit; each
/// visited edge decreases it.
fn cycle_from(
    adjacency: &Adjacency,
    component: &[u32],
    start: u32,
    most: usize,
    visits: &mut usize,
) -> Option<Steps> {
    // Per node of the component: predecessor, edge kind, and number of steps.
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

/// Tarjan's algorithm with an explicit stack. Recursion could overflow the thread's stack, because
/// chains of units can be very long.
struct TarjanSearch<'a> {
    adjacency: &'a Adjacency,
    counts: fn(EdgeKind) -> bool,
    /// Visit number of each node, counted from 1; 0 if not visited.
    index: Vec<u32>,
    /// Smallest visit number that each node is known to reach.
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
            index: vec![0; nodes],
            low: vec![0; nodes],
            open: vec![false; nodes],
            path: Vec::new(),
            count: 0,
            found: Vec::new(),
        }
    }

    fn visit(&mut self, root: u32) {
        if self.index[root as usize] != 0 {
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
            if self.index[to] == 0 {
                self.enter(link.node);
                calls.push((link.node, adjacency.dependencies(link.node)));
            } else if self.open[to] {
                self.lower(node, self.index[to]);
            }
        }
    }

    fn enter(&mut self, node: u32) {
        self.count += 1;
        self.index[node as usize] = self.count;
        self.low[node as usize] = self.count;
        self.open[node as usize] = true;
        self.path.push(node);
    }

    fn lower(&mut self, node: u32, to: u32) {
        let low = &mut self.low[node as usize];
        *low = (*low).min(to);
    }

    fn leave(&mut self, node: u32) {
        if self.low[node as usize] != self.index[node as usize] {
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
