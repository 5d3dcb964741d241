//! Whether loops still take their turns: each is asked, and answers when it is next polled.
//!
//! It finds a loop that blocks its thread or never returns from a turn. One that waits for what
//! never comes looks as if it were at rest; against that each wait has a limit of its own.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// Asks loops whether they are alive. Cloning gives another handle.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<Mutex<Vec<Arc<Beat>>>>);

/// What is known of one loop.
#[derive(Debug)]
struct Beat {
    name: &'static str,
    asked: AtomicU64,
    answered: AtomicU64,
    ended: AtomicBool,
    waker: AtomicWaker,
}

/// A loop that answers.
#[derive(Debug)]
pub struct Watched<F> {
    beat: Arc<Beat>,
    work: Pin<Box<F>>,
}

impl Pulse {
    /// The same work, which answers from now on when it is asked.
    pub fn watch<F: Future>(&self, name: &'static str, work: F) -> Watched<F> {
        let beat = Arc::new(Beat {
            name,
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        let mut beats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        beats.retain(|beat| !beat.ended.load(Ordering::Relaxed));
        beats.push(beat.clone());
        Watched { beat, work: Box::pin(work) }
    }

    /// Asks all loops, and returns the names of those that have not answered to the last question.
    /// One that has ended is no business of this.
    pub fn ask(&self) -> Vec<&'static str> {
        let beats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = beats.iter().filter(|beat| !beat.ended.load(Ordering::Relaxed));
        let silent: Vec<_> = alive.clone().filter(|beat| !beat.has_answered()).collect();
        let silent = silent.into_iter().map(|beat| beat.name).collect();
        for beat in alive {
            beat.asked.fetch_add(1, Ordering::AcqRel);
            beat.waker.wake();
        }
        silent
    }
}

impl Beat {
    fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire) == self.asked.load(Ordering::Acquire)
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.beat.waker.register(context.waker());
        let asked = self.beat.asked.load(Ordering::Acquire);
        let polled = self.work.as_mut().poll(context);
        // Only after its turn, so that one which does not come back has not answered.
        self.beat.answered.store(asked, Ordering::Release);
        polled
    }
}

impl<F> Drop for Watched<F> {
    fn drop(&mut self) {
        self.beat.ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_loop_that_takes_its_turns_answers() {
        let pulse = Pulse::default();
        let at_rest = tokio::spawn(pulse.watch("rest", std::future::pending::<()>()));
        let ended = tokio::spawn(pulse.watch("ended", async {}));
        ended.await.unwrap();
        assert_eq!(pulse.ask(), [""; 0]);
        tokio::task::yield_now().await;
        assert_eq!(pulse.ask(), [""; 0]);
        assert_eq!(pulse.ask(), ["rest"], "it had no turn in between");
        at_rest.abort();
        assert!(at_rest.await.is_err());
        assert_eq!(pulse.ask(), [""; 0]);
    }

    #[test]
    fn a_loop_that_does_not_come_back_is_named() {
        let pulse = Pulse::default();
        let (begin, began) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let hangs = pulse.watch("hung", async move {
            begin.send(()).unwrap();
            released.recv().unwrap();
        });
        let thread = std::thread::spawn(|| futures_util::FutureExt::now_or_never(hangs));
        began.recv().unwrap();
        assert_eq!(pulse.ask(), [""; 0], "it was not asked before");
        assert_eq!(pulse.ask(), ["hung"]);
        release.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), Some(()));
        assert_eq!(pulse.ask(), [""; 0]);
    }
}
