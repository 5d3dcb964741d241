//! The command line as it is written: flags and words, not yet looked into.
//!
//! [`settings`](super::settings) makes of it what the commands need; the spellings of fleet v1 that
//! are no longer usual are rewritten before by [`spelling`](super::spelling).

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use super::balance_args::RebalanceArgs;
use super::change_args::{ApplyArgs, DiffArgs, PlanArgs, ScaleArgs};
use super::global_args::GlobalArgs;
use super::look_args::{EventsArgs, JournalArgs, ListArgs, LogsArgs, SshArgs, StatusArgs};
use super::machine_args::MachineArgs;
use crate::fleetctl::numbers::number;

/// Control a fleet cluster: hand it unit files, say what should run, and see what does.
///
/// Command names may be shortened as far as they stay clear.
#[derive(Debug, Parser)]
#[command(
    name = "fleetctl",
    version = concat!("version ", env!("CARGO_PKG_VERSION")),
    disable_version_flag = true,
    infer_subcommands = true,
    args_override_self = true,
    after_help = "Examples:\n  \
                  fleetctl apply web.service     hand it over, have it run, wait until it does\n  \
                  fleetctl list-units            what runs where, and why something does not\n  \
                  fleetctl logs -f web           what it writes, on whichever machine\n  \
                  fleetctl doctor                what is wrong, and what to do about it\n\n\
                  Exit codes: 0 done, 1 could not be done, 2 the command line is wrong; \
                  status: 0 active, 3 not active, 4 unknown;\n\
                  diff, plan, --dry-run of all but import: 5 something would change.\n\
                  Each global option is also read from the environment, as FLEETCTL_ENDPOINT."
)]
pub(crate) struct Cli {
    /// Print the version.
    #[arg(short = 'v', long, action = ArgAction::Version)]
    version: (),

    #[command(flatten)]
    pub(crate) global: GlobalArgs,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hand unit files to the cluster, without running them.
    Submit(SubmitArgs),
    /// Have units assigned to machines and loaded there, without starting them.
    Load(BringUpArgs),
    /// Have units started, and wait until they are active.
    #[command(after_help = "Examples:\n  \
        fleetctl start web.service 'worker@{1..4}'\n  \
        fleetctl start --wait finished --wait-timeout 600 migrate.service")]
    Start(StartArgs),
    /// Stop units and start them again where they are.
    Restart(TakeDownArgs),
    /// Stop units; they stay loaded.
    Stop(TakeDownArgs),
    /// Stop units and take them off their machines.
    Unload(TakeDownArgs),
    /// Stop units and forget them.
    Destroy(TakeDownArgs),
    /// Bring the cluster to what unit files say: what is new is created, what differs replaced.
    ///
    /// All files are checked, and what would be done is told, before anything is sent. Units that
    /// no file speaks of stay as they are.
    #[command(after_help = "Exit codes: 0 all is as the files say; 5 with --dry-run, something \
        would change; 1 something could not be done.\n\
        Examples:\n  \
        fleetctl apply --dry-run units/\n  \
        fleetctl apply web.service 'worker@{1..4}'")]
    Apply(ApplyArgs),
    /// Show how unit files differ from what the cluster has.
    #[command(after_help = "Exit codes: 0 nothing differs, 5 something does, 1 it could not be \
        found out.")]
    Diff(DiffArgs),
    /// Tell what the engine would do: as things are, or if unit files were applied.
    #[command(after_help = "Exit codes: 0 nothing would be done, 5 something would, 1 it could \
        not be found out.\n\
        Examples:\n  \
        fleetctl plan\n  \
        fleetctl plan units/ --destroy 'old@*.service'")]
    Plan(PlanArgs),
    /// Tell what every machine says to units: who takes them, and which rule refuses where.
    Explain(ExplainArgs),
    /// Print what units wrote, on all machines that they are on, each line with its unit's name.
    #[command(after_help = "Examples:\n  \
        fleetctl logs -f web db\n  \
        fleetctl logs --since 1h 'worker@*.service'")]
    Logs(LogsArgs),
    /// Print what changes in the cluster as it changes, until Ctrl-C.
    #[command(after_help = "Examples:\n  \
        fleetctl events --unit web\n  \
        fleetctl events -o jsonl --since 42-cab5")]
    Events(EventsArgs),
    /// Tell what is wrong with the cluster and this installation, and what to do about it.
    #[command(after_help = "Exit codes: 0 all works, though there may be warnings; 1 something \
        does not.")]
    Doctor,
    /// Have so many instances of a template: those from 1 to N run, those with other numbers go.
    #[command(after_help = "Exit codes: 0 done, 5 with --dry-run, something would change, 1 it \
        could not be done.\n\
        Examples:\n  \
        fleetctl scale worker@ 5\n  \
        fleetctl scale worker@.service 0 --dry-run")]
    Scale(ScaleArgs),
    /// Print units' files as they were submitted.
    Cat(UnitsArgs),
    /// Tell what is wanted of units, where they are, how they are and why.
    Status(StatusArgs),
    /// Print what a unit wrote to its machine's journal.
    Journal(JournalArgs),
    /// Check unit files on this computer, without a cluster.
    Verify(VerifyArgs),
    /// List the states of units on machines.
    ListUnits(ListArgs),
    /// List the units that the cluster knows.
    ListUnitFiles(ListArgs),
    /// List the machines that are present.
    ListMachines(ListArgs),
    /// Write the cluster to one portable file: to back it up, or to move it.
    ///
    /// The file holds the units with their texts, desired states and machines, the metadata that
    /// was set, and what was said is to become of machines, at one revision, with checksums. It is
    /// written as a whole or not at all.
    Export(ExportArgs),
    /// Bring in what an export holds, or the keys of a fleet v1.
    ///
    /// Everything is checked before the first write, and read back after the last. What is there
    /// already is left, so an import that broke off is finished by running it again.
    #[command(after_help = "A cluster that moves, so that nothing restarts: export it, end its \
        daemons, import with --config into the new store, start the daemons on it.\n\
        Exit codes: 0 all is there, 1 something was refused or is not as it was written, 2 the \
        command line or the configuration is wrong.")]
    Import(ImportArgs),
    /// Look at a machine, or say what is to become of it.
    Machine(MachineArgs),
    /// Move units from full machines to emptier ones, step by step, and tell first which.
    ///
    /// The engine goes on with it until no move is worth it. Units that no other machine takes
    /// stay where they are, as do global units and those with Reschedule=never.
    #[command(
        after_help = "Exit codes: 0 done, or nothing is to be done; 5 with --dry-run, units \
        would move; 1 it could not be done.\n\
        Examples:\n  \
        fleetctl rebalance --dry-run\n  \
        fleetctl rebalance --at-once 3 --keep-up 2 --wait"
    )]
    Rebalance(RebalanceArgs),
    /// Print a script with which a shell completes what is typed.
    #[command(after_help = "Example:\n  \
        fleetctl completions bash > /etc/bash_completion.d/fleetctl")]
    Completions(CompletionsArgs),
    /// Write manual pages, one for each command.
    Man(ManArgs),
    /// Print the reference of the command line for the project's documents.
    #[command(hide = true)]
    Reference,
    /// Print the version.
    Version(VersionArgs),
    /// Run a command on a machine, or on the machine of a unit, by ssh; without one, a shell.
    #[command(
        after_help = "The exit code is that of the command, or 255 where ssh gets nowhere.\n\
        Examples:\n  \
        fleetctl ssh web uptime\n  \
        fleetctl ssh --machine 282f949f"
    )]
    Ssh(SshArgs),
    /// Connect standard input and output to a unix socket, as fleet v1 did over ssh.
    #[command(hide = true)]
    FdForward(FdForwardArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FdForwardArgs {
    /// The socket.
    #[arg(value_name = "SOCKET")]
    pub(crate) socket: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    pub(crate) create: CreateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BringUpArgs {
    #[command(flatten)]
    pub(crate) create: CreateArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    #[command(flatten)]
    pub(crate) create: CreateArgs,
    #[command(flatten)]
    pub(crate) until: UntilArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

/// What a start is waited for to have come to.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct UntilArgs {
    /// What to wait for of units that are started.
    #[arg(id = "until", long = "wait", value_name = "STATE", default_value = "active")]
    pub(crate) state: Until,
}

/// How far a start has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Until {
    /// Its machine has it, and starts it.
    Loaded,
    /// It is active, or has done its work and ended well.
    #[default]
    Active,
    /// It has done its work.
    Finished,
}

#[derive(Debug, Args)]
pub(crate) struct TakeDownArgs {
    /// Names; ".service" is added where no type is given.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

impl Command {
    /// Whether it asks no daemon for anything.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Verify(_) | Self::Completions(_) | Self::Man(_) | Self::Reference => true,
            Self::FdForward(_) => true,
            Self::Export(args) => args.config.is_some(),
            Self::Import(args) => args.config.is_some(),
            Self::Version(args) => !args.server,
            _ => false,
        }
    }
}

