//! Progress of a rebalancing, and the remaining work of a drain.

use fleet_core::rebalancing::{RebalanceLimits, Rebalancing};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A rebalancing or its dry run, with the remaining work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct RebalanceReport {
    /// The order.
    pub order: RebalanceOrder,
    /// Machines that are present, ordered by ID.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineLoad>,
    /// Remaining moves in their order, including moves that must wait until other units are up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<RebalanceMove>,
    /// Reason that no unit is to move.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Units that have left their source machine but are not yet up on the destination machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub under_way: Vec<PendingMove>,
    /// Reason why no remaining move can start now, as text. Empty if the remaining moves wait only
    /// for the units in `underWay`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waits: String,
    /// Whether the rebalancing can continue only after an intervention, as far as the server knows.
    /// For example, every unit that it waits for has failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stuck: bool,
}

impl RebalanceReport {
    /// Whether no work is left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.moves.is_empty() && self.under_way.is_empty()
    }
}

/// The limits of a rebalancing, and its progress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RebalanceOrder {
    /// Maximum number of units that move at the same time.
    pub at_once: u32,
    /// Additional difference in load that a move requires. Before the move, the source must have at
    /// least `gain + 1` more units than the destination has after it. With 0, a unit moves from a
    /// machine with five units to one with three (four each afterwards), but not to one with four.
    pub gain: u32,
    /// Minimum number of instances of each template that must stay up.
    #[serde(rename = "keepUp")]
    pub min_available: u32,
    /// Maximum number of moves in total; unlimited if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Number of units moved so far.
    pub moved: u32,
    /// The latest moves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moving: Vec<RebalanceMove>,
}

/// A move of a unit for balance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct RebalanceMove {
    /// ID of the source machine.
    pub from: String,
    /// ID of the destination machine.
    pub to: String,
    /// The unit's name.
    pub unit: String,
}

/// A unit that was moved and is not up yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct PendingMove {
    /// Its current status, as text.
    pub reason: String,
    /// ID of the destination machine.
    pub to: String,
    /// The unit's name.
    pub unit: String,
}

/// Load of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct MachineLoad {
    /// Number of units after all moves.
    pub after: u32,
    /// The machine's ID.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// Current number of units, including global units.
    pub units: u32,
}

/// Converts a rebalancing order.
pub(crate) fn rebalance_order(order: &Rebalancing) -> RebalanceOrder {
    let RebalanceLimits { max_in_flight: at_once, gain, min_available, max_moves: most } =
        order.limits;
    let moving = order.moves.iter().map(|(unit, moving)| RebalanceMove {
        from: moving.from.to_string(),
        to: moving.to.to_string(),
        unit: unit.to_string(),
    });
    let (moved, moving) = (order.moved, moving.collect());
    RebalanceOrder { at_once, gain, min_available, most, moved, moving }
}

/// A drain or its dry run, with the units on the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
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
#[non_exhaustive]
pub struct HeldUnit {
    /// Reason, as text.
    pub reason: String,
    /// The unit's name.
    pub unit: String,
}

/// A unit that moves to another machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct UnitMove {
    /// ID of the destination machine.
    pub to: String,
    /// The unit's name.
    pub unit: String,
}
