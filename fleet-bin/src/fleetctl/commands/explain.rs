//! `explain`: what every machine says to units.

use std::collections::BTreeMap;

use fleet_http::wire::{Explanation, Verdict};
use fleet_unitfile::UnitName;

use crate::fleetctl::args::ExplainArgs;
use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::global_args::Format;
use crate::fleetctl::met::Met;
use crate::fleetctl::output::Record;
use crate::fleetctl::select::{Fits, select};
use crate::fleetctl::table::{cell, layout};
use crate::fleetctl::words::{Machines, without_name};

impl Record for Explanation {
    fn name(&self) -> &str {
        &self.name
    }
}

/// Runs the command.
pub(super) async fn run(context: &mut Context, args: &ExplainArgs) -> Result<(), CliError> {
    let units = select(&context.session, &args.units, Fits::All).await?;
    let mut met = Met::default();
    let mut gap = "";
    for unit in units {
        let told = context.session.explain(&unit.name).await?;
        let mut problems = Problems::new();
        if context.output.format() == Format::Table {
            problems = problems_of(context, &unit.name, &told).await?;
            let ids = told.machines.iter().map(|it| it.machine_id.as_str());
            met.meet(&context.session, ids).await?;
        }
        let text = text(&told, &problems, &met.words(), args.full);
        context.output.record(&told, &format!("{gap}{text}"))?;
        gap = "\n";
    }
    context.output.finish()
}

/// What a unit does not run for, by machines that it is on.
type Problems = BTreeMap<String, String>;

/// What the engine knows nothing of: that the machine that a unit is on cannot run it.
async fn problems_of(
    context: &Context,
    name: &UnitName,
    told: &Explanation,
) -> Result<Problems, CliError> {
    if !told.machines.iter().any(|it| it.verdict == "here") {
        return Ok(Problems::new());
    }
    let states = context.session.states_of(name).await?.into_iter();
    let problems = states.filter(|state| !state.problem.is_empty());
    Ok(problems.map(|it| (it.machine_id, without_name(&it.problem, &it.name).to_owned())).collect())
}

fn text(told: &Explanation, problems: &Problems, machines: &Machines, full: bool) -> String {
    let takers = told.machines.iter().filter(|it| it.verdict != "refused").count();
    let here = told.machines.iter().find(|it| it.verdict == "here");
    let mut text = match (here, takers) {
        (Some(here), _) => {
            let at = machines.legend(&here.machine_id, full);
            let problem = problems.get(&here.machine_id);
            let but = problem.map_or("", |_| ", which cannot run it");
            format!("{} is on {at}{but}\n", told.name)
        }
        (None, 0) if told.reason.is_empty() => format!("{}: no machine takes it\n", told.name),
        (None, 0) => format!("{}: {}\n", told.name, told.reason),
        (None, n) => format!("{}: {n} of {} machines take it\n", told.name, told.machines.len()),
    };
    if !told.group.is_empty() {
        text += &format!("placed together: {}\n", told.group.join(", "));
    }
    let row = |it: &Verdict| {
        let why = problems.get(&it.machine_id).cloned().unwrap_or_else(|| why(it));
        vec![machines.legend(&it.machine_id, full), it.verdict.clone(), cell(Some(why))]
    };
    let rows: Vec<_> = told.machines.iter().map(row).collect();
    text + &layout(&["machine", "verdict", "why"], true, &rows)
}

fn why(it: &Verdict) -> String {
    match (it.rule.as_str(), it.load) {
        ("", Some(1)) => "1 unit is there".to_owned(),
        ("", Some(load)) => format!("{load} units are there"),
        ("", None) => String::new(),
        (rule, _) => format!("{rule}: {}", it.text),
    }
}
