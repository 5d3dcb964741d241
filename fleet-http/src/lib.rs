#![doc = include_str!("../README.md")]

mod client;
mod clock;
mod cursors;
mod duplex;
mod merge;
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
    Api, AuthPolicy, JournalError, JournalStream, Journals, ListenAddress, ListenError,
    ListenParseError, Listener, Metrics, Peers, ServerLimits, SocketFile, Tokens, TokensError,
    listen_unix, serve, serve_with_limits,
};
pub use tls::{ClientTls, PemIdentity, ServerTls, TlsError, certificate_covers};
pub use token::{Token, TokenError};
