//! Pure: units as a tree, from the goal to its dependencies.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::client::{StatusHeader, Unit};
use super::status::format_duration;
use crate::ui::table::{Colour, TableStyle, cell, painted};

/// Maximum depth of a tree. A unit at this depth becomes the root of another tree below this one.
/// Otherwise a long chain of dependencies would make the rows very wide.
const DEEPEST: usize = 40;

/// Cells shown beside each unit, by unit name.
pub(super) type CellsOfUnit<'a> = &'a dyn Fn(&str) -> Vec<String>;

/// Formats the units: first a tree for the goal and for each extra target, then a row for each unit
/// that is in none of these trees.
pub(super) fn tree(head: &StatusHeader, units: &[Unit], colour: Colour) -> String {
    tree_with(head, units, &[], &|_| Vec::new(), colour)
}

/// Like `tree`, with additional columns of one cell per unit.
pub(super) fn tree_with(
    head: &StatusHeader,
    units: &[Unit],
    columns: &[&str],
    extra_cells: CellsOfUnit<'_>,
    colour: Colour,
) -> String {
    let mut tree = Tree {
        extra_cells,
        extra_columns: columns.len(),
        by_name: units.iter().map(|unit| (unit.unit.as_str(), unit)).collect(),
        seen: BTreeSet::new(),
        rows: Vec::new(),
    };
    let provider = |target: &String| units.iter().find(|unit| unit.provides.contains(target));
    for root in head.goal.iter().chain(&head.extra_targets).filter_map(provider) {
        tree.add_all(root);
    }
    let rest: Vec<&Unit> =
        units.iter().filter(|unit| !tree.seen.contains(unit.unit.as_str())).collect();
    // Needed units appear in the tree; a unit can be active briefly without being needed.
    for unit in rest {
        tree.row("", unit, "");
    }
    let columns = [&["unit"], columns, &["state", "for", "pid", "why"]].concat();
    painted(&columns, true, &tree.rows, TableStyle { colour, ..TableStyle::PLAIN })
}

struct Tree<'a> {
    extra_cells: CellsOfUnit<'a>,
    /// Number of additional columns.
    extra_columns: usize,
    by_name: BTreeMap<&'a str, &'a Unit>,
    seen: BTreeSet<&'a str>,
    rows: Vec<Vec<String>>,
}

impl<'a> Tree<'a> {
    /// Adds a unit and everything below it, in as many trees as necessary.
    fn add_all(&mut self, root: &'a Unit) {
        let mut roots = VecDeque::from([root]);
        while let Some(root) = roots.pop_front() {
            if !self.seen.contains(root.unit.as_str()) {
                self.add_tree(root, &mut roots);
            }
        }
    }

    /// Adds rows for a unit and its dependencies, without recursion. A unit that already has its
    /// row gets only a reference to it. A unit at the maximum depth also gets a reference, and is
    /// added to `deeper`.
    fn add_tree(&mut self, root: &'a Unit, deeper: &mut VecDeque<&'a Unit>) {
        let mut open = vec![(0, String::new(), String::new(), root, "")];
        while let Some((depth, lead, below, unit, kind)) = open.pop() {
            let needs = self.needs(unit);
            if self.seen.contains(unit.unit.as_str()) {
                self.refer(&lead, unit, kind, if needs.is_empty() { "" } else { " (see above)" });
                continue;
            }
            if depth == DEEPEST && !needs.is_empty() {
                self.refer(&lead, unit, kind, " (see below)");
                deeper.push_back(unit);
                continue;
            }
            self.seen.insert(&unit.unit);
            self.row(&lead, unit, kind);
            let last = needs.len().saturating_sub(1);
            for (index, (unit, kind)) in needs.into_iter().enumerate().rev() {
                let (branch, line) =
                    if index == last { ("└─", "  ") } else { ("├─", "│ ") };
                let both = (format!("{below}{branch}"), format!("{below}{line}"));
                open.push((depth + 1, both.0, both.1, unit, kind));
            }
        }
    }

    fn needs(&self, unit: &'a Unit) -> Vec<(&'a Unit, &'a str)> {
        let known = |name: &str| self.by_name.get(name).copied();
        let needs = unit.depends.iter().filter(|edge| edge.kind != "after");
        needs.filter_map(|it| Some((known(&it.unit)?, it.kind.as_str()))).collect()
    }

    /// Names a unit that has its row elsewhere.
    fn refer(&mut self, lead: &str, unit: &Unit, kind: &str, where_it_is: &str) {
        let name = format!("{lead}{}{}{where_it_is}", unit.unit, of(kind));
        let others = (0..self.extra_columns + 4).map(|_| String::new());
        self.rows.push([name].into_iter().chain(others).collect());
    }

    fn row(&mut self, lead: &str, unit: &Unit, kind: &str) {
        let state = if unit.degraded_by.is_empty() {
            unit.state.clone()
        } else {
            format!("{}, degraded", unit.state)
        };
        let off = ["disabled", "masked", "waiting"].contains(&unit.state.as_str());
        let mut row = vec![format!("{lead}{}{}", unit.unit, of(kind))];
        row.extend((self.extra_cells)(&unit.unit));
        row.extend([
            state,
            cell(unit.milliseconds.filter(|_| !off).map(format_duration)),
            cell(unit.main_pid.map(|pid| pid.to_string())),
            cell(Some(self.why(unit))),
        ]);
        self.rows.push(row);
    }

