//! What one client may take of a server.

use std::time::Duration;

use axum::http::HeaderMap;

use super::guard::Guard;
use super::tokens::Rights;
use crate::ServerTls;

/// What clients may take of a server: whatever a client does, it takes no more than this.
///
/// ```
/// let limits = fleet_http::Limits { connections: 100, ..fleet_http::Limits::default() };
/// assert_eq!(limits.body_size, 8 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many connections of one listener are open at once; zero is read as one. Past the bound a
    /// new one takes the place of the one that has waited longest for a request, or for the rest of
    /// one. While all of them are being answered, journals and events that are followed among them,
    /// new ones wait.
    pub connections: usize,
    /// How long a client may take until a connection by TLS is made. Then it is closed.
    pub handshake_time: Duration,
    /// How long a client may take over the head of a request, the time between two requests
    /// included. Then its connection is closed.
    pub head_time: Duration,
    /// How large the head of a request may be, in bytes; at least 8192. What is larger is refused
    /// with 431.
    pub head_size: usize,
    /// How long a body may take to arrive; a slower one is refused with 408.
    pub body_time: Duration,
    /// How large a body may be, in bytes; a larger one is refused with 413, and is not even read if
    /// its length is announced.
    pub body_size: usize,
    /// How long a client may read nothing of an answer that is waiting for it. Then its connection
    /// is closed.
    pub write_time: Duration,
}

impl Default for Limits {
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

/// What is known of the way on which a request came.
#[derive(Debug, Clone)]
pub(super) struct Door {
    pub(super) limits: Limits,
    pub(super) guard: Guard,
    /// Whether programs that are not meant to could have been led here by a name: not through the
    /// file of a socket, but through a port.
    pub(super) is_port: bool,
    /// Whether nobody on the way can read or change anything.
    pub(super) is_tls: bool,
    /// By what the client's certificate was known when it was shown, if one was.
    pub(super) shown_to: Option<ServerTls>,
}

impl Door {
    /// What who sends these headers may do, or what would have to be shown to be let in.
    pub(super) fn rights(&self, headers: &HeaderMap) -> Result<Rights, String> {
        if !self.is_port {
            // Who may use the file of a socket is said by its mode.
            return Ok(Rights::Write);
        }
        let orders = self.guard.orders();
        orders.rights(self.is_tls, self.shown_to.as_ref(), headers)
    }

    /// Whether programs could have been led here by a name that somebody else chose. By TLS they
    /// would have noticed.
    pub(super) fn may_be_mistaken(&self) -> bool {
        self.is_port && !self.is_tls
    }
}
