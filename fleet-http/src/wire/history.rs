//! History of a unit.

use fleet_core::history::{UnitEvent, UnitEventKind, UnitHistory};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// Last events of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[schema(as = UnitHistory)]
#[non_exhaustive]
pub struct UnitHistoryEntity {
    /// The events, in the order in which the leader recorded them. At most 32.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<UnitEventEntity>,
}

/// An event of a unit, or several equal ones in a row.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[schema(as = UnitEvent)]
#[non_exhaustive]
pub struct UnitEventEntity {
    /// Time of the last one: by the clock of the machine for the state of a run, and by the clock
    /// of the leader for all others.
    pub at: Time,
    /// Cause of a decision, outcome of a run, or failure of a health check.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// Number of equal events in a row.
    pub count: u32,
    /// The kind: `desired`, `restartRequested`, `unplaced`, `placed`, `moved`, `removed`,
    /// `machineLost`, `machineReturned`, `started`, `restarted`, `stopped`, `failed`, `healthy` or
    /// `unhealthy`. Later versions may add kinds.
    pub event: String,
    /// ID of the machine that the unit has left.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// ID of the machine.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// The event as a clause, with its cause.
    pub text: String,
}

impl From<UnitHistory> for UnitHistoryEntity {
    fn from(history: UnitHistory) -> Self {
        Self { events: history.events.into_iter().map(UnitEventEntity::from).collect() }
    }
}

impl From<UnitEvent> for UnitEventEntity {
    fn from(event: UnitEvent) -> Self {
        let UnitEvent { at, count, kind } = event;
        let from = match &kind {
            UnitEventKind::Moved { from, .. } => from.to_string(),
            _ => String::new(),
        };
        Self {
            at: at.into(),
            cause: kind.cause().to_owned(),
            count,
            event: kind.as_str().to_owned(),
            from,
            machine_id: kind.machine().map_or_else(String::new, ToString::to_string),
            text: kind.to_string(),
        }
    }
}
