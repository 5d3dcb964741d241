//! The command line.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fleet_agent::External;
use fleet_core::graph::Target;
use fleet_unitfile::{Timespan, UnitName, parse_timespan};

use crate::fleetctl::global_args::Format;
use crate::fleetd::config::native;

/// Run exactly the units that a goal needs.
///
/// Stanzas in .unit files describe the units; init.conf beside them names the goal. A directory
/// stands for these files in it.
#[derive(Debug, Parser)]
#[command(
    name = "fleet-init",
    version,
    max_term_width = 80,
    after_help = "Exit codes: 0 done, 1 failed or files are wrong, 2 wrong command line."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check files and report everything that is wrong.
    ///
    /// Programs that are missing on this machine are warnings.
    Check(CheckArgs),
    /// Show what would start, stop and restart, in which order, and why.
    ///
    /// The plan is compared with a running fleet-init, which is not disturbed. With files: as if it
    /// ran them. With a goal: as set-target would choose it. With neither: as reload would read its
    /// files. Without a running fleet-init, the plan starts from nothing.
    ///
    /// A wave waits only for the waves before it.
    Plan(PlanArgs),
    /// Run units of files, or of this machine's fleetd, until stopped.
    ///
    /// From files it runs what the goal needs. HUP reads them again.
    ///
    /// TERM and INT end the units, then the program; a second one kills what is left. After KILL
    /// the units keep running, and the next start adopts them.
    ///
    /// As process 1 of a container it reaps orphans, and restarts itself after a crash.
    Run(RunArgs),
    /// Show the units of a running fleet-init.
    Status(StatusArgs),
    /// Show what a unit has written.
    Logs(LogsArgs),
    /// Choose another goal.
    ///
    /// It holds until the next choice or a reboot.
    SetTarget(SetTargetArgs),
    /// Read the files again, or have a unit reload its configuration.
    ///
    /// If anything is wrong in the files, nothing changes. A unit reloads by its exec-reload or
    /// reload-signal; status shows the result.
    Reload(ReloadArgs),
    /// Restart a starting or active unit.
    Restart(UnitArgs),
    /// Retry a failed or completed unit at once, if it is needed.
    ResetFailed(UnitArgs),
    /// Draw the units and their dependencies, as SVG or for Graphviz.
    ///
    /// For example: fleet-init graph DIR -o svg > units.svg
    Graph(GraphArgs),
    /// Convert units of another init to stanzas, and report losses.
    ///
    /// Stanzas go to standard output, losses to standard error. Scripts are read, never run. For
    /// example: fleet-init convert --from openrc /etc/init.d > converted.unit
    #[command(after_help = "Exit codes: 0 nothing is lost, 1 failed, 2 wrong command line, \
                            3 something is lost.")]
    Convert(ConvertArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Files or directories.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Files or directories [default: those of the running fleet-init].
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Target to plan for, instead of the chosen goal or the one in init.conf.
    #[arg(long, value_name = "TARGET")]
    pub(crate) goal: Option<Target>,
    /// Extra targets beside the goal.
    #[arg(long, value_name = "TARGET", num_args = 1.., value_delimiter = ',')]
    pub(crate) with: Vec<Target>,
    /// Plan as if nothing were running.
    #[arg(long, requires = "paths")]
    pub(crate) from_nothing: bool,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Files or directories.
    #[arg(value_name = "PATH", required_unless_present = "fleet", conflicts_with = "fleet")]
    pub(crate) paths: Vec<PathBuf>,
    /// Target to run, instead of the goal in init.conf.
    #[arg(long, value_name = "TARGET", conflicts_with = "fleet")]
    pub(crate) goal: Option<Target>,
    /// Run units for this machine's fleetd: `native_socket` in its configuration.
    #[arg(long)]
    pub(crate) fleet: bool,
    /// Units that may be starting at a time, or none for no limit [default: 512].
    ///
    /// Without --fleet, init.conf sets it.
    #[arg(long, value_name = "N", requires = "fleet", value_parser = starting)]
    pub(crate) max_starting: Option<Starting>,
    /// An option, such as PrivateTmp, to ignore instead of refusing units that set it.
    #[arg(long, value_name = "OPTION", requires = "fleet", value_parser = option)]
    pub(crate) accept: Vec<String>,
    /// A unit that fleet does not run, and when it is active: `up`, `path:FILE` or `tcp:HOST:PORT`.
    #[arg(long, value_name = "UNIT=HOW", requires = "fleet", value_parser = external)]
    pub(crate) external: Vec<(UnitName, External)>,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Directory for state [default: in /var/lib/fleet-init, or below the home directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Time for the units to end, before what is left is killed.
    #[arg(long, value_name = "TIME", default_value = "90s", value_parser = time)]
    pub(crate) stop_limit: Duration,
    /// Reap orphans as a subreaper, like process 1 of a container.
    #[arg(long)]
    pub(crate) reap: bool,
}

/// The socket of a fleet-init.
#[derive(Debug, Args)]
pub(crate) struct SocketArgs {
    /// Socket [default: FLEET_INIT_SOCKET; else /run/fleet/init.sock, or in the user's runtime
    /// directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Unit, or a target that it provides.
    #[arg(value_name = "UNIT")]
    pub(crate) unit: String,
    /// Number of latest lines to begin with [default: all].
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) lines: Option<usize>,
    /// Only lines of this time up to now, such as 10min or "1h 30min".
    #[arg(short = 'S', long, value_name = "SPAN", value_parser = time)]
    pub(crate) since: Option<Duration>,
    /// Follow new lines as they are written.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print control characters as they are.
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct SetTargetArgs {
    /// The new goal.
    #[arg(value_name = "GOAL")]
    pub(crate) goal: Target,
    /// Extra targets beside the goal.
    #[arg(long, value_name = "TARGET", num_args = 1.., value_delimiter = ',')]
    pub(crate) with: Vec<Target>,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    /// Unit, or a target that it provides [default: the files of all units].
    #[arg(value_name = "UNIT")]
    pub(crate) unit: Option<String>,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct UnitArgs {
    /// Unit, or a target that it provides.
    #[arg(value_name = "UNIT")]
    pub(crate) unit: String,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

/// Units that may be starting at a time; `None` for no limit.
pub(crate) type Starting = Option<NonZeroU32>;

fn starting(text: &str) -> Result<Starting, String> {
    native::starting(text).ok_or_else(|| format!("{} is wanted", native::STARTING))
}

fn option(text: &str) -> Result<String, String> {
    native::option(text).ok_or_else(|| format!("{} are wanted", native::OPTION))
}

fn external(text: &str) -> Result<(UnitName, External), String> {
    native::external(text).ok_or_else(|| format!("{} are wanted", native::EXTERNAL))
}

fn time(text: &str) -> Result<Duration, String> {
    let time = parse_timespan(text).ok().and_then(Timespan::as_duration);
    time.ok_or_else(|| "expected a time such as 30s or 2min".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// Files or directories.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Target to draw as the goal, instead of the one in init.conf.
    #[arg(long, value_name = "TARGET")]
    pub(crate) goal: Option<Target>,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "dot")]
    pub(crate) output: Drawing,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// Files or directories.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// The init that the files are for.
    #[arg(long, value_name = "INIT")]
    pub(crate) from: From,
    /// Output format; the table format is a file of stanzas.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

/// Output format of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Drawing {
    /// Graphviz.
    Dot,
    /// SVG.
    Svg,
    /// Units and dependencies as one JSON document.
    Json,
}

/// An init from which units are converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum From {
    /// systemd unit files, .service and .target.
    Systemd,
    /// `OpenRC` service scripts.
    Openrc,
    /// Init scripts with an LSB header.
    Sysv,
}
