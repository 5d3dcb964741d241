//! Calls to whichever endpoint answers, each within its time limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::proto::{PbRangeResponse, PbTxnResponse};
use etcd_client::{Error, GetOptions, Txn};

use super::config::{EtcdConfig, EtcdConfigError};
use super::endpoint::Endpoint;
use super::failure::{Failure, FailureKind, TimeoutError};
use crate::clock::{sleep, within};

/// The pause once every endpoint was asked in vain.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The endpoints of a cluster, of which one is in use.
pub(super) struct Client {
    endpoints: Vec<Arc<Endpoint>>,
    /// Which endpoint is asked first; whoever sees it fail moves on to the next.
    preferred: AtomicUsize,
    limit: Duration,
}

/// Whether a call may be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// It does no more when it is done twice.
    Always,
    /// Only when the first one surely did nothing.
    IfNotDone,
}

impl Client {
    pub(super) fn new(config: &EtcdConfig) -> Result<Self, EtcdConfigError> {
        let clients = config.clients()?.into_iter();
        let endpoint = |(url, client)| Arc::new(Endpoint::new(url, client, config.user.clone()));
        let endpoints = clients.map(endpoint).collect();
        Ok(Self { endpoints, preferred: AtomicUsize::new(0), limit: config.time_limit })
    }

    /// How long one call to one endpoint may take.
    pub(super) fn timeout(&self) -> Duration {
        self.limit
    }

    /// Reads a range.
    pub(super) async fn get(
        &self,
        key: &[u8],
        options: &GetOptions,
    ) -> Result<PbRangeResponse, Failure> {
        let one = |endpoint: Arc<Endpoint>| async move { endpoint.get(key, options).await };
        self.call(Retry::Always, one).await
    }

    pub(super) async fn txn(&self, txn: &Txn, retry: Retry) -> Result<PbTxnResponse, Failure> {
        self.call(retry, |endpoint| async move { endpoint.txn(txn).await }).await
    }

    /// Asks one endpoint after the other until one answers, each at most once and the first twice.
    pub(super) async fn call<T, F>(
        &self,
        retry: Retry,
        one: impl Fn(Arc<Endpoint>) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.call_any(retry, one).await.map(|(_, response)| response)
    }

    /// Like [`call`](Self::call), and says which endpoint it is that answered.
    pub(super) async fn call_any<T, F>(
        &self,
        retry: Retry,
        one: impl Fn(Arc<Endpoint>) -> F,
    ) -> Result<(usize, T), Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let most = self.endpoints.len() + 1;
        let (mut tried, mut is_ambiguous) = (0, false);
        loop {
            let at = self.preferred();
            let failure = match self.call_endpoint(at, &one).await {
                Ok(response) => return Ok((at, response)),
                Err(failure) => failure,
            };
            tried += 1;
            is_ambiguous |= failure.kind == FailureKind::Ambiguous;
            self.react(at, &failure).await;
            if tried == most || !failure.is_retryable(retry) {
                return Err(failure.with_ambiguity(is_ambiguous));
            }
            if tried + 1 == most {
                sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Asks one endpoint, once.
    pub(super) async fn call_endpoint<T, F>(
        &self,
        at: usize,
        one: impl Fn(Arc<Endpoint>) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let endpoint = &self.endpoints[at];
        // Whatever becomes of it, what it was for has not happened.
        self.with_timeout(endpoint, endpoint.authenticate()).await.map_err(Failure::as_not_done)?;
        self.with_timeout(endpoint, one(endpoint.clone())).await
    }

    /// Makes the next call to that endpoint get another token, if it has one.
    pub(super) async fn forget_token(&self, at: usize) -> bool {
        let endpoint = &self.endpoints[at];
        endpoint.forget_token().await;
        endpoint.has_user()
    }

    /// Moves on from an endpoint that failed, unless somebody did so before.
    pub(super) fn switch_from(&self, at: usize) {
        let next = (at + 1) % self.endpoints.len();
        // That it was left before is just as well.
        let _left =
            self.preferred.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    }

    /// The endpoint that calls go to now.
    fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed) % self.endpoints.len()
    }

    async fn react(&self, at: usize, failure: &Failure) {
        if failure.is_endpoint_failure() {
            self.switch_from(at);
        }
        if failure.kind == FailureKind::BadToken {
            self.endpoints[at].forget_token().await;
        }
    }

    async fn with_timeout<T>(
        &self,
        endpoint: &Endpoint,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        match within(self.limit, work).await {
            Some(response) => response.map_err(|error| Failure::at(&endpoint.url, error)),
            None => {
                let late = TimeoutError { endpoint: endpoint.url.clone(), limit: self.limit };
                Err(Failure::new(FailureKind::Ambiguous, late))
            }
        }
    }
}

impl Failure {
    /// Whether the call that failed may be made once more.
    fn is_retryable(&self, retry: Retry) -> bool {
        match self.kind {
            FailureKind::NotDone | FailureKind::BadToken => true,
            FailureKind::Ambiguous => retry == Retry::Always,
            _ => false,
        }
    }

    /// The failure of several calls, one of which is in doubt or not.
    fn with_ambiguity(mut self, is_ambiguous: bool) -> Self {
        if is_ambiguous
            && matches!(
                self.kind,
                FailureKind::NotDone | FailureKind::BadToken | FailureKind::Refused
            )
        {
            self.kind = FailureKind::Ambiguous;
        }
        self
    }
}
