//! Timers: settings of a `.timer` file, next elapse, and state machine.
//!
//! ```text
//! [Timer] ── draft ──> Timer ── next(last, context) ──> NextElapse
//!                        │                                 ▲
//!                        └────────── TimerMachine ─────────┘   waiting, running, elapsed, …
//! ```
//!
//! All rules are those of systemd, with one exception: here a timer elapses exactly on time. In
//! systemd, `AccuracySec=` may delay an elapse to save wake-ups.

mod machine;

use std::time::Duration;

use fleet_unitfile::calendar::Zone;
use fleet_unitfile::{Calendar, UnitName, UnitType};

use super::draft::UnitProblems;
use super::value::{ValueContext, delay, flag, unreadable};
use crate::Timestamp;
use crate::graph::model::UnitCondition;

pub use machine::{TimerMachine, TimerPhase, TimerState, TriggeredUnitState};

/// Settings of a `.timer` unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    /// The unit that it starts.
    pub unit: UnitName,
    /// At least one trigger, in the order of the file.
    pub triggers: Vec<Trigger>,
    /// Delay added to each elapse.
    pub delay: RandomizedDelay,
    /// Whether a calendar event missed while the timer was inactive is caught up.
    pub persistent: bool,
    /// Whether the timer stays active when it will not elapse again.
    pub remain_after_elapse: bool,
    /// Conditions for the start of the timer, but not for each elapse.
    pub conditions: Vec<UnitCondition>,
}

/// A condition under which a timer elapses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    /// This long after the base.
    After(TimerBase, Duration),
    /// At each calendar event.
    Calendar(Calendar),
}

/// Base of a monotonic trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerBase {
    /// Start of the timer (`OnActiveSec=`).
    Active,
    /// Boot of the machine (`OnBootSec=`), also in a container.
    Boot,
    /// First start of the service manager since boot (`OnStartupSec=`).
    Startup,
    /// Last start of the unit, by the timer or otherwise (`OnUnitActiveSec=`).
    UnitActive,
    /// Last stop of the unit (`OnUnitInactiveSec=`).
    UnitInactive,
}

/// Delay of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RandomizedDelay {
    /// A random delay below this duration, drawn for each elapse (`RandomizedDelaySec=`).
    Random(Duration),
    /// A delay that is always this long (`FixedRandomDelay=`).
    Fixed(Duration),
}

/// A point in time by both clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DualTimestamp {
    /// Time since boot.
    pub clock: Timestamp,
    /// Wall clock time since 1970 in UTC. It is correct only if the machine's clock is set
    /// correctly.
    pub wall: Timestamp,
}

/// Time zones of calendar events.
pub trait TimeZones {
    /// Returns the zone of this name, or the zone of the machine.
    fn zone(&self, name: Option<&str>) -> &dyn Zone;
}

/// Inputs of every timer operation.
#[derive(Clone, Copy)]
pub struct TimerContext<'a> {
    /// Current time.
    pub now: DualTimestamp,
    /// A random number.
    pub random: u64,
    /// Time zones of the calendar events.
    pub zones: &'a dyn TimeZones,
}

impl Timer {
    /// Returns the names of the time zones in its calendar events.
    pub fn zones(&self) -> impl Iterator<Item = &str> {
        self.triggers.iter().filter_map(|trigger| match trigger {
            Trigger::Calendar(calendar) => calendar.zone(),
            Trigger::After(..) => None,
        })
    }
}

/// Settings collected so far.
#[derive(Debug, Default)]
pub(in crate::graph::systemd) struct TimerDraft {
    unit: Option<UnitName>,
    triggers: Vec<Trigger>,
    random: Duration,
    fixed: bool,
    persistent: bool,
    remains: Option<bool>,
}

