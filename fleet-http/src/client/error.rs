//! Errors of API calls.

use std::error::Error;
use std::time::Duration;

use super::Endpoint;
use crate::wire::ErrorDetail;

/// Error of an API call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection cannot be established. Nothing was changed.
    #[error(
        "cannot connect to fleetd at {endpoint}: start it, for example with \"fleetd dev\", \
         or set FLEETCTL_ENDPOINT or --endpoint to its address"
    )]
    Unreachable {
        /// The endpoint.
        endpoint: Endpoint,
        /// The system's error.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
    /// The TLS handshake failed, for example because the client or the server does not trust the
    /// other's certificate. Nothing was changed.
    #[error("{endpoint} responds, but a secure connection cannot be established")]
    Untrusted {
        /// The endpoint.
        endpoint: Endpoint,
        /// The TLS error.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
    /// The client would have to send the token without encryption. Nothing was sent.
    #[error("refusing to send a token to {endpoint}, where others could read it: use https://")]
    TokenUnprotected {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// The connection broke. The request may or may not have been carried out.
    #[error("the connection to {endpoint} was lost before the response was complete")]
    Broken {
        /// The endpoint.
        endpoint: Endpoint,
        /// The cause, as far as known.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
    /// The response did not arrive in time. The server may or may not have carried out the request.
    #[error("{endpoint} did not respond within {} seconds", after.as_secs())]
    TimedOut {
        /// The endpoint.
        endpoint: Endpoint,
        /// The timeout.
        after: Duration,
    },
    /// The server refused the request or failed to carry it out.
    #[error("{message}")]
    Api {
        /// HTTP status.
        status: u16,
        /// The server's error message.
        message: String,
        /// Errors in the unit file, one per location.
        details: Vec<ErrorDetail>,
    },
    /// The response is not a valid response of fleet's API.
    #[error("{endpoint} sent an invalid response: {problem}")]
    BadResponse {
        /// The endpoint.
        endpoint: Endpoint,
        /// Description of the problem.
        problem: String,
    },
}

impl ClientError {
    /// Returns whether the same request may succeed later without intervention. This applies if the
    /// connection broke, the server did not respond, or the server reported a temporary failure. If
    /// the request was a write, the server may nevertheless have carried it out.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } | Self::TimedOut { .. } => true,
            Self::Api { status, .. } => matches!(status, 408 | 429 | 502..=504),
            Self::Untrusted { .. } | Self::TokenUnprotected { .. } | Self::BadResponse { .. } => {
                false
            }
        }
    }
}
