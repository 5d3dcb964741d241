//! The server: what it needs, where it listens, and how it answers.

mod api;
mod compression;
mod connection;
mod discovery;
mod drain_report;
mod export;
mod extract;
mod failure;
mod health;
mod host;
mod idle;
mod import;
mod intents;
mod journal;
mod journals;
mod limits;
mod listen;
mod listener;
mod listings;
mod machines;
mod page;
mod patient;
mod pause;
mod put;
mod router;
mod states;
mod units;
mod validate;

pub use api::Api;
pub use connection::{serve, serve_within};
pub use journals::{JournalError, JournalQuery, JournalStream, Journals};
pub use limits::Limits;
pub use listen::{Listen, ListenParseError};
pub use listener::{ListenError, Listener};
