//! Requests about rebalancing.

use fleet_core::RebalanceLimits;
use fleet_http::wire::RebalanceReport;

use super::{Session, cannot};
use crate::ui::error::CliError;

impl Session {
    /// Starts rebalancing, or returns the planned moves if `dry_run`.
    pub(crate) async fn rebalance(
        &self,
        limits: &RebalanceLimits,
        dry_run: bool,
    ) -> Result<RebalanceReport, CliError> {
        let report = self.client.rebalance(limits, dry_run).await;
        report.map_err(|error| cannot("rebalance the cluster".to_owned(), error))
    }

    /// Returns the progress of the rebalancing; `None` if there is none.
    pub(crate) async fn rebalancing(&self) -> Result<Option<RebalanceReport>, CliError> {
        let report = self.client.rebalance_status().await;
        report.map_err(|error| cannot("get the progress of rebalancing".to_owned(), error))
    }

    /// Cancels the rebalancing.
    pub(crate) async fn end_rebalancing(&self) -> Result<(), CliError> {
        let ended = self.client.cancel_rebalance().await;
        ended.map_err(|error| cannot("cancel rebalancing".to_owned(), error))
    }
}
