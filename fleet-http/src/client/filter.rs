//! Filters for lists of units and states.

use fleet_core::{ActiveState, TargetState};
use fleet_unitfile::UnitName;

use super::query::Query;

/// Filter for units. A unit must match all fields that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitFilter {
    /// Only units placed on this machine.
    pub machine: Option<String>,
    /// Only units with this desired state.
    pub desired: Option<TargetState>,
    /// Only units with this current state.
    pub current: Option<TargetState>,
    /// Only instances of this template.
    pub template: Option<UnitName>,
    /// Only units placed on machines that have all of this metadata. Each item is `KEY=VALUE`, or
    /// `KEY` for any value.
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

/// Filter for unit states. A state must match all fields that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateFilter {
    /// Only states reported by this machine.
    pub machine: Option<String>,
    /// Only states of this unit.
    pub unit: Option<String>,
    /// Only states of instances of this template.
    pub template: Option<UnitName>,
    /// Only states of units in this state.
    pub active: Option<ActiveState>,
    /// Only states reported by machines that have all of this metadata. Each item is `KEY=VALUE`,
    /// or `KEY` for any value.
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
