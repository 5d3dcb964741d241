//! The one module that owns the real clock.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use fleet_core::Timestamp;
use futures_util::future::{BoxFuture, FutureExt as _};
use rustix::fd::OwnedFd;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use crate::native::boot_id;
use crate::readable::{comes, readable};

/// What the loops know of time. A test hands in one that it moves itself.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// The present moment; never earlier than one that was returned before.
    fn now(&self) -> Timestamp;

    /// Returns at `at`, or at once when that has passed.
    async fn sleep_until(&self, at: Timestamp);

    /// Returns after `duration`.
    async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.now().after(duration)).await;
    }

    /// What tells the origin of this clock's moments from others: a moment that an earlier process
    /// has written down is one of this clock, too, if this was the same then. Without it, no moment
    /// of another process means anything.
    fn origin(&self) -> Option<String> {
        None
    }
}

/// The time since the machine was booted, also while it was suspended.
///
/// A lease goes on in the store while the machine that holds it sleeps, so who measures it must not
/// count the time awake alone. All these clocks of one boot have the same origin.
///
/// It sleeps on a timer of the kernel's, within a tokio runtime with I/O and time; for the first
/// moment on tokio's, which costs no system call, and is late by that moment at most.
#[derive(Debug)]
pub struct SystemClock {
    boot: Option<String>,
}

impl SystemClock {
    /// The clock of this machine.
    #[must_use]
    pub fn start() -> Self {
        Self { boot: boot_id().ok() }
    }
}

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = clock_gettime(ClockId::Boottime);
        let (seconds, nanoseconds) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
        Timestamp::from_millis(seconds.saturating_mul(1000) + nanoseconds / 1_000_000)
    }

    async fn sleep_until(&self, at: Timestamp) {
        let brief = at.since(self.now()).min(BRIEF);
        if !brief.is_zero() {
            tokio::time::sleep(brief).await;
        }
        while self.now() < at {
            // Without a timer, as when no descriptor is left, it looks again and again.
            if wait_on_timer(at).await.is_err() {
                tokio::time::sleep(at.since(self.now()).min(Duration::from_secs(1))).await;
            }
        }
    }

    fn origin(&self) -> Option<String> {
        self.boot.clone()
    }
}

/// Most waits are for what hangs, and over before they have lasted so long.
const BRIEF: Duration = Duration::from_millis(100);

/// Keeps this thread waiting, for those who cannot wait otherwise.
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Returns when a timer that was set to `at` is due.
async fn wait_on_timer(at: Timestamp) -> io::Result<()> {
    comes(&readable(timer(at)?)?).await
}

fn timer(at: Timestamp) -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
    let millis = at.as_millis();
    let it_value = Timespec {
        // A moment too far off to be written down is never reached.
        tv_sec: i64::try_from(millis / 1000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(millis % 1000 * 1_000_000).unwrap_or(0),
    };
    let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
    let value = Itimerspec { it_interval, it_value };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &value)?;
    Ok(timer)
}

/// The present moment as people tell it, counted from the beginning of 1970 in UTC: for what a
/// person reads, since it may be wrong and may be set back.
#[must_use]
pub fn wall_time() -> Timestamp {
    as_wall_time(SystemTime::now())
}

/// A moment by the clock of [`wall_time`]; its origin, if it was before that.
pub(crate) fn as_wall_time(at: SystemTime) -> Timestamp {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(0).after(since)
}

/// Returns at `at`; never, if there is no such moment.
pub(crate) async fn wait_until(clock: &dyn Clock, at: Option<Timestamp>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// One sleep for many waits of which hardly any lasts until its moment: a timer of the kernel's is
/// set again only where the next moment is earlier.
pub(crate) struct Sleep {
    clock: Arc<dyn Clock>,
    set: Option<(Timestamp, BoxFuture<'static, ()>)>,
}

impl Sleep {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self { clock: Arc::clone(clock), set: None }
    }

    /// Returns at `at`; never, if there is no such moment. May be dropped at any time.
    pub(crate) async fn until(&mut self, at: Option<Timestamp>) {
        poll_fn(|cx| self.poll_until(at, cx)).await;
    }

    /// Ready at `at`; never, if there is no such moment.
    pub(crate) fn poll_until(&mut self, at: Option<Timestamp>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = at else {
            self.set = None;
            return Poll::Pending;
        };
        loop {
            self.set.take_if(|(set, _)| *set > at);
            let (set, asleep) = self.set.get_or_insert_with(|| (at, asleep(&self.clock, at)));
            ready!(asleep.poll_unpin(cx));
            let is_due = *set >= at;
            self.set = None;
            if is_due {
                return Poll::Ready(());
            }
        }
    }
}

fn asleep(clock: &Arc<dyn Clock>, at: Timestamp) -> BoxFuture<'static, ()> {
    let clock = Arc::clone(clock);
    async move { clock.sleep_until(at).await }.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Holds: X-21
    #[tokio::test]
    async fn nobody_wakes_before_the_time_and_clocks_of_one_boot_agree() {
        let (one, other) = (SystemClock::start(), SystemClock::start());
        assert!(one.origin().is_some() && one.origin() == other.origin());
        let at = one.now().after(Duration::from_millis(30));
        one.sleep_until(at).await;
        assert!(other.now() >= at);
        assert_eq!(one.sleep_until(at).now_or_never(), Some(()), "it has passed");
    }

    #[tokio::test]
    async fn a_moment_beyond_all_time_is_waited_for() {
        let wait = SystemClock::start();
        let far = wait.sleep_until(Timestamp::from_millis(u64::MAX));
        let near = wait.sleep(Duration::from_millis(1));
        tokio::select! {
            biased;
            () = far => panic!("it never comes"),
            () = near => {}
        }
    }

    #[tokio::test]
    async fn one_sleep_is_set_anew_for_what_is_earlier_and_lasts_until_what_is_later() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let in_millis = |millis| clock.now().after(Duration::from_millis(millis));
        let mut sleep = Sleep::new(&clock);
        assert!(sleep.until(Some(in_millis(3_600_000))).now_or_never().is_none());
        let (near, far) = (in_millis(30), in_millis(60));
        // Where this is late, the moment has passed.
        let _asked = sleep.until(Some(near)).now_or_never();
        sleep.until(Some(far)).await;
        assert!(clock.now() >= far, "it has rung at the nearer moment");
        assert!(sleep.until(Some(near)).now_or_never().is_some(), "it has passed");
        assert!(sleep.until(None).now_or_never().is_none(), "there is no such moment");
    }
}
