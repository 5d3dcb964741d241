//! One protocol for a running `fleet-init`, over a unix socket.
//!
//! ```text
//! RemoteManager (fleetd), commands ─> Connection ═══ frames ═══ serve ─> RequestHandler
//! ```
//!
//! A [`Request`] is a call of a [`ServiceManager`](crate::ServiceManager), or a command to an init
//! that runs units of files. Frames are JSON with a length prefix, on a socket that only root and
//! the process's own user may use.
//!
//! All calls share one connection, run concurrently and have one result each. A journal or another
//! stream has a connection of its own. A slow reader then delays only its own stream, because the
//! server waits until the socket has room.
//!
//! *Unknown is not absent*: while the other process cannot be reached, every call is an error, and
//! no unit counts as missing.

mod connection;
mod frame;
mod handler;
mod manager;
mod peer;
mod protocol;
mod server;

pub use connection::{Connection, ConnectionError, Expectation, Stream};
pub use handler::ServiceManagerHandler;
pub use manager::{RemoteConfig, RemoteManager};
pub use protocol::{
    InitRequest, LineWire, ManagerRequest, QueryWire, Request, RequestError, SourceFile,
};
pub use server::{RequestHandler, ResponseSender, serve};
