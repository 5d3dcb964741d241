//! Why a call of the API came to nothing.

use std::error::Error;
use std::time::Duration;

use super::Endpoint;
use crate::wire::ErrorDetail;

/// Why a call of the API came to nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody can be connected to; nothing happened.
    #[error(
        "no fleetd can be reached at {endpoint}: start one there, for example with \"fleetd dev\", \
         or set FLEETCTL_ENDPOINT or --endpoint to where one listens"
    )]
    Unreachable {
        /// Where.
        endpoint: Endpoint,
        /// What the system says.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
    /// Somebody answers, but this end does not trust the other, or the other way round; nothing
    /// happened.
    #[error("{endpoint} answers, but no secure connection can be made")]
    Untrusted {
        /// Where.
        endpoint: Endpoint,
        /// Which end does not trust the other, and why.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
    /// A token would be read by others on its way; nothing was sent.
    #[error("a token is not sent to {endpoint}, where others could read it: write https://")]
    TokenUnprotected {
        /// Where.
        endpoint: Endpoint,
    },
    /// The connection broke: the request may or may not have been carried out.
    #[error("the connection to {endpoint} broke before the answer was complete")]
    Broken {
        /// The other end.
        endpoint: Endpoint,
        /// What is known of it.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
    /// The answer took too long: the request may or may not have been carried out.
    #[error("{endpoint} did not answer within {} seconds", after.as_secs())]
    TimedOut {
        /// The other end.
        endpoint: Endpoint,
        /// How long was waited.
        after: Duration,
    },
    /// The server refuses the request, or cannot carry it out.
    #[error("{message}")]
    Api {
        /// The HTTP status.
        status: u16,
        /// The server's explanation.
        message: String,
        /// Each thing that is wrong with a unit file.
        details: Vec<ErrorDetail>,
    },
    /// What came is no answer of a fleet API.
    #[error("{endpoint} gave an answer that is none of fleet's API: {problem}")]
    BadAnswer {
        /// The other end.
        endpoint: Endpoint,
        /// What is wrong with the answer.
        problem: String,
    },
}

impl ClientError {
    /// Whether the same may come to something later, without anybody's doing: the connection broke,
    /// nobody answers, or the server says that it cannot now. A request that changes something may
    /// have been carried out all the same.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } | Self::TimedOut { .. } => true,
            Self::Api { status, .. } => matches!(status, 408 | 429 | 502..=504),
            Self::Untrusted { .. } | Self::TokenUnprotected { .. } | Self::BadAnswer { .. } => {
                false
            }
        }
    }
}
