//! Client methods for rebalancing.

use fleet_core::RebalanceLimits;
use hyper::Method;

use super::query::Query;
use super::{Client, ClientError, none_if_not_found};
use crate::wire::RebalanceReport;

impl Client {
    /// Orders the engine to move units from loaded machines to less loaded ones, and returns the
    /// planned moves. A dry run returns the moves without ordering them. If no moves are planned,
    /// the report gives the reason.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 400 if the limits are invalid.
    ///
    /// ```no_run
    /// use fleet_core::RebalanceLimits;
    /// use fleet_http::Client;
    ///
    /// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = RebalanceLimits { max_in_flight: 2, ..RebalanceLimits::default() };
    /// for it in client.rebalance(&limits, true).await?.moves {
    ///     println!("{} would go from {} to {}", it.unit, it.from, it.to);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn rebalance(
        &self,
        limits: &RebalanceLimits,
        dry_run: bool,
    ) -> Result<RebalanceReport, ClientError> {
        let RebalanceLimits { max_in_flight: at_once, gain, min_available, max_moves: most } =
            limits;
        let query = Query::new()
            .with("atOnce", Some(&at_once.to_string()))
            .with("gain", Some(&gain.to_string()))
            .with("keepUp", Some(&min_available.to_string()))
            .with("most", most.map(|most| most.to_string()).as_deref())
            .with("dryRun", dry_run.then_some("1"));
        let body = self.caller.send_empty(Method::POST, &format!("rebalance{query}")).await?;
        self.caller.decode(&body)
    }

    /// Returns the remaining work of a rebalancing, or `None` if none is in progress.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn rebalance_status(&self) -> Result<Option<RebalanceReport>, ClientError> {
        none_if_not_found(self.caller.get("rebalance", &Query::new()).await)
    }

    /// Cancels the rebalancing, if one is in progress. Units that were moved stay on their new
    /// machines, and no further units are moved.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn cancel_rebalance(&self) -> Result<(), ClientError> {
        self.caller.send_empty(Method::DELETE, "rebalance").await.map(drop)
    }
}
