//! Why a unit has no machine, for programs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a unit has no machine. Which fields are there depends on the kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ReasonDetail {
    /// The units of a circle of `MachineOf=`; the last one leads to the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycle: Vec<String>,
    /// The units that must be placed together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<String>,
    /// `noMachines`, `noMachineFits`, `noMachineFitsGroup`, `peerUnknown`, `peerInactive`,
    /// `peersApart`, `cycle`, `notRescheduled`, `machineAwaited`, `mayStillRun`, or `other`.
    /// There may be more in the future.
    pub kind: String,
    /// After how many seconds it no longer waits for the machine that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The ID of the machine that the unit has and waits for.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// How many machines were asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<u32>,
    /// The machine that comes nearest to taking it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<Nearest>,
    /// The units that it must be beside and cannot, or patterns over such units, with their
    /// machines if they have any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<Peer>,
    /// The refusals, counted by the first rule that refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusalCount>,
}

/// A unit that another one must be beside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Peer {
    /// The machine that it is on; empty if it is on none.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// Its name.
    pub name: String,
}

/// How many machines one rule refused, with one of them as an example.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RefusalCount {
    /// The ID of one of these machines.
    pub example: String,
    /// How many machines this rule was the first to refuse.
    pub machines: u32,
    /// The name of the rule, for example `MachineMetadata`: that of the option that states it,
    /// where it is one option.
    pub rule: String,
    /// What the rule saw on the example.
    pub text: String,
    /// Which unit of the group was refused on the example; empty where the unit is alone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unit: String,
}

/// The machine that comes nearest to taking a unit: its refusal is by the latest rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Nearest {
    /// Its ID.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// The name of the rule that refuses there.
    pub rule: String,
    /// What the rule saw there.
    pub text: String,
    /// Which unit of the group is refused there; empty where the unit is alone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unit: String,
}
