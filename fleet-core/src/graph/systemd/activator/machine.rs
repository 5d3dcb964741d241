//! State machine of an activator.

use super::TriggerLimit;
use crate::{ActiveState, Timestamp};

/// Phases of an activator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ActivatorPhase {
    /// Inactive.
    #[default]
    Dead,
    /// Active, and waiting for an event.
    Waiting,
    /// Active. The unit runs, so no event is waited for.
    Running,
    /// Failed.
    Failed(ActivatorFailure),
}

/// Reasons for the failure of an activator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivatorFailure {
    /// It could not listen or watch, or its unit is not loaded.
    Resources,
    /// It started its unit too often.
    TriggerLimit,
    /// The unit was started too often.
    StartLimit,
}

/// State of an activator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ActivatorState {
    /// The phase.
    pub phase: ActivatorPhase,
    /// Start of the current interval of the trigger limit, and number of starts in it.
    window: Option<(Timestamp, u32)>,
}

/// An activator with its state.
#[derive(Debug, Clone)]
pub struct ActivatorMachine {
    limit: TriggerLimit,
    state: ActivatorState,
}

impl ActivatorPhase {
    /// Returns the state and sub-state that systemd shows for the phase. A socket that waits is
    /// `listening`.
    #[must_use]
    pub const fn words(self, is_socket: bool) -> (ActiveState, &'static str) {
        match self {
            Self::Dead => (ActiveState::Inactive, "dead"),
            Self::Waiting if is_socket => (ActiveState::Active, "listening"),
            Self::Waiting => (ActiveState::Active, "waiting"),
            Self::Running => (ActiveState::Active, "running"),
            Self::Failed(_) => (ActiveState::Failed, "failed"),
        }
    }

    /// Returns systemd's result for the phase.
    #[must_use]
    pub const fn result(self, is_socket: bool) -> &'static str {
        match self {
            Self::Failed(ActivatorFailure::Resources) => "resources",
            Self::Failed(ActivatorFailure::TriggerLimit) => "trigger-limit-hit",
            Self::Failed(ActivatorFailure::StartLimit) if is_socket => "service-start-limit-hit",
            Self::Failed(ActivatorFailure::StartLimit) => "unit-start-limit-hit",
            _ => "success",
        }
    }

    /// Returns whether the activator is active.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Waiting | Self::Running)
    }
}

impl ActivatorMachine {
    /// Creates an inactive activator.
    #[must_use]
    pub fn new(limit: TriggerLimit) -> Self {
        Self { limit, state: ActivatorState::default() }
    }

    /// Returns the phase.
    #[must_use]
    pub fn phase(&self) -> ActivatorPhase {
        self.state.phase
    }

    /// Sets the phase, for example to that of another daemon.
    pub fn set_phase(&mut self, phase: ActivatorPhase) {
        self.state.phase = phase;
    }

    /// Replaces the trigger limit.
    pub fn set_limit(&mut self, limit: TriggerLimit) {
        self.limit = limit;
    }

    /// Handles an event of a socket or path. Returns whether to start the unit. Beyond the trigger
    /// limit the activator fails instead.
    pub fn on_event(&mut self, now: Timestamp) -> bool {
        if self.state.phase != ActivatorPhase::Waiting {
            return false;
        }
        let is_below = self.count(now);
        self.state.phase = match is_below {
            true => ActivatorPhase::Running,
            false => ActivatorPhase::Failed(ActivatorFailure::TriggerLimit),
        };
        is_below
    }

    /// Passes the state of the unit to an active activator.
    pub fn on_unit(&mut self, active: bool, hit_start_limit: bool) {
        if !self.state.phase.is_active() {
            return;
        }
        self.state.phase = match active {
            true => ActivatorPhase::Running,
            false if hit_start_limit => ActivatorPhase::Failed(ActivatorFailure::StartLimit),
            false => ActivatorPhase::Waiting,
        };
    }

    /// Counts a start, and returns whether it is within the limit.
    fn count(&mut self, now: Timestamp) -> bool {
        let TriggerLimit { interval, burst } = self.limit;
        if interval.is_zero() || burst == 0 {
            return true;
        }
        match &mut self.state.window {
            Some((begin, count)) if now.since(*begin) <= interval => {
                let is_below = *count < burst;
                *count = count.saturating_add(1);
                is_below
            }
            window => {
                *window = Some((now, 1));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn machine(burst: u32) -> ActivatorMachine {
        let mut machine =
            ActivatorMachine::new(TriggerLimit { interval: Duration::from_secs(2), burst });
        machine.set_phase(ActivatorPhase::Waiting);
        machine
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn event_starts_the_unit_once() {
        let mut machine = machine(20);
        assert!(machine.on_event(at(1)));
        assert_eq!(machine.phase(), ActivatorPhase::Running);
        assert!(!machine.on_event(at(2)), "the unit runs");
        machine.on_unit(true, false);
        machine.on_unit(false, false);
        assert_eq!(machine.phase(), ActivatorPhase::Waiting);
        machine.on_unit(true, false);
        assert_eq!(machine.phase(), ActivatorPhase::Running, "started by hand");
        machine.on_unit(false, true);
        let failed = ActivatorPhase::Failed(ActivatorFailure::StartLimit);
        assert_eq!((machine.phase(), failed.result(true)), (failed, "service-start-limit-hit"));
    }

    #[test]
    fn inactive_activator_follows_nothing() {
        let mut machine = machine(20);
        machine.set_phase(ActivatorPhase::Dead);
        machine.on_unit(true, false);
        assert!(!machine.on_event(at(1)));
        assert_eq!(machine.phase(), ActivatorPhase::Dead);
    }

    proptest! {
        /// A model with all starts in memory: intervals begin with the first start in them.
        #[test]
        fn starts_stay_within_the_trigger_limit(
            burst in 1_u32..4,
            steps in prop::collection::vec(0_u64..1500, 0..40),
        ) {
            let (mut machine, mut now, mut window) = (machine(burst), 0, None::<(u64, u32)>);
            for step in steps {
                now += step;
                window = match window {
                    Some((begin, count)) if now - begin <= 2000 => Some((begin, count + 1)),
                    _ => Some((now, 1)),
                };
                let is_below = window.is_some_and(|(_, count)| count <= burst);
                prop_assert_eq!(machine.on_event(at(now)), is_below);
                let failed = ActivatorPhase::Failed(ActivatorFailure::TriggerLimit);
                let expected = if is_below { ActivatorPhase::Running } else { failed };
                prop_assert_eq!(machine.phase(), expected);
                machine.set_phase(ActivatorPhase::Waiting);
            }
        }

        #[test]
        fn no_limit_allows_every_start(steps in prop::collection::vec(0_u64..10, 0..40)) {
            let mut machine = machine(0);
            for step in steps {
                prop_assert!(machine.on_event(at(step)));
                machine.set_phase(ActivatorPhase::Waiting);
            }
        }
    }
}
