//! The command line of `fleetctl machine`, as it is written.

use clap::{Args, Subcommand};

use crate::fleetctl::numbers::number;

#[derive(Debug, Args)]
pub(crate) struct MachineArgs {
    #[command(subcommand)]
    pub(crate) command: MachineCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MachineCommand {
    /// Tell what is known of a machine, what is on it, and how far a drain has come.
    Show(NamedArgs),
    /// Let a machine take no more units; who is there stays, also if it was being drained.
    Cordon(NamedArgs),
    /// Let a machine take units again.
    Uncordon(NamedArgs),
    /// Let a machine take no more units, and move away those that are there.
    #[command(after_help = "Exit codes: 0 done, or nothing would move; 5 with --dry-run, units \
        would move; 1 it could not be done.")]
    Drain(DrainArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NamedArgs {
    /// The machine's ID, or the start of it.
    #[arg(value_name = "ID")]
    pub(crate) machine: String,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) named: NamedArgs,
    /// Move instances of a template only while N of them stay up.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=u32::MAX))]
    pub(crate) keep_up: u32,
    /// Tell who would move, be held back or stay, and change nothing.
    #[arg(long, conflicts_with_all = ["wait", "wait_timeout"])]
    pub(crate) dry_run: bool,
    /// Wait until the machine is empty.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait for so many seconds at most [default: without limit]
    #[arg(long, value_name = "SECONDS", requires = "wait", value_parser = number(0..=u32::MAX))]
    pub(crate) wait_timeout: Option<u32>,
}
