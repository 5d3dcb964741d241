//! Arguments of the subcommands, and parsers of numbers.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use fleet_core::TargetState;
use fleet_core::rebalancing::RebalanceLimits;
use fleet_http::client::JournalOptions;

use crate::fleetctl::args::rollout::RolloutArgs;
use crate::fleetctl::args::when::When;
use crate::fleetctl::args::{VerificationArgs, WaitArgs, WaitUntilArgs};

/// Unit files, and the desired state of their units.
#[derive(Debug, Args)]
pub(crate) struct ManifestArgs {
    /// Unit files, and folders with unit files; ".service" may be omitted.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub(crate) paths: Vec<String>,
    /// Desired state to set for the units; templates are only submitted.
    #[arg(long, value_name = "STATE", default_value = "launched")]
    pub(crate) state: DesiredStateArg,
}

/// Desired state on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DesiredStateArg {
    /// Started on a machine.
    Launched,
    /// Loaded on a machine, and not started.
    Loaded,
    /// Known to the cluster, and on no machine.
    Inactive,
}

impl From<DesiredStateArg> for TargetState {
    fn from(state: DesiredStateArg) -> Self {
        match state {
            DesiredStateArg::Launched => Self::Launched,
            DesiredStateArg::Loaded => Self::Loaded,
            DesiredStateArg::Inactive => Self::Inactive,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) manifest: ManifestArgs,
    #[command(flatten)]
    pub(crate) options: ChangeOptions,
}

/// Options of commands that print their changes before they make them.
#[derive(Debug, Args)]
pub(crate) struct ChangeOptions {
    /// Print the changes, but make none.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Make the changes only if nothing has changed since the plan was made that could change it.
    #[arg(long)]
    pub(crate) if_unchanged: bool,
    #[command(flatten)]
    pub(crate) rollout: RolloutArgs,
    #[command(flatten)]
    pub(crate) verification: VerificationArgs,
    #[command(flatten)]
    pub(crate) until: WaitUntilArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RestartArgs {
    /// Units, such as web.service, web (".service" is added) or 'web@*.service'.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
    #[command(flatten)]
    pub(crate) rollout: RolloutArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) manifest: ManifestArgs,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Unit; ".service" may be omitted.
    #[arg(value_name = "UNIT")]
    pub(crate) unit: String,
}

#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    /// Unit; ".service" may be omitted.
    #[arg(value_name = "UNIT")]
    pub(crate) unit: String,
    /// Number or hash of the revision [default: the one before the current one]
    #[arg(long, value_name = "REVISION")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) options: ChangeOptions,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Unit files to apply in the preview, and folders with unit files [default: none]
    #[arg(value_name = "FILE|DIR")]
    pub(crate) paths: Vec<String>,
    /// Desired state to set for the units of these files in the preview.
    #[arg(long, value_name = "STATE", default_value = "launched")]
    pub(crate) state: DesiredStateArg,
    /// Unit to destroy in the preview; may be repeated.
    #[arg(long, value_name = "UNIT")]
    pub(crate) destroy: Vec<String>,
    #[command(flatten)]
    pub(crate) verification: VerificationArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// Template, such as web@ or web@.service.
    #[arg(value_name = "TEMPLATE@")]
    pub(crate) template: String,
    /// Number of instances to run, from 0 to 10000.
    #[arg(value_name = "N", value_parser = number(0..=10_000_u32))]
    pub(crate) count: u32,
    /// Print the changes, but make none.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) rollout: RolloutArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MachineArgs {
    #[command(subcommand)]
    pub(crate) command: MachineCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MachineCommand {
    /// Show a machine with its units and the progress of a drain.
    Show(NamedArgs),
    /// Stop placing units on a machine, and end a drain of it.
    Cordon(NamedArgs),
    /// Allow placing units on a machine again, after a cordon or drain.
    Uncordon(NamedArgs),
    /// Stop placing units on a machine, and move its units away.
    #[command(after_help = "Exit codes: 0 success, or nothing would move; 5 with --dry-run: \
        units would move; 1 failure.")]
    Drain(DrainArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NamedArgs {
    /// ID or name of the machine; a prefix is enough.
    #[arg(value_name = "MACHINE")]
    pub(crate) machine: String,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) named: NamedArgs,
    /// Keep at least N instances of each template active while units move.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=u32::MAX))]
    pub(crate) keep_up: u32,
    /// Print the units that would move or stay, but change nothing.
    #[arg(long, conflicts_with_all = ["wait", "wait_timeout"])]
    pub(crate) dry_run: bool,
    /// Wait until the machine is empty.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait for up to this many seconds [default: without limit]
    #[arg(long, value_name = "SECONDS", requires = "wait", value_parser = number(0..=u32::MAX))]
    pub(crate) wait_timeout: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct RebalanceArgs {
    #[command(flatten)]
    limits: RebalanceLimitArgs,
    /// Print the moves, but make none.
    #[arg(long, conflicts_with_all = ["wait", "wait_timeout"])]
    pub(crate) dry_run: bool,
    /// Cancel the rebalancing; units that were moved stay where they are.
    #[arg(
        long,
        conflicts_with_all = ["at_once", "max", "gain", "keep_up", "dry_run", "wait"]
    )]
    pub(crate) stop: bool,
    /// Wait until the rebalancing is over.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait for up to this many seconds [default: without limit]
    #[arg(long, value_name = "SECONDS", requires = "wait", value_parser = number(0..=u32::MAX))]
    pub(crate) wait_timeout: Option<u32>,
}

#[derive(Debug, Args)]
struct RebalanceLimitArgs {
    /// Move up to N units at a time; a move ends when the unit is active again.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = number(1..=RebalanceLimits::MAX_IN_FLIGHT)
    )]
    at_once: u32,
    /// Move up to N units in total [default: without limit]
    #[arg(long, value_name = "N", value_parser = number(1..=u32::MAX))]
    max: Option<u32>,
    /// Move a unit only if its new machine has at least N + 2 units fewer than its old one.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=u32::MAX))]
    gain: u32,
    /// Keep at least N instances of each template active while units move.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=u32::MAX))]
    keep_up: u32,
}

