//! The wall clock: waits for its times and for changes of it, and knows time zones.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::systemd::{TimeZones, Timer};
use fleet_unitfile::calendar::{Utc, Zone};
use jiff::tz::TimeZone;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::Clock;
use crate::async_fd::{read_next, register_readable};

/// Interval between two checks of the clock if no alarm can be created, for example because no file
/// descriptor is free.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Event of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum AlarmEvent {
    /// The time has come.
    Elapsed,
    /// The wall clock was set, so the time may be nearer or farther.
    ClockSet,
}

/// Kernel timer (timerfd) on the wall clock.
#[derive(Debug)]
pub(super) struct Alarm {
    descriptor: AsyncFd<OwnedFd>,
    at: Timestamp,
}

impl Alarm {
    /// Creates an alarm for a time in milliseconds since the Unix epoch.
    pub(super) fn set(at: Timestamp) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
        let millis = at.as_millis();
        let it_value = Timespec {
            tv_sec: i64::try_from(millis / 1000).unwrap_or(i64::MAX),
            // Zero would disarm the timer.
            tv_nsec: i64::try_from(millis % 1000 * 1_000_000).unwrap_or(0).max(1),
        };
        let value = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&timer, flags, &value)?;
        Ok(Self { descriptor: register_readable(timer)?, at })
    }

    /// Returns the time of the alarm.
    pub(super) fn at(&self) -> Timestamp {
        self.at
    }

    /// Waits for the alarm. Cancel-safe.
    pub(super) async fn wait(&self) -> io::Result<AlarmEvent> {
        read_next(&self.descriptor, read_expiration).await
    }
}

/// Waits for one wall-clock time after another.
#[derive(Debug, Default)]
pub(super) struct CalendarAlarm {
    alarm: Option<Alarm>,
    /// Whether no alarm could be created for the current time.
    is_polling: bool,
}

impl CalendarAlarm {
    /// Sets the time to wait for; `None` waits forever.
    pub(super) fn set(&mut self, at: Option<Timestamp>) {
        let was_polling = std::mem::take(&mut self.is_polling);
        if self.alarm.as_ref().map(Alarm::at) == at {
            return;
        }
        self.alarm = at.map(Alarm::set).transpose().unwrap_or_else(|error| {
            if !was_polling {
                tracing::error!(
                    %error,
                    "cannot set an alarm for timers: checking the clock every second"
                );
            }
            self.is_polling = true;
            None
        });
    }

    /// Waits until the time passed to [`set`](Self::set) has come, or until the wall clock is
    /// changed. If no alarm could be created, returns after one second. After each return, the
    /// caller has to call `set` again. Cancel-safe.
    pub(super) async fn wait(&mut self, clock: &dyn Clock) -> io::Result<AlarmEvent> {
        let event = match &self.alarm {
            Some(alarm) => alarm.wait().await,
            None if self.is_polling => {
                clock.sleep(POLL_INTERVAL).await;
                Ok(AlarmEvent::Elapsed)
            }
            None => std::future::pending().await,
        };
        self.alarm = None;
        event
    }
}

fn read_expiration(timer: &OwnedFd) -> io::Result<AlarmEvent> {
    match rustix::io::read(timer, &mut [0; 8]) {
        Ok(_) => Ok(AlarmEvent::Elapsed),
        Err(Errno::CANCELED) => Ok(AlarmEvent::ClockSet),
        Err(error) => Err(error.into()),
    }
}

/// The local time zone, and those that timers name.
pub(super) struct ZoneCache {
    /// Loaded on first use, since most machines run no unit that needs it.
    local: LazyLock<TimeZone>,
    named: BTreeMap<String, TimeZone>,
}

impl ZoneCache {
    /// Creates a cache of time zones. The local zone is read on first use. If the local zone is
    /// unknown, it counts as UTC.
    pub(super) fn new() -> Self {
        Self { local: LazyLock::new(TimeZone::system), named: BTreeMap::new() }
    }

    /// Loads all time zones that a timer names. A zone that is unknown here counts as UTC. This is
    /// rare, because a timer that names an unknown zone is refused when it is loaded.
    pub(super) fn load(&mut self, timer: &Timer) {
        for name in timer.zones() {
            let found = TimeZone::get(name).ok().filter(|_| !self.named.contains_key(name));
            found.map(|zone| self.named.insert(name.to_owned(), zone));
        }
    }
}

impl TimeZones for ZoneCache {
    fn zone(&self, name: Option<&str>) -> &dyn Zone {
        match name.map(|name| self.named.get(name)) {
            None => &*self.local,
            Some(Some(known)) => known,
            Some(None) => &Utc,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wall_time;

    #[tokio::test]
    async fn alarm_elapses_at_its_time_and_not_before() {
        let at = wall_time().after(Duration::from_millis(40));
        let alarm = Alarm::set(at).expect("it can be set");
        assert_eq!(alarm.wait().await.expect("the alarm elapses"), AlarmEvent::Elapsed);
        assert!(wall_time() >= at);
        let past = Alarm::set(Timestamp::from_millis(0)).expect("it can be set");
        assert_eq!(past.wait().await.expect("the alarm elapses"), AlarmEvent::Elapsed);
    }
}
