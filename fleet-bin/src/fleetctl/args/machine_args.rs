//! Arguments of `machine`.

use clap::{Args, Subcommand};

use super::numbers::number;

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
    /// ID of the machine, or a prefix of it.
    #[arg(value_name = "ID")]
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
