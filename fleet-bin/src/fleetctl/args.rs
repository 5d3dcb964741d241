//! Definition of the command line: commands, options and their help.
//!
//! [`spelling`](super::args::spelling) rewrites the spellings of fleet v1 before parsing,
//! [`help`](super::help) lays out the help, and
//! [`settings`](super::session::settings) checks the values.

pub(super) mod flags;
pub(super) mod job;
pub(super) mod ranges;
pub(super) mod rollout;
pub(super) mod spelling;
pub(super) mod subcommands;
pub(crate) mod when;

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use fleet_http::wire::RolloutOptions;
use fleet_unitfile::check::SystemdVersion;

use super::args::job::{JobCommandArgs, RunArgs, ScheduleCommandArgs};
use super::args::rollout::RolloutCommandArgs;
use super::args::subcommands::{
    ApplyArgs, CompleteWordsArgs, DiffArgs, EventsArgs, FdForwardArgs, HistoryArgs, JournalArgs,
    ListMachinesArgs, ListUnitFilesArgs, ListUnitsArgs, LogsArgs, MachineArgs, ManArgs, PlanArgs,
    RebalanceArgs, RestartArgs, RollbackArgs, ScaleArgs, SshArgs, StatusArgs, UiArgs, VersionArgs,
    number,
};
use crate::ui::global_args::GlobalArgs;

/// Control a fleet cluster: submit unit files, start and stop units, inspect them.
#[derive(Debug, Parser)]
#[command(
    name = "fleetctl",
    version = concat!("version ", env!("CARGO_PKG_VERSION")),
    disable_version_flag = true,
    infer_subcommands = true,
    args_override_self = true,
    after_help = "Examples:\n  \
                  fleetctl apply web.service   Create or update the unit, and start it\n  \
                  fleetctl list-units          Show where units run, and why some do not\n  \
                  fleetctl logs -f web         Follow the unit's journal on all machines\n  \
                  fleetctl doctor              Report problems and their remedies\n\n\
                  Exit codes:\n  \
                  0    success\n  \
                  1    failure\n  \
                  2    the command line is wrong\n  \
                  3, 4 status: a unit is not active, or not known\n  \
                  5    diff, plan, and --dry-run except of import: something would change\n\n\
                  Command names may be abbreviated as long as they are unambiguous.\n\
                  Each global option can also be set in the environment, as in \
                  FLEETCTL_ENDPOINT."
)]
pub(crate) struct Cli {
    /// Print the version
    #[arg(short = 'v', long, action = ArgAction::Version)]
    version: (),

