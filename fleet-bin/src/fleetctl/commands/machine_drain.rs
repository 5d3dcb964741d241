//! `machine drain`: moves all units away from a machine.

use std::time::Duration;

use fleet_agent::Clock as _;
use fleet_core::MachineId;
use fleet_http::wire::DrainReport;

use crate::fleetctl::args::machine_args::DrainArgs;
use crate::fleetctl::format::short_machine;
use crate::fleetctl::session::context::Context;
use crate::ui::error::{CliError, Exit};
use crate::ui::output::Record;

/// Pause between two polls of the drain.
const PAUSE: Duration = Duration::from_millis(500);

impl Record for DrainReport {
    fn name(&self) -> &str {
        &self.machine_id
    }
}

/// Runs the command.
pub(super) async fn run(
    context: &mut Context,
    id: &MachineId,
    args: &DrainArgs,
) -> Result<Exit, CliError> {
    let first = context.session.drain(id, args.keep_up, args.dry_run).await?;
    let mut text = text(&first);
    if args.dry_run && first.is_empty() {
        text.push_str("nothing would move\n");
    }
    context.output.record(&first, &text)?;
    let emptied = if args.wait { wait(context, id, args).await } else { Ok(()) };
    context.output.finish()?;
    emptied?;
    Ok(if args.dry_run && !first.moves.is_empty() { Exit::Changes } else { Exit::Success })
}

/// Waits until a machine is empty.
async fn wait(context: &mut Context, id: &MachineId, args: &DrainArgs) -> Result<(), CliError> {
    let limit = args.wait_timeout.map(|seconds| Duration::from_secs(seconds.into()));
    let deadline = limit.map(|limit| context.clock.now().after(limit));
    loop {
        let Some(report) = context.session.drain_status(id).await? else {
            let text = format!("the drain of machine {} was cancelled", short(id));
            return Err(CliError::failed(text));
        };
        if report.is_empty() {
            context.progress.note(&format!("Machine {} is empty", short(id)));
            return Ok(());
        }
        let now = context.clock.now();
        if let Some(seconds) = args.wait_timeout.filter(|_| deadline.is_some_and(|it| now >= it)) {
            return Err(late(id, &report, seconds));
        }
        context.progress.show(&summary(&report));
        let wake = now.after(PAUSE);
        let wake = deadline.map_or(wake, |deadline| wake.min(deadline));
        context.clock.sleep_until(wake).await;
    }
}

fn late(id: &MachineId, report: &DrainReport, seconds: u32) -> CliError {
    let (id_text, summary) = (short(id), summary(report));
    let error =
        CliError::failed(format!("machine {id_text} still has units after {seconds} s: {summary}"));
    let held =
        report.held.iter().map(|held| format!("{} stays for now: {}", held.unit, held.reason));
    let error = held.fold(error, CliError::help);
    error.help(format!(
        "the drain continues; \"fleetctl machine cordon {id}\" ends it, and the remaining \
         units stay"
    ))
}

fn summary(report: &DrainReport) -> String {
    let DrainReport { moves, leaving, held, .. } = report;
    format!("{} to move, {} stopping, {} held back", moves.len(), leaving.len(), held.len())
}

/// Formats a line for each unit.
pub(super) fn text(report: &DrainReport) -> String {
    let moves = report.moves.iter();
    let moves = moves.map(|it| format!("{} moves to {}", it.unit, short_machine(&it.to)));
    let leaving = report.leaving.iter().map(|unit| format!("{unit} is stopping"));
    let held = report.held.iter().map(|it| format!("{} stays for now: {}", it.unit, it.reason));
    let global = report.global.iter().map(|unit| format!("{unit} stays: it is global"));
    moves.chain(leaving).chain(held).chain(global).map(|line| line + "\n").collect()
}

fn short(id: &MachineId) -> String {
    short_machine(id.as_str())
}
