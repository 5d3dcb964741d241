//! Options of rollouts, and the subcommands of `rollout`.

use clap::{Args, Subcommand, ValueEnum};
use fleet_core::rollout::CountOrPercent;
use fleet_http::wire::RolloutOptions;

use super::subcommands::number;

/// Options by which a command updates units in batches.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct RolloutArgs {
    /// Update at most this many units at once, such as 2 or 25%.
    #[arg(long, value_name = "N", help_heading = ROLLOUT)]
    pub(crate) at_once: Option<CountOrPercent>,
    /// Keep at least this many units healthy, such as 4 or 75%.
    #[arg(long, value_name = "N", help_heading = ROLLOUT)]
    pub(crate) min_available: Option<CountOrPercent>,
    /// Require this many seconds of health before the next batch [default: 5]
    #[arg(long, value_name = "SECONDS", help_heading = ROLLOUT)]
    #[arg(value_parser = number(0..=86_400_u32))]
    pub(crate) settle: Option<u32>,
    /// Let a unit fail that is not healthy after this many seconds [default: 300]
    #[arg(long, value_name = "SECONDS", help_heading = ROLLOUT)]
    #[arg(value_parser = number(1..=86_400_u32))]
    pub(crate) deadline: Option<u32>,
    /// What to do if a unit fails [default: rollback]
    #[arg(long, value_name = "ACTION", help_heading = ROLLOUT)]
    pub(crate) on_failure: Option<FailureAction>,
}

/// Heading of the options in the help.
const ROLLOUT: &str = "Options of rollouts";

/// Reaction of a rollout to a unit that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailureAction {
    /// Return the updated units to their former version.
    Rollback,
    /// Leave all units as they are.
    Stop,
}

impl RolloutArgs {
    /// Returns the options of the rollout; `None` if no option is given.
    pub(crate) fn options(&self) -> Option<RolloutOptions> {
        let Self { at_once, min_available, settle, deadline, on_failure } = self;
        let millis = |seconds: u32| u64::from(seconds) * 1000;
        let options = RolloutOptions {
            at_once: at_once.map(|share| share.to_string()),
            deadline_ms: deadline.map(millis),
            min_available: min_available.map(|share| share.to_string()),
            on_failure: on_failure.map(|action| match action {
                FailureAction::Rollback => "rollback".to_owned(),
                FailureAction::Stop => "stop".to_owned(),
            }),
            settle_ms: settle.map(millis),
        };
        (options != RolloutOptions::default()).then_some(options)
    }
}

#[derive(Debug, Args)]
pub(crate) struct RolloutCommandArgs {
    #[command(subcommand)]
    pub(crate) command: RolloutCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RolloutCommand {
    /// List the rollouts, or show the members of one.
    Status(RolloutStatusArgs),
    /// Pause a rollout: no further unit changes until it is resumed.
    Pause(RolloutNameArgs),
    /// Resume a paused rollout.
    Resume(RolloutNameArgs),
    /// End a rollout; each unit keeps the version that it has.
    Abort(RolloutAbortArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RolloutStatusArgs {
    /// Number of the rollout, or a unit that it updates.
    #[arg(value_name = "ROLLOUT")]
    pub(crate) rollout: Option<String>,
    /// Wait until the rollout has ended.
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RolloutNameArgs {
    /// Number of the rollout, or a unit that it updates [default: the only one that has not ended]
    #[arg(value_name = "ROLLOUT")]
    pub(crate) rollout: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RolloutAbortArgs {
    #[command(flatten)]
    pub(crate) name: RolloutNameArgs,
    /// Return the updated units to their former version.
    #[arg(long)]
    pub(crate) rollback: bool,
}
