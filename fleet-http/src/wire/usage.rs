//! Resources that machines and their units use.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Resources of a machine, and how much of them is in use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct MachineUsage {
    /// CPU time of all processes since the boot, over all CPUs, in nanoseconds. The difference of
    /// two reports gives the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_nanoseconds: Option<u64>,
    /// Number of CPUs.
    pub cpus: u64,
    /// Load averages over one, five and fifteen minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_average: Option<[f64; 3]>,
    /// The machine's ID.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// Memory that new processes can use without swapping, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_available: Option<u64>,
    /// Memory of the machine, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total: Option<u64>,
    /// Units with a main process, ordered by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<UnitUsage>,
}

/// Resources that a unit uses on a machine. An amount is missing if the machine cannot read it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct UnitUsage {
    /// CPU time since the start of the unit, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_nanoseconds: Option<u64>,
    /// Memory, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// The unit's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Number of tasks: processes and their threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
}
