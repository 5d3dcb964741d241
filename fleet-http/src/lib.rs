#![doc = include_str!("../README.md")]

pub mod client;
mod clock;
mod cursors;
mod duplex;
pub mod merge;
pub mod server;
mod setters;
pub mod tls;
pub mod token;
pub mod ui;
pub mod wire;

/// Re-export of the crate that defines types in the API of [`Metrics`].
pub use prometheus_client;

pub use client::{Client, ClientError, Credentials, Endpoint};
pub use server::{
    Api, AuthPolicy, Journals, ListenAddress, ListenError, Listener, Metrics, Peers, ServerLimits,
    Tokens, serve, serve_with_limits,
};
pub use tls::{ClientTls, ServerTls};
pub use token::Token;
