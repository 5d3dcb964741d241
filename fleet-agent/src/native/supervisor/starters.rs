//! The units of a supervisor that start other units: timers and activators.
//!
//! They run beside the graph, because they have no processes, and are active as soon as they are
//! started.

use std::io;
use std::sync::Arc;

use fleet_core::Timestamp;
use fleet_unitfile::{UnitName, UnitType};

use super::activators::{ActivatorEvent, Activators};
use super::command::CallResult;
use super::managed_units::{LoadedUnit, Statuses};
use super::requests::{Requests, UnitRequest};
use super::timers::{TimerEvent, Timers};
use crate::UnitDetails;
use crate::native::state::manager_context::ManagerContext;
use crate::native::state::unit_directory::RequestedState;

/// Event that the starters wait for.
pub(super) enum StarterEvent {
    Timer(TimerEvent),
    Activator(ActivatorEvent),
}

/// All loaded units that start other units.
pub(super) struct Starters {
    pub(super) timers: Timers,
    pub(super) activators: Activators,
}

/// Returns whether units of this type start other units.
pub(in crate::native) fn is_starter(unit: &UnitName) -> bool {
    matches!(unit.unit_type(), UnitType::Path | UnitType::Socket | UnitType::Timer)
}

impl Starters {
    pub(super) fn new(
        context: &Arc<ManagerContext>,
        requests: &Arc<Requests>,
        statuses: &Statuses,
    ) -> Self {
        Self {
            timers: Timers::new(context, requests, statuses),
            activators: Activators::new(context, requests, statuses),
        }
    }

    /// Prepares the files of timers.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        self.timers.prepare()
    }

    /// Continues with the stored states. The started units are recovered.
    pub(super) fn resume(&mut self, was_shutting_down: bool) {
        self.timers.resume(was_shutting_down);
        self.activators.resume(was_shutting_down);
    }

    /// Returns whether a timer or activator is loaded.
    pub(super) fn is_loaded(&self, unit: &UnitName) -> bool {
        self.timers.is_loaded(unit) || self.activators.is_loaded(unit)
    }

    /// Adds a timer or activator, or replaces its file. Returns `None` if the unit is neither.
    pub(super) fn load(&mut self, loaded: &LoadedUnit) -> Option<CallResult> {
        let (unit, hash, requested) = (&loaded.unit, loaded.hash, loaded.requested);
        let compiled = loaded.definition.compiled()?;
        if let Some(timer) = &compiled.timer {
            return Some(self.timers.load(unit, hash, requested, timer));
        }
        let activator = compiled.activator.as_ref()?;
        Some(self.activators.load(unit, hash, requested, activator))
    }

    /// Sets the requested state of a unit whose file has not changed.
    pub(super) fn set_requested(&mut self, unit: &UnitName, requested: RequestedState) {
        self.timers.set_requested(unit, requested);
        self.activators.set_requested(unit, requested);
    }

    /// Returns an error if the unit that this one starts is not loaded.
    pub(super) fn check_start(&self, unit: &UnitName) -> CallResult {
        match self.timers.is_loaded(unit) {
            true => self.timers.check_start(unit),
            false => self.activators.check_start(unit),
        }
    }

    /// Carries out a request, and sets the requested state after it.
    pub(super) fn carry_out(
        &mut self,
        unit: &UnitName,
        request: UnitRequest,
        requested: RequestedState,
    ) -> CallResult {
        match self.timers.is_loaded(unit) {
            true => self.timers.carry_out(unit, request, requested),
            false => self.activators.carry_out(unit, request, requested),
        }
    }

    /// Stops all, as part of a shutdown.
    pub(super) fn stop_all(&mut self) {
        self.timers.stop_all();
        self.activators.stop_all();
    }

    /// Removes a unit after its stored state was removed. Returns whether it was loaded.
    pub(super) fn forget(&mut self, unit: &UnitName) -> bool {
        self.timers.forget(unit) || self.activators.forget(unit)
    }

    /// Returns the details of a timer or activator; `None` if none is loaded.
    pub(super) fn details(&self, unit: &UnitName) -> Option<UnitDetails> {
        self.timers.details(unit).or_else(|| self.activators.details(unit))
    }

    /// Notes that the status of a unit has changed.
    pub(super) fn on_unit_changed(&mut self, unit: &UnitName) {
        self.timers.on_unit_changed(unit);
        self.activators.on_unit_changed(unit);
    }

    /// Passes the states of the units that have changed to those that start them.
    pub(super) fn check_changed_units(&mut self) {
        self.timers.check_changed_units();
        self.activators.check_changed_units();
    }

    /// Sets the alarm for the next elapse by the wall clock, and returns the time of the next
    /// elapse by the other clock.
    pub(super) fn set_alarm(&mut self) -> Option<Timestamp> {
        self.timers.set_alarm()
    }

    /// Lets all due timers elapse.
    pub(super) fn elapse(&mut self) {
        self.timers.elapse();
    }

    /// Waits for an event. Cancel-safe.
    pub(super) async fn next_event(&mut self) -> StarterEvent {
        tokio::select! {
            event = self.timers.next_event() => StarterEvent::Timer(event),
            event = self.activators.next_event() => StarterEvent::Activator(event),
        }
    }

    /// Handles an event.
    pub(super) fn on_event(&mut self, event: StarterEvent) {
        match event {
            StarterEvent::Timer(event) => self.timers.on_event(event),
            StarterEvent::Activator(event) => self.activators.on_event(event),
        }
    }
}
