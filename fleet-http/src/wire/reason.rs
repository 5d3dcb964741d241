//! Reasons for unplaced units, as data.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Reason that a unit is not placed on any machine. The kind of the reason determines the fields
/// that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ReasonDetail {
    /// Units of a `MachineOf=` cycle; the last one refers to the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycle: Vec<String>,
    /// Units that must be placed together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<String>,
    /// Kind of the reason: `noMachines`, `noMachineFits`, `noMachineFitsGroup`, `attemptLimit`,
    /// `peerUnknown`, `peerInactive`, `peersApart`, `cycle`, `notRescheduled`, `machineAwaited`,
    /// `mayStillRun`, or `other`. More kinds may be added.
    pub kind: String,
    /// Time within which the unit must have stopped, in seconds since the loss of its machine. Only
    /// in `mayStillRun`; absent if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// ID of the machine that the unit is placed on and waits for.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// Number of machines considered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<u32>,
    /// Machine that passed the most rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<NearestRefusal>,
    /// Units, or patterns of unit names, that this unit must be placed with. Each of them is listed
    /// with its machine, if that is relevant to the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<ReasonPeer>,
    /// Number of machines that each rule excluded. A machine that fails several rules is counted
    /// only under the first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusalCount>,
}

/// A unit that another unit must be placed with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ReasonPeer {
    /// ID of its machine; empty if it has none.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// The unit's name.
    pub name: String,
}

/// Number of machines that refuse a unit by the same rule, with an example.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RefusalCount {
    /// ID of one of these machines.
    pub example: String,
    /// Number of machines for which this rule was the first that refused.
    pub machines: u32,
    /// Name of the rule, for example `Cordon`. A rule that evaluates a unit option has the name of
    /// the option, for example `MachineMetadata`.
    pub rule: String,
    /// Explanation of the refusal by the example.
    pub text: String,
    /// Only if the units of a `MachineOf=` group were to be placed together: the unit of the group
    /// that the example machine refused. Otherwise empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unit: String,
}

/// The refusing machine that passed the most rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct NearestRefusal {
    /// The machine's ID.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// Name of the rule that refuses the unit.
    pub rule: String,
    /// Explanation of the refusal.
    pub text: String,
    /// Only if the units of a `MachineOf=` group were to be placed together: the unit of the group
    /// that the machine refused. Otherwise empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unit: String,
}
