//! Resource limits for clients.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;

use crate::ServerTls;
use crate::server::auth::auth_policy::{AuthPolicy, ReadShare};
use crate::server::auth::tokens::Rights;
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
