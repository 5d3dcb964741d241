//! Who depends on whom, by number: the shape of a graph without its names.

use super::EdgeKind;

/// One end of a dependency, seen from the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) kind: EdgeKind,
    pub(super) node: u32,
}

/// A dependency: of whom, how, on whom.
pub(super) type Edge = (u32, EdgeKind, u32);

/// Dependencies in both directions, and an order in which all that order come before those that
/// depend on them.
#[derive(Debug, Clone, Default)]
pub(super) struct Adjacency {
    dependencies: SparseRows,
    dependents: SparseRows,
    order: Vec<u32>,
    rank: Vec<u32>,
}

/// Links of all nodes, in one piece: those of a node are between its start and that of the next.
#[derive(Debug, Clone, Default)]
struct SparseRows {
    starts: Vec<u32>,
    links: Vec<Link>,
}

impl Adjacency {
    /// Takes up the dependencies between so many nodes. Of several between the same two, the
    /// strongest counts.
    ///
    /// If some are in a circle, or depend on those that are, `order` lacks them.
    pub(super) fn new(nodes: usize, mut edges: Vec<Edge>) -> Self {
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

    pub(super) fn len(&self) -> usize {
        self.rank.len()
    }

    /// Whether no node leads to itself by dependencies that order.
    pub(super) fn is_acyclic(&self) -> bool {
        self.order.len() == self.rank.len()
    }

    /// What a node depends on.
    pub(super) fn dependencies(&self, node: u32) -> &[Link] {
        self.dependencies.of(node)
    }

    /// What depends on a node.
    pub(super) fn dependents(&self, node: u32) -> &[Link] {
        self.dependents.of(node)
    }

    /// All nodes, each after those that it depends on in an order.
    pub(super) fn order(&self) -> &[u32] {
        &self.order
    }

    /// The place of a node in that order.
    pub(super) fn rank(&self, node: u32) -> u32 {
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

/// Leaves one edge between each two nodes. One that only requires and one that only orders are
/// together what `waits-for` is.
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

/// Nodes are counted in 32 bits; a graph has far fewer.
pub(super) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
