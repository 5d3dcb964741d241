//! The command line as it is written.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fleet_agent::External;
use fleet_core::graph::Target;
use fleet_unitfile::{Timespan, UnitName, parse_timespan};

use crate::fleetctl::global_args::Format;
use crate::fleetd::config::native;

/// Run the units that a goal needs, and no others.
///
/// Units are described by stanzas in files whose names end in .unit, and the goal is in init.conf.
/// A directory stands for these files in it.
#[derive(Debug, Parser)]
#[command(
    name = "fleet-init",
    version,
    after_help = "Exit codes: 0 done, 1 could not be done or is wrong, 2 the command line is wrong."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check files, and say all that is wrong in them.
    ///
    /// Programs that are not on this computer are only warned of.
    Check(CheckArgs),
    /// Say what would start, stop and restart, in which order, and why.
    ///
    /// It is compared with what a fleet-init runs, which is not disturbed: by files, as if it ran
    /// those; by a goal, as set-target would choose it; by neither, as reload would read its own
    /// files again. Where none runs, it is planned from nothing.
    ///
    /// A wave waits for those before it, and for nothing else.
    Plan(PlanArgs),
    /// Run units until told to end: those of files, or those of this machine's fleetd.
    ///
    /// Of files it runs what the goal needs, and keeps it so. HUP has them read again.
    ///
    /// TERM and INT end the units, then this program; a second one kills what is left. Killed
    /// itself, it leaves the units running, and takes them back when it is started again.
    ///
    /// As the first process of a container it reaps every process that nobody else waits for, and
    /// starts itself again should it break off.
    Run(RunArgs),
    /// Show the units of a fleet-init that runs.
    Status(StatusArgs),
    /// Show what a unit of a fleet-init that runs has written.
    Logs(LogsArgs),
    /// Choose another goal for a fleet-init that runs.
    ///
    /// It holds until another one is chosen or the machine is booted.
    SetTarget(SetTargetArgs),
    /// Have a fleet-init that runs read its files again, or a unit its own configuration.
    ///
    /// If anything is wrong in the files, nothing changes. A unit reloads by its exec-reload or
    /// reload-signal; what comes of it is shown by status.
    Reload(ReloadArgs),
    /// Restart a unit that is starting or active.
    Restart(UnitArgs),
    /// Forget that a unit failed or completed, so that it starts again at once if it is needed.
    ResetFailed(UnitArgs),
    /// Draw the units and their dependencies, as SVG or for dot of Graphviz.
    ///
    /// For example: fleet-init graph DIR -o svg > units.svg
    Graph(GraphArgs),
    /// Turn units of another init into stanzas, and say what is lost.
    ///
    /// Stanzas go to standard output, and losses to standard error. Scripts are read and never run.
    /// For example: fleet-init convert --from openrc /etc/init.d > converted.unit
    #[command(after_help = "Exit codes: 0 nothing is lost, 1 it could not be done, \
                            2 the command line is wrong, 3 something is lost.")]
    Convert(ConvertArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Files, or directories.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// How results are printed.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Files, or directories [default: those of the fleet-init that runs].
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// The target to plan for, instead of the goal in init.conf or the one that was chosen.
    #[arg(long, value_name = "TARGET")]
    pub(crate) goal: Option<Target>,
    /// Targets that are wanted beside it for the time being.
    #[arg(long, value_name = "TARGET", num_args = 1.., value_delimiter = ',')]
    pub(crate) with: Vec<Target>,
    /// Plan as if nothing ran.
    #[arg(long, requires = "paths")]
    pub(crate) from_nothing: bool,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// How results are printed.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Files, or directories.
    #[arg(value_name = "PATH", required_unless_present = "fleet", conflicts_with = "fleet")]
    pub(crate) paths: Vec<PathBuf>,
    /// The target to run, instead of the goal in init.conf.
    #[arg(long, value_name = "TARGET", conflicts_with = "fleet")]
    pub(crate) goal: Option<Target>,
    /// Run what the fleetd of this machine asks for: `native_socket` in its configuration.
    #[arg(long)]
    pub(crate) fleet: bool,
    /// How many units may be starting at once, or none for no limit [default: 512].
    ///
    /// Without --fleet, init.conf says it.
    #[arg(long, value_name = "N", requires = "fleet", value_parser = starting)]
    pub(crate) max_starting: Option<Starting>,
    /// An option, such as PrivateTmp, to pass over where a unit would be refused for it.
    #[arg(long, value_name = "OPTION", requires = "fleet", value_parser = option)]
    pub(crate) accept: Vec<String>,
    /// A unit that somebody else runs, and whether it is up: `up`, `path:FILE` or `tcp:HOST:PORT`.
    #[arg(long, value_name = "UNIT=HOW", requires = "fleet", value_parser = external)]
    pub(crate) external: Vec<(UnitName, External)>,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Where it keeps its files [default: in /var/lib/fleet-init, or below the home directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// How long the units may take to end, before what is left is killed.
    #[arg(long, value_name = "TIME", default_value = "90s", value_parser = time)]
    pub(crate) stop_limit: Duration,
    /// Adopt and reap processes that lose their parent, as the first process of a container does.
    #[arg(long)]
    pub(crate) reap: bool,
}

/// Where a fleet-init listens.
#[derive(Debug, Args)]
pub(crate) struct SocketArgs {
    /// Its socket [default: what FLEET_INIT_SOCKET names; otherwise /run/fleet/init.sock, or in the
    /// user's runtime directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// How results are printed.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The unit, or a target that it provides.
    #[arg(value_name = "UNIT")]
    pub(crate) unit: String,
    /// How many of the latest lines come first [default: all that are kept].
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) lines: Option<usize>,
    /// Only what was written in that time up to now, such as 10min or "1h 30min".
    #[arg(short = 'S', long, value_name = "SPAN", value_parser = time)]
    pub(crate) since: Option<Duration>,
    /// Go on with new lines as they are written.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print lines as they are: also what a terminal would obey.
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// How results are printed.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct SetTargetArgs {
    /// The target that is the goal from now on.
    #[arg(value_name = "GOAL")]
    pub(crate) goal: Target,
    /// Targets that are wanted beside it for the time being.
    #[arg(long, value_name = "TARGET", num_args = 1.., value_delimiter = ',')]
    pub(crate) with: Vec<Target>,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// How results are printed.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    /// The unit, or a target that it provides [default: the files of all units].
    #[arg(value_name = "UNIT")]
    pub(crate) unit: Option<String>,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// How results are printed.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct UnitArgs {
    /// The unit, or a target that it provides.
    #[arg(value_name = "UNIT")]
    pub(crate) unit: String,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// How results are printed.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

/// How many units may be starting at once; nothing is no limit.
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
    time.ok_or_else(|| "a time such as 30s or 2min is wanted".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// Files, or directories.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// The target to draw as the goal, instead of that in init.conf.
    #[arg(long, value_name = "TARGET")]
    pub(crate) goal: Option<Target>,
    /// What the picture is written in.
    #[arg(short, long, value_name = "FORMAT", default_value = "dot")]
    pub(crate) output: Drawing,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// Files, or directories.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Which init they are for.
    #[arg(long, value_name = "INIT")]
    pub(crate) from: From,
    /// How results are printed; for people, as a file of stanzas.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

/// A language for pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Drawing {
    /// That of Graphviz.
    Dot,
    /// What browsers show.
    Svg,
    /// The units and what they depend on, in one JSON document.
    Json,
}

/// An init that units are converted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum From {
    /// Unit files of systemd, .service and .target.
    Systemd,
    /// Service scripts of `OpenRC`.
    Openrc,
    /// Init scripts with an LSB header.
    Sysv,
}
