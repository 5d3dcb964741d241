#![doc = include_str!("../README.md")]

mod client;
mod duplex;
mod server;
pub mod wire;

/// The library in whose types [`Metrics`] are.
pub use prometheus_client;

pub use client::{
    Client, ClientError, Endpoint, EndpointError, EventOptions, Events, ExportBytes, JournalLines,
    JournalOptions, PutOutcome, StateFilter, UnitFilter, UnitUpload,
};
pub use server::{
    Api, JournalError, JournalQuery, JournalStream, Journals, Limits, Listen, ListenError,
    ListenParseError, Listener, Metrics, serve, serve_within,
};

/// The header that says how many seconds ago a server lost sight of its store. It is on each answer
/// for as long as that lasts: what such an answer says may have changed since.
const BEHIND: hyper::header::HeaderName = hyper::header::HeaderName::from_static("x-fleet-behind");

/// The header that says, on an export, what the server does about unit files that the old program
/// would have passed over in silence: `refuse` or `warn`.
const STRICTNESS: hyper::header::HeaderName =
    hyper::header::HeaderName::from_static("x-fleet-unknown-options");
