#![doc = include_str!("../README.md")]

mod client;
mod clock;
mod cursors;
mod duplex;
mod merge;
mod no_server_verification;
mod server;
mod tls;
mod token;
pub mod wire;

/// Re-export of the crate that defines types in the API of [`Metrics`].
pub use prometheus_client;

pub use client::{
    Client, ClientError, Credentials, Endpoint, EndpointError, EventOptions, Events, ExportBytes,
    JournalLines, JournalOptions, PutOutcome, StateFilter, UnitFilter, UnitUpload, WithEtag,
};
pub use merge::{Interrupted, merge_journals};
pub use server::{
    Api, AuthPolicy, JournalEntry, JournalError, JournalRequest, JournalStream, Journals,
    ListenAddress, ListenError, ListenParseError, Listener, Metrics, Peers, ServerLimits,
    SocketFile, Tokens, TokensError, listen_unix, serve, serve_with_limits,
};
pub use tls::{ClientTls, PemIdentity, ServerTls, TlsError, certificate_covers};
pub use token::{Token, TokenError};

/// Response header: number of seconds since the server lost contact with its store. Responses
/// during a store outage have this header, because they may be outdated.
const BEHIND: hyper::header::HeaderName = hyper::header::HeaderName::from_static("x-fleet-behind");

/// Request header: another daemon forwards the request on behalf of a client. The server responds
/// from its own machine, and does not forward the request again.
const PROXIED: hyper::header::HeaderName =
    hyper::header::HeaderName::from_static("x-fleet-proxied");

/// Response header of a journal: each line begins with its timestamp.
const TIMESTAMPS: hyper::header::HeaderName =
    hyper::header::HeaderName::from_static("x-fleet-timestamps");

/// Response header of a journal: each line begins with its cursor.
const CURSORS: hyper::header::HeaderName =
    hyper::header::HeaderName::from_static("x-fleet-cursors");

/// Response header of an export: `refuse` or `warn`. It shows how the server handles mistakes in
/// unit files that fleet v1 silently accepted.
const STRICTNESS: hyper::header::HeaderName =
    hyper::header::HeaderName::from_static("x-fleet-unknown-options");
