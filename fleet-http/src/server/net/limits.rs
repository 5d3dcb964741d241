//! Pure: resource limits for clients, and checks of request heads. The checks reject what the HTTP
//! library accepts but HTTP or the limits forbid. They also check `Host`, as a protection against
//! DNS rebinding.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::header::{CONTENT_ENCODING, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, StatusCode, Version};

use crate::ServerTls;
use crate::server::auth::tokens::Rights;
use crate::server::auth::{AuthPolicy, ReadShare};
use crate::server::failure::Failure;
use crate::setters::setters;

/// Resource limits for each client or listener.
///
/// ```
/// use fleet_http::ServerLimits;
///
/// let limits = ServerLimits::default().with_connections(100);
/// assert_eq!(limits.body_size, 8 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLimits {
    /// Maximum number of open connections of one listener; zero means one.
    ///
    /// When the maximum is reached, a new connection replaces the connection that has waited
    /// longest for a request, or for the rest of a request. If every connection is busy, for
    /// example with a followed journal, the new connection waits.
    ///
    /// At a TCP port, requests with one read-only token may occupy a quarter of the connections,
    /// and those with any read-only token half. Further ones are refused with status 429.
    pub connections: usize,
    /// Time limit for a TLS handshake. When the limit is exceeded, the connection is closed.
    pub handshake_time: Duration,
    /// Time limit for receiving the head of a request, including the idle time before the request.
    /// When the limit is exceeded, the connection is closed.
    pub head_time: Duration,
    /// Maximum size of a request head, in bytes; at least 8192. A larger request head is refused
    /// with status 431.
    pub head_size: usize,
    /// Time limit for receiving a request body. When the limit is exceeded, the request is refused
    /// with status 408.
    pub body_time: Duration,
    /// Maximum size of a request body, in bytes. A larger body is refused with status 413. If the
    /// request announces too large a length, the server refuses it without reading the body.
    pub body_size: usize,
    /// Maximum time without progress in sending a response. When the time is exceeded, the
    /// connection is closed.
    pub write_time: Duration,
}

impl ServerLimits {
    setters! {
        plain:
            with_connections = connections: usize,
            with_handshake_time = handshake_time: Duration,
            with_head_time = head_time: Duration,
            with_head_size = head_size: usize,
            with_body_time = body_time: Duration,
            with_body_size = body_size: usize,
            with_write_time = write_time: Duration;
    }
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            handshake_time: Duration::from_secs(10),
            head_time: Duration::from_secs(60),
            head_size: 64 << 10,
            body_time: Duration::from_secs(30),
            body_size: 8 << 20,
            write_time: Duration::from_secs(30),
        }
    }
}

/// Properties of the connection that a request arrived on.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionOrigin {
    pub(crate) limits: ServerLimits,
    pub(crate) auth: AuthPolicy,
    /// Whether the connection is to a TCP port, rather than to a unix socket. A web page can make a
    /// browser connect to a TCP port, so such requests need more checks.
    pub(crate) is_port: bool,
    /// Whether the connection uses TLS.
    pub(crate) is_tls: bool,
    /// TLS configuration that verified the client's certificate, if it presented one.
    pub(crate) verified_by: Option<ServerTls>,
    /// Read-only requests in progress on the listener.
    pub(crate) read_share: Arc<ReadShare>,
}

impl ConnectionOrigin {
    /// Returns the rights of a request with these headers. If the request is refused, returns an
    /// error message that names the accepted credentials.
    pub(crate) fn rights(&self, headers: &HeaderMap) -> Result<Rights, String> {
        if !self.is_port {
            // File permissions control access to a unix socket.
            return Ok(Rights::Write);
        }
        let config = self.auth.config();
        config.rights(self.is_tls, self.verified_by.as_ref(), headers)
    }

    /// Returns whether the `Host` of requests must be checked, because DNS rebinding may have
    /// directed a browser to this server. No check is needed with TLS, because the browser would
    /// refuse the server's certificate.
    pub(crate) fn needs_host_check(&self) -> bool {
        self.is_port && !self.is_tls
    }
}

/// Bytes of a header line besides its name and value: `: ` and the line end.
const LINE_OVERHEAD: usize = 4;

