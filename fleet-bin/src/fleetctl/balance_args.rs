//! The command line of `fleetctl rebalance`, as it is written.

use clap::Args;
use fleet_core::BalanceTerms;

use crate::fleetctl::numbers::number;

#[derive(Debug, Args)]
pub(crate) struct RebalanceArgs {
    #[command(flatten)]
    terms: TermsArgs,
    /// Tell what would move, and change nothing.
    #[arg(long, conflicts_with_all = ["wait", "wait_timeout"])]
    pub(crate) dry_run: bool,
    /// Take the order back: who was moved stays where it is now.
    #[arg(
        long,
        conflicts_with_all = ["at_once", "max", "gain", "keep_up", "dry_run", "wait"]
    )]
    pub(crate) stop: bool,
    /// Wait until no move is left.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait for so many seconds at most [default: without limit]
    #[arg(long, value_name = "SECONDS", requires = "wait", value_parser = number(0..=u32::MAX))]
    pub(crate) wait_timeout: Option<u32>,
}

#[derive(Debug, Args)]
struct TermsArgs {
    /// Have up to N units under way at the same time, from when they leave until they are up.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = number(1..=BalanceTerms::MOST_AT_ONCE)
    )]
    at_once: u32,
    /// Move up to N units in all [default: as many as it takes]
    #[arg(long, value_name = "N", value_parser = number(1..=u32::MAX))]
    max: Option<u32>,
    /// Move units only from machines that have more than N units more than another would then.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=u32::MAX))]
    gain: u32,
    /// Move instances of a template only while N of them stay up.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=u32::MAX))]
    keep_up: u32,
}

impl RebalanceArgs {
    /// What is asked for.
    pub(crate) fn terms(&self) -> BalanceTerms {
        let TermsArgs { at_once, max: most, gain, keep_up } = self.terms;
        BalanceTerms { at_once, gain, keep_up, most }
    }
}
