//! `explain`: shows the verdicts of all machines about units.

use std::collections::BTreeMap;

use fleet_http::wire::{MachineVerdict, PlacementExplanation};
use fleet_unitfile::UnitName;

use crate::fleetctl::Context;
use crate::fleetctl::args::ExplainArgs;
use crate::fleetctl::format::{MachineLabels, without_name};
use crate::fleetctl::select::{DesiredFilter, select};
use crate::fleetctl::session::machines::MachineCache;
use crate::ui::error::CliError;
use crate::ui::global_args::Format;
use crate::ui::output::Record;
use crate::ui::table::{cell, layout};

impl Record for PlacementExplanation {
    fn name(&self) -> &str {
        &self.name
    }
}

/// Runs the command.
pub(super) async fn run(context: &mut Context, args: &ExplainArgs) -> Result<(), CliError> {
    let units = select(&context.session, &args.units, DesiredFilter::All).await?;
    let mut machines = MachineCache::default();
    let mut gap = "";
    for unit in units {
        let explanation = context.session.explain(&unit.name).await?;
        let mut problems = Problems::new();
        if context.output.format() == Format::Table {
            problems = problems_of(context, &unit.name, &explanation).await?;
            let ids = explanation.machines.iter().map(|it| it.machine_id.as_str());
            machines.load(&context.session, ids).await?;
        }
        let text = text(&explanation, &problems, &machines.labels(), args.full);
        context.output.record(&explanation, &format!("{gap}{text}"))?;
        gap = "\n";
    }
    context.output.finish()
}

/// Problems that keep a unit from running, by machine.
type Problems = BTreeMap<String, String>;

/// Returns the problem that each machine with the unit reports for the unit, if any. The engine's
/// explanation contains no such problems.
async fn problems_of(
    context: &Context,
    name: &UnitName,
    explanation: &PlacementExplanation,
) -> Result<Problems, CliError> {
    if !explanation.machines.iter().any(|it| it.verdict == "here") {
        return Ok(Problems::new());
    }
    let states = context.session.states_of(name).await?.into_iter();
    let problems = states.filter(|state| !state.problem.is_empty());
    Ok(problems.map(|it| (it.machine_id, without_name(&it.problem, &it.name).to_owned())).collect())
}

fn text(
    explanation: &PlacementExplanation,
    problems: &Problems,
    machines: &MachineLabels,
    full: bool,
) -> String {
    let takers = explanation.machines.iter().filter(|it| it.verdict != "refused").count();
    let here = explanation.machines.iter().find(|it| it.verdict == "here");
    let mut text = match (here, takers) {
        (Some(here), _) => {
            let at = machines.label(&here.machine_id, full);
            let problem = problems.get(&here.machine_id);
            let but = problem.map_or("", |_| ", which cannot run it");
            format!("{} is on {at}{but}\n", explanation.name)
        }
        (None, 0) if explanation.reason.is_empty() => {
            format!("{}: no machine accepts it\n", explanation.name)
        }
        (None, 0) => format!("{}: {}\n", explanation.name, explanation.reason),
        (None, n) => format!(
            "{}: {n} of {} machines accept it\n",
            explanation.name,
            explanation.machines.len()
        ),
    };
    if !explanation.group.is_empty() {
        text += &format!("co-located group: {}\n", explanation.group.join(", "));
    }
    let row = |it: &MachineVerdict| {
        let why = problems.get(&it.machine_id).cloned().unwrap_or_else(|| why(it));
        vec![machines.label(&it.machine_id, full), it.verdict.clone(), cell(Some(why))]
    };
    let rows: Vec<_> = explanation.machines.iter().map(row).collect();
    text + &layout(&["machine", "verdict", "why"], true, &rows)
}

fn why(it: &MachineVerdict) -> String {
    match (it.rule.as_str(), it.load) {
        ("", Some(1)) => "1 unit is there".to_owned(),
        ("", Some(load)) => format!("{load} units are there"),
        ("", None) => String::new(),
        (rule, _) => format!("{rule}: {}", it.text),
    }
}
