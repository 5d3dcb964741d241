//! The units that fleet has loaded, and the requests for these units.
//!
//! Requests are mapped to the graph: loading a unit adds it to the graph, and each unit that should
//! run is an extra target. There is no goal. A caller waits until the unit has reached the
//! requested state. All state of this module belongs to the event loop.

mod calls;
mod desired;
pub(in crate::native) mod external;
mod recovery;
mod relink;
mod status;
mod timers;
mod waiters;

pub(super) use self::calls::name_of;
pub(in crate::native) use self::recovery::ManagedUnitsConfig;
pub(in crate::native) use self::status::{PublishedStatus, Statuses};
pub(super) use self::timers::PulledTimer;
pub(super) use self::waiters::hit_start_limit;

use fleet_core::graph::systemd::{CompiledUnit, LinkedUnits, Relation, Timer};
use fleet_core::graph::{Incarnation, InitState, Name, Target};
use fleet_core::{Epoch, Generation, KnownUnit, TargetState, Timestamp};
use fleet_unitfile::{UnitHash, UnitName};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroU32;

use self::external::ExternalRegistry;
use self::waiters::Waiters;
use super::Supervisor;
use super::supervised_unit::SupervisedUnit;
use crate::ServiceError;
use crate::native::state::unit_directory::RequestedState;

/// All units that fleet has loaded.
#[derive(Default)]
pub(super) struct ManagedUnits {
    loaded_units: BTreeMap<Name, LoadedUnit>,
    waiters: Waiters,
    /// Units to restart, each with its current run. The unit is restarted as soon as this run is
    /// over, even if the run has failed.
    pending_restarts: BTreeMap<Name, Incarnation>,
    externals: ExternalRegistry,
    timers: timers::TimerIndex,
    /// Loaded units that the graph still contains as external units.
    taken_over: BTreeSet<Name>,
    /// Relations between the loaded units.
    linked: LinkedUnits,
    /// Whether units were loaded or unloaded since the graph was built.
    graph_is_stale: bool,
    /// Deadline for rebuilding the graph after files of its units have changed.
    relink_by: Option<Timestamp>,
    /// Number of loads so far, from which each unit gets its `load_number`. Of two units that
    /// exclude each other, the one with the higher number is left out of the graph.
    load_count: u64,
    max_starting: Option<NonZeroU32>,
    statuses: Statuses,
}

/// A loaded unit.
pub(in crate::native) struct LoadedUnit {
    unit: UnitName,
    hash: UnitHash,
    requested: RequestedState,
    definition: Definition,
    /// Sequence number of the unit's load.
    load_number: u64,
    /// Reason why the unit is not in the graph.
    refused: Option<String>,
    /// Whether the unit is being unloaded.
    unloading: bool,
    /// Set from a requested start or restart until its result is known, unless the unit was up. An
    /// earlier run that ended is not shown meanwhile, because it does not answer the request.
    awaited: Option<AwaitedRun>,
}

/// A requested start whose result is not known yet.
struct AwaitedRun {
    /// The run that has to end first.
    before: Option<Incarnation>,
}

/// Definition of a loaded unit.
pub(super) enum Definition {
    /// The compiled unit file.
    Valid(Box<CompiledUnit>),
    /// The unit file can no longer be run, for the given reason. A run that was started from an
    /// earlier definition continues and can be stopped.
    Invalid(String),
}

impl LoadedUnit {
    /// Creates the entry of a unit that is being loaded.
    pub(super) fn new(
        unit: UnitName,
        hash: UnitHash,
        requested: RequestedState,
        definition: Definition,
    ) -> Self {
        let (load_number, refused, unloading, awaited) = (0, None, false, None);
        Self { unit, hash, requested, definition, load_number, refused, unloading, awaited }
    }

    /// Returns whether the unit should run even if no other unit needs it, because fleet has
    /// launched it or a timer has started it.
    fn should_run(&self) -> bool {
        self.requested.should_run() && !self.unloading
    }
}

