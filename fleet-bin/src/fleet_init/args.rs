//! The command line as it is written.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fleet_core::graph::Target;

use crate::fleetctl::global_args::Format;

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
    /// Say what would start for a goal, in which waves, and for whom.
    ///
    /// The units of a wave wait for units of the waves before, and for nothing else.
    Plan(PlanArgs),
    /// Draw the units and their dependencies, as SVG or for dot of Graphviz.
    ///
    /// For example: fleet-init graph DIR -o svg > units.svg
    Graph(GraphArgs),
    /// Turn units of another init into stanzas, and say what is lost.
    ///
    /// Stanzas go to standard output, and losses to standard error. Scripts are read and never run.
    /// For example: fleet-init convert --from openrc /etc/init.d > converted.unit
    #[command(after_help = "Exit codes: 0 nothing is lost, 1 something is or could not be done, \
                            2 the command line is wrong.")]
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
    /// Files, or directories.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// The target to plan for, instead of the goal in init.conf.
    #[arg(long, value_name = "TARGET")]
    pub(crate) goal: Option<Target>,
    /// How results are printed.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
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
    /// How stanzas and losses are printed.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Text,
}

/// A language for pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Drawing {
    /// That of Graphviz.
    Dot,
    /// What browsers show.
    Svg,
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

/// How text is printed that is a file by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Text {
    /// As it is.
    Text,
    /// In one JSON document.
    Json,
}
