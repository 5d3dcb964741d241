#![doc = include_str!("../README.md")]

mod client;
mod duplex;
mod server;
pub mod wire;

pub use client::{
    Client, ClientError, Endpoint, EndpointError, JournalLines, JournalOptions, PutOutcome,
    StateFilter, UnitUpload,
};
pub use server::{
    Api, JournalError, JournalQuery, JournalStream, Journals, Listen, ListenError,
    ListenParseError, Listener, serve,
};
