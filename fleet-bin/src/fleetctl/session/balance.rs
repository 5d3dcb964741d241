//! What commands ask of the cluster about how its units are spread.

use fleet_core::BalanceTerms;
use fleet_http::wire::RebalanceReport;

use super::{Session, cannot};
use crate::fleetctl::error::CliError;

impl Session {
    /// Has units spread more evenly, or tells what that would come to.
    pub(crate) async fn rebalance(
        &self,
        terms: &BalanceTerms,
        dry_run: bool,
    ) -> Result<RebalanceReport, CliError> {
        let report = self.client.rebalance(terms, dry_run).await;
        report.map_err(|error| cannot("rebalance the cluster".to_owned(), error))
    }

    /// What is left to be moved for the order to rebalance; `None` if there is none.
    pub(crate) async fn rebalancing(&self) -> Result<Option<RebalanceReport>, CliError> {
        let report = self.client.rebalancing().await;
        report.map_err(|error| cannot("look at the order to rebalance".to_owned(), error))
    }

    /// Takes the order to rebalance back.
    pub(crate) async fn end_rebalancing(&self) -> Result<(), CliError> {
        let ended = self.client.end_rebalancing().await;
        ended.map_err(|error| cannot("take the order to rebalance back".to_owned(), error))
    }
}
