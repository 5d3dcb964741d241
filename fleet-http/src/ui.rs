//! A local port through which a browser opens the page of a server. The port adds the credentials
//! of a [`Client`], so the browser needs none.
//!
//! Other users of the host can reach the port, too. So a request needs the cookie of a session, and
//! only the first request with the secret of the link gets it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, COOKIE, HOST, HeaderMap,
    HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION, SET_COOKIE, TRANSFER_ENCODING,
};
use hyper::{Method, StatusCode};
use subtle::ConstantTimeEq as _;

use crate::server::{is_page, is_same_origin};
use crate::{Client, Token};

/// Maximum size of a request body, in bytes.
const MAX_BODY_SIZE: usize = 8 << 20;

/// Request headers that are forwarded. `Cookie`, `Host` and `Origin` belong to the local port.
const FORWARDED: [HeaderName; 5] = [
    ACCEPT,
    ACCEPT_ENCODING,
    CONTENT_TYPE,
    IF_NONE_MATCH,
    HeaderName::from_static("last-event-id"),
];

/// Forwards requests from a loopback port to the page of a server.
#[derive(Clone)]
pub struct UiProxy(Arc<Proxy>);

struct Proxy {
    client: Client,
    /// Loopback address that the port listens on.
    address: SocketAddr,
    /// Secret of the link, which is valid once.
    link: Token,
    is_used: AtomicBool,
    /// Secret of the cookie.
    session: Token,
}

impl UiProxy {
    /// Creates a proxy for a port that listens on `address`. `link` and `session` are random.
    #[must_use]
    pub fn new(client: Client, address: SocketAddr, link: Token, session: Token) -> Self {
        let is_used = AtomicBool::new(false);
        Self(Arc::new(Proxy { client, address, link, is_used, session }))
    }

    /// Returns the link that opens the page. It works once.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/?token={}", self.0.address, self.0.link.as_str())
    }

    /// Builds the router. Pass it to [`serve`](crate::serve), with a listener on the address.
    pub fn router(self) -> Router {
        Router::new().fallback(handle).with_state(self)
    }
}

impl Proxy {
    /// Name of the cookie. Browsers share cookies between the ports of a host.
    fn cookie_name(&self) -> String {
        format!("fleet-ui-{}", self.address.port())
    }

    fn has_session(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie_name();
        let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let cookies = values.flat_map(|value| value.split(';'));
        let mut pairs = cookies.filter_map(|cookie| cookie.trim().split_once('='));
        pairs.any(|(key, value)| key == name && is_equal(value, &self.session))
    }

    /// Returns the response to a request with the secret of the link: the cookie, once.
    fn begin_session(&self, secret: &str, has_session: bool) -> Response {
        let location = (LOCATION, HeaderValue::from_static("/"));
        if has_session {
            return (StatusCode::SEE_OTHER, [location]).into_response();
        }
        if !is_equal(secret, &self.link) || self.is_used.swap(true, Ordering::SeqCst) {
            let message = "This link is not valid, or was already used. Run fleetctl ui again.";
            return refusal(StatusCode::FORBIDDEN, message);
        }
        let (name, session) = (self.cookie_name(), self.session.as_str());
        let cookie = format!("{name}={session}; Path=/; HttpOnly; SameSite=Strict");
        let cookie = HeaderValue::try_from(cookie).expect("a token is a valid header");
        let uncached = (CACHE_CONTROL, HeaderValue::from_static("no-store"));
        (StatusCode::SEE_OTHER, [location, (SET_COOKIE, cookie), uncached]).into_response()
    }

    async fn forward(&self, request: Request) -> Response {
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, MAX_BODY_SIZE).collect().await else {
            return refusal(StatusCode::PAYLOAD_TOO_LARGE, "The form is too large.");
        };
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let kept = FORWARDED.into_iter().filter_map(|name| {
            let value = head.headers.get(&name)?.clone();
            Some((name, value))
        });
        let body: Bytes = body.to_bytes();
        match self.client.forward(head.method, path, kept.collect(), body).await {
            Ok(response) => {
                let mut response = response.map(Body::new);
                for name in [CONNECTION, TRANSFER_ENCODING] {
                    response.headers_mut().remove(name);
                }
                response
            }
            Err(error) => {
                let causes = crate::server::error_chain(&error);
                refusal(StatusCode::BAD_GATEWAY, &format!("fleetd does not respond: {causes}"))
            }
        }
    }
}

async fn handle(State(proxy): State<UiProxy>, request: Request) -> Response {
    let UiProxy(proxy) = proxy;
    let (headers, path) = (request.headers(), request.uri().path());
    // Another name for this host may be that of a web page that attacks the port.
    let own = proxy.address.to_string();
    if headers.get(HOST).is_none_or(|host| host.as_bytes() != own.as_bytes()) {
        let message = format!("Open http://{own}/ instead.");
        return refusal(StatusCode::MISDIRECTED_REQUEST, &message);
    }
    let has_session = proxy.has_session(headers);
    let query = request.uri().query().unwrap_or_default();
    let mut fields = form_urlencoded::parse(query.as_bytes());
    if path == "/"
        && let Some((_, secret)) = fields.find(|(key, _)| key == "token")
    {
        return proxy.begin_session(&secret, has_session);
    }
    if !has_session {
        let message = "Open the link that fleetctl ui has printed, or run it again.";
        return refusal(StatusCode::UNAUTHORIZED, message);
    }
    let is_read = request.method().is_safe() && request.method() != Method::OPTIONS;
    let is_known = is_page(path) || (is_read && path.starts_with("/fleet/v1/"));
    if !is_known {
        return refusal(StatusCode::NOT_FOUND, "No page has this address.");
    }
    if !is_read && !is_same_origin(headers) {
        return refusal(StatusCode::FORBIDDEN, "The form is not from this page.");
    }
    proxy.forward(request).await
}

fn is_equal(given: &str, secret: &Token) -> bool {
    given.as_bytes().ct_eq(secret.as_str().as_bytes()).into()
}

fn refusal(status: StatusCode, message: &str) -> Response {
    let headers = [(CONTENT_TYPE, "text/plain; charset=utf-8"), (CACHE_CONTROL, "no-store")];
    (status, headers, format!("{message}\n")).into_response()
}
