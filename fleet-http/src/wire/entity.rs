//! Units and their states, machines, pages of them, cluster events, and error responses.

use std::collections::BTreeMap;

use fleet_core::TargetState;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    JobSummary, ReasonDetail, RebalanceOrder, ScheduleSummary, ServiceManagerEntity, Time,
};

/// A unit with its desired and current state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[schema(as = Unit)]
pub struct UnitEntity {
    /// The current state: `inactive`, `loaded` or `launched`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_state: String,
    /// The desired state: `inactive`, `loaded` or `launched`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub desired_state: String,
    /// Failures that count for `MoveAfterFailures=`, and the restart or move that follows.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failures: String,
    /// Number that each request to stop or restart the unit raises. A run with a lower generation
    /// is from before that request.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: u64,
    /// Whether this is a global unit, which runs on every eligible machine.
    #[serde(skip_serializing_if = "is_false")]
    pub global: bool,
    /// The unit hash, 40 hexadecimal digits.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// The job, if the unit is one. Omitted in events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobSummary>,
    /// ID of the machine that the unit is placed on.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// The unit's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Options of the unit file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<UnitOptionEntity>,
    /// Error of a stored unit that cannot be decoded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub problem: String,
    /// Reason that the unit is on no machine, as text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Reason that the unit is on no machine, as data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_detail: Option<ReasonDetail>,
    /// Reason that the unit is on no machine, as one clause for tables.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason_summary: String,
    /// The schedule, if the unit has one. Omitted in events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleSummary>,
    /// The unit file, byte for byte. Omitted in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The unit file in base64. Replaces [`source`](Self::source) if the file is not valid UTF-8.
    #[serde(rename = "sourceBase64", skip_serializing_if = "Option::is_none")]
    pub source_base64: Option<String>,
    /// Time for which the unit's state has been unknown, in seconds. Set only if the unit's machine
    /// is not present. The actual time may be longer, because a daemon counts from its own start at
    /// the earliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_for: Option<u64>,
}

impl UnitEntity {
    /// Returns the desired state, or `None` if this version does not know it.
    #[must_use]
    pub fn desired(&self) -> Option<TargetState> {
        self.desired_state.parse().ok()
    }

    /// Returns the current state, or `None` if this version does not know it.
    #[must_use]
    pub fn current(&self) -> Option<TargetState> {
        self.current_state.parse().ok()
    }
}

/// An option of a unit file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[schema(as = UnitOption)]
pub struct UnitOptionEntity {
    /// The option's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The option's section.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub section: String,
    /// The option's value, including continuation lines.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
}

/// A page of units.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct UnitPage {
    /// Token that requests the next page; empty on the last page.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next_page_token: String,
    /// Units, ordered by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<UnitEntity>,
}

/// State of a unit on one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[schema(as = UnitState)]
pub struct UnitStateEntity {
    /// State that the agent last requested from its service manager: `loaded` or `launched`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub requested_state: String,
    /// Exit status of the last main process.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub exit: String,
    /// Generation that the agent last started.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: u64,
    /// Hash of the unit file loaded on the machine.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// Result of the health check: `starting`, `healthy` or `unhealthy`. Absent if the unit has no
    /// health check, or is not active.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub health: String,
    /// Failure of the health check that made the unit unhealthy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub health_problem: String,
    /// ID of the reporting machine.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// PID of the main process.
    #[serde(rename = "mainPID", skip_serializing_if = "Option::is_none")]
    pub main_pid: Option<u32>,
    /// The unit's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Error of the agent's last attempt to reach the desired state.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub problem: String,
    /// Number of automatic restarts by the service manager.
    #[serde(skip_serializing_if = "is_zero")]
    pub restarts: u32,
    /// Result of the last run, as in systemd's `Result`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub result: String,
    /// Time at which the unit entered its active state, by the machine's clock. Absent if it is not
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// systemd's `ActiveState`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub systemd_active_state: String,
    /// systemd's `LoadState`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub systemd_load_state: String,
    /// systemd's `SubState`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub systemd_sub_state: String,
}

