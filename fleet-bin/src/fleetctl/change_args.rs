//! The command lines of what brings a cluster to what files say, and of what tells beforehand.

use clap::{Args, ValueEnum};
use fleet_core::TargetState;

use super::args::{UntilArgs, WaitArgs};
use crate::fleetctl::numbers::number;

/// Unit files, and what their units are to be.
#[derive(Debug, Args)]
pub(crate) struct WantedArgs {
    /// Unit files, and folders of such; ".service" is added to a file where no type is given.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub(crate) paths: Vec<String>,
    /// What the units are to be; templates are only submitted.
    #[arg(long, value_name = "STATE", default_value = "launched")]
    pub(crate) state: State,
}

/// A desired state, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum State {
    /// Started.
    Launched,
    /// On a machine, and not started.
    Loaded,
    /// Known, and on no machine.
    Inactive,
}

impl From<State> for TargetState {
    fn from(state: State) -> Self {
        match state {
            State::Launched => Self::Launched,
            State::Loaded => Self::Loaded,
            State::Inactive => Self::Inactive,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) wanted: WantedArgs,
    /// Tell what would be done, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) until: UntilArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) wanted: WantedArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Unit files, and folders of such, that would be applied.
    #[arg(value_name = "FILE|DIR")]
    pub(crate) paths: Vec<String>,
    /// What the units of these files would be.
    #[arg(long, value_name = "STATE", default_value = "launched")]
    pub(crate) state: State,
    /// A unit that would be destroyed; may be given several times.
    #[arg(long, value_name = "UNIT")]
    pub(crate) destroy: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// The template, such as web@ or web@.service.
    #[arg(value_name = "TEMPLATE@")]
    pub(crate) template: String,
    /// How many instances there are to be.
    #[arg(value_name = "N", value_parser = number(0..=10_000_u32))]
    pub(crate) count: u32,
    /// Tell what would be done, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}
