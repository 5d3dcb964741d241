//! The start of a timer, if its conditions hold.

use fleet_core::graph::systemd::TimerPhase;
use fleet_unitfile::UnitName;

use super::super::command::CallResult;
use super::Timers;
use crate::native::run::conditions::check_conditions;
use crate::native::state::manager_context::file_name;
use crate::{ServiceError, wall_time};

impl Timers {
    /// Starts a timer that was requested to run before.
    pub(super) fn start_again(&mut self, unit: &UnitName) {
        if let Err(error) = self.start_timer(unit) {
            tracing::info!("{error}");
        }
    }

    /// Starts a timer, unless it is active. Returns an error if its conditions do not hold.
    pub(super) fn start_timer(&mut self, unit: &UnitName) -> CallResult {
        let Some(entry) = self.entries.get(unit) else { return Ok(()) };
        let (timer, file) = (entry.machine.timer(), file_name(unit.as_str()));
        let is_active =
            !matches!(entry.machine.state().phase, TimerPhase::Dead | TimerPhase::Failed);
        if !is_active
            && let Err((problem, _)) =
                check_conditions(&timer.conditions, false, &self.context.environment)
        {
            // Stores the requested state, so that the next daemon does not try again.
            self.change(unit, |_, _| ());
            return Err(ServiceError::StartFailed { unit: unit.clone(), problem });
        }
        let last = match timer.persistent {
            true => self.stamps.read(&file).unwrap_or_else(|error| {
                tracing::warn!(
                    %unit,
                    %error,
                    "cannot read when a timer last elapsed: if the timer has missed a start, the \
                     unit is not started now"
                );
                None
            }),
            false => None,
        };
        // The stamp may be missing or outdated.
        let known = entry.machine.state().last.last_wall.filter(|known| *known <= wall_time());
        let last = last.map(|last| known.map_or(last, |known| last.max(known)));
        if timer.persistent && last.is_none() {
            self.stamps.record(unit, wall_time());
        }
        self.observe_unit(unit);
        self.change(unit, |entry, cx| entry.machine.on_start(last, entry.unit_state, cx));
        Ok(())
    }
}