impl RebalanceArgs {
    /// Returns the limits on the command line.
    pub(crate) fn limits(&self) -> RebalanceLimits {
        let RebalanceLimitArgs { at_once, max, gain, keep_up } = self.limits;
        let (max_in_flight, max_moves, min_available) = (at_once, max, keep_up);
        RebalanceLimits { max_in_flight, gain, min_available, max_moves }
    }
}

/// Returns a parser for numbers within these bounds.
pub(crate) fn number<N>(
    bounds: RangeInclusive<N>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        let (least, most) = (bounds.start(), bounds.end());
        number.ok_or_else(|| format!("expected a whole number from {least} to {most}"))
    }
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Units, such as web.service, web (".service" is added) or 'web@*.service'.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
    /// Print up to N lines of each journal [default: 10, or all with --since]
    #[arg(short = 'n', long, value_name = "N")]
    #[arg(value_parser = number(0..=JournalOptions::MAX_LINES))]
    pub(crate) lines: Option<u32>,
    /// Print only lines written since TIME: 10min, "2h ago", today, "2026-11-25 10:00".
    #[arg(short = 'S', long, value_name = "TIME")]
    pub(crate) since: Option<When>,
    /// Print only lines written until TIME.
    #[arg(short = 'U', long, value_name = "TIME", conflicts_with = "follow")]
    pub(crate) until: Option<When>,
    /// Print new lines as they are written, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print lines unchanged: without time, unit and machine, and with control characters.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print lines of the machine with this ID or name only; a prefix is enough.
    #[arg(long, value_name = "MACHINE")]
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
    /// Print only events of the machine with this ID or name, and of units that arrive there or
    /// leave; a prefix is enough.
    #[arg(long, value_name = "MACHINE")]
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
    /// Print only lines written since TIME: 10min, "2h ago", today, "2026-11-25 10:00".
    #[arg(short = 'S', long, value_name = "TIME")]
    pub(crate) since: Option<When>,
    /// Print only lines written until TIME.
    #[arg(short = 'U', long, value_name = "TIME", conflicts_with = "follow")]
    pub(crate) until: Option<When>,
    /// Print new lines as they are written, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print lines unchanged: without their time, and with control characters.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print lines of the machine with this ID or name only; a prefix is enough.
    #[arg(long, value_name = "MACHINE")]
    pub(crate) machine: Option<String>,
    #[arg(long, hide = true)]
    sudo: bool,
    #[arg(long, hide = true)]
    ssh_port: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct ListUnitsArgs {
    /// Units to list, such as web (".service" is added) or 'web@*.service' [default: all]
    #[arg(value_name = "UNIT")]
    pub(crate) units: Vec<String>,
    /// List only units with one of these states, such as failed, running, unknown or unhealthy.
    #[arg(long, value_name = "STATE,…", value_delimiter = ',')]
    pub(crate) state: Vec<String>,
    /// List only units on the machine with this ID or name; a prefix is enough.
    #[arg(long, value_name = "MACHINE")]
    pub(crate) machine: Option<String>,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListUnitFilesArgs {
    /// Units to list, such as web (".service" is added) or 'web@*.service' [default: all]
    #[arg(value_name = "UNIT")]
    pub(crate) units: Vec<String>,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListMachinesArgs {
    /// Machines to list: prefixes of IDs or names, or patterns such as 'db-*' [default: all]
    #[arg(value_name = "MACHINE")]
    pub(crate) machines: Vec<String>,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Default, Args)]
pub(crate) struct ListArgs {
    /// Print IDs, hashes and reasons in full, and do not cut rows to the terminal's width.
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
pub(crate) struct UiArgs {
    /// Print the link without opening a browser.
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// Loopback port to listen on [default: a free one]
    #[arg(long, value_name = "PORT", value_parser = number(0..=u16::MAX))]
    pub(crate) port: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct SshArgs {
    /// Connect to the machine with this ID or name; a prefix is enough.
    #[arg(short, long, value_name = "MACHINE", conflicts_with = "unit")]
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

#[derive(Debug, Args)]
pub(crate) struct CompleteWordsArgs {
    /// Line up to the cursor.
    #[arg(long)]
    pub(crate) line: Option<String>,
    /// The part of the last word that the shell replaces [default: all of it]
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) current: Option<String>,
    /// Words up to the cursor, if the line is not given.
    #[arg(last = true)]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FdForwardArgs {
    /// Path of the socket.
    #[arg(value_name = "SOCKET")]
    pub(crate) socket: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_outside_bounds_names_the_bounds() {
        let read = number(1..=100_u32);
        assert_eq!((read("1"), read("100")), (Ok(1), Ok(100)));
        for text in ["", "x", "0", "101", "-1", "1.5", "4294967296"] {
            assert_eq!(read(text).unwrap_err(), "expected a whole number from 1 to 100", "{text}");
        }
    }
}
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Existing folder for the pages, such as /usr/local/share/man/man1.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Print the daemon's version, too.
    #[arg(long)]
    pub(crate) server: bool,
}
