//! `logs`: what a unit of a fleet-init that runs has written.

use std::io::{self, Write as _};

use fleet_agent::{JournalQuery, ServiceManager as _, wall_time};
use fleet_core::Timestamp;
use fleet_unitfile::UnitName;

use super::args::LogsArgs;
use super::asking::{Asking, NoAnswer, ask, no_answer, read};
use super::asks::Ask;
use super::fleet;
use crate::fleetctl::error::CliError;
use crate::fleetctl::harmless::harmless_line;

/// Runs the command.
pub(super) fn run(args: &LogsArgs) -> Result<(), CliError> {
    ask(&args.socket, async |init| match of_files(init, args).await {
        Err(NoAnswer::RunsForFleet) => of_fleet(init, args).await,
        Err(NoAnswer::Because(error)) => Err(error),
        Ok(()) => Ok(()),
    })
}

async fn of_files(init: &Asking, args: &LogsArgs) -> Result<(), NoAnswer> {
    let (unit, lines, follow) = (args.unit.clone(), args.lines, args.follow);
    let since = since(args).map(Timestamp::as_millis);
    let mut answer = init.begin(Ask::Logs { unit, lines, since, follow })?;
    while let Some(item) = answer.next().await.map_err(no_answer)? {
        let lines: Vec<String> = read(item).map_err(NoAnswer::Because)?;
        lines.iter().try_for_each(|line| print(line, args.raw)).map_err(NoAnswer::Because)?;
    }
    Ok(())
}

async fn of_fleet(init: &Asking, args: &LogsArgs) -> Result<(), CliError> {
    let unit = UnitName::parse(&args.unit)
        .map_err(|error| CliError::usage("it is no name of a unit").because(error))?;
    let query = JournalQuery { lines: args.lines, since: since(args), follow: args.follow };
    let cannot = |error| CliError::failed("cannot read the log").because(error);
    let manager = fleet::open(init).await?;
    let mut journal = manager.journal(&unit, query).await.map_err(cannot)?;
    while let Some(line) = journal.next().await {
        print(&line, args.raw)?;
    }
    Ok(())
}

/// The moment from which on lines are shown.
fn since(args: &LogsArgs) -> Option<Timestamp> {
    let span = args.since?;
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Some(Timestamp::from_millis(wall_time().as_millis().saturating_sub(millis)))
}

fn print(line: &str, raw: bool) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let line = if raw { line.into() } else { harmless_line(line) };
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
