//! Parts for implementations of [`Store`](crate::Store) that keep their state in the process.

pub use crate::keyspace::{ApplyOutcome, EndedLease, Keyspace};
pub use crate::watch::WatchSender;
