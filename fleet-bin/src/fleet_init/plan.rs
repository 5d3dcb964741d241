//! `plan`: what would start for a goal, in which waves, and for whom.

use serde::Serialize;

use fleet_core::graph::{EdgeKind, Name};

use super::args::PlanArgs;
use super::files;
use super::waves::{Never, Start, waves};
use crate::fleetctl::error::CliError;
use crate::fleetctl::output::{Output, Record};
use crate::fleetctl::table::{cell, layout};

/// How many units a cell names.
const MOST_NAMES: usize = 4;

/// Runs the command.
pub(super) fn run(args: &PlanArgs) -> Result<(), CliError> {
    let read = files::read(&args.paths)?;
    let (graph, goal) = read.whole(args.goal.as_ref())?;
    let Some(goal) = goal else {
        let error = CliError::usage("there is no goal to plan for");
        return Err(error.help("name one by --goal TARGET, or write `goal: TARGET` in init.conf"));
    };
    let starts = waves(graph, &goal, &read.sources.settings().mask);
    let rows: Vec<Row> = starts.iter().map(Row::new).collect();
    let cells: Vec<Vec<String>> = starts.iter().map(|start| cells(start, goal.as_str())).collect();
    let table = layout(&["wave", "unit", "type", "after", "needed by"], true, &cells);
    Output::on_stdout(args.output).list(&rows, &table)
}

fn cells(start: &Start, goal: &str) -> Vec<String> {
    let wave = match (&start.wave, &start.never) {
        (Some(wave), _) => wave.to_string(),
        (None, Some(Never::Without(name))) => format!("never, without {name}"),
        (None, _) => "never, masked".to_owned(),
    };
    let is_goal = start.unit.provides.iter().any(|target| target.as_str() == goal);
    let goal = is_goal.then(|| "the goal".to_owned());
    let needed_by: Vec<String> = goal.into_iter().chain(named(&start.needed_by)).collect();
    vec![
        wave,
        start.unit.name.to_string(),
        start.unit.kind.as_str().to_owned(),
        cell(Some(in_short(named(&start.after).collect()))),
        in_short(needed_by),
    ]
}

fn named(units: &[(EdgeKind, Name)]) -> impl Iterator<Item = String> {
    units.iter().map(|(kind, name)| format!("{name} ({kind})"))
}

fn in_short(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(MOST_NAMES);
    names.truncate(MOST_NAMES);
    let text = names.join(", ");
    if more == 0 { text } else { format!("{text} and {more} more") }
}

/// A unit that would start, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    unit: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    /// Nothing if it never starts.
    wave: Option<usize>,
    /// Why it never starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    never: Option<String>,
    after: Vec<Edge<'a>>,
    needed_by: Vec<Edge<'a>>,
}

#[derive(Serialize)]
struct Edge<'a> {
    unit: &'a str,
    kind: &'static str,
}

impl<'a> Row<'a> {
    fn new(start: &'a Start) -> Self {
        let never = start.never.as_ref().map(|never| match never {
            Never::Masked => "masked".to_owned(),
            Never::Without(name) => format!("without {name}"),
        });
        Self {
            unit: start.unit.name.as_str(),
            kind: start.unit.kind.as_str(),
            wave: start.wave,
            never,
            after: edges(&start.after),
            needed_by: edges(&start.needed_by),
        }
    }
}

fn edges(all: &[(EdgeKind, Name)]) -> Vec<Edge<'_>> {
    all.iter().map(|(kind, name)| Edge { unit: name.as_str(), kind: kind.as_str() }).collect()
}

impl Record for Row<'_> {
    fn name(&self) -> &str {
        self.unit
    }
}
