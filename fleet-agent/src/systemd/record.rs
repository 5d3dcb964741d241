//! The record of a unit, and its format on disk.

use fleet_core::{Epoch, Generation, KnownUnit, TargetState};
use fleet_unitfile::UnitHash;
use serde::{Deserialize, Serialize};

use super::bus::States;

/// The last request for a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) known: KnownUnit,
    /// A request that systemd may not have received yet.
    pub(crate) order: Option<PendingOrder>,
}

/// A request that is stored before it is sent to systemd. If the daemon ends in between, the next
/// daemon can find out whether systemd has received the request. So the request is neither lost nor
/// repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PendingOrder {
    Start(PendingStart),
    Stop,
}

/// A start or restart that systemd may not have received yet.
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
        let Some(PendingOrder::Start(start)) = &self.order else { return false };
        let is_another = !invocation.is_empty() && start.invocation != invocation;
        start.generation == generation && is_another
    }

    /// Returns the record before a request is sent. The last request stays the same until then.
    pub(crate) fn pending(self, order: PendingOrder) -> Self {
        Self { order: Some(order), ..self }
    }

    /// Returns the record after systemd has accepted a start.
    pub(crate) fn launched(self, generation: Generation) -> Self {
        let known = KnownUnit { requested: TargetState::Launched, generation, ..self.known };
        Self { known, order: None }
    }

    /// Returns the record after systemd has accepted a stop. A unit without requests stays so,
    /// because its load was interrupted and has to be repeated.
    pub(crate) fn stopped(self) -> Self {
        let requested = self.known.requested.min(TargetState::Loaded);
        Self { known: KnownUnit { requested, ..self.known }, order: None }
    }

    /// Returns the record without its pending request, which systemd has not carried out.
    pub(crate) fn unchanged(self) -> Self {
        Self { order: None, ..self }
    }

    /// Returns the record of a unit once the outcome of its pending request is known. `states` and
    /// `invocation`, the ID of the unit's last run, were read after the request.
    ///
    /// | pending | the unit in systemd | recorded as |
    /// |---|---|---|
    /// | start | has a new run, or a job that starts it | launched |
    /// | start | any other | unchanged, and still pending (`None`) |
    /// | stop | has a job that stops it, or is down without a job that starts it | loaded |
    /// | stop | any other | unchanged |
    pub(crate) fn resolve(&self, states: &States, invocation: &[u8]) -> Option<Self> {
        let is_starting = matches!(states.job.as_str(), "start" | "restart");
        match self.order.as_ref()? {
            PendingOrder::Start(start) => {
                let is_received = is_starting || self.has_started(start.generation, invocation);
                is_received.then(|| self.clone().launched(start.generation))
            }
            PendingOrder::Stop => {
                let is_down = ["inactive", "failed", "deactivating"].contains(&&*states.active);
                let is_received = states.job == "stop" || (is_down && !is_starting);
                let record = self.clone();
                Some(if is_received { record.stopped() } else { record.unchanged() })
            }
        }
    }

    pub(crate) fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let KnownUnit { hash, requested: asked, epoch, generation } = self.known;
        let order = match &self.order {
            Some(PendingOrder::Start(start)) => Some(StoredStart {
                generation: start.generation.0,
                invocation: start.invocation.clone(),
            }),
            Some(PendingOrder::Stop) | None => None,
        };
        let stopping = self.order == Some(PendingOrder::Stop);
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
            stopping,
        })
    }

    /// Parses the output of [`to_json`](Self::to_json); `None` if it is invalid.
    pub(crate) fn from_json(bytes: &[u8]) -> Option<Self> {
        let written: StoredRecord = serde_json::from_slice(bytes).ok()?;
        let start = written.order.map(|start| PendingStart {
            generation: Generation(start.generation),
            invocation: start.invocation,
        });
        let stop = written.stopping.then_some(PendingOrder::Stop);
        let order = start.map(PendingOrder::Start).or(stop);
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
    /// A pending start.
    #[serde(default)]
    order: Option<StoredStart>,
    /// Whether a stop is pending.
    #[serde(default)]
    stopping: bool,
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

    fn start(generation: u64, invocation: &[u8]) -> PendingOrder {
        let (generation, invocation) = (Generation(generation), invocation.to_vec());
        PendingOrder::Start(PendingStart { generation, invocation })
    }

    fn states(active: &str, job: &str) -> States {
        let [name, load, active, sub, job] =
            ["a.service", "loaded", active, "", job].map(str::to_owned);
        States { name, load, active, sub, job }
    }

    #[test]
    fn stored_state_round_trips() {
        let mut all = vec![record()];
        for asked in TargetState::ALL {
            for order in [start(4, &[0, 255]), PendingOrder::Stop] {
                let mut next = record().pending(order);
                (next.known.requested, next.known.generation) = (asked, Generation(3));
                all.push(next);
            }
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
        let order = |invocation: &[u8]| record().pending(start(2, invocation));
        let rows: [(Record, u64, &[u8], bool); 7] = [
            (record(), 2, b"new", false),
            (order(b"old"), 2, b"new", true),
            (order(b""), 2, b"new", true),
            (order(b"old"), 2, b"old", false),
            (order(b"old"), 3, b"new", false),
            (order(b"old"), 2, b"", false),
            (record().pending(PendingOrder::Stop), 2, b"new", false),
        ];
        for (record, generation, invocation, begun) in rows {
            let found = record.has_started(Generation(generation), invocation);
            assert_eq!(found, begun, "{record:?}, {invocation:?}");
        }
    }

    /// Regression: a unit whose stop was not recorded counted as launched, and was never started
    /// again.
    #[test]
    fn unrecorded_stop_is_detected_by_state() {
        use TargetState::{Inactive, Launched, Loaded};
        // The last request before the stop, the unit's state and job, the last request after it.
        for (before, active, job, after) in [
            (Launched, "inactive", "", Loaded),
            (Launched, "failed", "", Loaded),
            (Launched, "deactivating", "", Loaded),
            (Launched, "deactivating", "stop", Loaded),
            (Launched, "active", "stop", Loaded),
            (Launched, "active", "", Launched),
            (Launched, "active", "reload", Launched),
            (Launched, "reloading", "", Launched),
            (Launched, "activating", "", Launched),
            (Launched, "activating", "start", Launched),
            (Launched, "deactivating", "restart", Launched),
            (Launched, "inactive", "start", Launched),
            (Loaded, "active", "", Loaded),
            (Loaded, "inactive", "", Loaded),
            (Inactive, "inactive", "", Inactive),
        ] {
            let mut record = record().pending(PendingOrder::Stop);
            record.known.requested = before;
            let resolved = record.resolve(&states(active, job), b"").expect("it is resolved");
            assert_eq!(resolved.order, None, "{before:?}, {active}, {job}");
            assert_eq!(resolved.known.requested, after, "{before:?}, {active}, {job}");
        }
        assert_eq!(record().resolve(&states("inactive", ""), b""), None, "nothing is pending");
    }

    /// Regression: a unit whose start was not recorded counted as loaded, and was never stopped.
    #[test]
    fn unrecorded_start_counts_as_launched() {
        for (active, job, invocation, is_received) in [
            ("active", "", "new", true),
            ("inactive", "", "new", true),
            ("inactive", "start", "old", true),
            ("active", "restart", "old", true),
            ("active", "", "old", false),
            ("inactive", "", "", false),
        ] {
            let record = record().pending(start(2, b"old"));
            let resolved = record.resolve(&states(active, job), invocation.as_bytes());
            let launched = record.launched(Generation(2));
            assert_eq!(resolved, is_received.then_some(launched), "{active}, {job}, {invocation}");
        }
    }

    #[test]
    fn record_of_an_earlier_version_is_readable() {
        let hash = record().known.hash;
        let text = format!(
            r#"{{"hash":"{hash}","asked":"loaded","epoch":7,"generation":0,
                "order":{{"generation":4,"invocation":[0,255]}}}}"#
        );
        let mut expected = record().pending(start(4, &[0, 255]));
        expected.known.requested = TargetState::Loaded;
        assert_eq!(Record::from_json(text.as_bytes()), Some(expected));
    }
}
