//! A reusable sleep.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fleet_core::Timestamp;
use futures_util::future::{BoxFuture, FutureExt as _};

use crate::Clock;

/// A reusable sleep for a task that waits for one deadline after another. Most of these waits are
/// dropped before they expire. So a running kernel timer is kept for the next wait, unless the next
/// deadline is earlier than the timer.
pub(crate) struct Sleep {
    clock: Arc<dyn Clock>,
    set: Option<(Timestamp, BoxFuture<'static, ()>)>,
}

impl Sleep {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self { clock: Arc::clone(clock), set: None }
    }

    /// Returns at `at`; never returns for `None`. Cancel-safe.
    pub(crate) async fn until(&mut self, at: Option<Timestamp>) {
        poll_fn(|cx| self.poll_until(at, cx)).await;
    }

    /// Polls the sleep: ready at `at`, and never ready for `None`.
    pub(crate) fn poll_until(&mut self, at: Option<Timestamp>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = at else {
            self.set = None;
            return Poll::Pending;
        };
        loop {
            self.set.take_if(|(set, _)| *set > at);
            let (set, asleep) = self.set.get_or_insert_with(|| (at, boxed_sleep(&self.clock, at)));
            ready!(asleep.poll_unpin(cx));
            let is_due = *set >= at;
            self.set = None;
            if is_due {
                return Poll::Ready(());
            }
        }
    }
}

fn boxed_sleep(clock: &Arc<dyn Clock>, at: Timestamp) -> BoxFuture<'static, ()> {
    let clock = Arc::clone(clock);
    async move { clock.sleep_until(at).await }.boxed()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::SystemClock;

    #[tokio::test]
    async fn shared_sleep_follows_the_current_deadline() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let in_millis = |millis| clock.now().after(Duration::from_millis(millis));
        let mut sleep = Sleep::new(&clock);
        assert!(sleep.until(Some(in_millis(3_600_000))).now_or_never().is_none());
        let (near, far) = (in_millis(30), in_millis(60));
        // If the test runs late, the time has already passed.
        let _asked = sleep.until(Some(near)).now_or_never();
        sleep.until(Some(far)).await;
        assert!(clock.now() >= far, "the earlier deadline did not end it");
        assert!(sleep.until(Some(near)).now_or_never().is_some(), "it has passed");
        assert!(sleep.until(None).now_or_never().is_none(), "there is no deadline");
    }
}
