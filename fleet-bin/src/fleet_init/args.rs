//! The command line, with hints for commands of other init systems.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};
use fleet_agent::native::External;
use fleet_core::graph::Target;
use fleet_core::graph::systemd::AcceptedOptions;
use fleet_unitfile::UnitName;
use fleet_unitfile::values::{Timespan, parse_timespan};

use crate::fleetd::config::native;
use crate::ui::global_args::Format;
use crate::ui::names::nearest;

/// Run exactly the units that a goal needs.
///
/// Each stanza of a .unit file describes one unit, and the file init.conf in the same directory
/// names the goal. A directory as an argument stands for its .unit files and its init.conf.
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
    /// A program, account or path that is missing on this machine causes a warning, not an error.
    Check(CheckArgs),
    /// Show what would start, stop and restart, in which order, and why.
    ///
    /// The plan is compared with a running fleet-init, which stays unchanged. Given files, the plan
    /// is for running these files instead. Given only a goal, it is for set-target with this goal.
    /// Given neither, it is for a reload. If no fleet-init is running, the plan starts from
    /// nothing.
    ///
    /// Units of the same wave may start at the same time. A wave waits only for earlier waves.
    Plan(PlanArgs),
    /// Run units of files, or of this machine's fleetd, until stopped.
    ///
    /// Given files, fleet-init runs the units that the goal needs. SIGHUP makes it read the files
    /// again.
    ///
    /// SIGTERM, SIGINT and SIGQUIT stop all units, and then fleet-init exits. A second signal kills
    /// the units that still run. After SIGKILL the units keep running, and the next start adopts
    /// them.
    ///
    /// As process 1 of a container, fleet-init also reaps orphans, and restarts itself after a
    /// crash.
    Run(RunArgs),
    /// Show the units of a running fleet-init.
    Status(StatusArgs),
    /// Print the output of a unit.
    Logs(LogsArgs),
    /// Choose another goal.
    ///
    /// The choice holds until the next set-target or a reboot. A reload keeps it, unless the goal
    /// in the files has changed.
    ///
    /// Waits until all needed units are up. Fails if any of them is not.
    SetTarget(SetTargetArgs),
    /// Read the files again, or have a unit reload its configuration.
    ///
    /// Without a unit, fleet-init reads its files again. If they have an error, nothing changes.
    ///
    /// With a unit, fleet-init runs the unit's exec-reload or sends its reload-signal, and waits
    /// for the result.
    Reload(ReloadArgs),
    /// Restart a starting or active unit.
    ///
    /// Waits until the unit is up again. Fails if it is not.
    Restart(RestartArgs),
    /// Retry a failed or completed unit at once, if it is needed.
    ResetFailed(UnitArgs),
    /// Stop a unit and keep it from starting, until unmask or a reboot.
    ///
    /// The masks in init.conf apply in addition. Units that depend on it with depends-on stop too.
    /// The unit that provides the goal cannot be masked.
    Mask(UnitArgs),
    /// Undo mask.
    ///
    /// Cannot undo a mask in init.conf.
    Unmask(UnitArgs),
    /// Draw the units and their dependencies for Graphviz.
    ///
    /// For example: fleet-init graph DIR | dot -Tsvg > units.svg
    Graph(GraphArgs),
    /// Convert units of another init to stanzas, and report losses.
    ///
    /// A loss is a setting that could not be converted. Stanzas go to standard output, losses to
    /// standard error. Scripts are read, but never run.
    ///
    /// For example: fleet-init convert --from openrc /etc/init.d > converted.unit
    #[command(after_help = "Exit codes: 0 nothing is lost, 1 failed, 2 wrong command line, \
                            3 something is lost.")]
    Convert(ConvertArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Unit files, init.conf, or directories that contain them.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Unit files, init.conf, or directories [default: those of the running fleet-init].
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Target to plan for [default: the chosen goal, or the one in init.conf].
    #[arg(long, value_name = "TARGET")]
    pub(crate) goal: Option<Target>,
    /// Extra targets to plan for beside the goal, separated by commas or blanks.
    #[arg(long, value_name = "TARGET", num_args = 1.., value_delimiter = ',')]
    pub(crate) with: Vec<Target>,
    /// Plan as if no unit were running.
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
    /// Unit files, init.conf, or directories that contain them.
    #[arg(value_name = "PATH", required_unless_present = "fleet", conflicts_with = "fleet")]
    pub(crate) paths: Vec<PathBuf>,
    /// Target to run [default: the goal in init.conf].
    #[arg(long, value_name = "TARGET", conflicts_with = "fleet")]
    pub(crate) goal: Option<Target>,
    /// Run the units of this machine's fleetd, which must have this socket as `native_socket`.
    #[arg(long)]
    pub(crate) fleet: bool,
    /// Maximum number of units that start at the same time, or `none` [default: 512].
    ///
    /// Only with --fleet. For units of files, write max-starting in init.conf.
    #[arg(long, value_name = "N", requires = "fleet", value_parser = starting)]
    pub(crate) max_starting: Option<Starting>,
    /// Unsupported option to ignore, such as PrivateTmp, or a group: sandboxing, environment or
    /// lifecycle. Otherwise units that set it are refused.
    #[arg(long, value_name = "OPTION", requires = "fleet", value_parser = option)]
    pub(crate) accept: Vec<String>,
    /// Unit that fleet does not run, and when it is active: `up` (always), `path:FILE` (if FILE
    /// exists) or `tcp:HOST:PORT` (if it accepts connections).
    #[arg(long, value_name = "UNIT=HOW", requires = "fleet", value_parser = external)]
    pub(crate) external: Vec<(UnitName, External)>,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Directory for the state of the units [default: in /var/lib/fleet-init for root, otherwise in
    /// ~/.local/state/fleet-init].
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Directory in memory for records of running units and notification sockets [default:
    /// /run/fleet-init for root, otherwise none].
    ///
    /// Without one, they are in the directory for the state of the units, and a full disk there
    /// keeps units from starting.
    #[arg(long, value_name = "DIR")]
    pub(crate) runtime_dir: Option<PathBuf>,
    /// Time that the units have to stop, such as 90s or 2min; then they are killed.
    #[arg(long, value_name = "TIME", default_value = "90s", value_parser = time)]
    pub(crate) stop_limit: Duration,
    /// Act like process 1 of a container: reap orphans, and restart after a crash.
    #[arg(long)]
    pub(crate) reap: bool,
}

/// The socket of a fleet-init.
#[derive(Debug, Args)]
pub(crate) struct SocketArgs {
    /// Socket of the fleet-init [default: $FLEET_INIT_SOCKET, else /run/fleet/init.sock for root
    /// and $XDG_RUNTIME_DIR/fleet/init.sock for other users].
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
    /// Unit, or a target that the unit provides.
    #[arg(value_name = "UNIT")]
    pub(crate) unit: String,
    /// Start with the last N lines [default: all lines].
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) lines: Option<usize>,
    /// Print only lines of the last SPAN, such as 10min or "1h 30min".
    #[arg(short = 'S', long, value_name = "SPAN", value_parser = time)]
    pub(crate) since: Option<Duration>,
    /// Print new lines as they are written, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print control characters unchanged instead of as escapes.
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
    /// Target that becomes the goal.
    #[arg(value_name = "GOAL")]
    pub(crate) goal: Target,
    /// Extra targets to run beside the goal, separated by commas or blanks.
    #[arg(long, value_name = "TARGET", num_args = 1.., value_delimiter = ',')]
    pub(crate) with: Vec<Target>,
    /// Do not wait for the outcome.
    #[arg(long)]
    pub(crate) no_block: bool,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    /// Unit to reload, or a target that the unit provides [default: read the files again].
    #[arg(value_name = "UNIT")]
    pub(crate) unit: Option<String>,
    /// Do not wait until the unit has reloaded.
    #[arg(long, requires = "unit")]
    pub(crate) no_block: bool,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    pub(crate) unit: UnitArgs,
    /// Do not wait for the outcome.
    #[arg(long)]
    pub(crate) no_block: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UnitArgs {
    /// Unit, or a target that the unit provides.
    #[arg(value_name = "UNIT")]
    pub(crate) unit: String,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

/// Maximum number of units that start at the same time; `None` for no limit.
pub(crate) type Starting = Option<NonZeroU32>;

fn starting(text: &str) -> Result<Starting, String> {
    native::starting(text).ok_or_else(|| format!("expected {}", native::STARTING))
}

fn option(text: &str) -> Result<String, String> {
    AcceptedOptions::default().add(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

fn external(text: &str) -> Result<(UnitName, External), String> {
    native::external(text).ok_or_else(|| format!("expected {}", native::EXTERNAL))
}

fn time(text: &str) -> Result<Duration, String> {
    let time = parse_timespan(text).ok().and_then(Timespan::as_duration);
    time.ok_or_else(|| "expected a time such as 30s or 2min".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// Unit files, init.conf, or directories that contain them.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Target to draw as the goal [default: the goal in init.conf].
    #[arg(long, value_name = "TARGET")]
    pub(crate) goal: Option<Target>,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "dot")]
    pub(crate) output: Drawing,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// Unit files or scripts of the other init, or directories that contain them.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Init system from which the files come.
    #[arg(long, value_name = "INIT")]
    pub(crate) from: From,
    /// Count all systemd units as enabled: WantedBy=, RequiredBy= and links in directories such as
    /// default.target.wants then become dependencies.
    #[arg(long)]
    pub(crate) enabled: bool,
    /// Output format; table prints the stanzas as a .unit file.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

/// Output format of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Drawing {
    /// Graphviz.
    Dot,
    /// Units and dependencies as one JSON document.
    Json,
}

/// Init system from which units are converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum From {
    /// systemd unit files, .service and .target.
    Systemd,
    /// `OpenRC` service scripts.
    Openrc,
    /// Init scripts with an LSB header.
    Sysv,
    /// dinit service descriptions.
    Dinit,
}

/// Commands of other inits with the commands that serve their purpose here.
const HINTS: [(&[&str], &str); 6] = [
    (
        &["start", "stop", "enable", "disable", "add", "delete"],
        "fleet-init runs what the goal needs: see `set-target --with`, `mask` and `unmask` in \
         `fleet-init --help`",
    ),
    (&["isolate", "change"], "choose another goal with `fleet-init set-target GOAL`"),
    (&["daemon-reload", "update"], "read the files again with `fleet-init reload`"),
    (&["list", "list-units", "is-active", "is-failed", "show"], "see `fleet-init status`"),
    (&["journal", "catlog"], "see `fleet-init logs UNIT`"),
    (&["verify", "lint"], "check the files with `fleet-init check PATH`"),
];

/// Replaces the suggestions of clap for an unknown command, whose measure of similarity suggests
/// `restart` for `start`.
pub(super) fn with_hint(mut error: clap::Error, command: &clap::Command) -> clap::Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand).cloned()
    else {
        return error;
    };
    error.remove(ContextKind::SuggestedSubcommand);
    let hint = HINTS.iter().find(|(commands, _)| commands.contains(&wrong.as_str()));
    let names = command.get_subcommands().map(clap::Command::get_name);
    if let Some((_, hint)) = hint {
        let hint = ContextValue::StyledStrs(vec![StyledStr::from(*hint)]);
        error.insert(ContextKind::Suggested, hint);
    } else if let Some(near) = nearest(&wrong, names) {
        let near = ContextValue::Strings(vec![near.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, near);
    }
    error
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::fleet_init::args::Cli;

    #[test]
    fn commands_of_other_inits_get_a_hint() {
        let all = HINTS.iter().flat_map(|(commands, _)| *commands);
        let hints = all.map(|command| (*command, "fleet-init "));
        let others = [("statsu", "'status'"), ("start", "set-target --with"), ("frobnicate", "")];
        for (command, hint) in hints.chain(others) {
            let error = Cli::command().try_get_matches_from(["fleet-init", command]).unwrap_err();
            let text = with_hint(error, &Cli::command()).to_string();
            let tip = text.lines().find(|line| line.contains("tip:")).unwrap_or_default();
            assert!(tip.contains(hint) && tip.is_empty() == hint.is_empty(), "{command}: {text}");
            assert!(!tip.contains("'restart'"), "{command}: {text}");
        }
    }
}
