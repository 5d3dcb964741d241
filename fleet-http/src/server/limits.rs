//! Resource limits for clients.

use std::time::Duration;

use axum::http::HeaderMap;

use super::auth_policy::AuthPolicy;
use super::tokens::Rights;
use crate::ServerTls;

/// Resource limits for each client or listener.
///
/// ```
/// use fleet_http::ServerLimits;
///
/// let limits = ServerLimits { connections: 100, ..ServerLimits::default() };
/// assert_eq!(limits.body_size, 8 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Maximum number of open connections of one listener; zero means one. Beyond it, a new
    /// connection replaces the one that has waited longest for a request, or for the rest of one.
    /// While all connections are being served, including followed journals and events, new ones
    /// wait.
    pub connections: usize,
    /// Time limit for a TLS handshake. Then the connection is closed.
    pub handshake_time: Duration,
    /// Time limit for receiving the head of a request, including the idle time before it. Then the
    /// connection is closed.
    pub head_time: Duration,
    /// Maximum size of a request head, in bytes; at least 8192. A larger one is refused with 431.
    pub head_size: usize,
    /// Time limit for receiving a request body. A slower one is refused with 408.
    pub body_time: Duration,
    /// Maximum size of a request body, in bytes. A larger one is refused with 413, without reading
    /// it if its length is announced.
    pub body_size: usize,
    /// Maximum time without progress in sending a response. Then the connection is closed.
    pub write_time: Duration,
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
pub(super) struct ConnectionOrigin {
    pub(super) limits: ServerLimits,
    pub(super) auth: AuthPolicy,
    /// Whether the connection is to a TCP port, not a unix socket. A browser can be made to connect
    /// to a port.
    pub(super) is_port: bool,
    /// Whether the connection uses TLS.
    pub(super) is_tls: bool,
    /// TLS configuration that verified the client's certificate, if it presented one.
    pub(super) verified_by: Option<ServerTls>,
}

impl ConnectionOrigin {
    /// Returns the rights of a request with these headers, or an error message that names the
    /// accepted credentials.
    pub(super) fn rights(&self, headers: &HeaderMap) -> Result<Rights, String> {
        if !self.is_port {
            // File permissions control access to a unix socket.
            return Ok(Rights::Write);
        }
        let config = self.auth.config();
        config.rights(self.is_tls, self.verified_by.as_ref(), headers)
    }

    /// Whether the `Host` of requests must be checked, because a browser may have been directed
    /// here by DNS rebinding. With TLS the certificate would not match.
    pub(super) fn needs_host_check(&self) -> bool {
        self.is_port && !self.is_tls
    }
}
