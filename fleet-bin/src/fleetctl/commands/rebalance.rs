//! `rebalance`: spreads units more evenly, and tells first which would move.

use std::time::Duration;

use fleet_agent::Clock as _;
use fleet_http::wire::RebalanceReport;
use serde::Serialize;

use crate::fleetctl::balance_args::RebalanceArgs;
use crate::fleetctl::context::Context;
use crate::fleetctl::error::{CliError, Exit};
use crate::fleetctl::output::Record;
use crate::fleetctl::words::short_machine;

/// How long to wait between two looks at how far it has come.
const PAUSE: Duration = Duration::from_millis(500);

impl Record for RebalanceReport {
    fn name(&self) -> &'static str {
        "rebalance"
    }
}

/// That the order was taken back.
#[derive(Debug, Serialize)]
struct Stopped {
    stopped: bool,
}

impl Record for Stopped {
    fn name(&self) -> &'static str {
        "rebalance"
    }
}

/// Runs the command.
pub(super) async fn run(context: &mut Context, args: &RebalanceArgs) -> Result<Exit, CliError> {
    if args.stop {
        context.session.end_rebalancing().await?;
        let told = "No unit is moved for the sake of balance any more\n";
        context.output.record(&Stopped { stopped: true }, told)?;
        context.output.finish()?;
        return Ok(Exit::Success);
    }
    let terms = args.terms();
    let report = context.session.rebalance(&terms, true).await?;
    context.output.record(&report, &text(&report))?;
    if !args.dry_run {
        context.session.rebalance(&terms, false).await?;
    }
    let waited = if args.wait { wait(context, args).await } else { Ok(()) };
    context.output.finish()?;
    waited?;
    Ok(if args.dry_run && !report.is_over() { Exit::Changes } else { Exit::Success })
}

/// Waits until nothing is left to be moved.
async fn wait(context: &mut Context, args: &RebalanceArgs) -> Result<(), CliError> {
    let limit = args.wait_timeout.map(|seconds| Duration::from_secs(seconds.into()));
    let deadline = limit.map(|limit| context.clock.now().after(limit));
    while let Some(report) = context.session.rebalancing().await? {
        let now = context.clock.now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Err(late(&report));
        }
        context.progress.show(&summary(&report));
        let wake = now.after(PAUSE);
        let wake = deadline.map_or(wake, |deadline| wake.min(deadline));
        context.clock.sleep_until(wake).await;
    }
    context.progress.note("No unit is left to be moved");
    Ok(())
}

fn late(report: &RebalanceReport) -> CliError {
    let error = CliError::failed(format!("the units are not spread yet: {}", summary(report)));
    let awaited = report.under_way.iter();
    let awaited =
        awaited.map(|it| format!("{} on {}: {}", it.unit, short_machine(&it.to), it.reason));
    let error = awaited.fold(error, CliError::help);
    error.help("it goes on; \"fleetctl rebalance --stop\" leaves the others where they are")
}

fn summary(report: &RebalanceReport) -> String {
    let RebalanceReport { order, moves, under_way, .. } = report;
    format!("{} moved, {} under way, {} to move", order.moved, under_way.len(), moves.len())
}

/// A line for each unit, and for each machine that has another load then.
fn text(report: &RebalanceReport) -> String {
    if report.is_over() {
        return format!("nothing to do: {}\n", report.reason);
    }
    let awaited = report
        .under_way
        .iter()
        .map(|it| format!("{} is under way to {}: {}", it.unit, short_machine(&it.to), it.reason));
    let moves = report.moves.iter().map(|it| {
        let (from, to) = (short_machine(&it.from), short_machine(&it.to));
        format!("{} moves from {from} to {to}", it.unit)
    });
    let machines = report.machines.iter().filter(|it| it.units != it.after);
    let loads = machines.map(|it| {
        let s = if it.units == 1 { "" } else { "s" };
        format!("{} has {} unit{s}, and then {}", short_machine(&it.machine_id), it.units, it.after)
    });
    awaited.chain(moves).chain(loads).map(|line| line + "\n").collect()
}
