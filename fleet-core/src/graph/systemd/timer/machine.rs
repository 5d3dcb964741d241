//! The states of a timer, and what leads from one to another.

use std::sync::Arc;

use super::next::{LastTriggers, NextElapse};
use super::{Timer, TimerContext};
use crate::{ActiveState, Timestamp};

/// The states of a timer; the names are systemd's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TimerPhase {
    /// It is not active.
    #[default]
    Dead,
    /// It elapses at a known moment.
    Waiting,
    /// It has elapsed, and its unit has not come to rest since.
    Running,
    /// It is active, and nothing is left to come.
    Elapsed,
    /// Its unit was not there to be started.
    Failed,
}

/// What a timer sees of its unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TriggeredUnitState {
    /// Whether it is neither inactive nor failed.
    pub active: bool,
    /// When it was last started, by the clock.
    pub started: Option<Timestamp>,
    /// When it last came to rest, by the clock.
    pub stopped: Option<Timestamp>,
}

/// What must be remembered of a timer to go on with it in another daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimerState {
    /// Its state.
    pub phase: TimerPhase,
    /// What has been.
    pub last: LastTriggers,
}

/// A timer through its states.
#[derive(Debug, Clone)]
pub struct TimerMachine {
    timer: Arc<Timer>,
    state: TimerState,
    due: NextElapse,
}

impl TimerPhase {
    /// The state and the sub-state that systemd prints for it.
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

    /// Whether it is active.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Waiting | Self::Running | Self::Elapsed)
    }
}

impl TimerMachine {
    /// A timer that is not active. `startup` is when the service manager was first started.
    #[must_use]
    pub fn new(timer: Arc<Timer>, startup: Timestamp) -> Self {
        let past = LastTriggers { startup, ..LastTriggers::default() };
        Self {
            timer,
            state: TimerState { last: past, ..TimerState::default() },
            due: NextElapse::default(),
        }
    }

    /// Goes on where another daemon ended.
    #[must_use]
    pub fn restore(timer: Arc<Timer>, state: TimerState, look: TimerContext<'_>) -> Self {
        let mut life = Self { timer, state, due: NextElapse::default() };
        if life.state.phase == TimerPhase::Waiting {
            life.reckon(look);
        }
        life
    }

    /// From now on it is another timer. One that waits does so for what that one says.
    pub fn replace(&mut self, timer: Arc<Timer>, look: TimerContext<'_>) {
        self.timer = timer;
        if matches!(self.state.phase, TimerPhase::Waiting | TimerPhase::Elapsed) {
            self.wait(look);
        }
    }

    /// It is started, unless it is active. `last` is when it last elapsed before, by the calendar,
    /// if it is persistent.
    pub fn on_start(
        &mut self,
        last: Option<Timestamp>,
        unit: TriggeredUnitState,
        look: TimerContext<'_>,
    ) {
        if self.state.phase.is_active() {
            return;
        }
        let past = &mut self.state.last;
        *past = LastTriggers { startup: past.startup, since: look.now, ..LastTriggers::default() };
        // Of a moment that is still to come it is not known what it means.
        past.last_wall = last.filter(|last| *last <= look.now.wall);
        past.see(unit);
        self.wait(look);
    }

    /// It is stopped.
    pub fn on_stop(&mut self) {
        self.state.phase = TimerPhase::Dead;
        self.due = NextElapse::default();
    }

    /// Its unit may have changed. It is not told of while a start that the timer asked for is under
    /// way, but once more when that is over.
    pub fn on_unit(&mut self, unit: TriggeredUnitState, look: TimerContext<'_>) {
        self.state.last.see(unit);
        match self.state.phase {
            // What has come must not be passed over because the unit changes in the same moment.
            TimerPhase::Waiting if self.due.has_elapsed(look.now) => {}
            TimerPhase::Waiting | TimerPhase::Elapsed => self.wait(look),
            TimerPhase::Running if !unit.active => self.wait(look),
            TimerPhase::Running | TimerPhase::Dead | TimerPhase::Failed => {}
        }
    }

    /// The calendar, or its zone, was set.
    pub fn on_time_set(&mut self, look: TimerContext<'_>) {
        if self.state.phase == TimerPhase::Waiting {
            self.reckon(look);
        }
    }

    /// Whether it elapses now: then its unit is to be started. It is asked when it is due.
    pub fn on_elapse(&mut self, look: TimerContext<'_>) -> bool {
        if self.state.phase != TimerPhase::Waiting || !self.due.has_elapsed(look.now) {
            return false;
        }
        let past = &mut self.state.last;
        (past.last, past.last_wall) = (Some(look.now.clock), Some(look.now.wall));
        (self.state.phase, self.due) = (TimerPhase::Running, NextElapse::default());
        true
    }

    /// Its unit is not there to be started.
    pub fn on_unit_missing(&mut self) {
        self.state.phase = TimerPhase::Failed;
        self.due = NextElapse::default();
    }

    /// When it elapses next; never, unless it waits.
    #[must_use]
    pub fn next_elapse(&self) -> NextElapse {
        self.due
    }

    /// What the timer is.
    #[must_use]
    pub fn timer(&self) -> &Timer {
        &self.timer
    }

    /// Its state, and what has been.
    #[must_use]
    pub fn state(&self) -> &TimerState {
        &self.state
    }

    fn wait(&mut self, look: TimerContext<'_>) {
        self.state.last.waits_since = look.now.clock;
        self.reckon(look);
    }

    fn reckon(&mut self, look: TimerContext<'_>) {
        let past = &mut self.state.last;
        // The calendar may have been set back, also while nobody watched it. What seems to lie in
        // the future was not: the moments up to there come once more.
        past.last_wall = past.last_wall.map(|last| last.min(look.now.wall));
        past.since.wall = past.since.wall.min(look.now.wall);
        self.due = self.timer.next(&self.state.last, look);
        self.state.phase = match self.due.is_never() {
            false => TimerPhase::Waiting,
            true if self.timer.remains || self.timer.follows_unit() => TimerPhase::Elapsed,
            true => TimerPhase::Dead,
        };
    }
}

impl LastTriggers {
    fn see(&mut self, unit: TriggeredUnitState) {
        self.unit_active = unit.started.max(self.unit_active);
        self.unit_inactive = unit.stopped.max(self.unit_inactive);
    }
}
