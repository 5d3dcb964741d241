//! Calls to any working endpoint, each with a timeout. Authenticates if etcd requires it.
//!
//! Each endpoint has a client of its own. The `etcd-client` library can also use several endpoints
//! in one client. But such a client chooses a random endpoint for each call, even if that endpoint
//! has just failed, and does not report its choice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::proto::{PbRangeResponse, PbTxnResponse};
use etcd_client::{Error, GetOptions, KvClient, Txn, WatchOptions, WatchResponse, WatchStream};
use tokio::sync::Mutex;
use tonic::Code;

use super::config::{EtcdConfig, EtcdConfigError, EtcdUser};
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

/// Maximum size of a response. Ranges are read in pages smaller than this, and etcd splits the
/// changes of a watch into fragments smaller than this.
const MAX_RESPONSE: usize = 16 << 20;

pub(super) struct Endpoint {
    pub(super) url: String,
    client: etcd_client::Client,
    user: Option<EtcdUser>,
    /// Whether the client has authenticated. Locked during authentication, so that concurrent calls
    /// authenticate only once.
    authenticated: Mutex<bool>,
}

impl Endpoint {
    pub(super) fn new(url: String, client: etcd_client::Client, user: Option<EtcdUser>) -> Self {
        Self { url, client, user, authenticated: Mutex::new(false) }
    }

    /// Reads a range.
    pub(super) async fn get(
        &self,
        key: &[u8],
        options: &GetOptions,
    ) -> Result<PbRangeResponse, Error> {
        Ok(self.kv().get(key, Some(options.clone())).await?.0)
    }

    pub(super) async fn txn(&self, txn: &Txn) -> Result<PbTxnResponse, Error> {
        Ok(self.kv().txn(txn.clone()).await?.0)
    }

    /// Grants a lease of `ttl` seconds and returns its ID.
    pub(super) async fn grant(&self, ttl: i64) -> Result<i64, Error> {
        Ok(self.client.lease_client().grant(ttl, None).await?.id())
    }

    pub(super) async fn renew(&self, lease: i64) -> Result<(), Error> {
        self.client.lease_client().keep_alive(lease).await.map(|_kept| ())
    }

    pub(super) async fn revoke(&self, lease: i64) -> Result<(), Error> {
        self.client.lease_client().revoke(lease).await.map(|_revoked| ())
    }

    /// Returns the remaining seconds of a lease. The result is zero or negative if the lease has
    /// ended.
    pub(super) async fn seconds_left(&self, lease: i64) -> Result<i64, Error> {
        Ok(self.client.lease_client().time_to_live(lease, None).await?.ttl())
    }

    /// Opens a watch and waits for the first response.
    pub(super) async fn watch(
        &self,
        key: &[u8],
        options: &WatchOptions,
    ) -> Result<(WatchStream, WatchResponse), Error> {
        let mut watches = self.client.watch_client().max_decoding_message_size(MAX_RESPONSE);
        let mut stream = watches.watch(key, Some(options.clone())).await?;
        match stream.message().await? {
            Some(first) => Ok((stream, first)),
            None => Err(Error::WatchError("it ended with no response".to_owned())),
        }
    }

    fn kv(&self) -> KvClient {
        self.client.kv_client().max_decoding_message_size(MAX_RESPONSE)
    }

    /// Returns whether the client authenticates.
    pub(super) fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// Authenticates if the client has a user and has not authenticated yet. Afterwards the library
    /// renews the token itself, but only when etcd's error clearly reports an invalid token.
    pub(super) async fn authenticate(&self) -> Result<(), Error> {
        let Some(EtcdUser { name, password }) = &self.user else { return Ok(()) };
        let mut authenticated = self.authenticated.lock().await;
        if *authenticated {
            return Ok(());
        }
        let user = Some((name.clone(), password.clone()));
        match self.client.clone().update_user(user).await {
            // Authentication is disabled in etcd.
            Err(Error::GRpcStatus(status)) if status.code() == Code::FailedPrecondition => {}
            response => response?,
        }
        *authenticated = true;
        Ok(())
    }

    /// Makes the next call authenticate again. This is needed when a token has expired but the
    /// library does not recognize that from etcd's error.
    pub(super) async fn forget_token(&self) {
        *self.authenticated.lock().await = false;
    }
}
