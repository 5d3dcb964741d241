#![doc = include_str!("../README.md")]

mod client;
mod clock;
mod duplex;
mod merge;
mod server;
mod tls;
mod token;
mod told;
mod unverified;
pub mod wire;

/// The library in whose types [`Metrics`] are.
pub use prometheus_client;

pub use client::{
    Client, ClientError, Credentials, Endpoint, EndpointError, EventOptions, Events, ExportBytes,
    JournalLines, JournalOptions, PutOutcome, StateFilter, Tagged, UnitFilter, UnitUpload,
};
pub use merge::{CutOff, merge_journals};
pub use server::{
    Api, Guard, JournalError, JournalLine, JournalQuery, JournalStream, Journals, Limits, Listen,
    ListenError, ListenParseError, Listener, Metrics, Peers, SocketFile, Tokens, TokensError,
    listen_unix, serve, serve_within,
};
pub use tls::{ClientTls, PemIdentity, ServerTls, TlsError};
pub use token::{Token, TokenError};

/// The header that says how many seconds ago a server lost sight of its store. It is on each answer
/// for as long as that lasts: what such an answer says may have changed since.
const BEHIND: hyper::header::HeaderName = hyper::header::HeaderName::from_static("x-fleet-behind");

/// The header that says that a daemon asks for somebody else: what it asks for is answered with
/// what is here, and nobody else is asked for it.
const PROXIED: hyper::header::HeaderName =
    hyper::header::HeaderName::from_static("x-fleet-proxied");

/// The header that says, on a journal, that each line begins with when it was written.
const MOMENTS: hyper::header::HeaderName =
    hyper::header::HeaderName::from_static("x-fleet-moments");

/// The header that says, on a journal, that each line begins with where it is.
const POSITIONS: hyper::header::HeaderName =
    hyper::header::HeaderName::from_static("x-fleet-positions");

/// The header that says, on an export, what the server does about unit files that the old program
/// would have passed over in silence: `refuse` or `warn`.
const STRICTNESS: hyper::header::HeaderName =
    hyper::header::HeaderName::from_static("x-fleet-unknown-options");
