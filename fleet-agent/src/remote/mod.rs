//! A service manager in another process, over a unix socket.
//!
//! ```text
//! RemoteManager ─ keeper ─> Link ═══ frames ═══ Conversation ─> Service ─ Units ─> ServiceManager
//!   (fleetd)       reconnects  one connection       (fleet-init)
//! ```
//!
//! Below is a plain way to ask: frames of JSON on a socket that only root and the own user may
//! use, many asks side by side, each answered with items as fast as they are read. On it is the
//! [`ServiceManager`](crate::ServiceManager) with mirrors of its types, so that either side can be
//! newer by additions. [`serve_with`] and [`Link`] are for whoever has more to ask.
//!
//! *Unknown is not absent*: while the other process cannot be reached, every call is an error.

mod asks;
mod conversation;
mod errors;
mod frame;
mod keeper;
mod link;
mod manager;
mod peer;
mod replies;
mod server;
mod silence;
mod states;
mod units;

pub use link::{Answer, AskError, Link, LinkError};
pub use manager::{RemoteConfig, RemoteManager};
pub use replies::Replies;
pub use server::{Service, serve_with};
pub use units::{Units, serve};
