//! Remaining work of a drain.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A drain or its dry run, with the units on the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct DrainReport {
    /// Global units on the machine. A drain does not stop them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub global: Vec<String>,
    /// Units that cannot move yet, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldUnit>,
    /// Minimum number of instances of each template that must stay up.
    #[serde(rename = "keepUp")]
    pub min_available: u32,
    /// Units that are still running although they are no longer placed there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<String>,
    /// The machine's ID.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// Units that move next.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<UnitMove>,
}

impl DrainReport {
    /// Whether no unit is left that the drain must remove.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.leaving.is_empty() && self.moves.is_empty()
    }
}

/// A unit that cannot leave the drained machine yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct HeldUnit {
    /// Reason, as text.
    pub reason: String,
    /// The unit's name.
    pub unit: String,
}

/// A unit that moves to another machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct UnitMove {
    /// ID of the destination machine.
    pub to: String,
    /// The unit's name.
    pub unit: String,
}
