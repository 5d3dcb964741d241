//! How all units are at one moment.

use fleet_core::Timestamp;
use fleet_core::graph::{DerivedState, InitState, Name, Retry, StatusReport, Target};
use fleet_unitfile::UnitName;

use super::DesiredTargets;
use super::event_loop::Supervisor;
use super::managed_units::name_of;
use crate::{ServiceError, Tracking, UnitDetails};

/// How all units are at one moment.
#[derive(Debug, Clone)]
pub struct InitSnapshot {
    /// The moment, by the supervisor's clock; so are all others here.
    pub now: Timestamp,
    /// What the supervisor is there for.
    pub desired: DesiredTargets,
    /// How processes are found.
    pub tracking: Tracking,
    /// The units, by name; also those that are not in the graph any more and still run.
    pub units: Vec<UnitSnapshot>,
    /// A copy of what decides, to see what would follow from another graph or goal.
    pub system: InitState,
}

/// How one unit is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitSnapshot {
    /// Its name.
    pub unit: Name,
    /// What it is, for a person; empty if it is not in the graph any more.
    pub description: String,
    /// The targets that it provides.
    pub provides: Vec<Target>,
    /// Its state, and why it is so.
    pub report: StatusReport,
    /// Those of its targets that are up only because it provides others that are needed.
    pub coincidental: Vec<Target>,
    /// What keeps it degraded.
    pub degraded_by: Vec<Target>,
    /// The number of its main process, if it runs.
    pub main_pid: Option<u32>,
    /// What it last said of itself in this run (`STATUS=` of `sd_notify`); nothing once that is
    /// over.
    pub status: Option<String>,
    /// What last kept a process of it from being started, or it from being taken back, for a
    /// person.
    pub problem: Option<String>,
}

impl Supervisor {
    /// How all units are now.
    pub(in crate::native) fn snapshot(&self) -> InitSnapshot {
        let units = self.system.units().filter_map(|unit| self.status(unit)).collect();
        InitSnapshot {
            now: self.context.now(),
            desired: self.selection.desired.clone(),
            tracking: self.context.tracking(),
            units,
            system: self.system.clone(),
        }
    }

    /// What there is to tell of a unit that fleet has loaded.
    pub(in crate::native) fn details(&self, unit: &UnitName) -> Result<UnitDetails, ServiceError> {
        let name = name_of(unit);
        if !self.managed.as_ref().is_some_and(|managed| managed.is_loaded(&name)) {
            return Err(ServiceError::NotLoaded { unit: unit.clone() });
        }
        let retry = match self.system.status(&name).map(|state| state.state) {
            Some(
                DerivedState::Failed { retry: Retry::At(at), .. }
                | DerivedState::Completed(Retry::At(at)),
            ) => Some(at.since(self.context.now())),
            _ => None,
        };
        let degraded_by = self.system.degraded_by(&name);
        Ok(UnitDetails {
            retry_in: retry,
            degraded_by: degraded_by.iter().map(ToString::to_string).collect(),
            tracking: Some(self.context.tracking().to_string()),
        })
    }

    fn status(&self, name: &Name) -> Option<UnitSnapshot> {
        let report = self.system.status(name)?;
        let unit = self.system.graph().unit(name);
        let provides = unit.map_or_else(Vec::new, |unit| unit.provides.clone());
        let entry = self.units.get(name);
        let run_state = entry.map(|entry| &*entry.run_state);
        let problem = entry.and_then(|entry| entry.problem.as_ref());
        let handle = entry.filter(|entry| entry.handle.is_some());
        let coincidental = provides.iter().filter(|target| self.system.is_coincidental(target));
        Some(UnitSnapshot {
            unit: name.clone(),
            description: unit.map(|unit| unit.description.clone()).unwrap_or_default(),
            coincidental: coincidental.cloned().collect(),
            provides,
            report,
            degraded_by: self.system.degraded_by(name),
            main_pid: run_state.and_then(|run_state| run_state.main).map(|process| process.pid),
            status: handle.and_then(|entry| entry.run_state.status.clone()),
            problem: self.unrecoverable.get(name).or(problem).cloned(),
        })
    }
}
