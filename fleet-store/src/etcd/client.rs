//! Calls to whichever endpoint answers, each within its time limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::proto::{PbRangeResponse, PbTxnResponse};
use etcd_client::{Error, GetOptions, Txn};

use super::config::{EtcdConfig, EtcdConfigError};
use super::endpoint::Endpoint;
use super::failure::{Failure, Kind, Late};
use crate::clock::{wait, within};

/// The pause once every endpoint was asked in vain.
const PAUSE: Duration = Duration::from_millis(50);

/// The endpoints of a cluster, of which one is in use.
pub(super) struct Client {
    endpoints: Vec<Arc<Endpoint>>,
    /// Which endpoint is asked first; whoever sees it fail moves on to the next.
    preferred: AtomicUsize,
    limit: Duration,
}

/// Whether a call may be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
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
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Reads a range.
    pub(super) async fn get(
        &self,
        key: &[u8],
        options: &GetOptions,
    ) -> Result<PbRangeResponse, Failure> {
        let one = |endpoint: Arc<Endpoint>| async move { endpoint.get(key, options).await };
        self.call(Repeat::Always, one).await
    }

    pub(super) async fn txn(&self, txn: &Txn, repeat: Repeat) -> Result<PbTxnResponse, Failure> {
        self.call(repeat, |endpoint| async move { endpoint.txn(txn).await }).await
    }

    /// Asks one endpoint after the other until one answers, each at most once and the first twice.
    pub(super) async fn call<T, F>(
        &self,
        repeat: Repeat,
        one: impl Fn(Arc<Endpoint>) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.call_somewhere(repeat, one).await.map(|(_, answer)| answer)
    }

    /// Like [`call`](Self::call), and says which endpoint it is that answered.
    pub(super) async fn call_somewhere<T, F>(
        &self,
        repeat: Repeat,
        one: impl Fn(Arc<Endpoint>) -> F,
    ) -> Result<(usize, T), Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let most = self.endpoints.len() + 1;
        let (mut tried, mut doubt) = (0, false);
        loop {
            let at = self.preferred();
            let failure = match self.ask(at, &one).await {
                Ok(answer) => return Ok((at, answer)),
                Err(failure) => failure,
            };
            tried += 1;
            doubt |= failure.kind == Kind::Doubtful;
            self.react(at, &failure).await;
            if tried == most || !failure.may_pass(repeat) {
                return Err(failure.or_doubt(doubt));
            }
            if tried + 1 == most {
                wait(PAUSE).await;
            }
        }
    }

    /// Asks one endpoint, once.
    pub(super) async fn ask<T, F>(
        &self,
        at: usize,
        one: impl Fn(Arc<Endpoint>) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let endpoint = &self.endpoints[at];
        // Whatever becomes of it, what it was for has not happened.
        self.in_time(endpoint, endpoint.introduce()).await.map_err(Failure::undone)?;
        self.in_time(endpoint, one(endpoint.clone())).await
    }

    /// Makes the next call to that endpoint get another token, if it has one.
    pub(super) async fn forget_token(&self, at: usize) -> bool {
        let endpoint = &self.endpoints[at];
        endpoint.forget_token().await;
        endpoint.has_user()
    }

    /// Moves on from an endpoint that failed, unless somebody did so before.
    pub(super) fn leave(&self, at: usize) {
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
        if failure.blames_endpoint() {
            self.leave(at);
        }
        if failure.kind == Kind::BadToken {
            self.endpoints[at].forget_token().await;
        }
    }

    async fn in_time<T>(
        &self,
        endpoint: &Endpoint,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        match within(self.limit, work).await {
            Some(answer) => answer.map_err(|error| Failure::at(&endpoint.url, error)),
            None => {
                let late = Late { endpoint: endpoint.url.clone(), limit: self.limit };
                Err(Failure::new(Kind::Doubtful, late))
            }
        }
    }
}

impl Failure {
    /// Whether the call that failed may be made once more.
    fn may_pass(&self, repeat: Repeat) -> bool {
        match self.kind {
            Kind::NotDone | Kind::BadToken => true,
            Kind::Doubtful => repeat == Repeat::Always,
            _ => false,
        }
    }

    /// The failure of several calls, one of which is in doubt or not.
    fn or_doubt(mut self, doubt: bool) -> Self {
        if doubt && matches!(self.kind, Kind::NotDone | Kind::BadToken | Kind::Refused) {
            self.kind = Kind::Doubtful;
        }
        self
    }
}
