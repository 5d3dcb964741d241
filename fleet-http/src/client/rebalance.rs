//! What a client can do to spread the units of a cluster.

use fleet_core::BalanceTerms;
use hyper::Method;

use super::query::Query;
use super::{Client, ClientError, found};
use crate::wire::RebalanceReport;

impl Client {
    /// Has units moved from full machines to emptier ones, and returns which, as things stand;
    /// where it is a dry run that is all. Where nothing is to be moved the report tells why.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 400 where the terms cannot be meant.
    ///
    /// ```no_run
    /// use fleet_core::BalanceTerms;
    /// use fleet_http::Client;
    ///
    /// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let terms = BalanceTerms { at_once: 2, ..BalanceTerms::default() };
    /// for it in client.rebalance(&terms, true).await?.moves {
    ///     println!("{} would go from {} to {}", it.unit, it.from, it.to);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn rebalance(
        &self,
        terms: &BalanceTerms,
        dry_run: bool,
    ) -> Result<RebalanceReport, ClientError> {
        let BalanceTerms { at_once, gain, keep_up, most } = terms;
        let query = Query::new()
            .with("atOnce", Some(&at_once.to_string()))
            .with("gain", Some(&gain.to_string()))
            .with("keepUp", Some(&keep_up.to_string()))
            .with("most", most.map(|most| most.to_string()).as_deref())
            .with("dryRun", dry_run.then_some("1"));
        let body = self.caller.send_empty(Method::POST, &format!("rebalance{query}")).await?;
        self.caller.decode(&body)
    }

    /// What is left to be done for the order to rebalance; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn rebalancing(&self) -> Result<Option<RebalanceReport>, ClientError> {
        found(self.caller.get("rebalance", &Query::new()).await)
    }

    /// Takes the order to rebalance back, if there is one: nobody is moved for it any more.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn end_rebalancing(&self) -> Result<(), ClientError> {
        self.caller.send_empty(Method::DELETE, "rebalance").await.map(drop)
    }
}
