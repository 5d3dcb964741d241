//! `logs`: prints the output of a unit.

use std::io;

use fleet_agent::remote::{Connection, LineWire, ManagerRequest, RequestError};
use fleet_agent::wall_time;
use fleet_core::Timestamp;
use fleet_core::journal::{JournalLine, JournalQuery, Since};
use serde::Serialize;

use super::args::LogsArgs;
use super::client::request;
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
    request(&args.socket, async |init| print_all(init, args, &mut output).await)?;
    output.finish()
}

async fn print_all(
    init: &Connection,
    args: &LogsArgs,
    out: &mut Output<io::Stdout>,
) -> Result<(), CliError> {
    let query = JournalQuery::default()
        .with_lines(args.lines)
        .with_since(since(args).map(Since::Time))
        .with_follow(args.follow);
    let request = ManagerRequest::Journal { unit: args.unit.clone(), query: query.into() };
    let cannot = |error| match error {
        RequestError::Service(error) => {
            CliError::failed(format!("cannot read the log of {}", args.unit)).because(error)
        }
        error => error.into(),
    };
    let mut response = init.stream(request).await.map_err(cannot)?;
    // A followed log may be silent without limit.
    let _expected = (!args.follow).then(|| init.expect_response());
    while let Some(lines) = response.next::<Vec<LineWire>>().await.map_err(cannot)? {
        for line in lines {
            let JournalLine { text, at, .. } = line.into();
            let line =
                Line { unit: &args.unit, line: &text, timestamp: at.map(Timestamp::as_millis) };
            out.journal_line("", line.line, args.raw, &line)?;
        }
    }
    Ok(())
}

/// Returns the time from which lines are shown.
fn since(args: &LogsArgs) -> Option<Timestamp> {
    let span = args.since?;
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Some(Timestamp::from_millis(wall_time().as_millis().saturating_sub(millis)))
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
