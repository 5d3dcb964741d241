//! Pure: a layered layout of nodes, with few crossings.

use std::collections::BTreeMap;

/// A position in the layout. Nodes have one, and so do the points at which an arrow passes through
/// a column between its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Column, from the left.
    pub(crate) column: usize,
    /// Row within the column, from the top.
    pub(crate) row: usize,
}

/// A complete layout.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Layers {
    /// Position of each node.
    pub(crate) nodes: Vec<Spot>,
    /// For each arrow, the intermediate positions that it passes, one in each column between its
    /// ends. An arrow has none if no column lies between, if it points to the left, or if it would
    /// exceed [`MOST_BENDS`].
    pub(crate) bends: Vec<Vec<Spot>>,
    /// Number of rows in each column.
    pub(crate) rows: Vec<usize>,
}

/// An arrow between two nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrow {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Whether the target must be in a later column than the source. The arrows of a graph that set
    /// this must form no cycle.
    pub(crate) orders: bool,
}

/// Number of ordering sweeps, from the left and from the right.
const SWEEPS: usize = 12;

/// Maximum number of intermediate positions in total. Arrows beyond this limit are drawn straight.
const MOST_BENDS: usize = 20_000;

/// Computes the layout of nodes and arrows.
///
/// The column of a node is the length of the longest chain of ordering arrows that leads to the
/// node. Its row is chosen close to the rows of its neighbours, so that few arrows cross.
pub(crate) fn layers(nodes: usize, arrows: &[Arrow]) -> Layers {
    let mut columns = columns(nodes, arrows);
    let mut edges: Vec<(usize, usize)> = Vec::new();
    let mut passed: Vec<Vec<usize>> = Vec::with_capacity(arrows.len());
    for arrow in arrows {
        let (mut last, mut bends) = (arrow.from, Vec::new());
        let between = columns[arrow.from] + 1..columns[arrow.to];
        if columns.len() + between.len() <= nodes + MOST_BENDS {
            for column in between {
                columns.push(column);
                bends.push(columns.len() - 1);
                edges.push((last, columns.len() - 1));
                last = columns.len() - 1;
            }
            edges.push((last, arrow.to));
        }
        passed.push(bends);
    }
    let (spots, rows) = rows(&columns, &edges);
    let spot = |at: &usize| spots[*at];
    let bends = passed.iter().map(|bends| bends.iter().map(spot).collect()).collect();
    Layers { nodes: spots[..nodes].to_vec(), bends, rows }
}

/// Returns the column of each node: the length of the longest chain of ordering arrows to the node.
fn columns(nodes: usize, arrows: &[Arrow]) -> Vec<usize> {
    let mut columns = vec![0; nodes];
    let mut open = vec![0_usize; nodes];
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for arrow in arrows.iter().filter(|arrow| arrow.orders) {
        open[arrow.to] += 1;
        next[arrow.from].push(arrow.to);
    }
    let mut ready: Vec<usize> = (0..nodes).filter(|at| open[*at] == 0).collect();
    while let Some(at) = ready.pop() {
        for &to in &next[at] {
            columns[to] = columns[to].max(columns[at] + 1);
            open[to] -= 1;
            if open[to] == 0 {
                ready.push(to);
            }
        }
    }
    columns
}

