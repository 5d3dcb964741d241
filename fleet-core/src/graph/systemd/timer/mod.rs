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
mod next;

use std::time::Duration;

use fleet_unitfile::calendar::Zone;
use fleet_unitfile::{Calendar, UnitName, UnitType};

use super::draft::UnitProblems;
use super::value::{ValueContext, delay, flag, unreadable};
use crate::Timestamp;

pub use machine::{TimerMachine, TimerPhase, TimerState, TriggeredUnitState};
pub use next::{LastTriggers, NextElapse};

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
    pub(in crate::graph::systemd) fn problems(&self, has_conditions: bool) -> UnitProblems {
        let mut problems = UnitProblems::default();
        if self.triggers.is_empty() {
            let problem = "it never elapses: write OnCalendar=, OnBootSec= or the like";
            problems.refused.push((None, problem.to_owned()));
        }
        if has_conditions {
            let problem = "it has conditions, but a timer runs nothing that could be skipped: \
                           move them to the unit that it starts";
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
