//! The API server.
//!
//! | folder or file | contents |
//! |---|---|
//! | `api` | the dependencies of the server, and the state that all handlers share |
//! | `router` | the routes, and the checks before each handler |
//! | `handlers` | responses to requests |
//! | `stream` | endless responses: events and journals |
//! | `auth` | tokens, client certificates, read-only callers |
//! | `net` | sockets, TLS, connections and their limits |
//! | `failure`, `metrics` | error responses; figures for Prometheus, also about the store |

mod api;
mod auth;
mod failure;
mod handlers;
mod metrics;
mod net;
mod router;
mod stream;

pub use self::net::listen::{SocketFile, listen_unix};
pub use self::stream::journal_source::Peers;
pub use api::Api;
pub use auth::auth_policy::AuthPolicy;
pub use auth::tokens::{Tokens, TokensError};
pub use metrics::Metrics;
pub use net::connection::{serve, serve_with_limits};
pub use net::limits::ServerLimits;
pub use net::listen::{ListenAddress, ListenParseError};
pub use net::listener::{ListenError, Listener};
pub(crate) use stream::journals::LinePrefix;
pub use stream::journals::{JournalError, JournalStream, Journals};
