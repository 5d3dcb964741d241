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

mod draft;
mod machine;
mod next;

use std::time::Duration;

use fleet_unitfile::{Calendar, UnitName, Zone};

use crate::Timestamp;
pub(super) use draft::TimerDraft;
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
