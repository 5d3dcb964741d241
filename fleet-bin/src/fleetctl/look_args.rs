//! The command lines of what shows something: lists, states, logs, and machines by ssh.

use clap::Args;
use fleet_http::JournalQuery;
use fleet_unitfile::{Timespan, parse_timespan};

use crate::fleetctl::numbers::number;

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Names; ".service" is added where no type is given.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
    /// How many lines of each journal to print at most: 10, or all of the time that is asked for.
    #[arg(short = 'n', long, value_name = "N", value_parser = number(0..=JournalQuery::MOST_LINES))]
    pub(crate) lines: Option<u32>,
    /// Print what was written in that time up to now, such as 10min or "1h 30min".
    #[arg(short = 'S', long, value_name = "SPAN", value_parser = parse_timespan)]
    pub(crate) since: Option<Timespan>,
    /// Go on with what is written from now on, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print lines as they are, without names before them: also what a terminal would obey.
    #[arg(long)]
    pub(crate) raw: bool,
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
    #[arg(short = 'n', long, value_name = "N", value_parser = number(0..=u64::MAX))]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Names; ".service" is added where no type is given.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
    /// How many lines of each unit's journal to show.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = number(0..=1000_u32))]
    pub(crate) lines: u32,
    #[arg(long, hide = true)]
    ssh_port: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct JournalArgs {
    /// A name; ".service" is added where no type is given.
    #[arg(value_name = "UNIT")]
    pub(crate) unit: String,
    /// How many lines of the past to print at most: 10, or all of the time that is asked for.
    #[arg(short = 'n', long, value_name = "N", value_parser = number(0..=JournalQuery::MOST_LINES))]
    pub(crate) lines: Option<u32>,
    /// Print what the unit wrote in that time up to now, such as 10min or "1h 30min".
    #[arg(short = 'S', long, value_name = "SPAN", value_parser = parse_timespan)]
    pub(crate) since: Option<Timespan>,
    /// Go on with what the unit writes from now on, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print lines as they are: also what a terminal would obey.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Of a unit that is on several machines, the only one to ask; the start of its ID will do.
    #[arg(long, value_name = "ID")]
    pub(crate) machine: Option<String>,
    #[arg(long, hide = true)]
    sudo: bool,
    #[arg(long, hide = true)]
    ssh_port: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print IDs and hashes in full.
    #[arg(short = 'l', long)]
    pub(crate) full: bool,
    /// Print no line with the names of the columns.
    #[arg(long)]
    pub(crate) no_legend: bool,
    /// The columns to print, separated by commas.
    #[arg(long, value_name = "FIELDS")]
    pub(crate) fields: Option<String>,
    /// Print the list again whenever something changes, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SshArgs {
    /// The machine; the start of its ID will do.
    #[arg(short, long, value_name = "ID", conflicts_with = "unit")]
    pub(crate) machine: Option<String>,
    /// The unit whose machine is meant.
    #[arg(short, long, value_name = "UNIT")]
    pub(crate) unit: Option<String>,
    /// Let the machine use the keys of this computer.
    #[arg(short = 'A', long)]
    pub(crate) forward_agent: bool,
    /// The port that ssh listens on over there.
    #[arg(long, value_name = "PORT", value_parser = number(0..=u16::MAX))]
    pub(crate) ssh_port: Option<u16>,
    /// A machine or a unit, unless an option names it, and what to run there.
    #[arg(
        value_name = "MACHINE|UNIT|COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<String>,
}
