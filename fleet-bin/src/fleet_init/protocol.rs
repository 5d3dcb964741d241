//! Results of requests to a fleet-init, also as JSON output.

use serde::{Deserialize, Serialize};

use crate::ui::output::Record;

/// Status of a fleet-init without that of its units.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StatusHeader {
    pub(super) goal: Option<String>,
    pub(super) extra_targets: Vec<String>,
    /// Reason why processes are tracked by their environment, which is weaker than tracking them by
    /// control groups. `None` if they are tracked by control groups.
    pub(super) tracking_fallback: Option<String>,
    /// Whether fleetd chooses the units to run. There is then no goal.
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
    pub(super) changing: bool,
    /// Number of its last start; `None` if it never started, or is virtual.
    pub(super) incarnation: Option<u64>,
    /// Whether its last requested reload failed.
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
