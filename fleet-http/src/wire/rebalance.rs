//! How far a rebalancing has come, and what is left of it.

use fleet_core::{BalanceTerms, Rebalancing};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An order to rebalance, as it is or as it would be, with what it comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RebalanceReport {
    /// The order.
    pub order: RebalanceOrder,
    /// The machines that are present, by their IDs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineLoad>,
    /// The units that are still to move, as things stand, in this order. Where some are only held
    /// back until others are up, these are listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<BalanceMove>,
    /// Why no unit is to move, if none is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The units that have left a machine and are not up on the other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub under_way: Vec<UnderWay>,
    /// Why none of the units that are still to move does so now, for people, if it is not because
    /// of those under way.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waits: String,
    /// Whether nothing goes on before somebody sees to it, as far as is known: all that is waited
    /// for has failed, or can never be.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stuck: bool,
}

impl RebalanceReport {
    /// Whether nothing is left to be done.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.moves.is_empty() && self.under_way.is_empty()
    }
}

/// What a cluster was asked for when it was to be rebalanced, and what was last done for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RebalanceOrder {
    /// How many units may be under way at the same time.
    pub at_once: u32,
    /// By how many units more than one a machine that is left must be fuller than the other.
    pub gain: u32,
    /// How many instances of a template must be up at any time.
    pub keep_up: u32,
    /// How many units may be moved in all; as many as it takes where nothing is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// How many were moved.
    pub moved: u32,
    /// The units that were moved last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moving: Vec<BalanceMove>,
}

/// A unit that moves for the sake of balance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct BalanceMove {
    /// The ID of the machine that it leaves.
    pub from: String,
    /// The ID of the machine that it goes to.
    pub to: String,
    /// Its name.
    pub unit: String,
}

/// A unit that was moved and is not up yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct UnderWay {
    /// What is known of it, for people.
    pub reason: String,
    /// The ID of the machine that it went to.
    pub to: String,
    /// Its name.
    pub unit: String,
}

/// How much a machine has to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MachineLoad {
    /// How many units are to be there once all have moved.
    pub after: u32,
    /// The machine.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// How many units are to be there now, global ones counted.
    pub units: u32,
}

/// The order of a cluster.
pub(crate) fn rebalance_order(order: &Rebalancing) -> RebalanceOrder {
    let BalanceTerms { at_once, gain, keep_up, most } = order.terms;
    let moving = order.moving.iter().map(|(unit, moving)| BalanceMove {
        from: moving.from.to_string(),
        to: moving.to.to_string(),
        unit: unit.to_string(),
    });
    let (moved, moving) = (order.moved, moving.collect());
    RebalanceOrder { at_once, gain, keep_up, most, moved, moving }
}
