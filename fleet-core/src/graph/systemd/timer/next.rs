//! Computes when a timer elapses next.

use std::time::Duration;

use fleet_unitfile::Calendar;

use super::{DualTimestamp, RandomizedDelay, Timer, TimerBase, TimerContext, Trigger};
use crate::Timestamp;

/// Past events that determine when a timer elapses next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LastTriggers {
    /// First start of the service manager since boot.
    pub startup: Timestamp,
    /// Start of the timer.
    pub since: DualTimestamp,
    /// Time by the boot clock since which the timer has been waiting. A one-time trigger (such as
    /// `OnBootSec=`) that came due before this time, while the unit ran, is skipped.
    pub waiting_since: Timestamp,
    /// Time of the last elapse by the boot clock. `None` if the timer has not elapsed since it was
    /// started.
    pub last: Option<Timestamp>,
    /// Time of the last elapse by the wall clock. For a persistent timer this time may lie before
    /// the timer's start.
    pub last_wall: Option<Timestamp>,
    /// Last start of the unit, by the boot clock.
    pub unit_active: Option<Timestamp>,
    /// Last stop of the unit, by the boot clock.
    pub unit_inactive: Option<Timestamp>,
}

/// Next elapse of a timer by each clock. The timer elapses at the earlier of the two. It never
/// elapses if both are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NextElapse {
    /// Time by the boot clock.
    pub clock: Option<Timestamp>,
    /// Time by the wall clock. Setting the wall clock changes it.
    pub wall: Option<Timestamp>,
}

impl NextElapse {
    /// Returns whether the timer never elapses.
    #[must_use]
    pub fn is_never(self) -> bool {
        self == Self::default()
    }

    /// Returns whether the time has passed.
    #[must_use]
    pub fn has_elapsed(self, now: DualTimestamp) -> bool {
        self.clock.is_some_and(|at| at <= now.clock) || self.wall.is_some_and(|at| at <= now.wall)
    }

    /// Returns the earlier of the two times by the wall clock, for display. `None` if the timer
    /// never elapses.
    #[must_use]
    pub fn to_wall(self, now: DualTimestamp) -> Option<Timestamp> {
        let by_clock = self.clock.map(|at| now.wall.after(at.since(now.clock)));
        by_clock.into_iter().chain(self.wall).min()
    }
}

impl Timer {
    /// Returns when the timer elapses next. If that time is in the past, the timer elapses at once.
    #[must_use]
    pub fn next(&self, last: &LastTriggers, context: TimerContext<'_>) -> NextElapse {
        let clock = self.triggers.iter().filter_map(|trigger| match trigger {
            Trigger::After(base, span) => last.monotonic_elapse(*base, *span),
            Trigger::Calendar(_) => None,
        });
        let wall = self.triggers.iter().filter_map(|trigger| match trigger {
            Trigger::Calendar(calendar) => last.calendar_elapse(calendar, context),
            Trigger::After(..) => None,
        });
        let late = match self.delay {
            RandomizedDelay::Random(longest) => random(longest, context.random),
            RandomizedDelay::Fixed(span) => span,
        };
        let later = |at: Timestamp| at.after(late);
        NextElapse { clock: clock.min().map(later), wall: wall.min().map(later) }
    }

    /// Returns whether the timer may elapse later although no elapse is scheduled now. That is
    /// possible if a trigger depends on starts or stops of the unit, which may happen without the
    /// timer.
    pub(super) fn follows_unit(&self) -> bool {
        let follows = |trigger: &Trigger| {
            matches!(trigger, Trigger::After(TimerBase::UnitActive | TimerBase::UnitInactive, _))
        };
        self.triggers.iter().any(follows)
    }
}

impl LastTriggers {
    fn monotonic_elapse(&self, base: TimerBase, span: Duration) -> Option<Timestamp> {
        // Neither counts before the timer first elapsed or the unit was first active.
        let unit = |at: Option<Timestamp>| at.max(self.last).map(|at| at.after(span));
        let once = match base {
            TimerBase::Active => self.since.clock,
            TimerBase::Boot => Timestamp::default(),
            TimerBase::Startup => self.startup,
            TimerBase::UnitActive => return unit(self.unit_active),
            TimerBase::UnitInactive => return unit(self.unit_inactive),
        };
        let at = once.after(span);
        let has_elapsed = self.last.is_some() || self.last_wall.is_some();
        let is_spent =
            has_elapsed && at < self.waiting_since || self.last.is_some_and(|it| at <= it);
        (!is_spent).then_some(at)
    }

    fn calendar_elapse(&self, calendar: &Calendar, context: TimerContext<'_>) -> Option<Timestamp> {
        let base = Duration::from_millis(self.last_wall.unwrap_or(self.since.wall).as_millis());
        let at = calendar.next_after(base, context.zones.zone(calendar.zone()))?;
        let millis = u64::try_from(at.as_micros().div_ceil(1000)).ok()?;
        // A caught-up event counts from the start of the service manager, so that randomized delays
        // still spread the timers.
        let up = context.now.clock.since(self.startup);
        let started = context.now.wall.as_millis().saturating_sub(up.as_millis() as u64);
        Some(Timestamp::from_millis(millis.max(started)))
    }
}

/// Returns a delay below `longest`.
fn random(longest: Duration, random: u64) -> Duration {
    let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(random.checked_rem(longest).unwrap_or(0))
}
