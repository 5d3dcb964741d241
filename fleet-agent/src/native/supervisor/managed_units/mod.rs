//! The units that fleet has loaded, and what it asks of them.
//!
//! What fleet asks is what a graph is asked for: units that are to run are wanted beside the goal,
//! of which there is none; to load a unit is to take it into the graph. Who asked for something
//! waits here until the unit is as it should be. All of it belongs to the lead.

mod calls;
mod desired;
mod external;
mod recovery;
mod relink;
mod status;
mod timers;
mod waiters;

pub(in crate::native) use self::calls::name_of;
pub(in crate::native) use self::recovery::{
    ManagedUnitsConfig, SupervisorHandle, open_managed_units,
};
pub(in crate::native) use self::timers::PulledTimer;
pub(super) use self::waiters::hit_start_limit;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use fleet_core::graph::systemd::{CompiledUnit, LinkedUnits};
use fleet_core::graph::{Incarnation, Name, Target};
use fleet_core::{Epoch, Generation, KnownUnit, TargetState, Timestamp};
use fleet_unitfile::{UnitHash, UnitName};
use tokio::sync::oneshot;

use self::external::ExternalRegistry;
use self::waiters::Waiters;
use super::event_loop::Supervisor;
use crate::native::log::Log;
use crate::native::unit_directory::RequestedState;
use crate::{ManagedUnit, ServiceError};

/// What a call comes to.
pub(in crate::native) type CallResult = Result<(), ServiceError>;

/// Where that is told.
pub(in crate::native) type Reply = oneshot::Sender<CallResult>;

/// All units that fleet has loaded.
#[derive(Default)]
pub(in crate::native) struct ManagedUnits {
    loaded_units: BTreeMap<Name, LoadedUnit>,
    waiters: Waiters,
    /// Units that are to be started anew as soon as this run of them is over, however it ends.
    pending_restarts: BTreeMap<Name, Incarnation>,
    externals: ExternalRegistry,
    timers: timers::TimerIndex,
    /// Units that are loaded by now, and of which the graph knows only what others did.
    taken_over: BTreeSet<Name>,
    /// Which units are stopped with which.
    linked: LinkedUnits,
    /// Whether something was loaded or unloaded that the graph does not know of yet.
    graph_is_stale: bool,
    /// When the graph is made anew at the latest, because files of units in it have changed.
    relink_by: Option<Timestamp>,
    /// How many units were ever loaded: the later one gives way where two cannot be together.
    load_count: u64,
    /// Whether all units were told to end, so that nothing is started any more.
    shutting_down: bool,
    max_starting: Option<NonZeroU32>,
    statuses: StatusMap,
}

/// What everybody may see of all units.
pub(in crate::native) type StatusMap = Arc<Mutex<BTreeMap<UnitName, Arc<PublishedStatus>>>>;

/// What everybody may see of a unit.
#[derive(Debug)]
pub(in crate::native) struct PublishedStatus {
    pub(in crate::native) unit: ManagedUnit,
    pub(in crate::native) requested: RequestedState,
    pub(in crate::native) log: Arc<Log>,
    /// What it last said of itself.
    pub(in crate::native) status: Option<String>,
}

/// A unit that is loaded.
pub(in crate::native) struct LoadedUnit {
    pub(in crate::native) unit: UnitName,
    pub(in crate::native) hash: UnitHash,
    pub(in crate::native) requested: RequestedState,
    pub(in crate::native) definition: Definition,
    /// Which of all loads was its own.
    pub(in crate::native) load_number: u64,
    /// Why it is not in the graph.
    pub(in crate::native) refused: Option<String>,
    /// It is on its way out.
    pub(in crate::native) unloading: bool,
}

/// What is known of how to run a unit.
pub(in crate::native) enum Definition {
    /// All that its file says.
    Valid(Box<CompiledUnit>),
    /// Its file cannot be obeyed any more. What an earlier version has started runs on, and can be
    /// stopped.
    Invalid(String),
}

impl LoadedUnit {
    /// A unit that comes now.
    pub(in crate::native) fn new(
        unit: UnitName,
        hash: UnitHash,
        requested: RequestedState,
        definition: Definition,
    ) -> Self {
        Self { unit, hash, requested, definition, load_number: 0, refused: None, unloading: false }
    }

    /// Whether it is to run as its own file says: fleet wants it to, or a timer did.
    fn should_run(&self) -> bool {
        self.requested.should_run() && !self.unloading
    }

    fn known(&self) -> KnownUnit {
        let launched = self.requested.launched;
        KnownUnit {
            hash: self.hash,
            requested: if launched { TargetState::Launched } else { TargetState::Loaded },
            epoch: Epoch(self.requested.epoch),
            generation: Generation(self.requested.generation),
        }
    }
}

impl ManagedUnits {
    /// What everybody may see.
    pub(in crate::native) fn statuses(&self) -> StatusMap {
        Arc::clone(&self.statuses)
    }

    /// Whether the records of a unit are to be kept, in the graph or not.
    pub(super) fn is_loaded(&self, unit: &Name) -> bool {
        self.loaded_units.contains_key(unit)
    }

    /// What was last asked of a unit that is about to be started.
    ///
    /// # Errors
    ///
    /// Why it cannot be, if that is so.
    pub(super) fn request_for_start(&self, unit: &Name) -> io::Result<RequestedState> {
        match self.loaded_units.get(unit) {
            Some(LoadedUnit { definition: Definition::Invalid(problem), .. }) => {
                Err(io::Error::other(problem.clone()))
            }
            Some(loaded) => Ok(loaded.requested),
            None => Err(io::Error::other("it is not loaded any more")),
        }
    }

    /// What was last asked of a unit.
    pub(super) fn requested(&self, unit: &Name) -> Option<RequestedState> {
        self.loaded_units.get(unit).map(|loaded| loaded.requested)
    }
}

impl Supervisor {
    /// Has those that are to be started anew forget how they ended, of these that have changed.
    /// Tells whether there was one.
    pub(super) fn restart_pending(&mut self, changed: &[Name]) -> bool {
        let Some(managed) = &mut self.managed else { return false };
        if managed.pending_restarts.is_empty() {
            return false;
        }
        let mut begun = Vec::new();
        for unit in changed {
            let Some(run) = managed.pending_restarts.get(unit) else { continue };
            let state = self.system.status(unit);
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

    /// Writes down that a unit was tried too often, for who takes it back: its last run does not
    /// know.
    pub(super) fn record_start_limit_hits(&mut self, units: &BTreeSet<Name>) {
        for unit in units {
            let state = self.system.status(unit).map(|state| state.state);
            if !state.is_some_and(|what| hit_start_limit(&what)) {
                continue;
            }
            let Some(entry) = self.units.get_mut(unit) else { continue };
            if let Err(error) = entry.record_start_limit_hit() {
                tracing::warn!(%unit, %error, "cannot record that a unit was given up");
            }
        }
    }
}
