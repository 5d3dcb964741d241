//! Adjacency lists of a graph: nodes are numbers, edges have kinds.

use crate::graph::model::EdgeKind;

/// One end of a dependency, stored at a node: the kind of the edge, and the node at its other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::graph) struct Link {
    pub(in crate::graph) kind: EdgeKind,
    pub(in crate::graph) node: u32,
}

/// A dependency: dependent, kind, dependency.
pub(in crate::graph) type Edge = (u32, EdgeKind, u32);

/// Dependencies in both directions, with a topological order along ordering edges.
#[derive(Debug, Clone, Default)]
pub(in crate::graph) struct Adjacency {
    dependencies: SparseRows,
    dependents: SparseRows,
    order: Vec<u32>,
    rank: Vec<u32>,
}

/// Links of all nodes in one vector (compressed sparse rows). The links of node `n` are those from
/// index `starts[n]` up to, but not including, index `starts[n + 1]`.
#[derive(Debug, Clone, Default)]
struct SparseRows {
    starts: Vec<u32>,
    links: Vec<Link>,
}

impl Adjacency {
    /// Builds the adjacency of `nodes` nodes. If several edges connect the same two nodes, only the
    /// strongest edge is kept.
    ///
    /// If ordering edges form a cycle, [`order`](Self::order) lacks the nodes of the cycle and all
    /// nodes that wait for it.
    pub(in crate::graph) fn new(nodes: usize, mut edges: Vec<Edge>) -> Self {
        keep_strongest(&mut edges);
        let dependencies =
            SparseRows::new(nodes, edges.iter().map(|&(from, kind, to)| (from, kind, to)));
        let dependents =
            SparseRows::new(nodes, edges.iter().map(|&(from, kind, to)| (to, kind, from)));
        let mut adjacency = Self { dependencies, dependents, order: Vec::new(), rank: Vec::new() };
        adjacency.order = adjacency.sorted(nodes);
        adjacency.rank = vec![0; nodes];
        for (rank, &node) in (0..).zip(&adjacency.order) {
            adjacency.rank[node as usize] = rank;
        }
        adjacency
    }

    pub(in crate::graph) fn len(&self) -> usize {
        self.rank.len()
    }

    /// Returns whether no ordering edges form a cycle.
    pub(in crate::graph) fn is_acyclic(&self) -> bool {
        self.order.len() == self.rank.len()
    }

    /// Returns the dependencies of a node.
    pub(in crate::graph) fn dependencies(&self, node: u32) -> &[Link] {
        self.dependencies.of(node)
    }

    /// Returns the dependents of a node.
    pub(in crate::graph) fn dependents(&self, node: u32) -> &[Link] {
        self.dependents.of(node)
    }

    /// Returns the nodes in topological order: dependencies before dependents. Nodes that cannot be
    /// ordered because of a cycle are missing.
    pub(in crate::graph) fn order(&self) -> &[u32] {
        &self.order
    }

    /// Returns the position of a node in the topological order.
    pub(in crate::graph) fn rank(&self, node: u32) -> u32 {
        self.rank[node as usize]
    }

    fn sorted(&self, nodes: usize) -> Vec<u32> {
        let orders = |links: &[Link]| links.iter().filter(|link| link.kind.orders()).count();
        let all = 0..number(nodes);
        let mut left: Vec<usize> =
            all.clone().map(|node| orders(self.dependencies(node))).collect();
        let mut order: Vec<u32> = all.filter(|&node| left[node as usize] == 0).collect();
        order.reserve(nodes - order.len());
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            next += 1;
            for link in self.dependents(node).iter().filter(|link| link.kind.orders()) {
                let left = &mut left[link.node as usize];
                *left -= 1;
                if *left == 0 {
                    order.push(link.node);
                }
            }
        }
        order
    }
}

impl SparseRows {
    fn new(nodes: usize, edges: impl Iterator<Item = Edge> + Clone) -> Self {
        let mut starts = vec![0; nodes + 1];
        for (from, ..) in edges.clone() {
            starts[from as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let none = Link { kind: EdgeKind::After, node: 0 };
        let mut links = vec![none; starts[nodes] as usize];
        let mut next = starts.clone();
        for (from, kind, node) in edges {
            let at = &mut next[from as usize];
            links[*at as usize] = Link { kind, node };
            *at += 1;
        }
        Self { starts, links }
    }

    fn of(&self, node: u32) -> &[Link] {
        let node = node as usize;
        &self.links[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}

/// Keeps only the strongest edge between each pair of nodes. A `pulls` edge and an `after` edge
/// between the same nodes become one `waits-for` edge, which has the effect of both.
fn keep_strongest(edges: &mut Vec<Edge>) {
    edges.sort_unstable_by_key(|&(from, kind, to)| (from, to, kind));
    edges.dedup_by(|later, kept| {
        let same = (later.0, later.2) == (kept.0, kept.2);
        if same && (kept.1, later.1) == (EdgeKind::Pulls, EdgeKind::After) {
            kept.1 = EdgeKind::WaitsFor;
        }
        same
    });
}

/// Converts a node count to 32 bits; graphs are far smaller.
pub(in crate::graph) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
