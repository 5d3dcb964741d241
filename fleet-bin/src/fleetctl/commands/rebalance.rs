//! `rebalance`: moves units to emptier machines, after printing the planned moves.

use std::time::Duration;

use fleet_agent::Clock as _;
use fleet_core::rebalancing::RebalanceLimits;
use fleet_http::wire::RebalanceReport;
use serde::Serialize;

use crate::fleetctl::Context;
use crate::fleetctl::args::subcommands::RebalanceArgs;
use crate::fleetctl::format::short_machine;
use crate::ui::error::{CliError, Exit};
use crate::ui::output::Record;

/// Pause between two polls.
const PAUSE: Duration = Duration::from_millis(500);

/// Time for which the rebalancing must be reported as stuck before the command stops waiting. The
/// daemon gets the states of units with a shorter delay. So an outdated state alone never ends the
/// wait.
const STUCK_AFTER: Duration = Duration::from_secs(2);

impl Record for RebalanceReport {
    fn name(&self) -> &'static str {
        "rebalance"
    }
}

/// Result of `--stop`.
#[derive(Debug, Serialize)]
struct StopRecord {
    stopped: bool,
}

impl Record for StopRecord {
    fn name(&self) -> &'static str {
        "rebalance"
    }
}

/// Runs the command.
pub(super) async fn run(context: &mut Context, args: &RebalanceArgs) -> Result<Exit, CliError> {
    if args.stop {
        context.session.end_rebalancing().await?;
        let text = "Rebalancing is cancelled\n";
        context.output.record(&StopRecord { stopped: true }, text)?;
        context.output.finish()?;
        return Ok(Exit::Success);
    }
    let limits = args.limits();
    let report = context.session.rebalance(&limits, true).await?;
    context.output.record(&report, &text(&report))?;
    let done = if args.dry_run { Ok(()) } else { start(context, args).await };
    context.output.finish()?;
    done?;
    Ok(if args.dry_run && !report.is_over() { Exit::Changes } else { Exit::Success })
}

/// Starts the rebalancing, and waits for its end if requested.
async fn start(context: &mut Context, args: &RebalanceArgs) -> Result<(), CliError> {
    let limits = args.limits();
    let started = context.session.rebalance(&limits, false).await?;
    if !args.wait || started.is_over() {
        return Ok(());
    }
    let last = wait(context, args, started).await?;
    let left = remaining_moves(context, &last).await?;
    if left > 0 {
        let text = format!("rebalancing was cancelled: {left} units are left to move");
        return Err(CliError::failed(text).help("\"fleetctl rebalance\" moves them"));
    }
    let limits = RebalanceLimits { max_moves: None, ..limits };
    let more = context.session.rebalance(&limits, true).await?.moves.len();
    let text = match more {
        0 => "Rebalancing is complete".to_owned(),
        _ => format!("Rebalancing is complete; {more} more units could move"),
    };
    context.progress.note(&text);
    Ok(())
}

/// Returns the number of units that still have to move after the request for rebalancing has
/// disappeared. `last` is the last report before that.
///
/// If a new plan contains none of the moves in `last`, the rebalancing was completed, so the result
/// is zero. Moves that became possible later do not count.
async fn remaining_moves(context: &Context, last: &RebalanceReport) -> Result<usize, CliError> {
    if last.moves.is_empty() {
        return Ok(0);
    }
    let order = &last.order;
    let limits = RebalanceLimits {
        max_in_flight: order.at_once,
        gain: order.gain,
        min_available: order.min_available,
        max_moves: order.most.map(|most| most.saturating_sub(order.moved).max(1)),
    };
    let now = context.session.rebalance(&limits, true).await?.moves;
    let was_to_move = |unit: &str| last.moves.iter().any(|it| it.unit == unit);
    Ok(if now.iter().any(|it| was_to_move(&it.unit)) { now.len() } else { 0 })
}

/// Waits until the rebalancing has ended, and returns its last report.
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
        if let Some(seconds) = args.wait_timeout.filter(|_| deadline.is_some_and(|it| now >= it)) {
            return Err(late(&report, seconds));
        }
        stuck_since = stuck_since.or(Some(now)).filter(|_| report.stuck);
        if stuck_since.is_some_and(|since| now.since(since) >= STUCK_AFTER) {
            return Err(stuck(&report));
        }
        // The first obstacle was printed with the planned moves.
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

fn late(report: &RebalanceReport, seconds: u32) -> CliError {
    let text = format!("rebalancing has not finished within {seconds} s: {}", summary(report));
    with_reasons(CliError::failed(text), report)
        .help("the rebalancing continues; \"fleetctl rebalance --stop\" cancels it")
}

fn stuck(report: &RebalanceReport) -> CliError {
    let text = format!("rebalancing is stuck: {}", summary(report));
    with_reasons(CliError::failed(text), report).help(
        "without these obstacles, the rebalancing continues; \"fleetctl rebalance --stop\" \
         cancels it",
    )
}

/// Adds the obstacles to an error.
fn with_reasons(error: CliError, report: &RebalanceReport) -> CliError {
    let awaited = report.under_way.iter();
    let awaited =
        awaited.map(|it| format!("{} on {}: {}", it.unit, short_machine(&it.to), it.reason));
    let waits = Some(report.waits.clone()).filter(|waits| !waits.is_empty());
    awaited.chain(waits).fold(error, CliError::help)
}

fn summary(report: &RebalanceReport) -> String {
    let RebalanceReport { order, moves, under_way, .. } = report;
    format!("{} moved, {} moving, {} to move", order.moved, under_way.len(), moves.len())
}

/// Formats a line for each move, and a line for each machine that has more or fewer units after the
/// moves.
fn text(report: &RebalanceReport) -> String {
    if report.is_over() {
        return format!("nothing to do: {}\n", report.reason);
    }
    let awaited = report
        .under_way
        .iter()
        .map(|it| format!("{} is moving to {}: {}", it.unit, short_machine(&it.to), it.reason));
    let moves = report.moves.iter().map(|it| {
        let (from, to) = (short_machine(&it.from), short_machine(&it.to));
        format!("{} moves from {from} to {to}", it.unit)
    });
    let machines = report.machines.iter().filter(|it| it.units != it.after);
    let loads = machines.map(|it| {
        let s = if it.units == 1 { "" } else { "s" };
        format!(
            "{}: {} unit{s} now, {} afterwards",
            short_machine(&it.machine_id),
            it.units,
            it.after
        )
    });
    let waits = Some(&report.waits).filter(|waits| !waits.is_empty());
    let waits = waits.map(|waits| format!("nothing moves for now: {waits}"));
    awaited.chain(moves).chain(loads).chain(waits).map(|line| line + "\n").collect()
}