    #[command(flatten)]
    pub(crate) global: GlobalArgs,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create units from unit files, without starting them.
    Submit(SubmitArgs),
    /// Load units on machines, without starting them.
    Load(LoadArgs),
    /// Start units and wait until they are active.
    #[command(after_help = "Examples:\n  \
        fleetctl start web.service 'worker@{1..4}'\n  \
        fleetctl start --wait finished --wait-timeout 600 migrate.service")]
    Start(StartArgs),
    /// Run jobs, which are units with RunOnce=true.
    ///
    /// Creates a job from its file, and replaces the file of one that has ended. A job that has
    /// ended runs again, and an unfinished one is left alone.
    #[command(after_help = "Exit codes: with --wait, that of the first job that failed: the code \
        of its last attempt, or 128 plus its signal; 0 success, 1 other failures.\n\n\
        Examples:\n  \
        fleetctl run --wait migrate.service\n  \
        fleetctl run 'import@{1..4}'")]
    Run(RunArgs),
    /// Show jobs, with their attempts.
    #[command(after_help = "Examples:\n  \
        fleetctl job list --all\n  \
        fleetctl job status migrate")]
    Job(JobCommandArgs),
    /// Show, pause or resume schedules, or run their jobs now.
    ///
    /// A schedule makes a job of its unit at each time of Schedule=.
    #[command(after_help = "Examples:\n  \
        fleetctl schedule list\n  \
        fleetctl schedule status backup\n  \
        fleetctl schedule run-now --wait backup")]
    Schedule(ScheduleCommandArgs),
    /// Restart units on their machines.
    #[command(after_help = "Examples:\n  \
        fleetctl restart web\n  \
        fleetctl restart --at-once 1 'web@*'")]
    Restart(RestartArgs),
    /// Stop units; they stay loaded on their machines.
    ///
    /// This also ends the run of a loaded unit that a timer, a socket or another unit started.
    Stop(StopArgs),
    /// Stop units and remove them from their machines.
    Unload(StopArgs),
    /// Stop units and delete them from the cluster.
    ///
    /// A unit that the cluster does not know is no error. If a pattern matches several units, the
    /// command asks on a terminal, and elsewhere requires --yes.
    #[command(after_help = "Examples:\n  \
        fleetctl destroy web.service 'worker@{1..4}'\n  \
        fleetctl destroy --yes 'test-*'")]
    Destroy(DestroyArgs),
    /// Create or update units from unit files, and start them.
    ///
    /// fleetctl checks all files and prints the planned changes before it sends anything. Units
    /// that have no file on the command line stay as they are.
    #[command(after_help = "Exit codes: 0 the cluster matches the files; 5 with --dry-run: \
        something would change; 1 failure.\n\n\
        Examples:\n  \
        fleetctl apply --dry-run units/\n  \
        fleetctl apply web.service 'worker@{1..4}'")]
    Apply(ApplyArgs),
    /// Show how unit files differ from those of the cluster.
    ///
    /// UNIT@REVISION stands for an earlier file of a unit.
    #[command(after_help = "Exit codes: 0 no difference, 5 some difference, 1 failure.\n\n\
        Examples:\n  \
        fleetctl diff units/\n  \
        fleetctl diff web.service@3")]
    Diff(DiffArgs),
    /// Show what has happened to a unit, with times and causes.
    #[command(after_help = "Examples:\n  \
        fleetctl history web\n  \
        fleetctl history -o json web")]
    History(HistoryArgs),
    /// List the earlier files of a unit.
    #[command(after_help = "Examples:\n  \
        fleetctl revisions web\n  \
        fleetctl diff web.service@3")]
    Revisions(HistoryArgs),
    /// Return a unit to an earlier file.
    ///
    /// The unit keeps its desired state. fleetctl prints the changes before it makes them.
    #[command(after_help = "Exit codes: 0 success; 5 with --dry-run: something would change; 1 \
        failure.\n\n\
        Examples:\n  \
        fleetctl rollback web\n  \
        fleetctl rollback --to 3 web")]
    Rollback(RollbackArgs),
    /// Show, pause, resume or abort rolling updates.
    ///
    /// A rollout updates units in batches. It waits until the units of a batch are healthy before
    /// it begins the next one. fleetd continues it even if fleetctl ends.
    #[command(after_help = "Examples:\n  \
        fleetctl rollout status\n  \
        fleetctl rollout status web@\n  \
        fleetctl rollout pause 3\n  \
        fleetctl rollout abort --rollback 3")]
    Rollout(RolloutCommandArgs),
    /// Preview what the engine would do, now or after an apply.
    #[command(after_help = "Exit codes: 0 nothing would change, 5 something would, 1 failure.\n\n\
        Examples:\n  \
        fleetctl plan\n  \
        fleetctl plan units/ --destroy 'old@*.service'")]
    Plan(PlanArgs),
    /// Show which machines accept a unit, and which rules refuse it.
    Explain(ExplainArgs),
    /// Print the journals of units from all their machines.
    #[command(after_help = "Examples:\n  \
        fleetctl logs -f web db\n  \
        fleetctl logs --since 1h 'worker@*.service'")]
    Logs(LogsArgs),
    /// Print changes of the cluster as they happen, until Ctrl-C.
    #[command(after_help = "Examples:\n  \
        fleetctl events --unit web\n  \
        fleetctl events -o jsonl --since 42-cab5")]
    Events(EventsArgs),
    /// Report problems of the cluster and this installation.
    #[command(after_help = "Exit codes: 0 no problems, although there may be warnings; 1 \
        problems.")]
    Doctor,
    /// Set the number of instances of a template.
    ///
    /// Starts the instances 1 to N, and then destroys the instances with other numbers. Instances
    /// without a number, such as web@blue, stay as they are.
    #[command(after_help = "Exit codes: 0 success; 5 with --dry-run: something would change; 1 \
        failure.\n\n\
        Examples:\n  \
        fleetctl scale worker@ 5\n  \
        fleetctl scale worker@.service 0 --dry-run")]
    Scale(ScaleArgs),
    /// Print unit files as they were submitted.
    Cat(UnitsArgs),
    /// Show the state of units, with their last journal lines.
    Status(StatusArgs),
    /// Print the journal of one unit.
    Journal(JournalArgs),
    /// Check local unit files, without a cluster.
    Verify(VerifyArgs),
    /// List the states of units on machines.
    #[command(after_help = "Examples:\n  \
        fleetctl list-units --state failed,unknown\n  \
        fleetctl list-units 'web@*' --machine dev-1")]
    ListUnits(ListUnitsArgs),
    /// Show machines and units live.
    ///
    /// The view has the use of CPU and memory, and opens logs and status. The bottom of the screen
    /// lists the keys.
    Top,
    /// List the units that the cluster knows.
    ListUnitFiles(ListUnitFilesArgs),
    /// List the machines that are present.
    ListMachines(ListMachinesArgs),
    /// Export the cluster to a file, as a backup or to migrate it.
    ///
    /// The file contains the unit files with their desired states and machines, the metadata that
    /// was set at run time, and all cordons and drains. All content is from one revision of the
    /// store, and the file has checksums. An existing file is only replaced after the export is
    /// complete.
    Export(ExportArgs),
    /// Import an export, or an etcd dump of fleet v1.
    ///
    /// fleetctl checks the whole file before the first write, and reads everything back after the
    /// last write. Units that are identical in the cluster are skipped, so an interrupted import
    /// can be run again.
    #[command(after_help = "To migrate a cluster without restarting its units: export it, stop \
        its daemons, import into the new store with --config, and start the daemons on it.\n\n\
        Exit codes: 0 success; 1 something was refused, or was not read back as written; 2 the \
        command line or the configuration is wrong.")]
    Import(ImportArgs),
    /// Show, cordon or drain a machine.
    Machine(MachineArgs),
    /// Move units from full machines to emptier ones, step by step.
    ///
    /// Prints the planned moves first. The engine then moves units until no further move improves
    /// the balance. Global units, jobs, units with Reschedule=never, and units that no other
    /// machine accepts stay where they are.
    #[command(
        after_help = "Exit codes: 0 success, or nothing to do; 5 with --dry-run: units would \
        move; 1 failure.\n\n\
        Examples:\n  \
        fleetctl rebalance --dry-run\n  \
        fleetctl rebalance --at-once 3 --keep-up 2 --wait"
    )]
    Rebalance(RebalanceArgs),
    /// Print a completion script for a shell.
    #[command(after_help = "Example:\n  \
        fleetctl completions bash > /etc/bash_completion.d/fleetctl")]
    Completions(CompletionsArgs),
    /// Print the candidates for a word, for the completion scripts.
    #[command(hide = true)]
    CompleteWords(CompleteWordsArgs),
    /// Write manual pages, one for each command.
    Man(ManArgs),
    /// Print the reference of the command line for the project's documents.
    #[command(hide = true)]
    Reference,
    /// Print the version.
    Version(VersionArgs),
    /// Open the web page of the cluster in a browser.
    ///
    /// Listens on a loopback port until Ctrl-C, and forwards the page with the endpoint and the
    /// credentials of fleetctl. The printed link works once; after that, only the browser that
    /// opened it can use the port.
    #[command(after_help = "Examples:\n  \
        fleetctl ui\n  \
        fleetctl --tunnel node1 ui --no-browser")]
    Ui(UiArgs),
    /// Run a command or a shell on a machine, through ssh.
    #[command(after_help = "The exit code is that of the command, or 255 if ssh fails.\n\n\
        Examples:\n  \
        fleetctl ssh web uptime\n  \
        fleetctl ssh --machine 282f949f")]
    Ssh(SshArgs),
    /// Connect standard input and output to a unix socket, as in fleet v1.
    #[command(hide = true)]
    FdForward(FdForwardArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    pub(crate) create: CreateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
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
    pub(crate) until: WaitUntilArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

/// State of a start for which the command waits.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct WaitUntilArgs {
    /// State to wait for.
    #[arg(id = "until", long = "wait", value_name = "STATE", default_value = "active")]
    pub(crate) state: WaitUntil,
}

