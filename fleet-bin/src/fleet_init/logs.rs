//! `logs`: what a unit of a fleet-init that runs has written.

use std::io::{self, Write as _};

use fleet_agent::{JournalQuery, ServiceManager as _};

use super::args::LogsArgs;
use super::asking::ask;
use crate::fleetctl::error::CliError;

/// Runs the command.
pub(super) fn run(args: &LogsArgs) -> Result<(), CliError> {
    let query = JournalQuery { lines: args.lines, since: None, follow: args.follow };
    ask(&args.socket, async |manager| {
        let cannot = |error| CliError::failed("cannot read the log").because(error);
        let mut journal = manager.journal(&args.unit, query).await.map_err(cannot)?;
        while let Some(line) = journal.next().await {
            let mut out = io::stdout().lock();
            writeln!(out, "{line}")?;
            out.flush()?;
        }
        Ok(())
    })
}
