//! Filters for lists. Pure.

use fleet_core::{ActiveState, Machine, Snapshot, TargetState, Unit, UnitState};
use fleet_unitfile::UnitName;

use super::extract::Params;
use crate::server::failure::Failure;

/// Filter for units. A unit must match all fields that are set.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnitFilter {
    machine: Option<String>,
    desired: Option<TargetState>,
    current: Option<TargetState>,
    template: Option<UnitName>,
    /// Filter for the machine that the unit is placed on.
    metadata: MachineFilter,
}

impl UnitFilter {
    pub(crate) fn read(params: &Params) -> Result<Self, Failure> {
        let state =
            |name| params.non_empty(name).map(str::parse).transpose().map_err(Failure::bad_request);
        Ok(Self {
            machine: params.non_empty("machineID").map(str::to_owned),
            desired: state("desiredState")?,
            current: state("currentState")?,
            template: template(params)?,
            metadata: MachineFilter::read(params),
        })
    }

    pub(crate) fn matches(&self, snapshot: &Snapshot, unit: &Unit) -> bool {
        let placed = snapshot.placement(unit.name.as_str());
        let is_on = |id: &String| placed.is_some_and(|there| there.machine.as_str() == id);
        let there = || snapshot.machine(placed?.machine.as_str());
        self.matches_template(&unit.name)
            && (self.metadata.is_empty() || there().is_some_and(|at| self.metadata.matches(at)))
            && self.machine.as_ref().is_none_or(is_on)
            && self.desired.is_none_or(|desired| unit.desired == desired)
            && self.current.is_none_or(|current| snapshot.current(unit) == current)
    }

    /// Returns whether a unit that cannot be decoded matches. Only its name is known, so it matches
    /// only if no filter except the template is set.
    pub(crate) fn matches_faulty(&self, name: &UnitName) -> bool {
        let asks_more = self.desired.is_some() || self.current.is_some() || self.machine.is_some();
        !asks_more && self.metadata.is_empty() && self.matches_template(name)
    }

    fn matches_template(&self, name: &UnitName) -> bool {
        self.template.is_none() || name.template() == self.template
    }
}

/// Filter for unit states. A state must match all fields that are set. The filter by unit name is
/// not among them: the request handler applies it.
#[derive(Debug, Clone)]
pub(crate) struct StateFilter {
    machine: Option<String>,
    active: Option<ActiveState>,
    template: Option<UnitName>,
    /// Filter for the reporting machine.
    metadata: MachineFilter,
}

impl StateFilter {
    pub(crate) fn read(params: &Params) -> Result<Self, Failure> {
        let active = params.non_empty("systemdActiveState").map(str::parse).transpose();
        Ok(Self {
            machine: params.non_empty("machineID").map(str::to_owned),
            active: active.map_err(|error| {
                Failure::bad_request(format!(
                    "query parameter \"systemdActiveState\": {error}; use a state such as active \
                     or failed"
                ))
            })?,
            template: template(params)?,
            metadata: MachineFilter::read(params),
        })
    }

    pub(crate) fn matches(&self, snapshot: &Snapshot, state: &UnitState) -> bool {
        let there = || snapshot.machine(state.machine.as_str());
        self.machine.as_ref().is_none_or(|machine| state.machine.as_str() == machine)
            && self.active.is_none_or(|active| state.systemd.active == active)
            && (self.template.is_none() || state.unit.template() == self.template)
            && (self.metadata.is_empty() || there().is_some_and(|at| self.metadata.matches(at)))
    }
}

/// Returns the template in the parameter `template`, which selects the instances of that template.
pub(crate) fn template(params: &Params) -> Result<Option<UnitName>, Failure> {
    let Some(text) = params.non_empty("template") else { return Ok(None) };
    let bad = || {
        Failure::bad_request(format!(
            "query parameter \"template\": {text:?} is not a template; use a name such as \
             web@.service"
        ))
    };
    UnitName::parse(text).ok().filter(UnitName::is_template).map(Some).ok_or_else(bad)
}

/// Filter for machines. A machine must have all given metadata.
#[derive(Debug, Clone, Default)]
pub(crate) struct MachineFilter(Vec<(String, Option<String>)>);

impl MachineFilter {
    pub(crate) fn read(params: &Params) -> Self {
        let pairs = params.all("metadata").map(|text| match text.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (text.to_owned(), None),
        });
        Self(pairs.filter(|(key, _)| !key.is_empty()).collect())
    }

    /// Whether the filter matches all machines.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, machine: &Machine) -> bool {
        self.0.iter().all(|(key, wanted)| {
            let found = machine.metadata.get(key);
            found.is_some_and(|found| wanted.as_ref().is_none_or(|wanted| wanted == found))
        })
    }
}
