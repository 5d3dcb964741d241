//! Sending one request and understanding its answer.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::{Client as Pool, Error as PoolError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::connect::Connector;
use super::query::Query;
use super::{ClientError, Credentials, Endpoint, Entity};
use crate::wire::ErrorBody;
use crate::{BEHIND, PROXIED, TlsError};

/// How long a whole answer may take, connecting included.
const ANSWER: Duration = Duration::from_secs(30);

/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(30);

/// How large an answer may be, in bytes; a larger one is refused.
const MOST_ANSWER: usize = 256 << 20;

/// Sends requests to one endpoint over connections that are used again.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    endpoint: Endpoint,
    /// What requests show, besides a certificate.
    token: Option<HeaderValue>,
    /// Whether it is asked for somebody else.
    is_proxy: bool,
    pool: Pool<Connector, Full<Bytes>>,
    /// How many seconds ago the server had lost sight of its store at its last answer; or zero.
    behind: Arc<AtomicU64>,
}

impl Caller {
    pub(super) fn new(endpoint: Endpoint, credentials: Credentials) -> Self {
        let connector = Connector::new(endpoint.clone(), credentials.tls);
        let token = credentials.token.and_then(|token| {
            let mut shown = HeaderValue::try_from(format!("Bearer {}", token.as_str())).ok()?;
            shown.set_sensitive(true);
            Some(shown)
        });
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Self { endpoint, token, is_proxy: false, pool, behind: Arc::default() }
    }

    /// The same, asking for somebody else.
    pub(super) fn proxying(self) -> Self {
        Self { is_proxy: true, ..self }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) fn behind(&self) -> Option<Duration> {
        let seconds = self.behind.load(Ordering::Relaxed);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    /// Gets an entity of the API.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
    ) -> Result<T, ClientError> {
        let path = format!("/fleet/v1/{path}{query}");
        let (_, body) = self.within(self.get_whole(&path)).await?;
        self.decode(&body)
    }

    /// Gets a path beside the API of which only the status matters.
    pub(super) async fn probe(&self, path: &str) -> Result<(), ClientError> {
        self.within(self.get_whole(&format!("/{path}"))).await.map(drop)
    }

    /// Gets an answer whose body is read as it comes.
    pub(super) async fn open(
        &self,
        path: &str,
        query: &Query,
    ) -> Result<Response<Incoming>, ClientError> {
        let path = format!("/fleet/v1/{path}{query}");
        let opened = async {
            let response = self.get_once_more(&path).await?;
            if response.status().is_success() {
                return Ok(response);
            }
            Err(self.refused(response).await)
        };
        self.within(opened).await
    }

