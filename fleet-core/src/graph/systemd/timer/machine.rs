//! State machine of a timer.

use std::sync::Arc;

use super::{LastTriggers, NextElapse, Timer, TimerContext};
use crate::{ActiveState, Timestamp};

/// Phases of a timer, with systemd's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TimerPhase {
    /// Inactive.
    #[default]
    Dead,
    /// Active, with a scheduled elapse.
    Waiting,
    /// Elapsed. The triggered unit has not stopped since then.
    Running,
    /// Active without a further elapse.
    Elapsed,
    /// The triggered unit does not exist.
    Failed,
}

/// State of the triggered unit as the timer sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TriggeredUnitState {
    /// Whether the unit is neither inactive nor failed.
    pub active: bool,
    /// Last start, by the boot clock.
    pub started: Option<Timestamp>,
    /// Last stop, by the boot clock.
    pub stopped: Option<Timestamp>,
}

/// Persistent state of a timer, from which another daemon continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimerState {
    /// The phase.
    pub phase: TimerPhase,
    /// Past events.
    pub last: LastTriggers,
}

/// A timer with its state.
#[derive(Debug, Clone)]
pub struct TimerMachine {
    timer: Arc<Timer>,
    state: TimerState,
    due: NextElapse,
}

impl TimerPhase {
    /// Returns the state and sub-state that systemd shows for the phase.
    #[must_use]
    pub const fn words(self) -> (ActiveState, &'static str) {
        match self {
            Self::Dead => (ActiveState::Inactive, "dead"),
            Self::Waiting => (ActiveState::Active, "waiting"),
            Self::Running => (ActiveState::Active, "running"),
            Self::Elapsed => (ActiveState::Active, "elapsed"),
            Self::Failed => (ActiveState::Failed, "failed"),
        }
    }

    /// Returns whether the timer is active.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Waiting | Self::Running | Self::Elapsed)
    }
}

impl TimerMachine {
    /// Creates an inactive timer. `startup` is the time of the service manager's first start since
    /// boot.
    #[must_use]
    pub fn new(timer: Arc<Timer>, startup: Timestamp) -> Self {
        let last = LastTriggers { startup, ..LastTriggers::default() };
        Self {
            timer,
            state: TimerState { last, ..TimerState::default() },
            due: NextElapse::default(),
        }
    }

    /// Restores a timer from the state of another daemon.
    #[must_use]
    pub fn restore(timer: Arc<Timer>, state: TimerState, context: TimerContext<'_>) -> Self {
        let mut life = Self { timer, state, due: NextElapse::default() };
        if life.state.phase == TimerPhase::Waiting {
            life.schedule(context);
        }
        life
    }

    /// Replaces the settings of the timer. A waiting or elapsed timer is scheduled again with the
    /// new settings.
    pub fn replace(&mut self, timer: Arc<Timer>, context: TimerContext<'_>) {
        self.timer = timer;
        if matches!(self.state.phase, TimerPhase::Waiting | TimerPhase::Elapsed) {
            self.wait(context);
        }
    }

    /// Starts the timer unless it is already active. `last` is the wall clock time at which a
    /// persistent timer last elapsed.
    pub fn on_start(
        &mut self,
        last: Option<Timestamp>,
        unit: TriggeredUnitState,
        context: TimerContext<'_>,
    ) {
        if self.state.phase.is_active() {
            return;
        }
        let triggers = &mut self.state.last;
        *triggers = LastTriggers {
            startup: triggers.startup,
            since: context.now,
            ..LastTriggers::default()
        };
        // A stored time in the future is not reliable.
        triggers.last_wall = last.filter(|last| *last <= context.now.wall);
        triggers.record(unit);
        self.wait(context);
    }

    /// Stops the timer.
    pub fn on_stop(&mut self) {
        self.state.phase = TimerPhase::Dead;
        self.due = NextElapse::default();
    }

    /// Handles a possible state change of the triggered unit. After the timer has requested a start
    /// of the unit, call this function once the start has completed, but not before.
    pub fn on_unit(&mut self, unit: TriggeredUnitState, context: TimerContext<'_>) {
        self.state.last.record(unit);
        match self.state.phase {
            // An elapse that is due is not dropped because the unit changes at the same time.
            TimerPhase::Waiting if self.due.has_elapsed(context.now) => {}
            TimerPhase::Waiting | TimerPhase::Elapsed => self.wait(context),
            TimerPhase::Running if !unit.active => self.wait(context),
            TimerPhase::Running | TimerPhase::Dead | TimerPhase::Failed => {}
        }
    }

    /// Handles a change of the wall clock or the time zone.
    pub fn on_time_set(&mut self, context: TimerContext<'_>) {
        if self.state.phase == TimerPhase::Waiting {
            self.schedule(context);
        }
    }

    /// Returns whether the timer elapses now. Call this function when the next elapse is due. If it
    /// returns `true`, the caller has to start the triggered unit.
    pub fn on_elapse(&mut self, context: TimerContext<'_>) -> bool {
        if self.state.phase != TimerPhase::Waiting || !self.due.has_elapsed(context.now) {
            return false;
        }
        let triggers = &mut self.state.last;
        (triggers.last, triggers.last_wall) = (Some(context.now.clock), Some(context.now.wall));
        (self.state.phase, self.due) = (TimerPhase::Running, NextElapse::default());
        true
    }

    /// Handles that the triggered unit does not exist.
    pub fn on_unit_missing(&mut self) {
        self.state.phase = TimerPhase::Failed;
        self.due = NextElapse::default();
    }

    /// Returns the next elapse. A timer that is not waiting has none.
    #[must_use]
    pub fn next_elapse(&self) -> NextElapse {
        self.due
    }

    /// Returns the settings.
    #[must_use]
    pub fn timer(&self) -> &Timer {
        &self.timer
    }

    /// Returns the persistent state.
    #[must_use]
    pub fn state(&self) -> &TimerState {
        &self.state
    }

    fn wait(&mut self, context: TimerContext<'_>) {
        self.state.last.waiting_since = context.now.clock;
        self.schedule(context);
    }

    fn schedule(&mut self, context: TimerContext<'_>) {
        let triggers = &mut self.state.last;
        // The wall clock may have been set back, also while no daemon ran. Times that now lie in
        // the future are moved to the present, so the calendar events up to them occur again.
        triggers.last_wall = triggers.last_wall.map(|last| last.min(context.now.wall));
        triggers.since.wall = triggers.since.wall.min(context.now.wall);
        self.due = self.timer.next(&self.state.last, context);
        self.state.phase = match self.due.is_never() {
            false => TimerPhase::Waiting,
            true if self.timer.remain_after_elapse || self.timer.follows_unit() => {
                TimerPhase::Elapsed
            }
            true => TimerPhase::Dead,
        };
    }
}

impl LastTriggers {
    fn record(&mut self, unit: TriggeredUnitState) {
        self.unit_active = unit.started.max(self.unit_active);
        self.unit_inactive = unit.stopped.max(self.unit_inactive);
    }
}
