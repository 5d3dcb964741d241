//! What the API shows: units, their states, machines, and pages of them.

use std::collections::BTreeMap;

use fleet_core::TargetState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ReasonDetail;

/// A unit: what is wanted of it, and what became of that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Unit {
    /// What has been done of what is desired: `inactive`, `loaded` or `launched`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_state: String,
    /// What is desired: `inactive`, `loaded` or `launched`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub desired_state: String,
    /// How often a restart of it was requested.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: u64,
    /// Whether it runs on every eligible machine.
    #[serde(skip_serializing_if = "is_false")]
    pub global: bool,
    /// The unit hash, 40 hexadecimal digits.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// The machine that it is placed on.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The options of its unit file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<UnitOption>,
    /// What is wrong with the stored unit, if it cannot be understood.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub problem: String,
    /// Why it has no machine, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why it has no machine, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_detail: Option<ReasonDetail>,
    /// Its unit file, byte for byte. Lists leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Its unit file in base64, instead of [`source`](Self::source) when it is not UTF-8.
    #[serde(rename = "sourceBase64", skip_serializing_if = "Option::is_none")]
    pub source_base64: Option<String>,
    /// For how many seconds, at least, nothing has been known of it, where its machine is not
    /// present: what it does there nobody can say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_for: Option<u64>,
}

impl Unit {
    /// The desired state, if it is one that this version knows.
    #[must_use]
    pub fn desired(&self) -> Option<TargetState> {
        self.desired_state.parse().ok()
    }

    /// The current state, if it is one that this version knows.
    #[must_use]
    pub fn current(&self) -> Option<TargetState> {
        self.current_state.parse().ok()
    }
}

/// One option of a unit file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct UnitOption {
    /// The option's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The section that it stands in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub section: String,
    /// Its value, continued lines and all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
}

/// One page of units.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct UnitPage {
    /// Asks for the next page; empty on the last one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next_page_token: String,
    /// The units, in order of their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<Unit>,
}

/// The state of a unit on one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct UnitState {
    /// What the machine's agent last asked of its service manager: `loaded` or `launched`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub asked: String,
    /// How its last main process ended.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub exit: String,
    /// The generation that the agent last started.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: u64,
    /// The hash of the unit file that the machine has loaded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// The machine that reports it.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// The process that is the unit.
    #[serde(rename = "mainPID", skip_serializing_if = "Option::is_none")]
    pub main_pid: Option<u32>,
    /// The unit's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Why the agent could not do what it was told.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub problem: String,
    /// How often the service manager itself restarted it.
    #[serde(skip_serializing_if = "is_zero_u32")]
    pub restarts: u32,
    /// Why its last run ended, in systemd's words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub result: String,
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

/// One page of unit states.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct UnitStatePage {
    /// Asks for the next page; empty on the last one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next_page_token: String,
    /// The states, in order of units' names, then of machine IDs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<UnitState>,
}

/// A machine that is present in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Machine {
    /// Whether it takes no units but those that are placed there already.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
    /// Its identity.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// What people said is to become of it: `cordoned`, `drained`, or nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub intent: String,
    /// Its effective metadata.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// What units may reserve of it in all.
    #[serde(skip_serializing_if = "Resources::is_nothing")]
    pub offers: Resources,
    /// The address at which other hosts reach it.
    #[serde(rename = "primaryIP", skip_serializing_if = "String::is_empty")]
    pub primary_ip: String,
    /// The version of the daemon that runs on it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
}

/// Amounts of what machines offer and units reserve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Resources {
    /// Processor time, in thousandths of a core.
    pub cpu: u64,
    /// Disk, in bytes.
    pub disk: u64,
    /// Memory, in bytes.
    pub memory: u64,
}

impl Resources {
    /// Whether it is nothing of anything.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// One page of machines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachinePage {
    /// The machines, in order of their IDs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<Machine>,
    /// Asks for the next page; empty on the last one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next_page_token: String,
}

/// The answer to a requested restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Restarted {
    /// The generation that agents will bring the unit to.
    pub generation: u64,
}

/// The version of the daemon that answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// The version, for example `0.1.0`.
    pub version: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero_u32(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_false(flag: &bool) -> bool {
    !flag
}
