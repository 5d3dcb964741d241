//! Errors of the agent's tasks, kept for the publisher.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fleet_core::unit::ExitStatus;
use fleet_core::{ActiveState, DesiredUnit, Epoch, Generation, SystemdState, TargetState};
use fleet_unitfile::{UnitHash, UnitName};

use crate::{AgentMetrics, ChangeReceiver, ChangeSender, ServiceError};

/// Identifies an order: the unit's content, placement and generation, and its target state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OrderId {
    pub(crate) hash: UnitHash,
    pub(crate) epoch: Epoch,
    pub(crate) generation: Generation,
    pub(crate) desired: TargetState,
}

impl OrderId {
    /// Returns the order of a desired unit.
    pub(crate) fn of(wanted: &DesiredUnit) -> Self {
        let (unit, epoch) = (&wanted.unit, wanted.epoch);
        let (generation, desired) = (unit.generation, unit.desired);
        Self { hash: unit.hash(), epoch, generation, desired }
    }
}

/// Reason why an order has not been carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnitError {
    pub(crate) order: OrderId,
    pub(crate) text: String,
    /// Whether the unit's own file is at fault.
    pub(crate) bad_setting: bool,
    /// Whether the unit was started but did not become active. The unit's state has the details.
    pub(crate) start_failed: bool,
    /// Whether nothing has failed, and the order only waits.
    pub(crate) waiting: bool,
}

impl UnitError {
    pub(crate) fn new(order: OrderId, error: &ServiceError) -> Self {
        Self {
            order,
            text: chain(error),
            bad_setting: matches!(error, ServiceError::BadSetting { .. }),
            start_failed: matches!(error, ServiceError::StartFailed { .. }),
            waiting: false,
        }
    }

    /// Creates the reason of an order that waits.
    pub(crate) fn waiting(order: OrderId, text: String) -> Self {
        Self { order, text, bad_setting: false, start_failed: false, waiting: true }
    }
}

/// Current errors of one machine's units, at most one per unit.
#[derive(Debug, Default)]
pub(crate) struct UnitErrors {
    by_unit: Mutex<BTreeMap<UnitName, UnitError>>,
    feed: ChangeSender,
    metrics: AgentMetrics,
}

impl UnitErrors {
    /// Returns the failure counters.
    pub(crate) fn metrics(&self) -> &AgentMetrics {
        &self.metrics
    }

    pub(crate) fn changes(&self) -> ChangeReceiver {
        self.feed.subscribe()
    }

    pub(crate) fn get(&self, unit: &UnitName) -> Option<UnitError> {
        self.lock().get(unit).cloned()
    }

    /// Returns the error to publish for a unit in this state. Once the unit is active, or has run
    /// successfully, the error of a failed start is dropped, because it would not explain a later
    /// end of the unit.
    pub(crate) fn reportable(&self, unit: &UnitName, state: &SystemdState) -> Option<UnitError> {
        let problem = self.get(unit)?;
        let has_run = match state.active {
            ActiveState::Active | ActiveState::Reloading => true,
            ActiveState::Inactive => {
                state.result.as_deref() == Some("success")
                    && state.exit == Some(ExitStatus::Code(0))
            }
            _ => false,
        };
        if !(problem.start_failed && has_run) {
            return Some(problem);
        }
        self.clear(unit);
        None
    }

    pub(crate) fn units(&self) -> Vec<UnitName> {
        self.lock().keys().cloned().collect()
    }

    pub(crate) fn set(&self, unit: &UnitName, problem: UnitError) {
        let before = self.lock().insert(unit.clone(), problem.clone());
        if before.as_ref() != Some(&problem) {
            self.feed.report(unit);
        }
    }

    /// Sets the reason why an order waits, unless the unit has a failure.
    pub(crate) fn set_waiting(&self, unit: &UnitName, order: OrderId, text: String) {
        if self.get(unit).is_none_or(|problem| problem.waiting) {
            self.set(unit, UnitError::waiting(order, text));
        }
    }

    pub(crate) fn clear(&self, unit: &UnitName) {
        if self.lock().remove(unit).is_some() {
            self.feed.report(unit);
        }
    }

    /// Clears an error, unless its order only waits.
    pub(crate) fn clear_failure(&self, unit: &UnitName) {
        if self.get(unit).is_some_and(|problem| !problem.waiting) {
            self.clear(unit);
        }
    }

    /// Clears an error whose order only waits.
    pub(crate) fn clear_waiting(&self, unit: &UnitName) {
        if self.get(unit).is_some_and(|problem| problem.waiting) {
            self.clear(unit);
        }
    }

    /// Clears the failures for which `keep` returns `false`; waiting orders stay.
    pub(crate) fn retain_failures(&self, mut keep: impl FnMut(&UnitName, &UnitError) -> bool) {
        let keep = |(unit, problem): (&UnitName, &UnitError)| {
            (!problem.waiting && !keep(unit, problem)).then(|| unit.clone())
        };
        let over: Vec<UnitName> = self.lock().iter().filter_map(keep).collect();
        over.iter().for_each(|unit| self.clear(unit));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<UnitName, UnitError>> {
        self.by_unit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Formats an error with its causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use fleet_core::unit::LoadState;

    use super::*;

    #[test]
    fn start_error_is_cleared_once_unit_has_run() {
        let unit = UnitName::parse("a.service").expect("it is a name");
        let (epoch, generation) = (Epoch(1), Generation(1));
        let (hash, desired) = (UnitHash::from_bytes([0; 20]), TargetState::Launched);
        let order = OrderId { hash, epoch, generation, desired };
        let error = |is_start: bool| match is_start {
            true => ServiceError::StartFailed { unit: unit.clone(), problem: "why".to_owned() },
            false => ServiceError::Unavailable("why".to_owned()),
        };
        let state = |active| SystemdState::new(LoadState::Loaded, active, "");
        let finished = SystemdState {
            result: Some("success".to_owned()),
            exit: Some(ExitStatus::Code(0)),
            ..state(ActiveState::Inactive)
        };
        let errors = UnitErrors::default();
        for (is_start, left) in [(true, false), (false, true)] {
            for cleared in [state(ActiveState::Active), finished.clone()] {
                errors.set(&unit, UnitError::new(order, &error(is_start)));
                assert!(errors.reportable(&unit, &state(ActiveState::Failed)).is_some());
                assert!(errors.reportable(&unit, &state(ActiveState::Inactive)).is_some());
                assert_eq!(errors.reportable(&unit, &cleared).is_some(), left);
                assert_eq!(errors.get(&unit).is_some(), left);
            }
        }
    }
}
