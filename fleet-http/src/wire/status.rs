//! How a unit is on its machines.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Unit, UnitState};

/// A unit, and how it is on each of its machines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct UnitStatus {
    /// The machine that it is placed on, or else those that report of it, in order of their IDs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineStatus>,
    /// The unit.
    pub unit: Unit,
}

/// How a unit is on one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineStatus {
    /// The last lines that it wrote there, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// The machine.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// Why lines are missing, if some are: for example that the machine does not answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub missing: String,
    /// What its service manager tells beyond the state, where it tells more and answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub particulars: Option<Particulars>,
    /// What the machine reports of it, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<UnitState>,
}

/// What a service manager tells of a unit beyond its state, when it is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Particulars {
    /// What keeps it degraded, though it is up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub degraded_by: Vec<String>,
    /// In how long it is started again by itself, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_milliseconds: Option<u64>,
    /// How its processes are found, and why not better.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tracking: String,
}
