//! What is left to be done to empty a machine.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A machine that is drained, or might be, with all that is on it. It is empty when nobody moves,
/// is held back or leaves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct DrainReport {
    /// The global units that run there: a drain leaves them alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub global: Vec<String>,
    /// The units that stay for now, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldUnit>,
    /// How many instances of a template must be up at any time.
    pub keep_up: u32,
    /// The units that belong there no more and still run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<String>,
    /// The machine.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// The units that move away next.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<UnitMove>,
}

impl DrainReport {
    /// Whether nothing is left on the machine that a drain takes away.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.leaving.is_empty() && self.moves.is_empty()
    }
}

/// A unit that stays on a machine that is drained.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct HeldUnit {
    /// Why, for people.
    pub reason: String,
    /// Its name.
    pub unit: String,
}

/// A unit that goes to another machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct UnitMove {
    /// The ID of the machine that it goes to.
    pub to: String,
    /// Its name.
    pub unit: String,
}
