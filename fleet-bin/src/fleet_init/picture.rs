//! Pure: draws units and dependencies as SVG.
//!
//! Each dependency is to the right of its dependents. The line style shows the kind of a
//! dependency, and the border shows the kind of a unit. The title of each element repeats the kind
//! as text. Nothing is shown by colour alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use fleet_core::graph::{EdgeKind, Graph, InitUnit, Name, Target};

use super::layers::{Arrow, Layers, Spot, layers};

/// Maximum number of units and dependencies of a legible picture.
pub(crate) const MAX_ELEMENTS: usize = 5000;

/// Sizes in pixels: a character, a box, and the space between boxes.
const CHARACTER: usize = 8;
const HEIGHT: usize = 40;
const BESIDE: usize = 90;
const BELOW: usize = 24;
const MARGIN: usize = 20;

/// Maximum number of characters shown of a name; the title has the whole name.
const MAX_LABEL: usize = 32;

/// The constant part of each picture.
const STYLE: &str = "\
<style>
  text { font: 13px monospace; fill: #111; }
  .unit { fill: #fff; stroke: #111; stroke-width: 1.5; }
  .goal { fill: none; stroke: #111; stroke-width: 1.5; }
  .idle { fill: #fff; stroke: #777; stroke-dasharray: 4 3; }
  .faint { fill: #666; }
  .edge { fill: none; stroke: #111; stroke-width: 1.5; }
  .depends-on { stroke-width: 3; }
  .waits-for { stroke-dasharray: 9 4; }
  .pulls { stroke-dasharray: 2 4; }
  .after { stroke-dasharray: 9 3 2 3; }
  .unneeded { stroke: #777; }
</style>
";

/// Arrow heads, each with a name, a fill colour and a stroke colour. The colours are explicit,
/// because some viewers do not let a head inherit the colour of its line.
const HEADS: [(&str, &str, &str); 4] = [
    ("full", "#111", "#111"),
    ("open", "#fff", "#111"),
    ("full-unneeded", "#777", "#777"),
    ("open-unneeded", "#fff", "#777"),
];

/// Draws the picture. Returns `None` if there are more than [`MAX_ELEMENTS`] units or dependencies.
///
/// Units that are not in `needed` are drawn as not needed. If `needed` is `None`, all units are
/// drawn as needed.
pub(crate) fn picture(
    graph: &Graph,
    goal: Option<&Target>,
    needed: Option<&BTreeSet<&Name>>,
) -> Option<String> {
    let names = graph.units().enumerate().map(|(at, unit)| (&unit.name, at));
    let index: BTreeMap<&Name, usize> = names.collect();
    let mut edges: Vec<(EdgeKind, Arrow)> = Vec::new();
    for (from, unit) in graph.units().enumerate() {
        for (kind, on) in graph.dependencies(&unit.name) {
            let to = *index.get(&on.name)?;
            edges.push((kind, Arrow { from, to, orders: kind.orders() }));
        }
    }
    if edges.len() > MAX_ELEMENTS || index.len() > MAX_ELEMENTS {
        return None;
    }
    let arrows: Vec<Arrow> = edges.iter().map(|(_, arrow)| *arrow).collect();
    let layers = layers(index.len(), &arrows);
    let units: Vec<&InitUnit> = graph.units().map(AsRef::as_ref).collect();
    Some(Picture { columns: columns(&layers, &units), units, layers, goal, needed }.draw(&edges))
}

struct Picture<'a> {
    units: Vec<&'a InitUnit>,
    layers: Layers,
    /// Left edge and box width of each column.
    columns: Vec<(usize, usize)>,
    goal: Option<&'a Target>,
    needed: Option<&'a BTreeSet<&'a Name>>,
}

/// Makes each column as wide as its longest label.
fn columns(layers: &Layers, units: &[&InitUnit]) -> Vec<(usize, usize)> {
    let mut columns = vec![(0, 8 * CHARACTER); layers.rows.len()];
    for (spot, unit) in layers.nodes.iter().zip(units) {
        let width = &mut columns[spot.column].1;
        let (name, targets) = label(unit);
        let characters = name.chars().count().max(targets.chars().count());
        *width = (*width).max((characters + 2) * CHARACTER);
    }
    let mut left = MARGIN;
    for (start, width) in &mut columns {
        *start = left;
        left += *width + BESIDE;
    }
    columns
}

impl Picture<'_> {
    fn draw(&self, edges: &[(EdgeKind, Arrow)]) -> String {
        let right = self.columns.last().map_or(0, |(start, width)| start + width);
        let rows = self.layers.rows.iter().max().copied().unwrap_or_default();
        let below = MARGIN + rows * (HEIGHT + BELOW);
        let (width, height) = (right.max(700) + MARGIN, below + HEIGHT + MARGIN);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\">\n<title>{} units</title>\n{STYLE}",
            self.units.len()
        );
        heads(&mut text);
        for ((kind, arrow), bends) in edges.iter().zip(&self.layers.bends) {
            self.edge(&mut text, *kind, *arrow, bends);
        }
        for at in 0..self.units.len() {
            self.unit(&mut text, at);
        }
        legend(&mut text, below);
        text + "</svg>\n"
    }

    fn is_needed(&self, unit: &InitUnit) -> bool {
        self.needed.is_none_or(|needed| needed.contains(&unit.name))
    }

    /// The upper left corner of a box, and its width.
    fn corner(&self, spot: Spot) -> (usize, usize, usize) {
        let (left, width) = self.columns[spot.column];
        // Columns are centred.
        let most = self.layers.rows.iter().max().copied().unwrap_or_default();
        let free = (most - self.layers.rows[spot.column]) * (HEIGHT + BELOW) / 2;
        (left, MARGIN + free + spot.row * (HEIGHT + BELOW), width)
    }

    fn unit(&self, text: &mut String, at: usize) {
        let unit = self.units[at];
        let (left, top, width) = self.corner(self.layers.nodes[at]);
        let round = if unit.is_virtual() { 14 } else { 0 };
        let needed = self.is_needed(unit);
        let (class, faint) = if needed { ("unit", "") } else { ("idle", " class=\"faint\"") };
        let box_of = |class, by: usize| {
            format!(
                "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" \
                 rx=\"{round}\"/>",
                left + by,
                top + by,
                width - 2 * by,
                HEIGHT - 2 * by
            )
        };
        let goal = self.goal.is_some_and(|goal| unit.provides.contains(goal));
        let second = if goal { box_of("goal", 3) } else { String::new() };
        let (name, targets) = label(unit);
        let line = |down: usize, label: &str| {
            if label.is_empty() {
                return String::new();
            }
            let (x, y) = (left + width / 2, top + down);
            format!(
                "<text{faint} x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
                safe(label)
            )
        };
        let down = if targets.is_empty() { 25 } else { 17 };
        let labels = line(down, &name) + &line(33, &targets);
        let title = safe(&self.title(unit, goal, needed));
        let all = box_of(class, 0) + &second + &labels;
        put(text, &format!("<g><title>{title}</title>{all}</g>"));
    }

    fn title(&self, unit: &InitUnit, goal: bool, needed: bool) -> String {
        let mut title = format!("{}: {}", unit.name, unit.kind.as_str());
        if goal {
            title.push_str(", the goal");
        }
        if !needed {
            title.push_str(", not needed for the goal");
        }
        let targets: Vec<&str> = unit.provides.iter().map(Target::as_str).collect();
        let _ = write!(title, "; provides {}", targets.join(", "));
        if !unit.description.is_empty() {
            let _ = write!(title, "; {}", unit.description);
        }
        title
    }

    fn edge(&self, text: &mut String, kind: EdgeKind, arrow: Arrow, bends: &[Spot]) {
        let (from, to) = (self.layers.nodes[arrow.from], self.layers.nodes[arrow.to]);
        let ((left, top, width), end) = (self.corner(from), self.corner(to));
        let (x, y) = (left + width, top + HEIGHT / 2);
        let down = end.1 + HEIGHT / 2;
        let mut path = format!("M{x} {y}");
        if from.column < to.column {
            for bend in bends {
                let (left, top, width) = self.corner(*bend);
                let y = top + HEIGHT / 2;
                let _ = write!(path, " L{left} {y} L{} {y}", left + width);
            }
            let _ = write!(path, " L{} {down}", end.0);
        } else if from.column == to.column {
            let (over, to) = (x + BESIDE / 2, end.0 + end.2);
            let _ = write!(path, " C{over} {y} {over} {down} {to} {down}");
        } else {
            // A backward arrow passes below the boxes between.
            let (x, y) = (left + width / 2, top + HEIGHT);
            let (to, down) = (end.0 + end.2 / 2, end.1 + HEIGHT);
            let low = y.max(down) + BELOW;
            path = format!("M{x} {y} C{x} {low} {to} {low} {to} {down}");
        }
        let (unit, on) = (self.units[arrow.from], self.units[arrow.to]);
        let title = safe(&format!("{} {kind} {}", unit.name, on.name));
        put(text, &line(kind, self.is_needed(unit), &path, &title));
    }
}

/// Writes the definitions of the arrow heads.
fn heads(text: &mut String) {
    put(text, "<defs>");
    for (name, fill, stroke) in HEADS {
        let head = format!(
            "  <marker id=\"{name}\" viewBox=\"0 0 10 10\" refX=\"10\" refY=\"5\" \
             markerWidth=\"9\" markerHeight=\"9\" markerUnits=\"userSpaceOnUse\" \
             orient=\"auto\"><path d=\"M0 0 L10 5 L0 10 z\" fill=\"{fill}\" \
             stroke=\"{stroke}\"/></marker>"
        );
        put(text, &head);
    }
    put(text, "</defs>");
}

/// Draws a line of this kind along a path.
fn line(kind: EdgeKind, is_needed: bool, path: &str, title: &str) -> String {
    let head = if kind == EdgeKind::Pulls { "open" } else { "full" };
    let (faint, suffix) = if is_needed { ("", "") } else { (" unneeded", "-unneeded") };
    format!(
        "<path class=\"edge {kind}{faint}\" d=\"{path}\" marker-end=\"url(#{head}{suffix})\">\
         <title>{title}</title></path>"
    )
}

/// Draws the legend.
fn legend(text: &mut String, top: usize) {
    for (at, kind) in EdgeKind::ALL.into_iter().enumerate() {
        let (x, y) = (MARGIN + at * 140, top + HEIGHT / 2);
        put(text, &line(kind, true, &format!("M{x} {y} L{} {y}", x + 40), kind.as_str()));
        put(text, &format!("<text x=\"{}\" y=\"{}\">{kind}</text>", x + 46, y + 4));
    }
}

fn put(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Returns the name, followed by the targets in brackets if they differ.
fn label(unit: &InitUnit) -> (String, String) {
    let name = unit.name.as_str();
    let others = unit.provides.iter().map(Target::as_str).filter(|target| *target != name);
    let others: Vec<&str> = others.collect();
    let targets = if others.is_empty() { String::new() } else { others.join(", ") };
    let targets = if targets.is_empty() { targets } else { format!("({})", short(&targets)) };
    (short(name), targets)
}

fn short(text: &str) -> String {
    if text.chars().count() <= MAX_LABEL {
        return text.to_owned();
    }
    text.chars().take(MAX_LABEL - 1).chain(['…']).collect()
}

/// Escapes a text for XML, which allows no control characters.
fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            control if control.is_control() => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}
