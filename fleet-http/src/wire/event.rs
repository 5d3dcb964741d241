//! Cluster events.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{MachineEntity, RebalanceOrder, UnitEntity, UnitStateEntity};

/// A change in the cluster. Contains the changed object as it is after the change. Later versions
/// may add kinds of events; clients ignore kinds that they do not know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterEvent {
    /// The server does not know the changes that the client has missed, so the client has to list
    /// everything. The events after this one report every later change. A stream that does not
    /// resume an earlier stream begins with a resync.
    Resync,
    /// A unit was added, or its unit file, desired state, placement, current state or reason
    /// changed. The entity contains neither options nor source.
    Unit(Box<UnitEntity>),
    /// A unit was removed. Contains only its name.
    UnitGone(Box<UnitEntity>),
    /// A machine's report of a unit's state was added or changed.
    State(Box<UnitStateEntity>),
    /// A machine no longer reports the state of a unit. The entity contains only the unit name and
    /// the machine ID.
    StateGone(Box<UnitStateEntity>),
    /// A machine appeared or changed.
    Machine(Box<MachineEntity>),
    /// A machine is gone. Contains only its ID.
    MachineGone(Box<MachineEntity>),
    /// A rebalancing was ordered, or it moved units. Contains the latest moves.
    Rebalance(Box<RebalanceOrder>),
    /// The rebalancing was completed or cancelled. Contains nothing.
    RebalanceGone,
}

impl ClusterEvent {
    /// Returns the name of the event's kind on the wire.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Resync => "resync",
            Self::Unit(_) => "unit",
            Self::UnitGone(_) => "unitGone",
            Self::State(_) => "state",
            Self::StateGone(_) => "stateGone",
            Self::Machine(_) => "machine",
            Self::MachineGone(_) => "machineGone",
            Self::Rebalance(_) => "rebalance",
            Self::RebalanceGone => "rebalanceGone",
        }
    }

    /// Encodes the event as lines of a server-sent event stream.
    pub(crate) fn lines(&self) -> String {
        let data = match self {
            Self::Resync | Self::RebalanceGone => "{}".to_owned(),
            Self::Rebalance(order) => json(order),
            Self::Unit(unit) | Self::UnitGone(unit) => json(unit),
            Self::State(state) | Self::StateGone(state) => json(state),
            Self::Machine(machine) | Self::MachineGone(machine) => json(machine),
        };
        format!("event: {}\ndata: {data}\n\n", self.kind())
    }

    /// Decodes an event; `None` if its kind is not known.
    pub(crate) fn read(kind: &str, data: &str) -> Result<Option<Self>, serde_json::Error> {
        let event = match kind {
            "resync" => Self::Resync,
            "unit" => Self::Unit(entity(data)?),
            "unitGone" => Self::UnitGone(entity(data)?),
            "state" => Self::State(entity(data)?),
            "stateGone" => Self::StateGone(entity(data)?),
            "machine" => Self::Machine(entity(data)?),
            "machineGone" => Self::MachineGone(entity(data)?),
            "rebalance" => Self::Rebalance(entity(data)?),
            "rebalanceGone" => Self::RebalanceGone,
            _ => return Ok(None),
        };
        Ok(Some(event))
    }
}

/// Encodes as JSON, which contains no newlines: those within strings are escaped.
fn json(entity: &impl Serialize) -> String {
    serde_json::to_string(entity).expect("wire types hold nothing but text and numbers")
}

fn entity<T: DeserializeOwned>(data: &str) -> Result<Box<T>, serde_json::Error> {
    serde_json::from_str(data).map(Box::new)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Arbitrary input is decoded or refused, without a panic.
        #[test]
        fn arbitrary_events_are_decoded_or_refused(
            kind in "(unit|state|machine|rebalance)(Gone)?|resync|.{0,8}",
            data in "[{]?[\\[\\]{}\":,a-zA-Z0-9 ]{0,60}[}]?|.*",
        ) {
            let _read_or_refused = ClusterEvent::read(&kind, &data);
        }
    }
}
