//! Waits for a moment of the calendar, and for somebody to set it.

use std::io;
use std::os::fd::OwnedFd;

use fleet_core::Timestamp;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::readable::{next, readable};

/// What an alarm tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ring {
    /// The moment has come.
    Come,
    /// The calendar was set, so that the moment may be nearer or farther.
    Set,
}

/// A timer of the kernel's that goes by the calendar.
#[derive(Debug)]
pub(crate) struct Alarm {
    descriptor: AsyncFd<OwnedFd>,
    at: Timestamp,
}

impl Alarm {
    /// One that is set to that moment, in milliseconds since the beginning of 1970.
    pub(crate) fn set(at: Timestamp) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
        let millis = at.as_millis();
        let it_value = Timespec {
            tv_sec: i64::try_from(millis / 1000).unwrap_or(i64::MAX),
            // Zero would be no moment at all.
            tv_nsec: i64::try_from(millis % 1000 * 1_000_000).unwrap_or(0).max(1),
        };
        let value = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&timer, flags, &value)?;
        Ok(Self { descriptor: readable(timer)?, at })
    }

    /// What it is set to.
    pub(crate) fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns when it rings. May be dropped at any time.
    pub(crate) async fn ring(&self) -> io::Result<Ring> {
        next(&self.descriptor, take).await
    }
}

fn take(timer: &OwnedFd) -> io::Result<Ring> {
    match rustix::io::read(timer, &mut [0; 8]) {
        Ok(_) => Ok(Ring::Come),
        Err(Errno::CANCELED) => Ok(Ring::Set),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wall_time;

    #[tokio::test]
    async fn it_rings_at_its_moment_and_not_before() {
        let at = wall_time().after(std::time::Duration::from_millis(40));
        let alarm = Alarm::set(at).expect("it can be set");
        assert_eq!(alarm.ring().await.expect("it rings"), Ring::Come);
        assert!(wall_time() >= at);
        let past = Alarm::set(Timestamp::from_millis(0)).expect("it can be set");
        assert_eq!(past.ring().await.expect("it rings"), Ring::Come);
    }
}
