//! What an agent could not do, kept for the publisher to show.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fleet_core::{ActiveState, DesiredUnit, Epoch, Generation, TargetState};
use fleet_unitfile::{UnitHash, UnitName};

use crate::{AgentTally, ServiceError, StateChanges, StateFeed};

/// The order that an agent could not carry out: how far a unit's content is to come under one
/// placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order {
    pub(crate) hash: UnitHash,
    pub(crate) epoch: Epoch,
    pub(crate) generation: Generation,
    pub(crate) desired: TargetState,
}

impl Order {
    /// The order that what is wanted amounts to.
    pub(crate) fn of(wanted: &DesiredUnit) -> Self {
        let (unit, epoch) = (&wanted.unit, wanted.epoch);
        let (generation, desired) = (unit.generation, unit.desired);
        Self { hash: unit.hash(), epoch, generation, desired }
    }
}

/// Why an order could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) order: Order,
    pub(crate) text: String,
    /// The unit's own file is at fault.
    pub(crate) bad_setting: bool,
    /// The unit was started and did not become active; its state tells more.
    pub(crate) start_failed: bool,
    /// Nothing has failed: the order is not carried out yet.
    pub(crate) waiting: bool,
}

impl Problem {
    pub(crate) fn new(order: Order, error: &ServiceError) -> Self {
        Self {
            order,
            text: chain(error),
            bad_setting: matches!(error, ServiceError::BadSetting { .. }),
            start_failed: matches!(error, ServiceError::StartFailed { .. }),
            waiting: false,
        }
    }

    /// The order waits for something.
    pub(crate) fn waiting(order: Order, text: String) -> Self {
        Self { order, text, bad_setting: false, start_failed: false, waiting: true }
    }
}

/// The present problems of one machine's units, at most one for each.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    by_unit: Mutex<BTreeMap<UnitName, Problem>>,
    feed: StateFeed,
    tally: AgentTally,
}

impl Problems {
    /// How often there was one.
    pub(crate) fn tally(&self) -> &AgentTally {
        &self.tally
    }

    pub(crate) fn changes(&self) -> StateChanges {
        self.feed.subscribe()
    }

    pub(crate) fn get(&self, unit: &UnitName) -> Option<Problem> {
        self.lock().get(unit).cloned()
    }

    /// The problem to tell of a unit that is in this state. That a start failed is forgotten once
    /// the unit is up: it is not why it ends later.
    pub(crate) fn told(&self, unit: &UnitName, active: ActiveState) -> Option<Problem> {
        let problem = self.get(unit)?;
        let is_up = matches!(active, ActiveState::Active | ActiveState::Reloading);
        if !(problem.start_failed && is_up) {
            return Some(problem);
        }
        self.clear(unit);
        None
    }

    pub(crate) fn units(&self) -> Vec<UnitName> {
        self.lock().keys().cloned().collect()
    }

    pub(crate) fn set(&self, unit: &UnitName, problem: Problem) {
        let before = self.lock().insert(unit.clone(), problem.clone());
        if before.as_ref() != Some(&problem) {
            self.feed.report(unit);
        }
    }

    pub(crate) fn clear(&self, unit: &UnitName) {
        if self.lock().remove(unit).is_some() {
            self.feed.report(unit);
        }
    }

    /// Clears a problem, unless it is one of waiting.
    pub(crate) fn clear_failure(&self, unit: &UnitName) {
        if self.get(unit).is_some_and(|problem| !problem.waiting) {
            self.clear(unit);
        }
    }

    /// Clears a problem that was none but waiting.
    pub(crate) fn clear_waiting(&self, unit: &UnitName) {
        if self.get(unit).is_some_and(|problem| problem.waiting) {
            self.clear(unit);
        }
    }

    /// Clears the problems that `keep` does not hold on to, unless they are of waiting.
    pub(crate) fn retain_failures(&self, mut keep: impl FnMut(&UnitName, &Problem) -> bool) {
        let keep = |(unit, problem): (&UnitName, &Problem)| {
            (!problem.waiting && !keep(unit, problem)).then(|| unit.clone())
        };
        let over: Vec<UnitName> = self.lock().iter().filter_map(keep).collect();
        over.iter().for_each(|unit| self.clear(unit));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<UnitName, Problem>> {
        self.by_unit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error with its causes, in one line.
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
    use super::*;

    #[test]
    fn an_old_failure_of_a_start_is_not_why_a_unit_ends_later() {
        let unit = UnitName::parse("a.service").expect("it is a name");
        let (epoch, generation) = (Epoch(1), Generation(1));
        let (hash, desired) = (UnitHash::from_bytes([0; 20]), TargetState::Launched);
        let order = Order { hash, epoch, generation, desired };
        let error = |is_start: bool| match is_start {
            true => ServiceError::StartFailed { unit: unit.clone(), problem: "why".to_owned() },
            false => ServiceError::Unavailable("why".to_owned()),
        };
        let problems = Problems::default();
        for (is_start, left) in [(true, false), (false, true)] {
            problems.set(&unit, Problem::new(order, &error(is_start)));
            assert!(problems.told(&unit, ActiveState::Failed).is_some());
            assert_eq!(problems.told(&unit, ActiveState::Active).is_some(), left);
            assert_eq!(problems.told(&unit, ActiveState::Inactive).is_some(), left);
        }
    }
}