/// Refuses heads of more than `limit` bytes, ambiguous hosts, and encoded bodies.
///
/// # Errors
///
/// The head is too large (431), HTTP/1.1 has no `Host` or several (400), or the body is encoded
/// (415).
pub(crate) fn check(request: &Request, limit: usize) -> Result<(), Failure> {
    if size(request) > limit {
        let message = format!("the request head is larger than {limit} bytes");
        return Err(Failure::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message));
    }
    let hosts = request.headers().get_all(HOST).iter().count();
    if hosts > 1 || (hosts == 0 && request.version() == Version::HTTP_11) {
        let message = format!("{hosts} headers Host: send exactly one");
        return Err(Failure::bad_request(message));
    }
    let is_plain = |value: &[u8]| value.eq_ignore_ascii_case(b"identity");
    if !request.headers().get_all(CONTENT_ENCODING).iter().all(|it| is_plain(it.as_bytes())) {
        let message = "encoded bodies are not supported: omit the header Content-Encoding";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    Ok(())
}

/// Returns the size of the headers and of the path. The library has already normalized the head, so
/// the result can be a few bytes below the size on the wire.
fn size(request: &Request) -> usize {
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let line = |name: &str, value: &[u8]| name.len() + value.len() + LINE_OVERHEAD;
    let headers = request.headers().iter();
    path + headers.map(|(name, value)| line(name.as_str(), value.as_bytes())).sum::<usize>()
}

/// Returns an error message if the request's host is neither `localhost` nor a loopback address.
///
/// This protects against DNS rebinding. A web page can make its own host name resolve to this
/// machine, and so send requests to a local port. The browser then sends that host name as `Host`.
/// Therefore, only names that always mean this machine are accepted.
pub(crate) fn misdirected(request: &Request) -> Option<String> {
    let header = request.headers().get(HOST).map(|value| value.to_str().unwrap_or_default());
    let named = request.uri().authority().map(axum::http::uri::Authority::as_str).or(header)?;
    (!means_this_machine(named)).then(|| {
        format!("unexpected host {named:?}: use localhost, 127.0.0.1, [::1] or a unix socket")
    })
}

fn means_this_machine(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    }
    host.trim_end_matches('.').eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Request header with the relation between the site that made the request and this server.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns whether a request comes from the server's own page, or not from a page at all.
///
/// Browsers send `Origin` with each form, and newer ones `Sec-Fetch-Site` with each request.
pub(crate) fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_own = |origin: &str| {
        let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        rest.is_some_and(|host| text(HOST).is_some_and(|own| own.eq_ignore_ascii_case(host)))
    };
    text(ORIGIN).is_none_or(is_own) && text(FETCH_SITE).is_none_or(|site| site == "same-origin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_page_may_send_forms() {
        let own = Some("http://localhost:1");
        let cases = [
            (None, None, true),
            (own, None, true),
            (own, Some("same-origin"), true),
            (Some("https://LOCALHOST:1"), None, true),
            (own, Some("same-site"), false),
            (own, Some("cross-site"), false),
            (None, Some("cross-site"), false),
            (None, Some("none"), false),
            (Some("null"), None, false),
            (Some("http://localhost:2"), None, false),
            (Some("http://localhost"), None, false),
            (Some("http://example.com"), Some("same-origin"), false),
            (Some("localhost:1"), None, false),
        ];
        for (origin, site, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "localhost:1".parse().unwrap());
            headers.extend(origin.map(|it| (ORIGIN, it.parse().unwrap())));
            headers.extend(site.map(|it| (FETCH_SITE, it.parse().unwrap())));
            assert_eq!(is_same_origin(&headers), expected, "{origin:?} {site:?}");
        }
    }

    #[test]
    fn only_loopback_hosts_are_accepted() {
        let cases = [
            ("localhost", true),
            ("LocalHost:4285", true),
            ("localhost.", true),
            ("127.0.0.1", true),
            ("127.8.9.1:80", true),
            ("[::1]:80", true),
            ("[::ffff:127.0.0.1]", true),
            ("example.com", false),
            ("localhost.example.com:80", false),
            ("127.0.0.1.example.com", false),
            ("10.0.0.1:80", false),
            ("[::2]", false),
            ("user@localhost", false),
            ("", false),
        ];
        for (authority, expected) in cases {
            assert_eq!(means_this_machine(authority), expected, "{authority:?}");
        }
    }
}
