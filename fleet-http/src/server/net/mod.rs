//! Sockets and connections, below the level of paths.

pub(super) mod connection;
pub(super) mod connection_slots;
pub(super) mod limits;
pub(super) mod listen;