    fn why(&self, unit: &Unit) -> String {
        let (up, down): (Vec<&str>, Vec<&str>) =
            unit.degraded_by.iter().map(String::as_str).partition(|it| self.is_degraded(unit, it));
        let down = (!down.is_empty()).then(|| format!("without {}", down.join(", ")));
        let up = (!up.is_empty()).then(|| format!("degraded: {}", up.join(", ")));
        let coincidental = (!unit.coincidental.is_empty())
            .then(|| format!("not needed: {}", unit.coincidental.join(", ")));
        let status = unit.status.as_ref().map(|status| format!("says: {status}"));
        let parts = [unit.reason.clone(), down, up, coincidental, status];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Whether the provider of a dependency is active and degraded itself.
    fn is_degraded(&self, unit: &Unit, target: &str) -> bool {
        let providers = unit.depends.iter().filter_map(|it| self.by_name.get(it.unit.as_str()));
        let mut providers = providers.filter(|it| it.provides.iter().any(|name| name == target));
        providers.any(|it| !it.degraded_by.is_empty())
    }
}

fn of(kind: &str) -> String {
    if kind.is_empty() { String::new() } else { format!(" ({kind})") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet_init::client::Edge;

    fn unit(name: &str, state: &str, depends: &[(&str, &str)]) -> Unit {
        let edge = |&(kind, unit): &(&str, &str)| Edge { kind: kind.into(), unit: unit.into() };
        Unit {
            unit: name.to_owned(),
            provides: vec![name.to_owned()],
            state: state.to_owned(),
            milliseconds: Some(0),
            depends: depends.iter().map(edge).collect(),
            ..Unit::default()
        }
    }

    /// Regression: for an active unit with an active but degraded dependency, the text said that
    /// the dependency was missing.
    #[test]
    fn a_degraded_dependency_is_not_described_as_missing() {
        let head = StatusHeader { goal: Some("home".into()), ..StatusHeader::default() };
        let by = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let units = [
            Unit {
                degraded_by: by(&["bot", "web"]),
                ..unit("home", "running", &[("waits-for", "bot"), ("waits-for", "web")])
            },
            Unit { degraded_by: by(&["bot"]), ..unit("web", "running", &[("waits-for", "bot")]) },
            unit("bot", "failed", &[]),
        ];
        let output = tree(&head, &units, Colour::Off);
        assert!(output.contains("without bot; degraded: web"), "{output}");
    }

    #[test]
    fn tree_puts_the_goal_first_and_unneeded_units_last() {
        let head = StatusHeader { goal: Some("home".into()), ..StatusHeader::default() };
        let running =
            Unit { main_pid: Some(7), milliseconds: Some(61_000), ..unit("dns", "running", &[]) };
        let failed = Unit {
            reason: Some("exit 3; retry in 2s".to_owned()),
            ..unit("bot", "failed", &[("depends-ms", "net"), ("after", "old")])
        };
        let degraded = Unit {
            degraded_by: vec!["bot".to_owned()],
            ..unit("home", "running", &[("waits-for", "bot"), ("waits-for", "mail")])
        };
        let units = [
            failed,
            running,
            degraded,
            unit("mail", "waiting", &[("depends-ms", "net")]),
            unit("net", "exited", &[("depends-on", "dns")]),
            unit("old", "disabled", &[]),
        ];
        insta::assert_snapshot!(tree(&head, &units, Colour::Off).replace('\t', "→"), @"
        UNIT→→→→→STATE→→→FOR→PID→WHY
        home→→→→→running, degraded→0s→-→without bot
        ├─bot (waits-for)→→→failed→→→0s→-→exit 3; retry in 2s
        │ └─net (depends-ms)→→→exited→→→0s→-→-
        │   └─dns (depends-on)→→→running→→→1min 1s→7→-
        └─mail (waits-for)→→→waiting→→→-→-→-
          └─net (depends-ms) (see above)→→→→→→
        old→→→→→disabled→→-→-→-
        ");
    }

    #[test]
    fn long_chain_continues_in_its_own_tree() {
        let name = |at: usize| format!("u{at}");
        let link = |at: usize| match at {
            99 => unit(&name(at), "running", &[]),
            _ => unit(&name(at), "running", &[("depends-on", &name(at + 1))]),
        };
        let head = StatusHeader { goal: Some(name(0)), ..StatusHeader::default() };
        let units: Vec<Unit> = (0..100).map(link).collect();
        let shown = tree(&head, &units, Colour::Off);
        let rows: Vec<&str> = shown.lines().map(|row| row.split('\t').next().unwrap()).collect();
        let roots: Vec<&&str> = rows.iter().filter(|row| row.starts_with('u')).collect();
        assert_eq!(roots, [&"u0", &"u40", &"u80"]);
        let lead = |depth: usize| format!("{}└─", "  ".repeat(depth - 1));
        assert_eq!(rows[41], format!("{}u40 (depends-on) (see below)", lead(40)));
        assert_eq!(rows.last(), Some(&format!("{}u99 (depends-on)", lead(19)).as_str()));
        assert_eq!(rows.len(), 1 + 100 + 2);
    }
}
