//! Arguments of commands that show something: lists, status, logs, events and `ssh`.

use clap::Args;
use fleet_http::client::JournalOptions;
use fleet_unitfile::values::{Timespan, parse_timespan};

use super::change_args::number;

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Units, such as web.service, web (".service" is added) or 'web@*.service'.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
    /// Print up to N lines of each journal [default: 10, or all with --since]
    #[arg(short = 'n', long, value_name = "N")]
    #[arg(value_parser = number(0..=JournalOptions::MAX_LINES))]
    pub(crate) lines: Option<u32>,
    /// Print only lines of the last SPAN, such as 10min or "1h 30min".
    #[arg(short = 'S', long, value_name = "SPAN", value_parser = parse_timespan)]
    pub(crate) since: Option<Timespan>,
    /// Print new lines as they are written, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print lines unchanged: without a unit or machine in front, and with control characters.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print lines of this machine only; a prefix of its ID is enough.
    #[arg(long, value_name = "ID")]
    pub(crate) machine: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Resume after the event with this id, as printed by -o jsonl.
    #[arg(long, value_name = "ID")]
    pub(crate) since: Option<String>,
    /// Print events of this unit only.
    #[arg(long, value_name = "UNIT")]
    pub(crate) unit: Option<String>,
    /// Print only events of the machine with this ID or ID prefix, and of units that arrive there
    /// or leave.
    #[arg(long, value_name = "ID")]
    pub(crate) machine: Option<String>,
    /// Exit after N events; a "resync" at the start counts.
    #[arg(short = 'n', long, value_name = "N", value_parser = number(0..=u64::MAX))]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Units, such as web.service, web (".service" is added) or 'web@*.service'.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
    /// Show up to N journal lines per machine.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = number(0..=1000_u32))]
    pub(crate) lines: u32,
    #[arg(long, hide = true)]
    ssh_port: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct JournalArgs {
    /// Unit, such as web.service, or web (".service" is added).
    #[arg(value_name = "UNIT")]
    pub(crate) unit: String,
    /// Print up to N lines [default: 10, or all with --since]
    #[arg(short = 'n', long, value_name = "N")]
    #[arg(value_parser = number(0..=JournalOptions::MAX_LINES))]
    pub(crate) lines: Option<u32>,
    /// Print only lines of the last SPAN, such as 10min or "1h 30min".
    #[arg(short = 'S', long, value_name = "SPAN", value_parser = parse_timespan)]
    pub(crate) since: Option<Timespan>,
    /// Print new lines as they are written, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print lines unchanged, with control characters; without it, they become escapes.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print lines of this machine only; a prefix of its ID is enough.
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
    /// Do not print the header.
    #[arg(long)]
    pub(crate) no_legend: bool,
    /// Columns to print, separated by commas; an unknown name lists all of them.
    #[arg(long, value_name = "FIELDS")]
    pub(crate) fields: Option<String>,
    /// Print the list again after each change, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SshArgs {
    /// Connect to this machine; a prefix of its ID is enough.
    #[arg(short, long, value_name = "ID", conflicts_with = "unit")]
    pub(crate) machine: Option<String>,
    /// Connect to the machine of this unit.
    #[arg(short, long, value_name = "UNIT")]
    pub(crate) unit: Option<String>,
    /// Forward the ssh agent to the machine.
    #[arg(short = 'A', long)]
    pub(crate) forward_agent: bool,
    /// Port of ssh on the machine [default: as configured for ssh]
    #[arg(long, value_name = "PORT", value_parser = number(0..=u16::MAX))]
    pub(crate) ssh_port: Option<u16>,
    /// Machine or unit, unless an option names it; then the command [default: a shell]
    #[arg(
        value_name = "MACHINE|UNIT|COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<String>,
}
