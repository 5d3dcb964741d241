//! The record of a unit, and its format on disk.

use fleet_core::{Epoch, Generation, KnownUnit, TargetState};
use fleet_unitfile::UnitHash;
use serde::{Deserialize, Serialize};

/// The last request for a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) known: KnownUnit,
    /// A start that systemd may not have received yet.
    pub(crate) order: Option<PendingStart>,
}

/// A start that is stored before it is requested from systemd. If the daemon ends in between, the
/// next daemon can find out whether systemd has received the start. So the start is neither lost
/// nor repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingStart {
    pub(crate) generation: Generation,
    /// Invocation ID of the unit's last run before.
    pub(crate) invocation: Vec<u8>,
}

impl Record {
    /// Creates the record of a unit with a file and without requests.
    pub(crate) fn new(hash: UnitHash, epoch: Epoch) -> Self {
        let (asked, generation) = (TargetState::Inactive, Generation::ZERO);
        Self { known: KnownUnit { hash, requested: asked, epoch, generation }, order: None }
    }

    /// Returns whether systemd has received the recorded start of this generation. This is so if
    /// the unit has had a new run, with another invocation ID, since the start was recorded.
    pub(crate) fn has_started(&self, generation: Generation, invocation: &[u8]) -> bool {
        self.order.as_ref().is_some_and(|order| {
            let is_another = !invocation.is_empty() && order.invocation != invocation;
            order.generation == generation && is_another
        })
    }

    pub(crate) fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let KnownUnit { hash, requested: asked, epoch, generation } = self.known;
        let order = self.order.as_ref().map(|order| StoredStart {
            generation: order.generation.0,
            invocation: order.invocation.clone(),
        });
        let asked = match asked {
            TargetState::Inactive => StoredTarget::Nothing,
            TargetState::Loaded => StoredTarget::Loaded,
            TargetState::Launched => StoredTarget::Launched,
        };
        let hash = hash.to_string();
        serde_json::to_vec(&StoredRecord {
            hash,
            asked,
            epoch: epoch.0,
            generation: generation.0,
            order,
        })
    }

    /// Parses the output of [`to_json`](Self::to_json); `None` if it is invalid.
    pub(crate) fn from_json(bytes: &[u8]) -> Option<Self> {
        let written: StoredRecord = serde_json::from_slice(bytes).ok()?;
        let order = written.order.map(|order| PendingStart {
            generation: Generation(order.generation),
            invocation: order.invocation,
        });
        let asked = match written.asked {
            StoredTarget::Nothing => TargetState::Inactive,
            StoredTarget::Loaded => TargetState::Loaded,
            StoredTarget::Launched => TargetState::Launched,
        };
        let known = KnownUnit {
            hash: written.hash.parse().ok()?,
            requested: asked,
            epoch: Epoch(written.epoch),
            generation: Generation(written.generation),
        };
        Some(Self { known, order })
    }
}

#[derive(Serialize, Deserialize)]
struct StoredRecord {
    hash: String,
    asked: StoredTarget,
    epoch: u64,
    generation: u64,
    #[serde(default)]
    order: Option<StoredStart>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredTarget {
    Nothing,
    Loaded,
    Launched,
}

#[derive(Serialize, Deserialize)]
struct StoredStart {
    generation: u64,
    invocation: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_unitfile::UnitFile;

    fn record() -> Record {
        let hash = UnitFile::parse("[Service]\nExecStart=/bin/true\n").expect("it parses").hash();
        Record::new(hash, Epoch(7))
    }

    #[test]
    fn stored_state_round_trips() {
        let mut all = vec![record()];
        for asked in TargetState::ALL {
            let order = PendingStart { generation: Generation(4), invocation: vec![0, 255] };
            let mut next = Record { order: Some(order), ..record() };
            (next.known.requested, next.known.generation) = (asked, Generation(3));
            all.push(next);
        }
        for record in all {
            let bytes = record.to_json().expect("it can be written");
            assert_eq!(Record::from_json(&bytes), Some(record));
        }
        for bytes in ["", "{}", r#"{"hash":"x","asked":"loaded","epoch":1,"generation":1}"#] {
            assert_eq!(Record::from_json(bytes.as_bytes()), None, "{bytes}");
        }
    }

    #[test]
    fn unrecorded_start_is_detected_by_invocation() {
        let order = |invocation: &[u8]| {
            let invocation = invocation.to_vec();
            Record {
                order: Some(PendingStart { generation: Generation(2), invocation }),
                ..record()
            }
        };
        let rows: [(Record, u64, &[u8], bool); 6] = [
            (record(), 2, b"new", false),
            (order(b"old"), 2, b"new", true),
            (order(b""), 2, b"new", true),
            (order(b"old"), 2, b"old", false),
            (order(b"old"), 3, b"new", false),
            (order(b"old"), 2, b"", false),
        ];
        for (record, generation, invocation, begun) in rows {
            let found = record.has_started(Generation(generation), invocation);
            assert_eq!(found, begun, "{record:?}, {invocation:?}");
        }
    }
}
