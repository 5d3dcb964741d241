//! Messages of a fleet-init that runs units from files: the requests to it, and its responses.

use fleet_core::graph::format::{FileRole, InitFile};
use serde::{Deserialize, Serialize};

use crate::ui::output::Record;

/// Envelope that distinguishes these requests from others on the same socket.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct InitRequest {
    pub(super) init: Request,
}

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Request {
    /// The response is a [`StatusHeader`], then lists of [`Unit`]s.
    Status,
    /// The response is the new [`Targets`].
    SetTarget { goal: String, extra_targets: Vec<String> },
    /// The response is the new [`Targets`].
    Reload,
    /// Requests a plan. The response is the [`Targets`], then lists of [`PlannedUnit`]s.
    ///
    /// With files, the plan is for running these files. With `PlanFiles::Own` and a goal, it is for
    /// choosing that goal. With `PlanFiles::Own` alone, it is for a reload.
    Plan { files: PlanFiles, goal: Option<String>, extra_targets: Vec<String> },
    /// Makes a unit reload its configuration. The response is empty.
    ReloadUnit { unit: String },
    /// Restarts a unit. The response says whether it was starting or active.
    Restart { unit: String },
    /// The response says whether there was anything to reset.
    ResetFailed { unit: String },
    /// Masks a unit. The response says whether it was not masked before.
    Mask { unit: String },
    /// Unmasks a unit. The response says whether it was masked before.
    Unmask { unit: String },
    /// The response is lists of [`LogLine`]s.
    Logs {
        unit: String,
        lines: Option<usize>,
        /// In milliseconds since 1970; `None` for all lines.
        since: Option<u64>,
        follow: bool,
        /// Whether lines have their times. Earlier versions do not set it.
        #[serde(default)]
        times: bool,
    },
}

/// A line of a log. Earlier versions send only its text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum LogLine {
    Timed(Option<u64>, String),
    Text(String),
}

/// The files of a plan.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PlanFiles {
    /// The files of the running fleet-init.
    Own,
    /// Names and contents of files. The client reads the files and sends their contents, because
    /// the server may not have permission to read them.
    Given(Vec<SourceFile>),
}

/// A file with its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SourceFile {
    pub(super) name: String,
    /// Whether the file contains the central settings (`init.conf`).
    pub(super) is_central: bool,
    pub(super) text: String,
}

/// Reason for which a request is refused.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Refusal {
    /// This fleet-init runs the units of fleetd and has no goal.
    RunsForFleet,
    /// The problem, with remedies.
    Because { problem: String, help: Vec<String> },
}

/// First item of a status response.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StatusHeader {
    pub(super) goal: Option<String>,
    pub(super) extra_targets: Vec<String>,
    /// Reason why processes are tracked by their environment, which is weaker than tracking them by
    /// control groups. `None` if they are tracked by control groups.
    #[serde(rename = "weak")]
    pub(super) tracking_fallback: Option<String>,
    /// Whether fleetd chooses the units to run. There is then no goal.
    #[serde(default)]
    pub(super) fleet: bool,
}

/// A unit; also the JSON output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Unit {
    pub(super) unit: String,
    pub(super) description: String,
    pub(super) provides: Vec<String>,
    /// One word: `running`, `waiting`, `failed`…
    pub(super) state: String,
    /// Reason for this state and the next step, for example `exit 3; retry in 2s`.
    pub(super) reason: Option<String>,
    /// Whether the unit is about to change its state: it starts, stops or reloads, or waits for a
    /// unit that does.
    #[serde(default)]
    pub(super) changing: bool,
    /// Number of its last start; `None` if it never started, or is virtual.
    #[serde(default)]
    pub(super) incarnation: Option<u64>,
    /// Whether its last requested reload failed.
    #[serde(default)]
    pub(super) reload_failed: bool,
    pub(super) needed: bool,
    pub(super) degraded_by: Vec<String>,
    /// Active targets of this unit that nothing needs: the unit is needed for another target of it.
    pub(super) coincidental: Vec<String>,
    #[serde(rename = "mainPID")]
    pub(super) main_pid: Option<u32>,
    /// Time in this state; `None` if nothing was observed yet.
    pub(super) milliseconds: Option<u64>,
    /// Time until the next retry.
    pub(super) retry_in_milliseconds: Option<u64>,
    /// Number of unrequested exits in a row.
    pub(super) attempts: u32,
    /// The unit's own status text (`STATUS=`).
    pub(super) status: Option<String>,
    pub(super) depends: Vec<Edge>,
}

/// A dependency of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Edge {
    pub(super) kind: String,
    pub(super) unit: String,
}

/// The goal and the extra targets; also the JSON output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Targets {
    pub(super) goal: Option<String>,
    pub(super) extra_targets: Vec<String>,
}

/// The planned action for a unit; also the JSON output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlannedUnit {
    pub(super) unit: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// One word: `start`, `stop`, `restart`, `stay`, or `wait` for a needed, inactive unit.
    pub(super) action: String,
    /// Wave of the stop.
    pub(super) stop_wave: Option<usize>,
    /// Wave of the start.
    pub(super) wave: Option<usize>,
    pub(super) why: String,
    /// Keys of its stanza that differ from the running definition.
    pub(super) changed: Vec<String>,
    /// Dependencies that order it.
    pub(super) after: Vec<Edge>,
    pub(super) needed_by: Vec<Edge>,
    /// Missing or degraded dependencies.
    pub(super) degraded_by: Vec<String>,
}

impl SourceFile {
    pub(super) fn of(file: &InitFile) -> Self {
        Self {
            name: file.name.clone(),
            is_central: file.role == FileRole::Central,
            text: String::from_utf8_lossy(&file.source).into_owned(),
        }
    }

    pub(super) fn into_file(self) -> InitFile {
        let role = if self.is_central { FileRole::Central } else { FileRole::Units };
        InitFile { name: self.name, role, source: self.text.into_bytes() }
    }
}

impl Record for Targets {
    fn name(&self) -> &str {
        self.goal.as_deref().unwrap_or_default()
    }
}

impl Record for PlannedUnit {
    fn name(&self) -> &str {
        &self.unit
    }
}

impl Record for Unit {
    fn name(&self) -> &str {
        &self.unit
    }
}
