//! Arguments of `apply`, `diff`, `plan` and `scale`.

use clap::{Args, ValueEnum};
use fleet_core::TargetState;

use super::numbers::number;
use crate::fleetctl::args::{WaitArgs, WaitUntilArgs};

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
    /// Print the changes, but make none.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) until: WaitUntilArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) manifest: ManifestArgs,
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
    pub(crate) wait: WaitArgs,
}