/// Progress of a start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitUntil {
    /// The machine has loaded the unit and starts it.
    Loaded,
    /// The unit is active, or has finished successfully.
    #[default]
    Active,
    /// The unit has finished.
    Finished,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Units, such as web.service, web (".service" is added) or 'web@*.service'.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DestroyArgs {
    #[command(flatten)]
    pub(crate) stop: StopArgs,
    /// Destroy all units that a pattern matches, without a question.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

impl Command {
    /// Whether the command runs without a daemon.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Verify(_) | Self::Completions(_) | Self::Man(_) | Self::Reference => true,
            Self::CompleteWords(_) => true,
            Self::FdForward(_) => true,
            Self::Export(args) => args.config.is_some() || args.salvage.is_some(),
            Self::Import(args) => args.config.is_some(),
            Self::Version(args) => !args.server,
            _ => false,
        }
    }
}

/// Units to create if the cluster does not know them.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Names or paths of unit files, such as ./web.service; ".service" may be omitted.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
    /// Replace the cluster's file of a unit if the local file differs.
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) verification: VerificationArgs,
    /// Accepted for fleet v1; has no effect.
    #[arg(long, hide = true)]
    sign: bool,
    /// Rollout that starts the units, if they are not started together.
    #[arg(skip)]
    pub(crate) rollout: Option<RolloutOptions>,
}

