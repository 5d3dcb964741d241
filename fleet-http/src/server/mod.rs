//! The API server.
//!
//! | folder or file | contents |
//! |---|---|
//! | `api` | the dependencies of the server, and the state that all handlers share |
//! | `router` | the routes, and the checks before each handler |
//! | `handlers` | responses to requests |
//! | `stream` | endless responses: events and journals |
//! | `auth` | tokens, client certificates, read-only callers |
//! | `page` | the web page |
//! | `net` | sockets, TLS, connections and their limits |
//! | `failure`, `metrics` | error responses; figures for Prometheus, also about the store |

mod api;
mod auth;
mod failure;
mod handlers;
mod metrics;
mod net;
mod page;
mod router;
mod stream;

pub use self::auth::AuthPolicy;
pub(crate) use self::failure::error_chain;
pub(crate) use self::net::limits::is_same_origin;
pub(crate) use self::page::is_page;
pub(crate) use self::stream::journal::LinePrefix;
pub use self::stream::journal::{JournalError, JournalStream, Journals};
pub use self::stream::journal_source::Peers;
pub use api::{Api, UnitChecker};
pub use auth::tokens::{Tokens, TokensError};
pub use metrics::Metrics;
pub use net::connection::{serve, serve_with_limits};
pub use net::limits::ServerLimits;
pub use net::listen::{
    ListenAddress, ListenError, ListenParseError, Listener, SocketFile, listen_unix,
};
