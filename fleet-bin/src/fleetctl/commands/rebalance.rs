//! `rebalance`: spreads units more evenly, and tells first which would move.

use std::time::Duration;

use fleet_agent::Clock as _;
use fleet_core::BalanceTerms;
use fleet_http::wire::RebalanceReport;
use serde::Serialize;

use crate::fleetctl::balance_args::RebalanceArgs;
use crate::fleetctl::context::Context;
use crate::fleetctl::error::{CliError, Exit};
use crate::fleetctl::output::Record;
use crate::fleetctl::words::short_machine;

/// How long to wait between two looks at how far it has come.
const PAUSE: Duration = Duration::from_millis(500);

/// How long nothing may be able to go on by itself until that counts: longer than it takes that
/// what is seen of units is behind what was just done to them.
const SETTLED: Duration = Duration::from_secs(2);

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
    let done = if args.dry_run { Ok(()) } else { order(context, args).await };
    context.output.finish()?;
    done?;
    Ok(if args.dry_run && !report.is_over() { Exit::Changes } else { Exit::Success })
}

/// Gives the order, and waits if that is asked for.
async fn order(context: &mut Context, args: &RebalanceArgs) -> Result<(), CliError> {
    let terms = args.terms();
    let given = context.session.rebalance(&terms, false).await?;
    if !args.wait || given.is_over() {
        return Ok(());
    }
    let last = wait(context, args, given).await?;
    let left = still_to_move(context, &last).await?;
    if left > 0 {
        let text = format!("somebody took the order to rebalance back: {left} units are left");
        return Err(CliError::failed(text).help("\"fleetctl rebalance\" goes on with them"));
    }
    let terms = BalanceTerms { most: None, ..terms };
    let more = context.session.rebalance(&terms, true).await?.moves.len();
    let told = match more {
        0 => "No unit is left to be moved".to_owned(),
        _ => format!("The order is carried out, and {more} more could be moved"),
    };
    context.progress.note(&told);
    Ok(())
}

/// How many units an order that is there no more would still have to move, going by how it was last
/// seen. Where it was carried out, those that it had to move then have moved, and whatever else
/// could move was not meant by it.
async fn still_to_move(context: &Context, last: &RebalanceReport) -> Result<usize, CliError> {
    if last.moves.is_empty() {
        return Ok(0);
    }
    let order = &last.order;
    let terms = BalanceTerms {
        at_once: order.at_once,
        gain: order.gain,
        keep_up: order.keep_up,
        most: order.most.map(|most| most.saturating_sub(order.moved).max(1)),
    };
    let now = context.session.rebalance(&terms, true).await?.moves;
    let was_to_move = |unit: &str| last.moves.iter().any(|it| it.unit == unit);
    Ok(if now.iter().any(|it| was_to_move(&it.unit)) { now.len() } else { 0 })
}

/// Waits until there is no order any more, and returns how it was last seen; what holds it up is
/// told whenever it is something else.
async fn wait(
    context: &mut Context,
    args: &RebalanceArgs,
    mut last: RebalanceReport,
) -> Result<RebalanceReport, CliError> {
    let limit = args.wait_timeout.map(|seconds| Duration::from_secs(seconds.into()));
    let deadline = limit.map(|limit| context.clock.now().after(limit));
    let mut stuck_since = None;
    while let Some(report) = context.session.rebalancing().await? {
        let now = context.clock.now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Err(late(&report));
        }
        stuck_since = stuck_since.or(Some(now)).filter(|_| report.stuck);
        if stuck_since.is_some_and(|since| now.since(since) >= SETTLED) {
            return Err(stuck(&report));
        }
        // What it waits for at first was told with the moves.
        if !report.waits.is_empty() && report.waits != last.waits {
            context.progress.note(&format!("Waiting: {}", report.waits));
        }
        context.progress.show(&summary(&report));
        last = report;
        let wake = now.after(PAUSE);
        let wake = deadline.map_or(wake, |deadline| wake.min(deadline));
        context.clock.sleep_until(wake).await;
    }
    Ok(last)
}

fn late(report: &RebalanceReport) -> CliError {
    let error = CliError::failed(format!("the units are not spread yet: {}", summary(report)));
    with_reasons(error, report)
        .help("it goes on; \"fleetctl rebalance --stop\" leaves the others where they are")
}

fn stuck(report: &RebalanceReport) -> CliError {
    let text = format!("the order to rebalance does not go on by itself: {}", summary(report));
    with_reasons(CliError::failed(text), report).help(
        "mend that and it goes on; \"fleetctl rebalance --stop\" leaves the others where they are",
    )
}

/// The same error, with what is waited for.
fn with_reasons(error: CliError, report: &RebalanceReport) -> CliError {
    let awaited = report.under_way.iter();
    let awaited =
        awaited.map(|it| format!("{} on {}: {}", it.unit, short_machine(&it.to), it.reason));
    let waits = Some(report.waits.clone()).filter(|waits| !waits.is_empty());
    awaited.chain(waits).fold(error, CliError::help)
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
    let waits = Some(&report.waits).filter(|waits| !waits.is_empty());
    let waits = waits.map(|waits| format!("nothing moves for now: {waits}"));
    awaited.chain(moves).chain(loads).chain(waits).map(|line| line + "\n").collect()
}
