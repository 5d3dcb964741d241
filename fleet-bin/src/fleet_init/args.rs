//! The command line as it is written.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
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
    /// Draw the units and their dependencies, for dot of Graphviz.
    ///
    /// For example: fleet-init graph DIR | dot -Tsvg > units.svg
    Graph(GraphArgs),
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
}