/// Units that are created where the cluster does not know them yet.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Names or paths of unit files; ".service" is added where no type is given.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
    /// Put the local file in the place of another one that has the unit's name.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Had no effect in fleet v1 and has none here.
    #[arg(long, hide = true)]
    sign: bool,
}

impl CreateArgs {
    /// Of these units, none of which is to be replaced.
    pub(crate) fn of(units: Vec<String>) -> Self {
        Self { units, replace: false, sign: false }
    }
}

/// How long to wait for the cluster to follow.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct WaitArgs {
    /// Return at once, and leave the rest to the cluster.
    #[arg(long)]
    pub(crate) no_block: bool,
    /// Wait for N times two seconds; for as long as it takes, where N is not positive.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = number(i64::MIN..=i64::MAX))]
    pub(crate) block_attempts: Option<i64>,
    /// Wait for so many seconds [default: 100]
    #[arg(long, value_name = "SECONDS", conflicts_with = "block_attempts")]
    #[arg(value_parser = number(0..=u32::MAX))]
    pub(crate) wait_timeout: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct UnitsArgs {
    /// Names; ".service" is added where no type is given.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Names; ".service" is added where no type is given.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
    /// Print IDs in full.
    #[arg(short = 'l', long)]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Paths of unit files, and folders of such.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The file, which is replaced if it is there; "-" is standard output.
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    /// Read the store that this configuration of fleetd names, instead of asking a daemon.
    #[arg(long, value_name = "FLEETD.TOML")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// An export, or the keys of a fleet v1 as JSON; "-" is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Check everything, say what would be done, and write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Put what is in the file in the place of what differs in the cluster.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Leave out what is refused, and import the rest.
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// Write to the store that this configuration of fleetd names, instead of asking a daemon.
    #[arg(long, value_name = "FLEETD.TOML")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The folder to write to, which is there.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Ask the daemon for its version too.
    #[arg(long)]
    pub(crate) server: bool,
}
