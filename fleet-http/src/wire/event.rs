//! What happens in a cluster, as those hear it who follow it.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Machine, RebalanceOrder, Unit, UnitState};

/// Something that changed, as it is now. There may be more kinds in the future; a client passes
/// over those that it does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Nobody can say what changed since what was seen: look at everything. What comes afterwards
    /// is newer. A stream that does not go on from an earlier one begins with this.
    Resync,
    /// A unit came or changed, or its placement, its current state or its reason did. Its options
    /// and source are not told.
    Unit(Box<Unit>),
    /// A unit is gone; only its name is told.
    UnitGone(Box<Unit>),
    /// What a machine reports of a unit came or changed.
    State(Box<UnitState>),
    /// A machine no longer reports of a unit; only name and machine are told.
    StateGone(Box<UnitState>),
    /// A machine came or changed.
    Machine(Box<Machine>),
    /// A machine is gone; only its ID is told.
    MachineGone(Box<Machine>),
    /// An order to rebalance came, or units were moved for it: those that it tells.
    Rebalance(Box<RebalanceOrder>),
    /// There is no order to rebalance any more: it was carried out or taken back. Nothing of it is
    /// told.
    RebalanceGone,
}

impl Event {
    /// The name of its kind, as it is on the wire.
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

    /// The event as lines of a stream.
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

    /// Reads an event of a stream; nothing if its kind is not known.
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

/// JSON has no ends of lines outside of strings, and escapes them there.
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
        /// Whoever sends it: it is read or refused.
        #[test]
        fn whatever_comes_is_read_or_refused(
            kind in "(unit|state|machine|rebalance)(Gone)?|resync|.{0,8}",
            data in "[{]?[\\[\\]{}\":,a-zA-Z0-9 ]{0,60}[}]?|.*",
        ) {
            let _read_or_refused = Event::read(&kind, &data);
        }
    }
}
