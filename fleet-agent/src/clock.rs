//! The only module that reads the real clock.

use std::io;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use fleet_core::Timestamp;
use rustix::fd::OwnedFd;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use crate::async_fd::{register_readable, wait_readable};

/// Source of time for the loops. Tests pass one that they advance themselves.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time; never earlier than a time returned before.
    fn now(&self) -> Timestamp;

    /// Sleeps until `at`. Returns at once if that time has passed.
    async fn sleep_until(&self, at: Timestamp);

    /// Returns after `duration`.
    async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.now().after(duration)).await;
    }

    /// Returns the wall clock time, as the time since 1970 (UTC). It may be set back.
    fn wall(&self) -> Timestamp {
        wall_time()
    }

    /// Returns an identifier of the origin of this clock's timestamps. A timestamp that an earlier
    /// process stored is valid in this process only if both have the same origin. `None` means that
    /// timestamps of other processes are meaningless.
    fn origin(&self) -> Option<String> {
        None
    }
}

/// A clock of the time since the machine was booted, including time in suspend.
///
/// A lease continues in the store while the machine that holds it is suspended. A clock that stops
/// during suspend could not measure the lease. All instances of this clock have the same origin
/// until the next boot.
///
/// Sleeps use a kernel timer (`timerfd`) and require a tokio runtime with I/O and time enabled. The
/// first 100 ms of a sleep use a tokio timer instead, which costs no system call. The tokio timer
/// stops during suspend, so the end of the sleep may be up to 100 ms late.
#[derive(Debug)]
pub struct SystemClock {
    boot: Option<String>,
}

/// Returns the time since the boot of this machine, to which the kernel also relates the start
/// times of processes.
pub(crate) fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(now.tv_sec.unsigned_abs(), nanoseconds)
}

/// Returns the boot ID of this machine.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

impl SystemClock {
    /// Creates the clock of this machine.
    #[must_use]
    pub fn start() -> Self {
        Self { boot: boot_id().ok() }
    }
}

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = since_boot();
        Timestamp::from_millis(now.as_secs().saturating_mul(1000) + u64::from(now.subsec_millis()))
    }

    async fn sleep_until(&self, at: Timestamp) {
        let brief = at.since(self.now()).min(BRIEF);
        if !brief.is_zero() {
            tokio::time::sleep(brief).await;
        }
        while self.now() < at {
            // Without a timer, for example when no descriptor is left, it polls the clock.
            if wait_on_timer(at).await.is_err() {
                tokio::time::sleep(at.since(self.now()).min(Duration::from_secs(1))).await;
            }
        }
    }

    fn origin(&self) -> Option<String> {
        self.boot.clone()
    }
}

/// Length of the first part of a sleep, for which tokio's timer is used. Most sleeps are timeouts,
/// and are dropped before this part is over.
const BRIEF: Duration = Duration::from_millis(100);

/// Blocks the calling thread.
#[cfg(feature = "native")]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Returns when a timer set to `at` expires.
async fn wait_on_timer(at: Timestamp) -> io::Result<()> {
    wait_readable(&register_readable(timer(at)?)?).await
}

fn timer(at: Timestamp) -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
    let millis = at.as_millis();
    let it_value = Timespec {
        // A time too far off to be represented is never reached.
        tv_sec: i64::try_from(millis / 1000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(millis % 1000 * 1_000_000).unwrap_or(0),
    };
    let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
    let value = Itimerspec { it_interval, it_value };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &value)?;
    Ok(timer)
}

/// Returns the wall clock time in UTC, as the time since 1970. Use it for display only, because the
/// wall clock may be wrong and may be set back.
#[must_use]
pub fn wall_time() -> Timestamp {
    as_wall_time(SystemTime::now())
}

/// Converts to the clock of [`wall_time`]; times before its origin give the origin.
pub(crate) fn as_wall_time(at: SystemTime) -> Timestamp {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(0).after(since)
}

/// Waits until `at`; waits forever for `None`.
pub(crate) async fn wait_until(clock: &dyn Clock, at: Option<Timestamp>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::FutureExt as _;

    use super::*;

    // Holds: X-21
    #[tokio::test]
    async fn sleep_is_never_early_and_clocks_agree() {
        let (one, other) = (SystemClock::start(), SystemClock::start());
        assert!(one.origin().is_some() && one.origin() == other.origin());
        let at = one.now().after(Duration::from_millis(30));
        one.sleep_until(at).await;
        assert!(other.now() >= at);
        assert_eq!(one.sleep_until(at).now_or_never(), Some(()), "it has passed");
    }

    #[tokio::test]
    async fn unrepresentable_deadline_never_expires() {
        let wait = SystemClock::start();
        let far = wait.sleep_until(Timestamp::from_millis(u64::MAX));
        let near = wait.sleep(Duration::from_millis(1));
        tokio::select! {
            biased;
            () = far => panic!("it never comes"),
            () = near => {}
        }
    }
}
