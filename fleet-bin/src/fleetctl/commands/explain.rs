//! `explain`: what every machine says to units.

use fleet_http::wire::{Explanation, Verdict};

use crate::fleetctl::args::ExplainArgs;
use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::global_args::Format;
use crate::fleetctl::met::Met;
use crate::fleetctl::output::Record;
use crate::fleetctl::select::{Fits, select};
use crate::fleetctl::table::{cell, layout};
use crate::fleetctl::words::Machines;

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
        if context.output.format() == Format::Table {
            let ids = told.machines.iter().map(|it| it.machine_id.as_str());
            met.meet(&context.session, ids).await?;
        }
        let text = text(&told, &met.words(), args.full);
        context.output.record(&told, &format!("{gap}{text}"))?;
        gap = "\n";
    }
    context.output.finish()
}

fn text(told: &Explanation, machines: &Machines, full: bool) -> String {
    let takers = told.machines.iter().filter(|it| it.verdict != "refused").count();
    let here = told.machines.iter().find(|it| it.verdict == "here");
    let mut text = match (here, takers) {
        (Some(here), _) => {
            format!("{} is on {}\n", told.name, machines.legend(&here.machine_id, full))
        }
        (None, 0) if told.reason.is_empty() => format!("{}: no machine takes it\n", told.name),
        (None, 0) => format!("{}: {}\n", told.name, told.reason),
        (None, n) => format!("{}: {n} of {} machines take it\n", told.name, told.machines.len()),
    };
    if !told.group.is_empty() {
        text += &format!("placed together: {}\n", told.group.join(", "));
    }
    let row = |it: &Verdict| {
        vec![machines.legend(&it.machine_id, full), it.verdict.clone(), cell(Some(why(it)))]
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
