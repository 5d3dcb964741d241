//! `logs`: prints the output of a unit.

use std::io;

use fleet_agent::journal::JournalReader as _;
use fleet_agent::wall_time;
use fleet_core::Timestamp;
use fleet_core::journal::{JournalQuery, Since};
use fleet_unitfile::UnitName;
use serde::Serialize;

use super::args::LogsArgs;
use super::client::{InitClient, NoResponse, no_response, read, request};
use super::fleet;
use super::protocol::{LogLine, Request};
use crate::ui::error::CliError;
use crate::ui::global_args::Format;
use crate::ui::output::{Output, Record};

/// Runs the command.
pub(super) fn run(args: &LogsArgs) -> Result<(), CliError> {
    if args.follow && args.output == Format::Json {
        let error =
            CliError::usage("-o json cannot be combined with --follow: a followed log has no end");
        return Err(error.help("use -o jsonl, which prints one document per line"));
    }
    let mut output = Output::on_stdout(args.output);
    request(&args.socket, async |init| match of_files(init, args, &mut output).await {
        Err(NoResponse::RunsForFleet) => of_fleet(init, args, &mut output).await,
        Err(NoResponse::Because(error)) => Err(error),
        Ok(()) => Ok(()),
    })?;
    output.finish()
}

type Out = Output<io::Stdout>;

async fn of_files(init: &InitClient, args: &LogsArgs, out: &mut Out) -> Result<(), NoResponse> {
    let (unit, lines, follow) = (args.unit.clone(), args.lines, args.follow);
    let since = since(args).map(Timestamp::as_millis);
    let mut answer = init.begin(Request::Logs { unit, lines, since, follow, times: true })?;
    loop {
        // A followed log may be silent without limit.
        let next = match follow {
            true => answer.next().await.map_err(no_response)?,
            false => init.next(&mut answer).await?,
        };
        let Some(item) = next else { return Ok(()) };
        let lines: Vec<LogLine> = read(item).map_err(NoResponse::Because)?;
        let printed = lines.iter().try_for_each(|line| match line {
            LogLine::Timed(timestamp, line) => print(line, *timestamp, args, out),
            LogLine::Text(line) => print(line, None, args, out),
        });
        printed.map_err(NoResponse::Because)?;
    }
}

async fn of_fleet(init: &InitClient, args: &LogsArgs, out: &mut Out) -> Result<(), CliError> {
    let unit = UnitName::parse(&args.unit)
        .map_err(|error| CliError::usage(format!("invalid unit {:?}", args.unit)).because(error))?;
    let query = JournalQuery::default()
        .with_lines(args.lines)
        .with_since(since(args).map(Since::Time))
        .with_follow(args.follow);
    let cannot = |error| CliError::failed(format!("cannot read the log of {unit}")).because(error);
    let manager = fleet::open(init).await?;
    let mut journal = manager.journal(&unit, query).await.map_err(cannot)?;
    while let Some(line) = journal.next_line().await {
        print(&line.text, line.at.map(Timestamp::as_millis), args, out)?;
    }
    journal.failure().map_or(Ok(()), |error| Err(cannot(error)))
}

/// Returns the time from which lines are shown.
fn since(args: &LogsArgs) -> Option<Timestamp> {
    let span = args.since?;
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Some(Timestamp::from_millis(wall_time().as_millis().saturating_sub(millis)))
}

fn print(
    line: &str,
    timestamp: Option<u64>,
    args: &LogsArgs,
    out: &mut Out,
) -> Result<(), CliError> {
    out.journal_line("", line, args.raw, &Line { unit: &args.unit, line, timestamp })
}

/// A line, as JSON.
#[derive(Serialize)]
struct Line<'a> {
    unit: &'a str,
    line: &'a str,
    /// Time by which the line was written, in milliseconds since 1970.
    timestamp: Option<u64>,
}

impl Record for Line<'_> {
    fn name(&self) -> &str {
        self.unit
    }
}
