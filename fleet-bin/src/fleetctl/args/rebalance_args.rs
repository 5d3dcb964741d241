//! Arguments of `rebalance`.

use clap::Args;
use fleet_core::RebalanceLimits;

use super::numbers::number;

#[derive(Debug, Args)]
pub(crate) struct RebalanceArgs {
    #[command(flatten)]
    limits: RebalanceLimitArgs,
    /// Print the moves, but make none.
    #[arg(long, conflicts_with_all = ["wait", "wait_timeout"])]
    pub(crate) dry_run: bool,
    /// Cancel the rebalancing; units that were moved stay where they are.
    #[arg(
        long,
        conflicts_with_all = ["at_once", "max", "gain", "keep_up", "dry_run", "wait"]
    )]
    pub(crate) stop: bool,
    /// Wait until the rebalancing is over.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait for up to this many seconds [default: without limit]
    #[arg(long, value_name = "SECONDS", requires = "wait", value_parser = number(0..=u32::MAX))]
    pub(crate) wait_timeout: Option<u32>,
}

#[derive(Debug, Args)]
struct RebalanceLimitArgs {
    /// Move up to N units at a time; a move ends when the unit is active again.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = number(1..=RebalanceLimits::MAX_IN_FLIGHT)
    )]
    at_once: u32,
    /// Move up to N units in total [default: without limit]
    #[arg(long, value_name = "N", value_parser = number(1..=u32::MAX))]
    max: Option<u32>,
    /// Move a unit only if its new machine has at least N + 2 units fewer than its old one.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=u32::MAX))]
    gain: u32,
    /// Keep at least N instances of each template active while units move.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=u32::MAX))]
    keep_up: u32,
}

impl RebalanceArgs {
    /// Returns the limits on the command line.
    pub(crate) fn limits(&self) -> RebalanceLimits {
        let RebalanceLimitArgs { at_once, max, gain, keep_up } = self.limits;
        let (max_in_flight, max_moves, min_available) = (at_once, max, keep_up);
        RebalanceLimits { max_in_flight, gain, min_available, max_moves }
    }
}
