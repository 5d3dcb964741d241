//! Which units and states to list.

use fleet_core::{ActiveState, TargetState};
use fleet_unitfile::UnitName;

use super::query::Query;

/// Which units to list: all that match what is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitFilter {
    /// Only those that are placed on this machine.
    pub machine: Option<String>,
    /// Only those of this desired state.
    pub desired: Option<TargetState>,
    /// Only those of this current state.
    pub current: Option<TargetState>,
    /// Only the instances of this template.
    pub template: Option<UnitName>,
    /// Only those that are placed on machines with all of this metadata, each `KEY=VALUE` or `KEY`.
    pub metadata: Vec<String>,
}

impl UnitFilter {
    pub(super) fn query(&self) -> Query {
        let text = |state: Option<TargetState>| state.map(|state| state.to_string());
        Query::new()
            .with("currentState", text(self.current).as_deref())
            .with("desiredState", text(self.desired).as_deref())
            .with("machineID", self.machine.as_deref())
            .with("template", self.template.as_ref().map(UnitName::as_str))
            .with_all("metadata", &self.metadata)
    }
}

/// Which unit states to list: all that match what is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateFilter {
    /// Only those of this machine.
    pub machine: Option<String>,
    /// Only those of this unit.
    pub unit: Option<String>,
    /// Only those of instances of this template.
    pub template: Option<UnitName>,
    /// Only those of units that are in this state.
    pub active: Option<ActiveState>,
    /// Only those of machines with all of this metadata, each `KEY=VALUE` or `KEY`.
    pub metadata: Vec<String>,
}

impl StateFilter {
    pub(super) fn query(&self) -> Query {
        let active = self.active.map(|active| active.to_string());
        Query::new()
            .with("machineID", self.machine.as_deref())
            .with("systemdActiveState", active.as_deref())
            .with("template", self.template.as_ref().map(UnitName::as_str))
            .with("unitName", self.unit.as_deref())
            .with_all("metadata", &self.metadata)
    }
}
