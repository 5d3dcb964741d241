//! The states of a timer, and what leads from one to another.

use std::sync::Arc;

use super::next::{Due, Past};
use super::{Look, Timer};
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
pub struct Sight {
    /// Whether it is neither inactive nor failed.
    pub active: bool,
    /// When it was last started, by the clock.
    pub started: Option<Timestamp>,
    /// When it last came to rest, by the clock.
    pub rested: Option<Timestamp>,
}

/// What must be remembered of a timer to go on with it in another daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimerMemory {
    /// Its state.
    pub phase: TimerPhase,
    /// What has been.
    pub past: Past,
}

/// A timer through its states.
#[derive(Debug, Clone)]
pub struct TimerLife {
    timer: Arc<Timer>,
    memory: TimerMemory,
    due: Due,
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

impl TimerLife {
    /// A timer that is not active. `startup` is when the service manager was first started.
    #[must_use]
    pub fn new(timer: Arc<Timer>, startup: Timestamp) -> Self {
        let past = Past { startup, ..Past::default() };
        Self { timer, memory: TimerMemory { past, ..TimerMemory::default() }, due: Due::default() }
    }

    /// Goes on where another daemon ended.
    #[must_use]
    pub fn restore(timer: Arc<Timer>, memory: TimerMemory, look: Look<'_>) -> Self {
        let mut life = Self { timer, memory, due: Due::default() };
        if life.memory.phase == TimerPhase::Waiting {
            life.reckon(look);
        }
        life
    }

    /// From now on it is another timer. One that waits does so for what that one says.
    pub fn replace(&mut self, timer: Arc<Timer>, look: Look<'_>) {
        self.timer = timer;
        if matches!(self.memory.phase, TimerPhase::Waiting | TimerPhase::Elapsed) {
            self.wait(look);
        }
    }

    /// It is started, unless it is active. `last` is when it last elapsed before, by the calendar,
    /// if it is persistent.
    pub fn on_start(&mut self, last: Option<Timestamp>, unit: Sight, look: Look<'_>) {
        if self.memory.phase.is_active() {
            return;
        }
        let past = &mut self.memory.past;
        *past = Past { startup: past.startup, since: look.now, ..Past::default() };
        // Of a moment that is still to come it is not known what it means.
        past.last_wall = last.filter(|last| *last <= look.now.wall);
        past.see(unit);
        self.wait(look);
    }

    /// It is stopped.
    pub fn on_stop(&mut self) {
        self.memory.phase = TimerPhase::Dead;
        self.due = Due::default();
    }

    /// Its unit may have changed. It is not told of while a start that the timer asked for is under
    /// way, but once more when that is over.
    pub fn on_unit(&mut self, unit: Sight, look: Look<'_>) {
        self.memory.past.see(unit);
        match self.memory.phase {
            // What has come must not be passed over because the unit changes in the same moment.
            TimerPhase::Waiting if self.due.has_come(look.now) => {}
            TimerPhase::Waiting | TimerPhase::Elapsed => self.wait(look),
            TimerPhase::Running if !unit.active => self.wait(look),
            TimerPhase::Running | TimerPhase::Dead | TimerPhase::Failed => {}
        }
    }

    /// The calendar, or its zone, was set.
    pub fn on_time_set(&mut self, look: Look<'_>) {
        if self.memory.phase == TimerPhase::Waiting {
            self.reckon(look);
        }
    }

    /// Whether it elapses now: then its unit is to be started. It is asked when it is due.
    pub fn on_moment(&mut self, look: Look<'_>) -> bool {
        if self.memory.phase != TimerPhase::Waiting || !self.due.has_come(look.now) {
            return false;
        }
        let past = &mut self.memory.past;
        (past.last, past.last_wall) = (Some(look.now.clock), Some(look.now.wall));
        (self.memory.phase, self.due) = (TimerPhase::Running, Due::default());
        true
    }

    /// Its unit is not there to be started.
    pub fn on_missing(&mut self) {
        self.memory.phase = TimerPhase::Failed;
        self.due = Due::default();
    }

    /// When it elapses next; never, unless it waits.
    #[must_use]
    pub fn due(&self) -> Due {
        self.due
    }

    /// What the timer is.
    #[must_use]
    pub fn timer(&self) -> &Timer {
        &self.timer
    }

    /// Its state, and what has been.
    #[must_use]
    pub fn memory(&self) -> &TimerMemory {
        &self.memory
    }

    fn wait(&mut self, look: Look<'_>) {
        self.memory.past.waits_since = look.now.clock;
        self.reckon(look);
    }

    fn reckon(&mut self, look: Look<'_>) {
        let past = &mut self.memory.past;
        // The calendar may have been set back, also while nobody watched it. What seems to lie in
        // the future was not: the moments up to there come once more.
        past.last_wall = past.last_wall.map(|last| last.min(look.now.wall));
        past.since.wall = past.since.wall.min(look.now.wall);
        self.due = self.timer.next(&self.memory.past, look);
        self.memory.phase = match self.due.is_never() {
            false => TimerPhase::Waiting,
            true if self.timer.remains || self.timer.follows_unit() => TimerPhase::Elapsed,
            true => TimerPhase::Dead,
        };
    }
}

impl Past {
    fn see(&mut self, unit: Sight) {
        self.unit_active = unit.started.max(self.unit_active);
        self.unit_inactive = unit.rested.max(self.unit_inactive);
    }
}
