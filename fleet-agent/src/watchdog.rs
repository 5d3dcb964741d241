//! Detects loops that no longer make progress.
//!
//! Each check pings every loop, and a loop responds when it is next polled. So a loop that blocks
//! its thread does not respond, and is reported.
//!
//! A loop may wait for changes forever, but must finish handling each change. Therefore a loop
//! marks the handling of a change as a *busy* period. A loop whose busy period lasts too long is
//! reported too, for example because it waits for a response that never arrives.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use fleet_core::Timestamp;
use futures_util::task::AtomicWaker;

/// Maximum length of a busy period. Normal work takes far less, because each call to a store or a
/// service manager has its own limit of at most one minute.
pub const MAX_BUSY: Duration = Duration::from_secs(180);

/// Checks whether loops make progress. Cloning gives another handle.
#[derive(Debug, Clone, Default)]
pub struct Watchdog(Arc<Mutex<Vec<Arc<LoopState>>>>);

/// State of one monitored loop.
#[derive(Debug)]
struct LoopState {
    name: &'static str,
    pings: AtomicU64,
    acks: AtomicU64,
    ended: AtomicBool,
    waker: AtomicWaker,
    busy: Mutex<BusyPeriods>,
}

/// Busy periods in progress. A loop that does several things concurrently has several.
#[derive(Debug, Default)]
struct BusyPeriods {
    last: u64,
    /// Time of the first check that observed each period; `None` before that.
    first_seen: BTreeMap<u64, Option<Timestamp>>,
}

/// Future of a monitored loop.
#[derive(Debug)]
pub struct Monitored<F> {
    state: Arc<LoopState>,
    work: Pin<Box<F>>,
}

/// A loop's handle for marking busy periods. Cloning gives another handle.
#[derive(Debug, Clone)]
pub struct Heartbeat(Arc<LoopState>);

/// Ends its busy period when dropped.
struct BusyGuard<'a> {
    state: &'a LoopState,
    number: u64,
}

impl Watchdog {
    /// Wraps a loop so that it responds to checks. In reports, the loop has the name of its
    /// heartbeat.
    pub fn monitor<F: Future>(&self, heartbeat: &Heartbeat, work: F) -> Monitored<F> {
        let state = heartbeat.0.clone();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|state| !state.ended.load(Ordering::Relaxed));
        all.push(state.clone());
        Monitored { state, work: Box::pin(work) }
    }

    /// Pings all loops. Returns the names of loops that have not responded to the previous ping,
    /// and of loops that at `now` have been busy for [`MAX_BUSY`] or longer. Loops that have ended
    /// are left out.
    pub fn check(&self, now: Timestamp) -> Vec<&'static str> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = all.iter().filter(|state| !state.ended.load(Ordering::Relaxed));
        let well = |state: &LoopState| state.has_responded() & !state.is_stuck(now);
        let silent: Vec<_> = alive.clone().filter(|state| !well(state)).collect();
        let silent = silent.into_iter().map(|state| state.name).collect();
        for state in alive {
            state.pings.fetch_add(1, Ordering::AcqRel);
            state.waker.wake();
        }
        silent
    }
}

impl LoopState {
    fn has_responded(&self) -> bool {
        self.acks.load(Ordering::Acquire) == self.pings.load(Ordering::Acquire)
    }

    /// Returns whether a busy period has lasted too long. The time is counted from the first check
    /// during the period, so loops need no clock.
    fn is_stuck(&self, now: Timestamp) -> bool {
        let mut busy = self.busy();
        busy.first_seen.values_mut().fold(false, |late, first_seen| {
            late | (now.since(*first_seen.get_or_insert(now)) >= MAX_BUSY)
        })
    }

    fn busy(&self) -> MutexGuard<'_, BusyPeriods> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heartbeat {
    /// Creates the heartbeat of a loop with this name.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self(Arc::new(LoopState {
            name,
            pings: AtomicU64::new(0),
            acks: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            busy: Mutex::default(),
        }))
    }

    /// Runs `work` as a busy period, which also ends if the future is dropped. If the period lasts
    /// [`MAX_BUSY`] or longer, the watchdog reports the loop.
    pub async fn busy<F: Future>(&self, work: F) -> F::Output {
        let _turn = BusyGuard::begin(&self.0);
        work.await
    }
}

impl<'a> BusyGuard<'a> {
    fn begin(state: &'a LoopState) -> Self {
        let mut busy = state.busy();
        busy.last += 1;
        let number = busy.last;
        busy.first_seen.insert(number, None);
        Self { state, number }
    }
}

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        self.state.busy().first_seen.remove(&self.number);
    }
}

impl<F: Future> Future for Monitored<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.state.waker.register(context.waker());
        let pings = self.state.pings.load(Ordering::Acquire);
        let polled = self.work.as_mut().poll(context);
        // Acknowledged only after the poll, so a poll that never returns counts as no response.
        self.state.acks.store(pings, Ordering::Release);
        polled
    }
}

impl<F> Drop for Monitored<F> {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const START: Timestamp = Timestamp::from_millis(0);

    #[tokio::test]
    async fn polled_loop_responds() {
        let watchdog = Watchdog::default();
        let at_rest =
            tokio::spawn(watchdog.monitor(&Heartbeat::new("rest"), std::future::pending::<()>()));
        let ended = tokio::spawn(watchdog.monitor(&Heartbeat::new("ended"), async {}));
        ended.await.unwrap();
        assert_eq!(watchdog.check(START), [""; 0]);
        tokio::task::yield_now().await;
        assert_eq!(watchdog.check(START), [""; 0]);
        assert_eq!(watchdog.check(START), ["rest"], "it had no turn in between");
        at_rest.abort();
        assert!(at_rest.await.is_err());
        assert_eq!(watchdog.check(START), [""; 0]);
    }

    #[test]
    fn blocked_loop_is_reported() {
        let watchdog = Watchdog::default();
        let (begin, began) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let hangs = watchdog.monitor(&Heartbeat::new("hung"), async move {
            begin.send(()).unwrap();
            released.recv().unwrap();
        });
        let thread = std::thread::spawn(|| futures_util::FutureExt::now_or_never(hangs));
        began.recv().unwrap();
        assert_eq!(watchdog.check(START), [""; 0], "the first check has no earlier ping");
        assert_eq!(watchdog.check(START), ["hung"]);
        release.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), Some(()));
        assert_eq!(watchdog.check(START), [""; 0]);
    }

    #[test]
    fn endless_busy_period_is_reported_and_idle_wait_is_not() {
        let watchdog = Watchdog::default();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let heartbeat = Heartbeat::new("works");
        let work = async {
            heartbeat.busy(async {}).await;
            drop(heartbeat.busy(ended).await);
            std::future::pending::<()>().await;
        };
        let mut works = Box::pin(watchdog.monitor(&heartbeat, work));
        let mut ask = |after: Duration| {
            assert_eq!(futures_util::FutureExt::now_or_never(&mut works), None);
            watchdog.check(START.after(after))
        };
        let (first, second) = (Duration::from_secs(1), Duration::from_secs(2));
        assert_eq!(ask(first), [""; 0], "from now on it counts");
        assert_eq!(ask(MAX_BUSY), [""; 0], "it answers, and has some time left");
        assert_eq!(ask(MAX_BUSY + first), ["works"], "it answers, and gets nowhere");
        end.send(()).unwrap();
        assert_eq!(ask(MAX_BUSY + second), [""; 0], "its turn has ended");
        assert_eq!(ask(MAX_BUSY * 9), [""; 0], "it waits for news");
    }
}
