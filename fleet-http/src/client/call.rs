//! Sends a request and decodes its response.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::{Client as Pool, Error as PoolError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::endpoint::Connector;
use super::query::Query;
use super::{ClientError, Credentials, Endpoint, Entity};
use crate::tls::TlsError;
use crate::wire::ErrorBody;
use crate::wire::{BEHIND, PROXIED};

/// Timeout for a complete response, including connecting.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time after which an unused connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of a response, in bytes. A larger response is an error.
const MAX_RESPONSE_SIZE: usize = 256 << 20;

/// Maximum number of times that the client starts a list again because the server has dropped its
/// snapshot.
const MAX_RELISTS: usize = 3;

/// Sends requests to one endpoint over pooled connections.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    endpoint: Endpoint,
    /// Value of the `Authorization` header, if a token is configured.
    token: Option<HeaderValue>,
    /// Whether requests are forwarded on behalf of another client.
    is_proxy: bool,
    pool: Pool<Connector, Full<Bytes>>,
    /// Staleness that the last response reported, in seconds. Zero if the server was in contact
    /// with its store.
    behind: Arc<AtomicU64>,
}

impl Caller {
    pub(super) fn new(endpoint: Endpoint, credentials: Credentials) -> Self {
        let connector = Connector::new(endpoint.clone(), credentials.tls);
        let token = credentials.token.and_then(|token| {
            let mut header = HeaderValue::try_from(format!("Bearer {}", token.as_str())).ok()?;
            header.set_sensitive(true);
            Some(header)
        });
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        Self { endpoint, token, is_proxy: false, pool, behind: Arc::default() }
    }

