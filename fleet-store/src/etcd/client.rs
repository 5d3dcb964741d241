//! Calls to any working endpoint, each with a timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::proto::{PbRangeResponse, PbTxnResponse};
use etcd_client::{Error, GetOptions, Txn};

use super::config::{EtcdConfig, EtcdConfigError};
use super::endpoint::Endpoint;
use super::failure::{Failure, FailureKind, TimeoutError};
use crate::clock::{sleep, within};

/// Pause after all endpoints have failed.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Endpoints of a cluster, one of them preferred.
pub(super) struct Client {
    endpoints: Vec<Arc<Endpoint>>,
    /// Index of the endpoint to call first. When a call to this endpoint fails, the next endpoint
    /// becomes the preferred one.
    preferred: AtomicUsize,
    limit: Duration,
}

/// Rule for repeating a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// Always repeat, because the call is idempotent.
    Always,
    /// Repeat only after a failure that certainly changed nothing.
    IfNotDone,
}

impl Client {
    pub(super) fn new(config: &EtcdConfig) -> Result<Self, EtcdConfigError> {
        let clients = config.clients()?.into_iter();
        let endpoint = |(url, client)| Arc::new(Endpoint::new(url, client, config.user.clone()));
        let endpoints = clients.map(endpoint).collect();
        Ok(Self { endpoints, preferred: AtomicUsize::new(0), limit: config.time_limit })
    }

    /// Returns the timeout of a call to an endpoint.
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

    /// Calls the endpoints in turn until one responds or `retry` forbids a repetition. Each
    /// endpoint is tried at most once, except that the first one is tried again at the end.
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

    /// Like [`call`](Self::call), and also returns the index of the endpoint that responded.
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

    /// Calls one endpoint once.
    pub(super) async fn call_endpoint<T, F>(
        &self,
        at: usize,
        one: impl Fn(Arc<Endpoint>) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let endpoint = &self.endpoints[at];
        // A failed authentication means that the call itself was not made.
        self.with_timeout(endpoint, endpoint.authenticate())
            .await
            .map_err(Failure::into_not_done)?;
        self.with_timeout(endpoint, one(endpoint.clone())).await
    }

    /// Discards the endpoint's token, so that its next call gets a new one. Returns whether the
    /// endpoint uses tokens.
    pub(super) async fn forget_token(&self, at: usize) -> bool {
        let endpoint = &self.endpoints[at];
        endpoint.forget_token().await;
        endpoint.has_user()
    }

    /// Prefers the next endpoint, unless another call has switched already.
    pub(super) fn switch_from(&self, at: usize) {
        let next = (at + 1) % self.endpoints.len();
        // Failure means that another call has switched.
        let _left =
            self.preferred.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    }

    /// Returns the preferred endpoint.
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
    /// Returns whether the failed call may be repeated.
    fn is_retryable(&self, retry: Retry) -> bool {
        match self.kind {
            FailureKind::NotDone | FailureKind::BadToken => true,
            FailureKind::Ambiguous => retry == Retry::Always,
            _ => false,
        }
    }

    /// If `is_ambiguous` is set, turns a failure without effect into an ambiguous one, because an
    /// earlier attempt of the same call may have been applied.
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
