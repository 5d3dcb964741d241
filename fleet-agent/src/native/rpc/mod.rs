//! One protocol for a running `fleet-init`, over a unix socket.
//!
//! ```text
//! RemoteManager (fleetd) ────┐
//! command line of fleet-init ┴─> Connection ═══ frames ═══ serve ─> RequestHandler ─> frontend
//! ```
//!
//! A [`Request`] is a call of a [`ServiceManager`](crate::ServiceManager), or an [`InitRequest`],
//! which fleet-init's command line sends. Frames are JSON with a length prefix, on a socket that
//! only root and the process's own user may use.
//!
//! The public path of this module is `fleet_agent::remote`. The handlers of fleet-init are in
//! `fleet-bin`: one for units of files, and one for loaded units, which forwards calls of fleetd to
//! a [`ServiceManagerHandler`].
//!
//! All calls share one connection, run concurrently and have one result each. A journal or another
//! stream has a connection of its own. A slow reader then delays only its own stream, because the
//! server waits until the socket has room.
//!
//! *Unknown is not absent*: while the other process cannot be reached, every call is an error, and
//! no unit counts as missing.
//!
//! | module | topic |
//! |---|---|
//! | `protocol`, `frame` | requests, lines and errors; frames |
//! | `connection`, `manager` | the client side: a connection; a service manager over it |
//! | `server`, `handler` | the server side: clients and their limits; calls to a service manager |

mod connection;
mod frame;
mod handler;
mod manager;
mod protocol;
mod server;

pub use connection::{Connection, ConnectionError, Expectation, Stream};
pub use handler::ServiceManagerHandler;
pub use manager::{RemoteConfig, RemoteManager};
pub use protocol::{
    ChangedUnits, FileWire, InitFileWire, InitRequest, LineWire, ManagerRequest, QueryWire,
    Request, RequestError,
};
pub use server::{RequestHandler, ResponseSender, serve};