/// Whether the machines are asked about unit files.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct VerificationArgs {
    /// Do not ask the machines whether they would refuse the unit files.
    #[arg(long)]
    pub(crate) no_verify: bool,
}

impl CreateArgs {
    /// Creates arguments for units that must not be replaced.
    pub(crate) fn for_units(units: Vec<String>, rollout: Option<RolloutOptions>) -> Self {
        let verification = VerificationArgs::default();
        Self { units, replace: false, verification, sign: false, rollout }
    }
}

/// Time for which the command waits until units reach their new state.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct WaitArgs {
    /// Do not wait until the units reach their new state.
    #[arg(long)]
    pub(crate) no_block: bool,
    /// Wait for up to N times two seconds, or without limit if N is 0 or less.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = number(i64::MIN..=i64::MAX))]
    pub(crate) block_attempts: Option<i64>,
    /// Wait for up to this many seconds [default: 100]
    #[arg(long, value_name = "SECONDS", conflicts_with = "block_attempts")]
    #[arg(value_parser = number(0..=u32::MAX))]
    pub(crate) wait_timeout: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct UnitsArgs {
    /// Units, such as web.service, web (".service" is added) or 'web@*.service'.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Units, such as web.service, web (".service" is added) or 'web@*.service'.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
    /// Print IDs in full.
    #[arg(short = 'l', long)]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Unit files, drop-ins such as web.service.d/10-more.conf, and folders with unit files.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Check for this version of systemd [default: that of this machine; without one, all].
    #[arg(long, value_name = "N")]
    pub(crate) systemd_version: Option<SystemdVersion>,
    /// Service manager of the machines, by whose rules to check.
    #[arg(long, value_name = "MANAGER", default_value = "systemd")]
    pub(crate) manager: ManagerArg,
}

/// Service manager on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ManagerArg {
    /// Systemd.
    Systemd,
    /// Fleet's own, as a daemon of root runs it: it refuses options that it cannot honour.
    Native,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// File to write; an existing one is replaced; "-" is standard output.
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    /// Read the store of this fleetd configuration directly, not through a daemon.
    #[arg(long, value_name = "FLEETD.TOML")]
    pub(crate) config: Option<PathBuf>,
    /// Read what is readable of this damaged file of an embedded store; the file is not changed.
    #[arg(long, value_name = "STORE.REDB", conflicts_with = "config")]
    pub(crate) salvage: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// File to read: an export, or an etcd dump (JSON) of fleet v1; "-" is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Check everything and print the changes, but write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Replace units, metadata, cordons and drains of the cluster that differ from the file.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Skip items that are refused, and import the others.
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// Write to the store of this fleetd configuration directly, not through a daemon.
    #[arg(long, value_name = "FLEETD.TOML")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell that will load the script.
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}
