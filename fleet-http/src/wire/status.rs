//! Status of units, with journal lines and details of their service managers. Also the resources
//! that machines and units use.

use fleet_core::journal::JournalLine;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Time, UnitEntity, UnitStateEntity};
use crate::setters::setters;

/// Status of a unit on each of its machines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct UnitStatusReport {
    /// The machine that the unit is placed on. If the unit has no placement, all machines that
    /// report a state of the unit, ordered by ID.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineStatus>,
    /// The unit.
    pub unit: UnitEntity,
}

/// Status of a unit on one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct MachineStatus {
    /// Last lines of the journal, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LogLine>,
    /// The machine's ID.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// Reason that journal lines are missing. For example, the machine does not respond.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub journal_error: String,
    /// Details from the service manager beyond the state, if available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// State that the machine reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<UnitStateEntity>,
}

/// A line of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct LogLine {
    /// Time at which the line was written, by the machine's clock, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// The line, without its newline.
    pub text: String,
}

impl From<JournalLine> for LogLine {
    fn from(line: JournalLine) -> Self {
        Self { at: line.at.map(Time::from), text: line.text }
    }
}

/// Details of a unit that its service manager provides beyond the state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct StatusDetails {
    /// Units and conditions that keep the unit degraded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub degraded_by: Vec<String>,
    /// Last elapse of a timer, by the machine's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_elapse: Option<Time>,
    /// Next elapse of a timer, by the machine's clock. Missing if the timer is not waiting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_elapse: Option<Time>,
    /// Options of the unit file that the service manager does not honour, or only in part, with
    /// their lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored_options: Vec<String>,
    /// Those of the ignored options that confine processes, limit their resources or change their
    /// privileges.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored_sandboxing: Vec<String>,
    /// Time until the next automatic start, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_milliseconds: Option<u64>,
    /// Latest `STATUS=` message of the current run.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status_text: String,
    /// Process tracking method, and the reason for a fallback.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tracking: String,
    /// Resources that the unit uses, while it has a main process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UnitUsage>,
}

impl StatusDetails {
    setters! {
        optional:
            with_last_elapse = last_elapse: Time,
            with_next_elapse = next_elapse: Time,
            with_retry_in_milliseconds = retry_in_milliseconds: u64,
            with_usage = usage: UnitUsage;
        text:
            with_status_text = status_text,
            with_tracking = tracking;
        plain:
            with_degraded_by = degraded_by: Vec<String>,
            with_ignored_options = ignored_options: Vec<String>,
            with_ignored_sandboxing = ignored_sandboxing: Vec<String>;
    }
}

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