impl Definition {
    /// Returns the timer and its relations, if the unit is a timer.
    fn timer(&self) -> Option<(&Timer, &[Relation])> {
        match self {
            Self::Valid(compiled) => Some((compiled.timer.as_ref()?, &compiled.relations)),
            Self::Invalid(_) => None,
        }
    }
}

/// Returns what fleet knows of a loaded unit.
pub(super) fn known(hash: UnitHash, requested: RequestedState) -> KnownUnit {
    let launched = requested.launched;
    KnownUnit {
        hash,
        requested: if launched { TargetState::Launched } else { TargetState::Loaded },
        epoch: Epoch(requested.epoch),
        generation: Generation(requested.generation),
    }
}

impl ManagedUnits {
    /// Returns the published status of all units.
    pub(super) fn statuses(&self) -> &Statuses {
        &self.statuses
    }

    /// Returns the deadline for rebuilding the graph after files have changed.
    pub(super) fn relink_due(&self) -> Option<Timestamp> {
        self.relink_by
    }

    /// Returns an error for each loaded unit that cannot be stopped.
    pub(super) fn stop_errors(&self, planner: &InitState) -> Vec<ServiceError> {
        let stuck = |(name, loaded): (&Name, &LoadedUnit)| {
            let state = planner.status(name)?;
            let problem = waiters::stop_result(Some(&state), state.incarnation)?.err()?;
            Some(ServiceError::StopFailed { unit: loaded.unit.clone(), problem })
        };
        self.loaded_units.iter().filter_map(stuck).collect()
    }

    /// Returns whether a unit is loaded, even if it is not in the graph. As long as a unit is
    /// loaded, its stored state is kept.
    pub(super) fn is_loaded(&self, unit: &Name) -> bool {
        self.loaded_units.contains_key(unit)
    }

    /// Returns the requested state of a unit that is about to be started.
    ///
    /// # Errors
    ///
    /// Returns an error with the reason if the unit file is invalid or the unit is no longer
    /// loaded.
    pub(super) fn request_for_start(&self, unit: &Name) -> io::Result<RequestedState> {
        match self.loaded_units.get(unit) {
            Some(LoadedUnit { definition: Definition::Invalid(problem), .. }) => {
                Err(io::Error::other(problem.clone()))
            }
            Some(loaded) => Ok(loaded.requested),
            None => Err(io::Error::other("it is no longer loaded")),
        }
    }

    /// Returns the requested state of a unit.
    pub(super) fn requested(&self, unit: &Name) -> Option<RequestedState> {
        self.loaded_units.get(unit).map(|loaded| loaded.requested)
    }
}

impl Supervisor {
    /// Clears the result of each unit in `changed` that has a pending restart and whose run is
    /// over, so that the unit starts again. Returns whether there was such a unit.
    pub(super) fn restart_pending(&mut self, changed: &[Name]) -> bool {
        let managed = &mut self.managed;
        if managed.pending_restarts.is_empty() {
            return false;
        }
        let mut begun = Vec::new();
        for unit in changed {
            let Some(run) = managed.pending_restarts.get(unit) else { continue };
            let state = self.planner.status(unit);
            let state = state.filter(|state| state.incarnation == Some(*run));
            let is_over = state.as_ref().is_some_and(|state| waiters::is_over(&state.state));
            if is_over || state.is_none() {
                managed.pending_restarts.remove(unit);
            }
            begun.extend(is_over.then_some(unit));
        }
        for unit in &begun {
            self.reset_failed(&Target::from(*unit));
        }
        !begun.is_empty()
    }

    /// Stores the start limit hit of each of `units` that the planner no longer retries for this
    /// reason. The planner decides this after the last run of the unit, so the stored state of that
    /// run does not include it.
    pub(super) fn record_start_limit_hits(&mut self, units: &BTreeSet<Name>) {
        for unit in units {
            let state = self.planner.status(unit).map(|state| state.state);
            if !state.is_some_and(|what| hit_start_limit(&what)) {
                continue;
            }
            self.units.get_mut(unit).into_iter().for_each(SupervisedUnit::record_start_limit_hit);
        }
    }
}