impl UnitStateEntity {
    /// Returns the end of the last run as a clause, such as `exited with status 3, result
    /// exit-code`. Empty before the first run.
    #[must_use]
    pub fn outcome(&self) -> String {
        match (self.result.as_str(), self.exit.as_str()) {
            ("", exit) => exit.into(),
            (result, "") => format!("result {result}"),
            (result, exit) => format!("{exit}, result {result}"),
        }
    }
}

/// A page of unit states.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct UnitStatePage {
    /// Token that requests the next page; empty on the last page.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next_page_token: String,
    /// Unit states, ordered by unit name, then machine ID.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<UnitStateEntity>,
}

/// A machine that is present in the cluster, or was until recently.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[schema(as = Machine)]
pub struct MachineEntity {
    /// Seconds since the machine was last present. Set only for absent machines, of which only the
    /// ID is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent_for: Option<u64>,
    /// Whether the machine accepts no new units.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
    /// Host name of the machine.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// The machine's ID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Requested maintenance of the machine: `cordoned`, `drained` or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub intent: String,
    /// Effective metadata.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Capacity that units can reserve.
    #[serde(skip_serializing_if = "ResourceAmounts::is_nothing")]
    pub offers: ResourceAmounts,
    /// IP address at which other hosts reach the machine.
    #[serde(rename = "primaryIP", skip_serializing_if = "String::is_empty")]
    pub primary_ip: String,
    /// Service manager of the machine, if it publishes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_manager: Option<ServiceManagerEntity>,
    /// Version of the machine's daemon.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
}

impl MachineEntity {
    /// Returns the name of the machine for people: the metadata `name`, or else the host name, or
    /// else the short ID.
    #[must_use]
    pub fn display_name(&self) -> &str {
        let name = self.metadata.get("name").map_or("", String::as_str);
        let names = [name, self.hostname.as_str()];
        let short = self.id.char_indices().nth(8).map_or(&*self.id, |(end, _)| &self.id[..end]);
        names.into_iter().find(|name| !name.is_empty()).unwrap_or(short)
    }
}

/// Amounts of resources that machines offer and units reserve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ResourceAmounts {
    /// CPU time, in thousandths of a core.
    pub cpu: u64,
    /// Disk space, in bytes.
    pub disk: u64,
    /// Memory, in bytes.
    pub memory: u64,
}

impl ResourceAmounts {
    /// Whether all amounts are zero.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// A page of machines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct MachinePage {
    /// Machines, ordered by ID.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineEntity>,
    /// Token that requests the next page; empty on the last page.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next_page_token: String,
}

/// Response to a request to restart or stop a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[non_exhaustive]
pub struct RestartResponse {
    /// Generation of the request, which is higher than that of the present run.
    pub generation: u64,
}

/// Version of the responding daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[non_exhaustive]
pub struct VersionResponse {
    /// The version, for example `0.1.0`.
    pub version: String,
    /// Why a machine of the daemon could not join the cluster. Absent if all have joined.
    #[serde(default, rename = "joinProblem", skip_serializing_if = "Option::is_none")]
    pub join_problem: Option<String>,
}

pub(super) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}

/// Message of the errors of a daemon that refuses its store.
pub const OTHER_STORE: &str = "the store was emptied or replaced, so this daemon leaves its units \
     running and does nothing else: restore the store, or accept the present one with \
     \"fleetd accept-store\", then restart fleetd";

/// Body of every response with status 4xx or 5xx.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[non_exhaustive]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorEntity,
    /// The unit's current state, with status 412.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Box<UnitEntity>>,
}

/// An error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct ErrorEntity {
    /// HTTP status of the response.
    pub code: u16,
    /// Errors in the submitted unit file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<ErrorDetail>,
    /// Explanation of the error.
    pub message: String,
}

/// An error in a unit file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct ErrorDetail {
    /// Column in characters, counted from one; zero if the error has no position.
    #[serde(skip_serializing_if = "is_zero")]
    pub column: usize,
    /// Correction to make.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub help: String,
    /// Line, counted from one; zero if the error has no position.
    #[serde(skip_serializing_if = "is_zero")]
    pub line: usize,
    /// Description of the error.
    pub message: String,
}

