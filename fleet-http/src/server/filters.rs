//! Pure: which items of a listing are wanted.

use fleet_core::{ActiveState, Machine, Snapshot, TargetState, Unit, UnitState};
use fleet_unitfile::UnitName;

use super::extract::Params;
use super::failure::Failure;

/// Which units are wanted: all that match what is given.
#[derive(Debug, Clone, Default)]
pub(super) struct UnitFilter {
    machine: Option<String>,
    desired: Option<TargetState>,
    current: Option<TargetState>,
    template: Option<UnitName>,
    /// Those of the machine that it is placed on.
    metadata: MachineFilter,
}

impl UnitFilter {
    pub(super) fn read(params: &Params) -> Result<Self, Failure> {
        let state = |name| params.given(name).map(str::parse).transpose().map_err(Failure::bad);
        Ok(Self {
            machine: params.given("machineID").map(str::to_owned),
            desired: state("desiredState")?,
            current: state("currentState")?,
            template: template(params)?,
            metadata: MachineFilter::read(params),
        })
    }

    pub(super) fn wants(&self, snapshot: &Snapshot, unit: &Unit) -> bool {
        let placed = snapshot.placement(unit.name.as_str());
        let is_on = |id: &String| placed.is_some_and(|there| there.machine.as_str() == id);
        let there = || snapshot.machine(placed?.machine.as_str());
        self.wants_name(&unit.name)
            && (self.metadata.wants_any() || there().is_some_and(|at| self.metadata.wants(at)))
            && self.machine.as_ref().is_none_or(is_on)
            && self.desired.is_none_or(|desired| unit.desired == desired)
            && self.current.is_none_or(|current| snapshot.current(unit) == current)
    }

    /// The same for a unit that cannot be understood: of that nothing but its name is known.
    pub(super) fn wants_broken(&self, name: &UnitName) -> bool {
        let asks_more = self.desired.is_some() || self.current.is_some() || self.machine.is_some();
        !asks_more && self.metadata.wants_any() && self.wants_name(name)
    }

    fn wants_name(&self, name: &UnitName) -> bool {
        self.template.is_none() || name.template() == self.template
    }
}

/// Which states are wanted: all that match what is given, besides what a listing begins with.
#[derive(Debug, Clone)]
pub(super) struct StateFilter {
    machine: Option<String>,
    active: Option<ActiveState>,
    template: Option<UnitName>,
    /// Those of the machine that reports it.
    metadata: MachineFilter,
}

impl StateFilter {
    pub(super) fn read(params: &Params) -> Result<Self, Failure> {
        let active = params.given("systemdActiveState").map(str::parse).transpose();
        Ok(Self {
            machine: params.given("machineID").map(str::to_owned),
            active: active.map_err(|error| {
                Failure::bad(format!("{error}: write one such as active or failed"))
            })?,
            template: template(params)?,
            metadata: MachineFilter::read(params),
        })
    }

    pub(super) fn wants(&self, snapshot: &Snapshot, state: &UnitState) -> bool {
        let there = || snapshot.machine(state.machine.as_str());
        self.machine.as_ref().is_none_or(|machine| state.machine.as_str() == machine)
            && self.active.is_none_or(|active| state.systemd.active == active)
            && (self.template.is_none() || state.unit.template() == self.template)
            && (self.metadata.wants_any() || there().is_some_and(|at| self.metadata.wants(at)))
    }
}

/// The template whose instances are wanted.
pub(super) fn template(params: &Params) -> Result<Option<UnitName>, Failure> {
    let Some(text) = params.given("template") else { return Ok(None) };
    let bad = || Failure::bad(format!("{text:?} is no template: write one such as web@.service"));
    UnitName::parse(text).ok().filter(UnitName::is_template).map(Some).ok_or_else(bad)
}

/// Which machines are wanted: those that have all the metadata that is given.
#[derive(Debug, Clone, Default)]
pub(super) struct MachineFilter(Vec<(String, Option<String>)>);

impl MachineFilter {
    pub(super) fn read(params: &Params) -> Self {
        let pairs = params.all("metadata").map(|text| match text.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (text.to_owned(), None),
        });
        Self(pairs.filter(|(key, _)| !key.is_empty()).collect())
    }

    /// Whether nothing is given.
    pub(super) fn wants_any(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn wants(&self, machine: &Machine) -> bool {
        self.0.iter().all(|(key, wanted)| {
            let found = machine.metadata.get(key);
            found.is_some_and(|found| wanted.as_ref().is_none_or(|wanted| wanted == found))
        })
    }
}
