//! The command lines of what is followed, and of what looks for what is wrong.

use clap::Args;
use fleet_unitfile::{Timespan, parse_timespan};

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Names; ".service" is added where no type is given.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
    /// How many lines of each journal to print at most: 10, or all of the time that is asked for.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) lines: Option<u32>,
    /// Print what was written in that time up to now, such as 10min or "1h 30min".
    #[arg(short = 'S', long, value_name = "SPAN", value_parser = parse_timespan)]
    pub(crate) since: Option<Timespan>,
    /// Go on with what is written from now on, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only what was written on one machine; the start of its ID will do.
    #[arg(long, value_name = "ID")]
    pub(crate) machine: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Begin after what was seen last: the id of an event, as -o jsonl prints it.
    #[arg(long, value_name = "ID")]
    pub(crate) since: Option<String>,
    /// Only what is about this unit.
    #[arg(long, value_name = "UNIT")]
    pub(crate) unit: Option<String>,
    /// Only what is about this machine, and units that come there or leave it; the start of its
    /// ID will do.
    #[arg(long, value_name = "ID")]
    pub(crate) machine: Option<String>,
    /// End after so many events.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) count: Option<u64>,
}