/// A change in the cluster. Contains the changed object as it is after the change. Later versions
/// may add kinds of events; clients ignore kinds that they do not know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterEvent {
    /// The server does not know the changes that the client has missed, so the client has to list
    /// everything. The events after this one report every later change. A stream that does not
    /// resume an earlier stream begins with a resync.
    Resync,
    /// A unit was added, or its unit file, desired state, placement, current state or reason
    /// changed. The entity contains neither options nor source.
    Unit(Box<UnitEntity>),
    /// A unit was removed. Contains only its name.
    UnitGone(Box<UnitEntity>),
    /// A machine's report of a unit's state was added or changed.
    State(Box<UnitStateEntity>),
    /// A machine no longer reports the state of a unit. The entity contains only the unit name and
    /// the machine ID.
    StateGone(Box<UnitStateEntity>),
    /// A machine appeared or changed.
    Machine(Box<MachineEntity>),
    /// A machine is gone. Contains only its ID.
    MachineGone(Box<MachineEntity>),
    /// A rebalancing was ordered, or it moved units. Contains the latest moves.
    Rebalance(Box<RebalanceOrder>),
    /// The rebalancing was completed or cancelled. Contains nothing.
    RebalanceGone,
}

impl ClusterEvent {
    /// Returns the name of the event's kind on the wire.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Resync => "resync",
            Self::Unit(_) => "unit",
            Self::UnitGone(_) => "unitGone",
            Self::State(_) => "state",
            Self::StateGone(_) => "stateGone",
            Self::Machine(_) => "machine",
            Self::MachineGone(_) => "machineGone",
            Self::Rebalance(_) => "rebalance",
            Self::RebalanceGone => "rebalanceGone",
        }
    }

    /// Encodes the event as lines of a server-sent event stream.
    pub(crate) fn lines(&self) -> String {
        let data = match self {
            Self::Resync | Self::RebalanceGone => "{}".to_owned(),
            Self::Rebalance(order) => json(order),
            Self::Unit(unit) | Self::UnitGone(unit) => json(unit),
            Self::State(state) | Self::StateGone(state) => json(state),
            Self::Machine(machine) | Self::MachineGone(machine) => json(machine),
        };
        format!("event: {}\ndata: {data}\n\n", self.kind())
    }

    /// Decodes an event; `None` if its kind is not known.
    pub(crate) fn read(kind: &str, data: &str) -> Result<Option<Self>, serde_json::Error> {
        let event = match kind {
            "resync" => Self::Resync,
            "unit" => Self::Unit(entity(data)?),
            "unitGone" => Self::UnitGone(entity(data)?),
            "state" => Self::State(entity(data)?),
            "stateGone" => Self::StateGone(entity(data)?),
            "machine" => Self::Machine(entity(data)?),
            "machineGone" => Self::MachineGone(entity(data)?),
            "rebalance" => Self::Rebalance(entity(data)?),
            "rebalanceGone" => Self::RebalanceGone,
            _ => return Ok(None),
        };
        Ok(Some(event))
    }
}

/// Encodes as JSON, which contains no newlines: those within strings are escaped.
fn json(entity: &impl Serialize) -> String {
    serde_json::to_string(entity).expect("wire types hold nothing but text and numbers")
}

fn entity<T: DeserializeOwned>(data: &str) -> Result<Box<T>, serde_json::Error> {
    serde_json::from_str(data).map(Box::new)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Arbitrary input is decoded or refused, without a panic.
        #[test]
        fn arbitrary_events_are_decoded_or_refused(
            kind in "(unit|state|machine|rebalance)(Gone)?|resync|.{0,8}",
            data in "[{]?[\\[\\]{}\":,a-zA-Z0-9 ]{0,60}[}]?|.*",
        ) {
            let _read_or_refused = ClusterEvent::read(&kind, &data);
        }
    }
}
