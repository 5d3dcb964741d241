//! When a timer elapses next.

use std::time::Duration;

use fleet_unitfile::Calendar;

use super::{DualTimestamp, RandomizedDelay, Timer, TimerBase, TimerContext, Trigger};
use crate::Timestamp;

/// What has been, as far as it decides when a timer elapses next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LastTriggers {
    /// When the service manager was first started since the boot.
    pub startup: Timestamp,
    /// When the timer was started.
    pub since: DualTimestamp,
    /// From when on it waits, by the clock. What is counted once and came before, while its unit
    /// ran, does not come again.
    pub waits_since: Timestamp,
    /// When it last elapsed, by the clock; nothing if that was before its start.
    pub last: Option<Timestamp>,
    /// When it last elapsed, by the calendar; also before its start, if it is persistent.
    pub last_wall: Option<Timestamp>,
    /// When its unit was last started, by the clock.
    pub unit_active: Option<Timestamp>,
    /// When its unit last came to rest, by the clock.
    pub unit_inactive: Option<Timestamp>,
}

/// When a timer elapses next, by each of the clocks; whichever comes first counts. If it is by
/// none, it never does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NextElapse {
    /// By the clock.
    pub clock: Option<Timestamp>,
    /// By the calendar. It comes earlier or later when that is set.
    pub wall: Option<Timestamp>,
}

impl NextElapse {
    /// Whether it never comes.
    #[must_use]
    pub fn is_never(self) -> bool {
        self == Self::default()
    }

    /// Whether it has come.
    #[must_use]
    pub fn has_elapsed(self, now: DualTimestamp) -> bool {
        self.clock.is_some_and(|at| at <= now.clock) || self.wall.is_some_and(|at| at <= now.wall)
    }
}

impl Timer {
    /// When the timer elapses next, which may be in the past: then it is to elapse at once.
    #[must_use]
    pub fn next(&self, past: &LastTriggers, look: TimerContext<'_>) -> NextElapse {
        let clock = self.triggers.iter().filter_map(|trigger| match trigger {
            Trigger::After(origin, span) => past.moment(*origin, *span),
            Trigger::Calendar(_) => None,
        });
        let wall = self.triggers.iter().filter_map(|trigger| match trigger {
            Trigger::Calendar(calendar) => past.moment_of(calendar, look),
            Trigger::After(..) => None,
        });
        let late = match self.delay {
            RandomizedDelay::Random(longest) => random(longest, look.random),
            RandomizedDelay::Fixed(span) => span,
        };
        let later = |at: Timestamp| at.after(late);
        NextElapse { clock: clock.min().map(later), wall: wall.min().map(later) }
    }

    /// Whether it is of use even if it does not elapse next: its unit may be started by others.
    pub(super) fn follows_unit(&self) -> bool {
        let follows = |trigger: &Trigger| {
            matches!(trigger, Trigger::After(TimerBase::UnitActive | TimerBase::UnitInactive, _))
        };
        self.triggers.iter().any(follows)
    }
}

impl LastTriggers {
    fn moment(&self, origin: TimerBase, span: Duration) -> Option<Timestamp> {
        // Neither of them counts before the timer or the unit was first at work.
        let unit = |at: Option<Timestamp>| at.max(self.last).map(|at| at.after(span));
        let once = match origin {
            TimerBase::Active => self.since.clock,
            TimerBase::Boot => Timestamp::default(),
            TimerBase::Startup => self.startup,
            TimerBase::UnitActive => return unit(self.unit_active),
            TimerBase::UnitInactive => return unit(self.unit_inactive),
        };
        let at = once.after(span);
        let has_elapsed = self.last.is_some() || self.last_wall.is_some();
        let is_spent = has_elapsed && at < self.waits_since || self.last.is_some_and(|it| at <= it);
        (!is_spent).then_some(at)
    }

    fn moment_of(&self, calendar: &Calendar, look: TimerContext<'_>) -> Option<Timestamp> {
        let base = Duration::from_millis(self.last_wall.unwrap_or(self.since.wall).as_millis());
        let at = calendar.next_after(base, look.zones.zone(calendar.zone()))?;
        let millis = u64::try_from(at.as_micros().div_ceil(1000)).ok()?;
        // What is made up for comes as if it were of the start of the service manager, so that
        // the delay of timers still parts them.
        let up = look.now.clock.since(self.startup);
        let started = look.now.wall.as_millis().saturating_sub(up.as_millis() as u64);
        Some(Timestamp::from_millis(millis.max(started)))
    }
}

/// Less than the longest.
fn random(longest: Duration, dice: u64) -> Duration {
    let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(dice.checked_rem(longest).unwrap_or(0))
}
