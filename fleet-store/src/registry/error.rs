//! Why the registry refuses.

use std::net::IpAddr;

use fleet_core::{MachineId, Term};
use fleet_unitfile::UnitName;

use crate::{CodecError, StoreError};

/// Why a write to the registry did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// There is no such unit.
    #[error("unit {name} does not exist")]
    NotFound {
        /// The unit.
        name: UnitName,
    },
    /// There is such a unit already, and it was to be new.
    #[error("unit {name} exists already")]
    AlreadyExists {
        /// The unit.
        name: UnitName,
    },
    /// Something that the write was based on has changed; look again and decide again.
    #[error("the write is based on a state that has changed")]
    Conflict,
    /// Another living machine has this identity.
    #[error(
        "machine ID {id} is in use by another machine{}: give one of them an identity of its own \
         (/etc/machine-id), or wait until the other one has left",
        at(*address)
    )]
    MachineTaken {
        /// The identity.
        id: MachineId,
        /// Where the other machine says that it is.
        address: Option<IpAddr>,
    },
    /// The machine's presence has ended; join again.
    #[error("machine {id} is no longer present in the cluster")]
    PresenceLost {
        /// The machine.
        id: MachineId,
    },
    /// Another engine leads, or may lead; stop leading.
    #[error("the leadership of term {term} has ended")]
    Deposed {
        /// The term that has ended.
        term: Term,
    },
    /// A stored value that the operation needs cannot be read.
    #[error("{key} cannot be understood")]
    Value {
        /// The value's key.
        key: String,
        /// What is wrong with it.
        #[source]
        source: CodecError,
    },
    /// A value cannot be written down.
    #[error("the value cannot be stored")]
    Encode(#[source] CodecError),
    /// The store failed. Of a [`StoreError::Unknown`] write it is not known whether it happened.
    #[error("the store failed")]
    Store(#[from] StoreError),
}

fn at(address: Option<IpAddr>) -> String {
    address.map_or_else(String::new, |address| format!(" at {address}"))
}
