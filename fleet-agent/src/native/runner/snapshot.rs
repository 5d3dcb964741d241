//! How all units are at one moment.

use fleet_core::Timestamp;
use fleet_core::graph::{Name, Retry, Shown, State, System, Target};
use fleet_unitfile::UnitName;

use super::Wanted;
use super::lead::Lead;
use super::services::name_of;
use crate::{Particulars, ServiceError, Tracking};

/// How all units are at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment, by the runner's clock; so are all others here.
    pub now: Timestamp,
    /// What the runner is there for.
    pub wanted: Wanted,
    /// How processes are found.
    pub tracking: Tracking,
    /// The units, by name; also those that are not in the graph any more and still run.
    pub units: Vec<UnitStatus>,
    /// A copy of what decides, to see what would follow from another graph or goal.
    pub system: System,
}

/// How one unit is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitStatus {
    /// Its name.
    pub unit: Name,
    /// What it is, for a person; empty if it is not in the graph any more.
    pub description: String,
    /// The targets that it provides.
    pub provides: Vec<Target>,
    /// Its state, and why it is so.
    pub state: State,
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

impl Lead {
    /// How all units are now.
    pub(in crate::native) fn snapshot(&self) -> Snapshot {
        let units = self.system.units().filter_map(|unit| self.status(unit)).collect();
        Snapshot {
            now: self.machine.now(),
            wanted: self.choice.wanted.clone(),
            tracking: self.machine.tracking(),
            units,
            system: self.system.clone(),
        }
    }

    /// What there is to tell of a unit that fleet has loaded.
    pub(in crate::native) fn particulars(
        &self,
        unit: &UnitName,
    ) -> Result<Particulars, ServiceError> {
        let name = name_of(unit);
        if !self.services.as_ref().is_some_and(|services| services.keeps(&name)) {
            return Err(ServiceError::NotLoaded { unit: unit.clone() });
        }
        let retry = match self.system.state(&name).map(|state| state.what) {
            Some(Shown::Failed { retry: Retry::At(at), .. } | Shown::Ended(Retry::At(at))) => {
                Some(at.since(self.machine.now()))
            }
            _ => None,
        };
        let degraded_by = self.system.degraded_by(&name);
        Ok(Particulars {
            retry_in: retry,
            degraded_by: degraded_by.iter().map(ToString::to_string).collect(),
            tracking: Some(self.machine.tracking().to_string()),
        })
    }

    fn status(&self, name: &Name) -> Option<UnitStatus> {
        let state = self.system.state(name)?;
        let unit = self.system.graph().unit(name);
        let provides = unit.map_or_else(Vec::new, |unit| unit.provides.clone());
        let member = self.members.get(name);
        let memory = member.map(|member| &*member.memory);
        let problem = member.and_then(|member| member.problem.as_ref());
        let live = member.filter(|member| member.live.is_some());
        let coincidental = provides.iter().filter(|target| self.system.is_coincidental(target));
        Some(UnitStatus {
            unit: name.clone(),
            description: unit.map(|unit| unit.description.clone()).unwrap_or_default(),
            coincidental: coincidental.cloned().collect(),
            provides,
            state,
            degraded_by: self.system.degraded_by(name),
            main_pid: memory.and_then(|memory| memory.main).map(|process| process.pid),
            status: live.and_then(|member| member.memory.status.clone()),
            problem: self.lost.get(name).or(problem).cloned(),
        })
    }
}
