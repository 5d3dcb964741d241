//! Timers: what a `.timer` file says, when it comes to that, and what state the timer is in.
//!
//! ```text
//! [Timer] ── draft ──> Timer ── next(past, look) ──> NextElapse
//!                        │                            ▲
//!                        └──────── TimerMachine ─────────┘   waiting, running, elapsed, …
//! ```
//!
//! All rules are systemd's. A timer elapses at its very moment: it is never late on purpose to wake
//! the machine less often, as `AccuracySec=` would allow.

mod draft;
mod machine;
mod next;

use std::time::Duration;

use fleet_unitfile::{Calendar, UnitName, Zone};

use crate::Timestamp;
pub(super) use draft::TimerDraft;
pub use machine::{TimerMachine, TimerPhase, TimerState, TriggeredUnitState};
pub use next::{LastTriggers, NextElapse};

/// What a `.timer` unit starts, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    /// The unit that it starts.
    pub unit: UnitName,
    /// When; at least one, in the order of the file.
    pub triggers: Vec<Trigger>,
    /// By how much it is late.
    pub delay: RandomizedDelay,
    /// Whether a moment of the calendar that passed while the timer was not active is made up for.
    pub persistent: bool,
    /// Whether it stays active when nothing is left to come.
    pub remains: bool,
}

/// One reason for a timer to elapse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    /// So long after that.
    After(TimerBase, Duration),
    /// Whenever the clocks show that.
    Calendar(Calendar),
}

/// What a span of a timer is counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerBase {
    /// The start of the timer (`OnActiveSec=`).
    Active,
    /// The boot of the machine (`OnBootSec=`), also in a container.
    Boot,
    /// The first start of the service manager since the boot (`OnStartupSec=`).
    Startup,
    /// When the unit was last started, by whomever (`OnUnitActiveSec=`).
    UnitActive,
    /// When the unit last came to rest (`OnUnitInactiveSec=`).
    UnitInactive,
}

/// By how much a timer is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RandomizedDelay {
    /// By less than that, and each time by another span (`RandomizedDelaySec=`).
    Random(Duration),
    /// Always by that (`FixedRandomDelay=`).
    Fixed(Duration),
}

/// A moment by both clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DualTimestamp {
    /// Since the machine was booted.
    pub clock: Timestamp,
    /// Since the beginning of 1970 in UTC, as far as anybody knows.
    pub wall: Timestamp,
}

/// The zones of calendars.
pub trait TimeZones {
    /// The zone of that name, or of the machine.
    fn zone(&self, name: Option<&str>) -> &dyn Zone;
}

/// What is at hand whenever a timer is looked at.
#[derive(Clone, Copy)]
pub struct TimerContext<'a> {
    /// The present.
    pub now: DualTimestamp,
    /// A random number.
    pub random: u64,
    /// The zones of all its calendars.
    pub zones: &'a dyn TimeZones,
}

impl Timer {
    /// The zones that its calendars name.
    pub fn zones(&self) -> impl Iterator<Item = &str> {
        self.triggers.iter().filter_map(|trigger| match trigger {
            Trigger::Calendar(calendar) => calendar.zone(),
            Trigger::After(..) => None,
        })
    }
}
