#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod clock;
mod codec;
#[cfg(feature = "embedded")]
mod embedded;
#[cfg(feature = "etcd")]
mod etcd;
mod keyspace;
mod layout;
mod memory;
pub mod mirror;
pub mod registry;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transfer;
mod watch;

/// Parts for implementations of [`Store`] that keep their state in the process.
pub mod backend {
    pub use crate::keyspace::{ApplyOutcome, EndedLease, Keyspace};
    pub use crate::watch::WatchSender;
}

#[cfg(feature = "embedded")]
pub use embedded::{EmbeddedStore, Salvage};
#[cfg(feature = "etcd")]
pub use etcd::{EtcdConfig, EtcdConfigError, EtcdIdentity, EtcdStore, EtcdTls, EtcdUser};
pub use layout::Layout;
pub use memory::MemoryStore;
pub use mirror::Mirror;
pub use registry::{Registry, RegistryError};
pub use store::{
    Commit, Condition, Entry, Expect, LeaseId, Listing, Store, StoreError, Transaction, Write,
};
pub use watch::{Changes, KeyChange, Watch};
