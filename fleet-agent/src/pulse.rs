//! Whether loops still take their turns: each is asked, and answers when it is next polled.
//!
//! That finds a loop that blocks its thread. One that waits for news may wait for ever; but what it
//! does about news has to come to an end. So a loop marks that as its *turn*, and one whose turn
//! goes on for too long is silent, too, be it that it waits for an answer that never comes.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use fleet_core::Timestamp;
use futures_util::task::AtomicWaker;

/// How long a turn may take. Nothing that a loop does in one takes nearly as long: calls to a store
/// or a service manager have limits of their own, of a minute at most.
pub const LONGEST_TURN: Duration = Duration::from_secs(180);

/// Asks loops whether they are alive. Cloning gives another handle.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<Mutex<Vec<Arc<Known>>>>);

/// What is known of one loop.
#[derive(Debug)]
struct Known {
    name: &'static str,
    asked: AtomicU64,
    answered: AtomicU64,
    ended: AtomicBool,
    waker: AtomicWaker,
    turns: Mutex<Turns>,
}

/// The turns that are under way; a loop that does several things at a time has several.
#[derive(Debug, Default)]
struct Turns {
    last: u64,
    /// When each was first seen by somebody who asked; nothing before that.
    seen: BTreeMap<u64, Option<Timestamp>>,
}

/// A loop that answers.
#[derive(Debug)]
pub struct Watched<F> {
    known: Arc<Known>,
    work: Pin<Box<F>>,
}

/// By which a loop marks its turns. Cloning gives another handle.
#[derive(Debug, Clone)]
pub struct Beat(Arc<Known>);

/// A turn that is under way.
struct Turn<'a> {
    known: &'a Known,
    number: u64,
}

impl Pulse {
    /// The same work, which answers from now on when it is asked, under the name of its beat.
    pub fn watch<F: Future>(&self, beat: &Beat, work: F) -> Watched<F> {
        let known = beat.0.clone();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| !known.ended.load(Ordering::Relaxed));
        all.push(known.clone());
        Watched { known, work: Box::pin(work) }
    }

    /// Asks all loops, and returns the names of those that have not answered to the last question,
    /// or are at `now` in a turn that goes on for longer than [`LONGEST_TURN`]. One that has ended
    /// is no business of this.
    pub fn ask(&self, now: Timestamp) -> Vec<&'static str> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = all.iter().filter(|known| !known.ended.load(Ordering::Relaxed));
        let well = |known: &Known| known.has_answered() & !known.is_late(now);
        let silent: Vec<_> = alive.clone().filter(|known| !well(known)).collect();
        let silent = silent.into_iter().map(|known| known.name).collect();
        for known in alive {
            known.asked.fetch_add(1, Ordering::AcqRel);
            known.waker.wake();
        }
        silent
    }
}

impl Known {
    fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire) == self.asked.load(Ordering::Acquire)
    }

    /// Whether a turn goes on for too long. It is counted from when it is first seen, so that a
    /// loop needs no clock for this.
    fn is_late(&self, now: Timestamp) -> bool {
        let mut turns = self.turns();
        turns
            .seen
            .values_mut()
            .fold(false, |late, seen| late | (now.since(*seen.get_or_insert(now)) >= LONGEST_TURN))
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Beat {
    /// The beat of a loop that is to be called by that name.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self(Arc::new(Known {
            name,
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            turns: Mutex::default(),
        }))
    }

    /// The same work, as a turn, which has to come to an end. Dropped, it has.
    pub async fn turn<F: Future>(&self, work: F) -> F::Output {
        let _turn = Turn::begin(&self.0);
        work.await
    }
}

impl<'a> Turn<'a> {
    fn begin(known: &'a Known) -> Self {
        let mut turns = known.turns();
        turns.last += 1;
        let number = turns.last;
        turns.seen.insert(number, None);
        Self { known, number }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.known.turns().seen.remove(&self.number);
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.known.waker.register(context.waker());
        let asked = self.known.asked.load(Ordering::Acquire);
        let polled = self.work.as_mut().poll(context);
        // Only after its turn, so that one which does not come back has not answered.
        self.known.answered.store(asked, Ordering::Release);
        polled
    }
}

impl<F> Drop for Watched<F> {
    fn drop(&mut self) {
        self.known.ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const START: Timestamp = Timestamp::from_millis(0);

    #[tokio::test]
    async fn a_loop_that_takes_its_turns_answers() {
        let pulse = Pulse::default();
        let at_rest = tokio::spawn(pulse.watch(&Beat::new("rest"), std::future::pending::<()>()));
        let ended = tokio::spawn(pulse.watch(&Beat::new("ended"), async {}));
        ended.await.unwrap();
        assert_eq!(pulse.ask(START), [""; 0]);
        tokio::task::yield_now().await;
        assert_eq!(pulse.ask(START), [""; 0]);
        assert_eq!(pulse.ask(START), ["rest"], "it had no turn in between");
        at_rest.abort();
        assert!(at_rest.await.is_err());
        assert_eq!(pulse.ask(START), [""; 0]);
    }

    #[test]
    fn a_loop_that_does_not_come_back_is_named() {
        let pulse = Pulse::default();
        let (begin, began) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let hangs = pulse.watch(&Beat::new("hung"), async move {
            begin.send(()).unwrap();
            released.recv().unwrap();
        });
        let thread = std::thread::spawn(|| futures_util::FutureExt::now_or_never(hangs));
        began.recv().unwrap();
        assert_eq!(pulse.ask(START), [""; 0], "it was not asked before");
        assert_eq!(pulse.ask(START), ["hung"]);
        release.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), Some(()));
        assert_eq!(pulse.ask(START), [""; 0]);
    }

    #[test]
    fn a_turn_that_does_not_end_is_named_and_a_wait_is_not() {
        let pulse = Pulse::default();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let beat = Beat::new("works");
        let work = async {
            beat.turn(async {}).await;
            drop(beat.turn(ended).await);
            std::future::pending::<()>().await;
        };
        let mut works = Box::pin(pulse.watch(&beat, work));
        let mut ask = |after: Duration| {
            assert_eq!(futures_util::FutureExt::now_or_never(&mut works), None);
            pulse.ask(START.after(after))
        };
        let (first, second) = (Duration::from_secs(1), Duration::from_secs(2));
        assert_eq!(ask(first), [""; 0], "from now on it counts");
        assert_eq!(ask(LONGEST_TURN), [""; 0], "it answers, and has some time left");
        assert_eq!(ask(LONGEST_TURN + first), ["works"], "it answers, and gets nowhere");
        end.send(()).unwrap();
        assert_eq!(ask(LONGEST_TURN + second), [""; 0], "its turn has ended");
        assert_eq!(ask(LONGEST_TURN * 9), [""; 0], "it waits for news");
    }
}