    /// Sends an entity.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        header: Option<(HeaderName, HeaderValue)>,
        entity: &impl Entity,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let body =
            serde_json::to_vec(entity).expect("wire types hold nothing but text and numbers");
        let mut request = self.request(method, &format!("/fleet/v1/{path}"), body.into())?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        request.headers_mut().extend(header);
        let sent = async { self.whole(self.call(request).await?).await };
        self.within(sent).await
    }

    /// Sends a request without a body.
    pub(super) async fn send_empty(
        &self,
        method: Method,
        path: &str,
    ) -> Result<Bytes, ClientError> {
        self.send_empty_with(method, path, None).await
    }

    /// The same with a header.
    pub(super) async fn send_empty_with(
        &self,
        method: Method,
        path: &str,
        header: Option<(HeaderName, HeaderValue)>,
    ) -> Result<Bytes, ClientError> {
        let mut request = self.request(method, &format!("/fleet/v1/{path}"), Bytes::new())?;
        request.headers_mut().extend(header);
        let sent = async { self.whole(self.call(request).await?).await };
        self.within(sent).await.map(|(_, body)| body)
    }

    /// Gets an entity with its tag.
    pub(super) async fn get_tagged<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<(T, Option<String>), ClientError> {
        let answer = self.open(path, &Query::new()).await?;
        let tag = answer.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let body = self.within(self.body(answer)).await?;
        Ok((self.decode(&body)?, tag))
    }

    pub(super) fn decode<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|error| self.bad_answer(error))
    }

    pub(super) fn bad_answer(&self, problem: impl ToString) -> ClientError {
        let (endpoint, problem) = (self.endpoint.clone(), problem.to_string());
        ClientError::BadAnswer { endpoint, problem }
    }

    async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        match timeout(ANSWER, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::TimedOut { endpoint: self.endpoint.clone(), after: ANSWER }),
        }
    }

    async fn get_whole(&self, path: &str) -> Result<(StatusCode, Bytes), ClientError> {
        self.whole(self.get_once_more(path).await?).await
    }

    /// A connection that was kept may have been closed by the server just when it is used again.
    /// Reading twice does no harm, so a request that broke is sent once more.
    async fn get_once_more(&self, path: &str) -> Result<Response<Incoming>, ClientError> {
        let request = || self.request(Method::GET, path, Bytes::new());
        match self.call(request()?).await {
            Err(ClientError::Broken { .. }) => self.call(request()?).await,
            answer => answer,
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        if self.token.is_some() && !self.endpoint.is_private() {
            return Err(ClientError::TokenUnprotected { endpoint: self.endpoint.clone() });
        }
        let (authority, base) = (self.endpoint.authority(), self.endpoint.base());
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{authority}{base}{path}"))
            .body(Full::new(body))
            .map_err(|error| self.bad_answer(error))?;
        request.headers_mut().extend(self.token.clone().map(|token| (AUTHORIZATION, token)));
        let asks_for_others = self.is_proxy.then(|| (PROXIED, HeaderValue::from_static("1")));
        request.headers_mut().extend(asks_for_others);
        Ok(request)
    }

    async fn call(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let response = self.pool.request(request).await.map_err(|error| self.failed(error))?;
        tracing::debug!(%method, %uri, status = response.status().as_u16(), "asked");
        let behind = response.headers().get(BEHIND).and_then(|value| value.to_str().ok());
        let seconds = behind.and_then(|text| text.parse().ok()).unwrap_or(0);
        self.behind.store(seconds, Ordering::Relaxed);
        Ok(response)
    }

    fn failed(&self, error: PoolError) -> ClientError {
        let endpoint = self.endpoint.clone();
        if !error.is_connect() {
            return ClientError::Broken { endpoint, cause: error.into() };
        }
        // What the system said is the innermost cause; the pool's words around it say nothing.
        let causes = std::iter::successors(error.source(), |cause| (*cause).source());
        let cause = causes.last().map_or_else(|| error.to_string(), ToString::to_string);
        let causes = std::iter::successors(error.source(), |cause| (*cause).source());
        if causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).any(is_of_tls) {
            return ClientError::Untrusted { endpoint, cause: cause.into() };
        }
        ClientError::Unreachable { endpoint, cause: cause.into() }
    }

    /// The whole answer, if it is a good one.
    async fn whole(
        &self,
        response: Response<Incoming>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let status = response.status();
        if !status.is_success() {
            return Err(self.refused(response).await);
        }
        Ok((status, self.body(response).await?))
    }

    async fn body(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        match Limited::new(response.into_body(), MOST_ANSWER).collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(cause) => Err(ClientError::Broken { endpoint: self.endpoint.clone(), cause }),
        }
    }

    /// What an answer says that is not a good one.
    async fn refused(&self, response: Response<Incoming>) -> ClientError {
        let status = response.status();
        let body = match self.body(response).await {
            Ok(body) => body,
            Err(error) => return error,
        };
        let Ok(ErrorBody { error, .. }) = serde_json::from_slice(&body) else {
            return self.bad_answer(format!("status {status} without fleet's explanation"));
        };
        let message = match error.message.as_str() {
            "" => format!("{} answered {status}", self.endpoint),
            message => message.to_owned(),
        };
        ClientError::Api { status: status.as_u16(), message, details: error.details }
    }
}

/// Whether the other end answered, and either end does not trust the other.
fn is_of_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<rustls::Error>() || cause.is::<TlsError>())
}
