//! Logs what happens to the units of files, one line for each event: starts, stops, failures,
//! restarts, kills and failed reloads.

use std::collections::BTreeSet;

use fleet_core::Timestamp;
use fleet_core::graph::{
    ActionKind, DerivedState, EventKind, FailureCause, Name, Retry, StopReason, UnitAction,
};

/// Log of events, which repeats nothing about a start that is retried each second.
#[derive(Default)]
pub(super) struct EventLog {
    /// Units whose last start could not be recorded, which is logged only once.
    unrecorded: BTreeSet<Name>,
}

impl EventLog {
    /// Logs an action before it is carried out. The result of a failed or completed run is logged
    /// once its processes are gone.
    pub(super) fn log_action(&self, action: &UnitAction, is_auto_restart: bool) {
        let unit = &action.unit;
        match &action.kind {
            ActionKind::Start if self.unrecorded.contains(unit) => {
                tracing::debug!(%unit, "trying to record the start of a unit again");
            }
            ActionKind::Start => match is_auto_restart {
                true => tracing::info!(%unit, "restarting a unit"),
                false => tracing::info!(%unit, "starting a unit"),
            },
            ActionKind::Stop { reason: StopReason::Failed(cause), .. } => {
                tracing::debug!(%unit, %cause, "stopping the processes of a failed unit");
            }
            ActionKind::Stop { reason: StopReason::Completed | StopReason::Skipped, .. } => {}
            ActionKind::Stop { reason, .. } => tracing::info!(%unit, %reason, "stopping a unit"),
            ActionKind::Kill => tracing::warn!(%unit, "killing a unit: it did not stop in time"),
            ActionKind::Reload => tracing::info!(%unit, "reloading a unit"),
        }
    }

    /// Logs an event after the planner has handled it. `state` is the state of the unit since then.
    pub(super) fn log_event(
        &mut self,
        unit: &Name,
        event: EventKind,
        state: DerivedState,
        now: Timestamp,
    ) {
        if self.repeats_unrecorded_failure(unit, event, &state) {
            return;
        }
        match (event, state) {
            (EventKind::Ready, DerivedState::Active(_)) => tracing::info!(%unit, "a unit is ready"),
            (EventKind::ReloadEnded { well: false }, _) => {
                tracing::warn!(%unit, "the reload of a unit failed");
            }
            (EventKind::Failed(FailureCause::StopTimeout), _) => {
                tracing::warn!(%unit, "killing a unit: it did not stop in time");
            }
            (EventKind::AllGone, DerivedState::Failed { cause, retry, .. }) => {
                log_failure(unit, cause, retry, now);
            }
            (EventKind::AllGone, DerivedState::Completed(_)) => {
                tracing::info!(%unit, "a unit has completed");
            }
            (EventKind::AllGone, DerivedState::Active(_)) => {}
            (EventKind::AllGone, _) => tracing::info!(%unit, "a unit has stopped"),
            _ => {}
        }
    }

    /// Forgets a unit that no longer exists.
    pub(super) fn forget(&mut self, unit: &Name) {
        self.unrecorded.remove(unit);
    }

    /// Returns whether an event ends another start of a unit that could not be recorded.
    fn repeats_unrecorded_failure(
        &mut self,
        unit: &Name,
        event: EventKind,
        state: &DerivedState,
    ) -> bool {
        match (event, state) {
            (EventKind::AllGone, DerivedState::Failed { cause: FailureCause::Unrecorded, .. }) => {
                !self.unrecorded.insert(unit.clone())
            }
            (EventKind::Ready | EventKind::AllGone, _) => {
                self.unrecorded.remove(unit);
                false
            }
            _ => false,
        }
    }
}

/// Logs the failure of a unit, and what follows.
fn log_failure(unit: &Name, cause: FailureCause, retry: Retry, now: Timestamp) {
    match retry {
        Retry::At(at) => {
            let retry_in = at.since(now);
            tracing::warn!(%unit, %cause, ?retry_in, "a unit has failed");
        }
        Retry::Never => tracing::warn!(%unit, %cause, "a unit has failed, and is not retried"),
        Retry::GaveUp => tracing::warn!(%unit, %cause, "a unit has failed: giving it up"),
    }
}
