//! Calls to whichever endpoint answers, each within its time limit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use super::auth::Auth;
use super::config::{EtcdConfig, EtcdConfigError};
use super::failure::{Failure, Kind, Late, Odd};
use crate::clock::{wait, within};

/// The largest answer that is taken; a range is read in pages that keep below it.
const MAX_ANSWER: usize = 16 << 20;
/// The pause once every endpoint was asked in vain.
const PAUSE: Duration = Duration::from_millis(50);

/// The endpoints of a cluster, of which one is in use.
pub(super) struct Client {
    endpoints: Vec<Endpoint>,
    /// Which endpoint is asked first; whoever sees it fail moves on to the next.
    preferred: AtomicUsize,
    auth: Option<Auth>,
    limit: Duration,
}

struct Endpoint {
    url: String,
    channel: Channel,
}

/// A stream that has begun.
pub(super) struct Opened<A> {
    /// The endpoint that it is from.
    pub(super) at: usize,
    /// Its first answer.
    pub(super) first: A,
    /// What comes after that.
    pub(super) rest: Streaming<A>,
}

/// Whether a call may be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It does no more when it is done twice.
    Always,
    /// Only when the first one surely did nothing.
    IfNotDone,
}

/// The methods of etcd's v3 API that are called.
#[derive(Debug, Clone, Copy)]
pub(super) struct Method(&'static str);

impl Method {
    pub(super) const RANGE: Self = Self("/etcdserverpb.KV/Range");
    pub(super) const TXN: Self = Self("/etcdserverpb.KV/Txn");
    pub(super) const WATCH: Self = Self("/etcdserverpb.Watch/Watch");
    pub(super) const GRANT: Self = Self("/etcdserverpb.Lease/LeaseGrant");
    pub(super) const REVOKE: Self = Self("/etcdserverpb.Lease/LeaseRevoke");
    pub(super) const KEEP_ALIVE: Self = Self("/etcdserverpb.Lease/LeaseKeepAlive");
    pub(super) const TIME_TO_LIVE: Self = Self("/etcdserverpb.Lease/LeaseTimeToLive");
    pub(super) const AUTHENTICATE: Self = Self("/etcdserverpb.Auth/Authenticate");
}

impl Client {
    pub(super) fn new(config: &EtcdConfig) -> Result<Self, EtcdConfigError> {
        let endpoints = config.channels()?.into_iter();
        let endpoints = endpoints.map(|(url, channel)| Endpoint { url, channel }).collect();
        let auth = config.user.clone().map(Auth::new);
        Ok(Self { endpoints, preferred: AtomicUsize::new(0), auth, limit: config.time_limit })
    }

    /// How long one call to one endpoint may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Asks one endpoint after the other until one answers, each at most once and the first twice.
    pub(super) async fn call<Q, A>(
        &self,
        method: Method,
        request: &Q,
        repeat: Repeat,
    ) -> Result<A, Failure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let one = |at| self.unary(at, method, request.clone());
        self.persist(repeat, one).await
    }

    /// Asks one endpoint, once.
    pub(super) async fn ask<Q, A>(
        &self,
        at: usize,
        method: Method,
        request: &Q,
    ) -> Result<A, Failure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.unary(at, method, request.clone()).await
    }

    /// Like [`call`](Self::call), for a method that answers by a stream.
    pub(super) async fn open<Q, A, S>(
        &self,
        method: Method,
        requests: impl Fn() -> S,
    ) -> Result<Opened<A>, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
        S: futures_util::Stream<Item = Q> + Send + 'static,
    {
        let one = |at| self.stream(at, method, requests());
        self.persist(Repeat::Always, one).await
    }

    /// Whether another token could be got after this one was refused.
    pub(super) fn has_user(&self) -> bool {
        self.auth.is_some()
    }

    /// Forgets the token, so that the next call gets another.
    pub(super) async fn forget_token(&self) {
        if let Some(auth) = &self.auth {
            auth.forget().await;
        }
    }

    /// The endpoint that calls go to now.
    pub(super) fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed) % self.endpoints.len()
    }

    /// Moves on from an endpoint that failed, unless somebody did so before.
    pub(super) fn leave(&self, at: usize) {
        let next = (at + 1) % self.endpoints.len();
        // That it was left before is just as well.
        let _left =
            self.preferred.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    }

    async fn persist<T, F>(&self, repeat: Repeat, one: impl Fn(usize) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let most = self.endpoints.len() + 1;
        let (mut tried, mut doubt) = (0, false);
        loop {
            let at = self.preferred();
            let failure = match one(at).await {
                Ok(answer) => return Ok(answer),
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

    async fn react(&self, at: usize, failure: &Failure) {
        if failure.blames_endpoint() {
            self.leave(at);
        }
        if failure.kind == Kind::BadToken {
            self.forget_token().await;
        }
    }

    async fn unary<Q, A>(&self, at: usize, method: Method, request: Q) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let request = self.prepared(at, request).await?;
        self.in_time(at, self.send(at, method, request)).await
    }

    async fn stream<Q, A, S>(
        &self,
        at: usize,
        method: Method,
        requests: S,
    ) -> Result<Opened<A>, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
        S: futures_util::Stream<Item = Q> + Send + 'static,
    {
        let request = self.prepared(at, requests).await?;
        let opening = async {
            let mut grpc = self.grpc(at).await?;
            let codec = ProstCodec::<Q, A>::default();
            let opened = grpc.streaming(request, PathAndQuery::from_static(method.0), codec).await;
            let mut stream = opened.map_err(|status| self.failure(at, status))?.into_inner();
            let first = stream.message().await.map_err(|status| self.failure(at, status))?;
            let ended = || Failure::new(Kind::NotDone, Odd("a stream ended with no answer"));
            Ok(Opened { at, first: first.ok_or_else(ended)?, rest: stream })
        };
        self.in_time(at, opening).await
    }

    /// The request with what etcd is to know of it: a member that has lost the others says so, and
    /// who asks.
    async fn prepared<Q>(&self, at: usize, message: Q) -> Result<Request<Q>, Failure> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(auth) = &self.auth {
            let getting = auth.token(|asked| self.send(at, Method::AUTHENTICATE, asked));
            let token = self.in_time(at, getting).await.map_err(Failure::undone)?;
            if let Some(token) = token {
                request.metadata_mut().insert("token", token);
            }
        }
        Ok(request)
    }

    async fn send<Q, A>(&self, at: usize, method: Method, request: Request<Q>) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc(at).await?;
        let codec = ProstCodec::<Q, A>::default();
        let answer = grpc.unary(request, PathAndQuery::from_static(method.0), codec).await;
        answer.map(tonic::Response::into_inner).map_err(|status| self.failure(at, status))
    }

    async fn grpc(&self, at: usize) -> Result<Grpc<Channel>, Failure> {
        let channel = self.endpoints[at].channel.clone();
        let mut grpc = Grpc::new(channel).max_decoding_message_size(MAX_ANSWER);
        // Nothing was sent yet when this fails.
        grpc.ready().await.map_err(|error| Failure::new(Kind::NotDone, error))?;
        Ok(grpc)
    }

    async fn in_time<T>(
        &self,
        at: usize,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let late = || {
            let endpoint = self.endpoints[at].url.clone();
            Err(Failure::new(Kind::Doubtful, Late { endpoint, limit: self.limit }))
        };
        within(self.limit, work).await.unwrap_or_else(late)
    }

    fn failure(&self, at: usize, status: tonic::Status) -> Failure {
        Failure::status(&self.endpoints[at].url, status)
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