impl TimerDraft {
    /// Applies an honoured option of `[Timer]`.
    pub(in crate::graph::systemd) fn take(
        &mut self,
        name: &str,
        value: &str,
        unit: &ValueContext<'_>,
    ) -> Result<(), String> {
        match name {
            "FixedRandomDelay" => self.fixed = flag(value)?,
            "Persistent" => self.persistent = flag(value)?,
            "RandomizedDelaySec" => {
                self.random = delay(value, "write the maximum delay of an elapse")?;
            }
            "RemainAfterElapse" => self.remains = Some(flag(value)?),
            "Unit" => self.take_unit(value, unit)?,
            // An empty value of any trigger option resets all of them.
            _ if value.is_empty() => self.triggers.clear(),
            _ => self.triggers.push(trigger(name, value, unit)?),
        }
        Ok(())
    }

    fn take_unit(&mut self, value: &str, unit: &ValueContext<'_>) -> Result<(), String> {
        if value.is_empty() {
            return Ok(());
        }
        let name: UnitName = unit.expand(value)?.parse().map_err(unreadable)?;
        if name.is_template() {
            return Err(format!("names the template {name}: name an instance of it"));
        }
        if !matches!(name.unit_type(), UnitType::Service | UnitType::Target) {
            return Err(format!("names {name}: write the name of a .service unit"));
        }
        if let Some(first) = self.unit.as_ref().filter(|first| **first != name) {
            return Err(format!("names {name}, but {first} is already named: keep one of them"));
        }
        self.unit = Some(name);
        Ok(())
    }

    /// Returns the problems of the timer as a whole.
    pub(in crate::graph::systemd) fn problems(&self) -> UnitProblems {
        let mut problems = UnitProblems::default();
        if self.triggers.is_empty() {
            let problem = "it never elapses: write OnCalendar=, OnBootSec= or the like";
            problems.refused.push((None, problem.to_owned()));
        }
        let has_calendar = self.triggers.iter().any(|it| matches!(it, Trigger::Calendar(_)));
        if self.persistent && !has_calendar {
            let text = "has no effect without OnCalendar=";
            problems.remarked.push((("Timer", "Persistent"), text));
        }
        if self.fixed && self.random.is_zero() {
            let text = "has no effect without RandomizedDelaySec=";
            problems.remarked.push((("Timer", "FixedRandomDelay"), text));
        }
        problems
    }

    /// Builds the timer, with systemd's defaults for missing settings.
    pub(in crate::graph::systemd) fn timer(
        &self,
        conditions: &[UnitCondition],
        unit: &ValueContext<'_>,
    ) -> Result<Timer, String> {
        let usual = || format!("{}.service", unit.name.stem());
        let started = match &self.unit {
            Some(named) => named.clone(),
            None => usual().parse().map_err(unreadable)?,
        };
        let fixed = || RandomizedDelay::Fixed(fixed(self.random, unit));
        Ok(Timer {
            unit: started,
            triggers: self.triggers.clone(),
            delay: if self.fixed { fixed() } else { RandomizedDelay::Random(self.random) },
            persistent: self.persistent,
            remain_after_elapse: self.remains.unwrap_or(true),
            conditions: conditions.to_vec(),
        })
    }
}

fn trigger(name: &str, value: &str, unit: &ValueContext<'_>) -> Result<Trigger, String> {
    let text = unit.expand(value)?;
    let base = match name {
        "OnCalendar" => {
            let calendar: Calendar = text.parse().map_err(unreadable)?;
            return Ok(Trigger::Calendar(calendar));
        }
        "OnActiveSec" => TimerBase::Active,
        "OnBootSec" => TimerBase::Boot,
        "OnStartupSec" => TimerBase::Startup,
        "OnUnitActiveSec" => TimerBase::UnitActive,
        _ => TimerBase::UnitInactive,
    };
    let span = delay(&text, "it would never elapse: remove it")?;
    Ok(Trigger::After(base, span))
}

/// Returns a delay below `longest` that is always the same for one timer on one machine.
fn fixed(longest: Duration, unit: &ValueContext<'_>) -> Duration {
    // Without a machine id the name alone determines the delay.
    let machine = unit.expand("%m").unwrap_or_default();
    let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    let bytes = machine.bytes().chain([0]).chain(unit.name.as_str().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Duration::from_micros(hash.checked_rem(longest).unwrap_or(0))
}

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
    fn follows_unit(&self) -> bool {
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
