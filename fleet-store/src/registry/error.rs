//! Why the registry refuses.

use std::time::{Duration, SystemTime};

use fleet_core::{MachineId, Revision, Term};
use fleet_unitfile::UnitName;

use crate::{CodecError, MachineRecord, StoreError};

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
        /// The revision that last wrote it.
        modified: Revision,
    },
    /// The unit was written after it was looked at; look again and decide again.
    #[error("unit {name} has changed since it was looked at")]
    Changed {
        /// The unit.
        name: UnitName,
        /// The revision that last wrote it.
        modified: Revision,
    },
    /// Something that the write was based on has changed; look again and decide again.
    #[error("the write is based on a state that has changed")]
    Conflict,
    /// Another living machine has this identity.
    #[error(
        "machine ID {id} is in use by another machine{}: give one of them an identity of its own \
         (machine_id in the configuration, or /etc/machine-id), or wait until the other one has \
         left",
        described(holder.as_deref())
    )]
    MachineTaken {
        /// The identity.
        id: MachineId,
        /// What the other machine says of itself; nothing if this version cannot read it.
        holder: Option<Box<MachineRecord>>,
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
    /// The store has no lineage, so nothing tells where its epochs begin.
    #[error(
        "the store has no lineage yet: a fleetd that uses it, or Registry::lineage, gives it one"
    )]
    NoLineage,
    /// A value cannot be written down.
    #[error("the value cannot be stored")]
    Encode(#[source] CodecError),
    /// The store failed. Of a [`StoreError::Unknown`] write it is not known whether it happened.
    #[error("the store failed")]
    Store(#[from] StoreError),
}

/// What tells a person which machine it is: its host, address and version, and since when it is
/// there, as far as it says so.
fn described(holder: Option<&MachineRecord>) -> String {
    let Some(MachineRecord { address, version, host, started, .. }) = holder else {
        return ", of which this version of fleet cannot read more".to_owned();
    };
    let mut text = String::new();
    if !host.is_empty() {
        text.push_str(&format!(", {host}"));
    }
    if let Some(address) = address {
        text.push_str(&format!(" at {address}"));
    }
    if !version.is_empty() {
        text.push_str(&format!(", with fleet {version}"));
    }
    if let Some(started) = started.filter(|started| started.as_millis() < YEAR_10000) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(started.as_millis());
        text.push_str(&format!(", since {}", httpdate::HttpDate::from(time)));
    }
    text
}

/// The first moment that cannot be shown as a date, in milliseconds since 1970: no clock is right
/// that says so, and nobody may fail for it.
const YEAR_10000: u64 = 253_402_300_800_000;