    /// Marks all requests as forwarded on behalf of another client.
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
        let (_, body) = self.with_timeout(self.get_checked(&path)).await?;
        self.decode(&body)
    }

    /// Gets a path outside the API prefix and checks only the status.
    pub(super) async fn probe(&self, path: &str) -> Result<(), ClientError> {
        self.with_timeout(self.get_checked(&format!("/{path}"))).await.map(drop)
    }

    /// Sends a GET request and returns the response with an unread body.
    pub(super) async fn open(
        &self,
        path: &str,
        query: &Query,
    ) -> Result<Response<Incoming>, ClientError> {
        let path = format!("/fleet/v1/{path}{query}");
        let opened = async {
            let response = self.get_with_retry(&path).await?;
            if response.status().is_success() {
                return Ok(response);
            }
            Err(self.error_from(response).await)
        };
        self.with_timeout(opened).await
    }

    /// Sends a request of a browser, and returns whatever response the server gives, with an unread
    /// body. There is no time limit, because the response may be an endless stream.
    pub(super) async fn forward(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut request = self.request(method, path, body)?;
        request.headers_mut().extend(headers);
        self.call(request).await
    }

    /// Sends an entity as JSON.
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
        let sent = async { self.checked(self.call(request).await?).await };
        self.with_timeout(sent).await
    }

    /// Sends a request without a body.
    pub(super) async fn send_empty(
        &self,
        method: Method,
        path: &str,
    ) -> Result<Bytes, ClientError> {
        self.send_empty_with(method, path, None).await
    }

    /// Sends a request without a body, with an optional header.
    pub(super) async fn send_empty_with(
        &self,
        method: Method,
        path: &str,
        header: Option<(HeaderName, HeaderValue)>,
    ) -> Result<Bytes, ClientError> {
        let mut request = self.request(method, &format!("/fleet/v1/{path}"), Bytes::new())?;
        request.headers_mut().extend(header);
        let sent = async { self.checked(self.call(request).await?).await };
        self.with_timeout(sent).await.map(|(_, body)| body)
    }

    /// Gets an entity with its entity tag.
    pub(super) async fn get_with_etag<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<(T, Option<String>), ClientError> {
        let response = self.open(path, &Query::new()).await?;
        let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let body = self.with_timeout(self.body(response)).await?;
        Ok((self.decode(&body)?, tag))
    }

    pub(super) fn decode<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|error| self.bad_response(error))
    }

    pub(super) fn bad_response(&self, problem: impl ToString) -> ClientError {
        let (endpoint, problem) = (self.endpoint.clone(), problem.to_string());
        ClientError::BadResponse { endpoint, problem }
    }

    /// Returns the items of all pages of a list. Starts again if the server responds with status
    /// 400, because it may have dropped the snapshot of the list.
    pub(super) async fn list<P: DeserializeOwned, T>(
        &self,
        path: &str,
        query: &Query,
        split: impl Fn(P) -> (Vec<T>, String),
    ) -> Result<Vec<T>, ClientError> {
        let mut tries = 0;
        loop {
            match self.list_once(path, query, &split).await {
                Err(ClientError::Api { status: 400, .. }) if tries < MAX_RELISTS => tries += 1,
                response => return response,
            }
        }
    }

    async fn list_once<P: DeserializeOwned, T>(
        &self,
        path: &str,
        query: &Query,
        split: impl Fn(P) -> (Vec<T>, String),
    ) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        let mut token = String::new();
        loop {
            let given = Some(token.as_str()).filter(|token| !token.is_empty());
            let query = query.clone().with("nextPageToken", given);
            let (page, next) = split(self.get(path, &query).await?);
            items.extend(page);
            if next.is_empty() {
                return Ok(items);
            }
            if next == token {
                let problem = "a page of the list refers to itself as the next one";
                return Err(self.bad_response(problem));
            }
            token = next;
        }
    }

    async fn with_timeout<T>(
        &self,
        response: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        match timeout(RESPONSE_TIMEOUT, response).await {
            Ok(response) => response,
            Err(_) => Err(ClientError::TimedOut {
                endpoint: self.endpoint.clone(),
                after: RESPONSE_TIMEOUT,
            }),
        }
    }

    async fn get_checked(&self, path: &str) -> Result<(StatusCode, Bytes), ClientError> {
        self.checked(self.get_with_retry(path).await?).await
    }

    /// Sends a GET request. If the connection breaks, sends the request once more, because the
    /// server may have closed a pooled connection just as the client reused it. Repeating a read is
    /// harmless.
    async fn get_with_retry(&self, path: &str) -> Result<Response<Incoming>, ClientError> {
        let request = || self.request(Method::GET, path, Bytes::new());
        match self.call(request()?).await {
            Err(ClientError::Broken { .. }) => self.call(request()?).await,
            response => response,
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
            .map_err(|error| self.bad_response(error))?;
        request.headers_mut().extend(self.token.clone().map(|token| (AUTHORIZATION, token)));
        let proxied = self.is_proxy.then(|| (PROXIED, HeaderValue::from_static("1")));
        request.headers_mut().extend(proxied);
        Ok(request)
    }

    async fn call(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let response =
            self.pool.request(request).await.map_err(|error| self.connection_error(error))?;
        tracing::debug!(%method, %uri, status = response.status().as_u16(), "sent a request");
        let behind = response.headers().get(BEHIND).and_then(|value| value.to_str().ok());
        let seconds = behind.and_then(|text| text.parse().ok()).unwrap_or(0);
        self.behind.store(seconds, Ordering::Relaxed);
        Ok(response)
    }

    fn connection_error(&self, error: PoolError) -> ClientError {
        let endpoint = self.endpoint.clone();
        if !error.is_connect() {
            return ClientError::Broken { endpoint, cause: error.into() };
        }
        // The innermost cause is the system's error; the messages of the pool around it add
        // nothing.
        let causes = std::iter::successors(error.source(), |cause| (*cause).source());
        let cause = causes.last().map_or_else(|| error.to_string(), ToString::to_string);
        let causes = std::iter::successors(error.source(), |cause| (*cause).source());
        if causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).any(is_tls_error) {
            return ClientError::Untrusted { endpoint, cause: cause.into() };
        }
        ClientError::Unreachable { endpoint, cause: cause.into() }
    }

    /// Returns the status and body of a successful response. Converts any other response to an
    /// error.
    async fn checked(
        &self,
        response: Response<Incoming>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let status = response.status();
        if !status.is_success() {
            return Err(self.error_from(response).await);
        }
        Ok((status, self.body(response).await?))
    }

    async fn body(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        match Limited::new(response.into_body(), MAX_RESPONSE_SIZE).collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(cause) => Err(ClientError::Broken { endpoint: self.endpoint.clone(), cause }),
        }
    }

    /// Converts an error response.
    async fn error_from(&self, response: Response<Incoming>) -> ClientError {
        let status = response.status();
        let body = match self.body(response).await {
            Ok(body) => body,
            Err(error) => return error,
        };
        let Ok(ErrorBody { error, .. }) = serde_json::from_slice(&body) else {
            return self.bad_response(format!("status {status} without an error message"));
        };
        let message = match error.message.as_str() {
            "" => format!("{} responded with {status}", self.endpoint),
            message => message.to_owned(),
        };
        ClientError::Api { status: status.as_u16(), message, details: error.details }
    }
}

impl super::Client {
    /// Forwards a request of a browser, with the credentials of this client.
    pub(crate) async fn forward(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        self.caller.forward(method, path, headers, body).await
    }
}

/// Whether TLS reported the error, rather than the network.
fn is_tls_error(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<rustls::Error>() || cause.is::<TlsError>())
}
