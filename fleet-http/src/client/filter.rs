//! Which units to list.

use fleet_core::TargetState;
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
}

impl UnitFilter {
    pub(super) fn query(&self) -> Query {
        let text = |state: Option<TargetState>| state.map(|state| state.to_string());
        Query::new()
            .with("currentState", text(self.current).as_deref())
            .with("desiredState", text(self.desired).as_deref())
            .with("machineID", self.machine.as_deref())
            .with("template", self.template.as_ref().map(UnitName::as_str))
    }
}
