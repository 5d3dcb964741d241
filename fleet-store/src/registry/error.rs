//! Errors of the registry.

use std::time::{Duration, SystemTime};

use fleet_core::rollout::{RolloutId, RolloutRequestError};
use fleet_core::{MachineId, Revision, Term};
use fleet_unitfile::UnitName;

use crate::StoreError;
use crate::registry::{CodecError, MachineRecord};

/// Error of a write to the registry.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The unit does not exist.
    #[error("unit {name} does not exist")]
    NotFound {
        /// The unit.
        name: UnitName,
    },
    /// A unit of this name exists already.
    #[error("unit {name} exists already")]
    AlreadyExists {
        /// The unit.
        name: UnitName,
        /// Revision that last wrote the unit.
        modified: Revision,
    },
    /// The unit was written after the expected revision; read it and decide again.
    #[error("unit {name} has changed since it was read")]
    Changed {
        /// The unit.
        name: UnitName,
        /// Revision that last wrote the unit.
        modified: Revision,
    },
    /// The rollout does not exist.
    #[error("rollout {id} does not exist")]
    NoRollout {
        /// The rollout.
        id: RolloutId,
    },
    /// The unit has no schedule.
    #[error(
        "{unit} has no schedule, or no leader has seen it yet: list the schedules with fleetctl \
         schedule list"
    )]
    NoSchedule {
        /// The unit.
        unit: UnitName,
    },
    /// The phase of the rollout does not admit the request.
    #[error(transparent)]
    RolloutRequest(#[from] RolloutRequestError),
    /// State that the write depends on has changed; read it and decide again.
    #[error("the cluster has changed since the write was prepared: try again")]
    Conflict,
    /// Another living machine uses this identity.
    #[error(
        "machine ID {id} is in use by another machine{}: give one of the two machines another ID \
         (machine_id in the configuration, or /etc/machine-id), or wait until the other machine \
         has left the cluster",
        described(holder.as_deref())
    )]
    MachineTaken {
        /// The identity.
        id: MachineId,
        /// Record of the other machine; `None` if this version cannot read it.
        holder: Option<Box<MachineRecord>>,
    },
    /// The machine's presence has ended; join again.
    #[error("machine {id} has left the cluster, or its presence has expired")]
    PresenceLost {
        /// The machine.
        id: MachineId,
    },
    /// Another engine leads, or may lead; stop leading.
    #[error("this daemon has lost the leadership of the cluster (term {term})")]
    Deposed {
        /// Term that has ended.
        term: Term,
    },
    /// A stored value that the operation needs cannot be read.
    #[error("the stored value {key} cannot be read")]
    Value {
        /// Key of the value.
        key: String,
        /// Decoding error.
        #[source]
        source: CodecError,
    },
    /// The store has no lineage, so the base of its epochs is unknown.
    #[error("the store has no identity, because no fleetd has used it yet: start fleetd once")]
    NoLineage,
    /// A value has no encoding.
    #[error("the value cannot be stored")]
    Encode(#[source] CodecError),
    /// The store failed. If the error is [`StoreError::Unknown`], the write may or may not have
    /// been applied.
    #[error("the store failed")]
    Store(#[from] StoreError),
}

/// Describes the machine that holds an identity: its host, address, version and start time, as far
/// as known.
fn described(holder: Option<&MachineRecord>) -> String {
    let Some(MachineRecord { address, version, host, started, .. }) = holder else {
        return " whose record this version of fleet cannot read".to_owned();
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

/// First timestamp that cannot be formatted as a date, in milliseconds since 1970. No correct clock
/// has such a time, but a wrong clock must not cause a panic.
const YEAR_10000: u64 = 253_402_300_800_000;