/// Orders the nodes within their columns by several sweeps, and returns the order with the shortest
/// arrows.
fn rows(columns: &[usize], edges: &[(usize, usize)]) -> (Vec<Spot>, Vec<usize>) {
    let mut order: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, column) in columns.iter().enumerate() {
        order.entry(*column).or_default().push(at);
    }
    let mut neighbours: Vec<Vec<usize>> = vec![Vec::new(); columns.len()];
    for (from, to) in edges.iter().filter(|(from, to)| columns[*from] != columns[*to]) {
        neighbours[*from].push(*to);
        neighbours[*to].push(*from);
    }
    let mut row = numbered(&order, columns.len());
    let mut best = (length(edges, &row), row.clone());
    for sweep in 0..SWEEPS {
        let to_right = sweep % 2 == 0;
        let mut turn: Vec<usize> = order.keys().copied().collect();
        if !to_right {
            turn.reverse();
        }
        for column in turn {
            let Some(members) = order.get_mut(&column) else { continue };
            let is_behind = |at: &&usize| (columns[**at] < column) == to_right;
            let centre = |at: &usize| {
                let behind: Vec<usize> =
                    neighbours[*at].iter().filter(is_behind).map(|other| row[*other]).collect();
                // In thousandths, so that all machines give the same result.
                let sum = 1000 * behind.iter().sum::<usize>();
                sum.checked_div(behind.len()).unwrap_or(1000 * row[*at])
            };
            members.sort_by_cached_key(centre);
            for (place, at) in members.iter().enumerate() {
                row[*at] = place;
            }
        }
        let found = length(edges, &row);
        if found < best.0 {
            best = (found, row.clone());
        }
    }
    let spots = columns.iter().zip(best.1).map(|(column, row)| Spot { column: *column, row });
    (spots.collect(), order.values().map(Vec::len).collect())
}

fn numbered(order: &BTreeMap<usize, Vec<usize>>, nodes: usize) -> Vec<usize> {
    let mut row = vec![0; nodes];
    for members in order.values() {
        for (place, at) in members.iter().enumerate() {
            row[*at] = place;
        }
    }
    row
}

fn length(edges: &[(usize, usize)], row: &[usize]) -> usize {
    edges.iter().map(|(from, to)| row[*from].abs_diff(row[*to])).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrows(text: &str) -> Vec<Arrow> {
        let arrow = |word: &str| {
            let digit = |at| word[at..=at].parse().unwrap();
            Arrow { from: digit(0), to: digit(2), orders: &word[1..2] == ">" }
        };
        text.split_whitespace().map(arrow).collect()
    }

    #[test]
    fn arrows_point_right_and_rarely_cross() {
        for (nodes, text, expected) in [
            (0, "", ""),
            (2, "", "0.0 0.1"),
            (3, "0>1 1>2", "0.0 1.0 2.0"),
            // The longer path determines the column, and the shorter one passes by.
            (3, "0>1 1>2 0>2", "0.0 1.0 2.0 : 1.1"),
            // These cross before sorting.
            (4, "0>3 1>2", "0.0 0.1 1.1 1.0"),
            // An arrow that does not order determines no column and may form a cycle.
            (3, "0>1 1~0 2~0", "0.0 1.0 0.1"),
        ] {
            let layers = layers(nodes, &arrows(text));
            let spot = |it: &Spot| format!("{}.{}", it.column, it.row);
            let mut output: Vec<String> = layers.nodes.iter().map(spot).collect();
            let bends: Vec<String> = layers.bends.iter().flatten().map(spot).collect();
            if !bends.is_empty() {
                output.push(format!(": {}", bends.join(" ")));
            }
            assert_eq!(output.join(" "), expected, "{text}");
        }
    }

    #[test]
    fn spots_are_distinct_and_ordering_arrows_point_right() {
        // Each node has arrows to some of the later ones.
        let pairs = (0..60).flat_map(|from| (from + 1..60).map(move |to| (from, to)));
        let some = pairs.filter(|(from, to)| (from * 7 + to * 13) % 11 == 0);
        let arrows: Vec<Arrow> = some.map(|(from, to)| Arrow { from, to, orders: true }).collect();
        let layers = layers(60, &arrows);
        let all: Vec<Spot> =
            layers.nodes.iter().chain(layers.bends.iter().flatten()).copied().collect();
        let mut distinct: Vec<_> = all.iter().map(|it| (it.column, it.row)).collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(layers.rows.iter().sum::<usize>(), all.len());
        for arrow in arrows {
            assert!(layers.nodes[arrow.from].column < layers.nodes[arrow.to].column);
        }
    }
}
