//! A service manager in another process, over a unix socket.
//!
//! ```text
//! RemoteManager ─ Reconnector ─> Connection ═══ frames ═══ ServerSession ─> RequestHandler
//!   (fleetd)                      one connection             (fleet-init)     └> ServiceManager
//! ```
//!
//! The lower layer is a request protocol: JSON frames on a socket that only root and the process's
//! own user may use. Many requests run concurrently, and each response is a stream of items with
//! flow control. Programs with other requests use this layer directly, through [`serve_with`] and
//! [`Connection`].
//!
//! The upper layer is the protocol of the [`ServiceManager`](crate::ServiceManager) trait. Its
//! messages are separate types that mirror the types of the trait, so either side can gain fields
//! without the other.
//!
//! *Unknown is not absent*: while the other process cannot be reached, every call is an error, and
//! no unit counts as missing.

mod connection;
mod errors;
mod frame;
mod handler;
mod keepalive;
mod manager;
mod peer;
mod protocol;
mod reconnect;
mod response;
mod server;
mod session;
mod states;

pub use connection::{Connection, ConnectionError, RequestError, Response};
pub use handler::{ServiceManagerHandler, serve};
pub use manager::{RemoteConfig, RemoteManager};
pub use response::ResponseSender;
pub use server::{RequestHandler, serve_with};
