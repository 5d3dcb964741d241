//! `graph`: draws units and dependencies for Graphviz, or prints them as JSON.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::io::Write as _;
use std::sync::Arc;

use fleet_core::graph::{EdgeKind, Graph, InitState, InitUnit, Name, Settings, Target};
use serde::Serialize;

use super::args::{Drawing, GraphArgs};
use super::client::Edge;
use super::files;
use super::plan::needed;
use crate::ui::error::CliError;

/// Runs the command.
pub(super) fn run(args: &GraphArgs) -> Result<(), CliError> {
    let read = files::read(&args.paths)?;
    let (graph, goal) = read.graph_and_goal(args.goal.as_ref())?;
    let settings = Settings { goal: goal.clone(), ..read.sources.settings().clone() };
    let cannot = |flaw| {
        let goal = goal.as_ref().map_or_else(String::new, |goal| format!(" for the goal {goal}"));
        CliError::usage(format!("cannot draw the graph{goal}")).because(flaw)
    };
    let system = InitState::new(graph.clone(), &settings).map_err(cannot)?;
    let needed = goal.is_some().then(|| needed(&system));
    let (goal, needed) = (goal.as_ref(), needed.as_ref());
    let text = match args.output {
        Drawing::Dot => draw(graph, goal, needed),
        Drawing::Json => document(graph, goal, needed)?,
    };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// The JSON output.
fn document(
    graph: &Graph,
    goal: Option<&Target>,
    needed: Option<&BTreeSet<&Name>>,
) -> Result<String, CliError> {
    let unit = |unit: &Arc<InitUnit>| Node {
        unit: unit.name.to_string(),
        kind: unit.kind.as_str(),
        description: unit.description.clone(),
        provides: unit.provides.iter().map(ToString::to_string).collect(),
        needed: needed.map(|needed| needed.contains(&unit.name)),
        depends: graph
            .dependencies(&unit.name)
            .into_iter()
            .map(|(kind, on)| Edge { kind: kind.to_string(), unit: on.name.to_string() })
            .collect(),
    };
    let units = graph.units().map(unit).collect();
    let graph_and_goal = Document { goal: goal.map(Target::as_str), units };
    let text = serde_json::to_string_pretty(&graph_and_goal);
    let cannot = |error| CliError::failed("cannot encode the graph as JSON").because(error);
    Ok(text.map_err(cannot)? + "\n")
}

#[derive(Serialize)]
struct Document<'a> {
    goal: Option<&'a str>,
    units: Vec<Node>,
}

#[derive(Serialize)]
struct Node {
    unit: String,
    #[serde(rename = "type")]
    kind: &'static str,
    description: String,
    provides: Vec<String>,
    /// Whether the goal needs it; `None` without a goal.
    needed: Option<bool>,
    depends: Vec<Edge>,
}

/// Returns the graph in the language of Graphviz, with a node for each unit and an arrow for each
/// dependency. Units that are not needed are grey.
fn draw(graph: &Graph, goal: Option<&Target>, needed: Option<&BTreeSet<&Name>>) -> String {
    let is_needed = |unit: &InitUnit| needed.is_none_or(|needed| needed.contains(&unit.name));
    let mut text = "digraph units {\n  rankdir=LR;\n  node [shape=box];\n".to_owned();
    for unit in graph.units() {
        let is_goal = goal.is_some_and(|goal| unit.provides.contains(goal));
        let look = match (is_goal, unit.is_virtual()) {
            (true, _) => ", peripheries=2",
            (_, true) => ", style=rounded",
            _ => "",
        };
        let colour = if is_needed(unit) { "" } else { ", color=grey, fontcolor=grey" };
        line(&mut text, &format!("{} [label={}{look}{colour}]", id(unit), label(unit)));
    }
    for unit in graph.units() {
        for (kind, on) in graph.dependencies(&unit.name) {
            let colour = if is_needed(unit) { "" } else { ", color=grey" };
            line(&mut text, &format!("{} -> {} [style={}{colour}]", id(unit), id(on), style(kind)));
        }
    }
    text + "}\n"
}

fn line(text: &mut String, statement: &str) {
    writeln!(text, "  {statement};").expect("writing to a String cannot fail");
}

fn style(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::DependsOn => "bold",
        EdgeKind::DependsMs => "solid",
        EdgeKind::Requisite => "solid, arrowhead=empty",
        EdgeKind::WaitsFor => "dashed",
        EdgeKind::Pulls => "dotted, arrowhead=empty",
        EdgeKind::After => "dotted",
    }
}

fn id(unit: &InitUnit) -> String {
    quoted(unit.name.as_str())
}

/// Returns the name, followed by the targets if they differ.
fn label(unit: &InitUnit) -> String {
    let name = unit.name.as_str();
    let others = unit.provides.iter().filter(|target| target.as_str() != name);
    let others: Vec<String> = others.map(|target| escaped(target.as_str())).collect();
    if others.is_empty() {
        return quoted(name);
    }
    format!("\"{}\\n({})\"", escaped(name), others.join(", "))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

/// Escapes backslashes for Graphviz. Quotes need no escape, because names contain none.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
}
