//! Connections that wait for a request, or for the rest of one: the one that has waited longest
//! makes room for a new one.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;

/// The connections of one listener that wait for their clients.
#[derive(Debug, Default)]
pub(super) struct Idle {
    queue: Mutex<Queue>,
    /// Told when a connection begins to wait.
    parked: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    /// Those that wait, longest first, and how they are told to end.
    waiting: BTreeMap<u64, Arc<Notify>>,
}

impl Idle {
    /// Ends the connection that has waited longest, as soon as one waits.
    pub(super) async fn end_one(&self) {
        while !self.end_longest() {
            self.parked.notified().await;
        }
    }

    /// Ends the connection that has waited longest, and says whether there was one.
    pub(super) fn end_longest(&self) -> bool {
        let longest = self.queue().waiting.pop_first();
        longest.map(|(_, end)| end.notify_one()).is_some()
    }

    /// Panics while it is locked cannot leave a map half changed.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection, which waits for a request or is being answered.
#[derive(Debug)]
pub(super) struct Seat {
    idle: Arc<Idle>,
    end: Arc<Notify>,
    place: Mutex<Place>,
}

/// What a connection is doing.
#[derive(Debug)]
enum Place {
    /// Waiting for a request or more of one, at that place among those that do.
    Waiting(u64),
    /// Being answered.
    Busy,
    /// All of an answer is there, but not yet on its way.
    Sending,
}

impl Seat {
    /// A connection that is new, and waits.
    pub(super) fn new(idle: &Arc<Idle>) -> Arc<Self> {
        let seat = Self { idle: idle.clone(), end: Arc::default(), place: Mutex::new(Place::Busy) };
        seat.park();
        Arc::new(seat)
    }

    /// A request has come. Nothing if it came too late: the connection has to end.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Busy> {
        self.leave(Place::Busy).then(|| Busy(self.clone()))
    }

    /// Waits until the connection has to end.
    pub(super) async fn ended(&self) {
        self.end.notified().await;
    }

    /// All that there was to be sent is on its way.
    pub(super) fn flushed(&self) {
        if matches!(*self.place(), Place::Sending) {
            self.park();
        }
    }

    fn park(&self) {
        self.wait_at(None);
    }

    /// Waits at a place that it had before, or behind all others; returns which that is.
    fn wait_at(&self, place: Option<u64>) -> u64 {
        let mut queue = self.idle.queue();
        let number = place.unwrap_or(queue.next);
        queue.next = queue.next.max(number + 1);
        queue.waiting.insert(number, self.end.clone());
        drop(queue);
        *self.place() = Place::Waiting(number);
        self.idle.parked.notify_one();
        number
    }

    /// Does something else than to wait. False if it waited and was told to end.
    fn leave(&self, to: Place) -> bool {
        match std::mem::replace(&mut *self.place(), to) {
            Place::Waiting(number) => self.idle.queue().waiting.remove(&number).is_some(),
            Place::Busy | Place::Sending => true,
        }
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave(Place::Busy);
    }
}

/// While it lives, the connection is being answered.
#[derive(Debug)]
pub(super) struct Busy(Arc<Seat>);

impl Drop for Busy {
    fn drop(&mut self) {
        // What its client has not read must not be cut off.
        self.0.leave(Place::Sending);
    }
}

/// The body of an answer; its connection waits again when all of it is sent.
pub(super) struct Held {
    body: Body,
    _busy: Busy,
}

impl Held {
    pub(super) fn new(body: Body, busy: Busy) -> Self {
        Self { body, _busy: busy }
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a request. While more of it is waited for its connection may have to make room, or
/// those who send it byte by byte would keep all others out.
pub(super) struct Arriving<B> {
    body: B,
    seat: Arc<Seat>,
    /// Where it waits: a byte now and then gives it no better place.
    place: Option<u64>,
    is_waiting: bool,
}

impl<B> Arriving<B> {
    pub(super) fn new(body: B, seat: Arc<Seat>) -> Self {
        Self { body, seat, place: None, is_waiting: false }
    }

    /// Waits no longer. False if it was told to end.
    fn go_on(&mut self) -> bool {
        !std::mem::take(&mut self.is_waiting) || self.seat.leave(Place::Busy)
    }
}

impl<B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Unpin> HttpBody for Arriving<B> {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if !self.go_on() {
            return Poll::Ready(Some(Err("the connection had to make room for another".into())));
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_pending() {
            self.place = Some(self.seat.wait_at(self.place));
            self.is_waiting = true;
        }
        frame.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Arriving<B> {
    fn drop(&mut self) {
        self.go_on();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn the_one_that_waits_longest_ends_and_who_is_answered_stays() {
        let idle = Arc::<Idle>::default();
        let seats: Vec<Arc<Seat>> = (0..4).map(|_| Seat::new(&idle)).collect();
        let busy = seats[0].begin().unwrap();
        let again = seats[1].begin().unwrap();
        drop(again);
        seats[1].flushed();
        // The third waits longest, then the fourth, then the second, which was answered before.
        for next in [2, 3, 1] {
            assert!(idle.end_longest());
            assert!(seats[next].begin().is_none(), "{next}");
        }
        assert!(!idle.end_longest());
        seats[0].flushed();
        assert!(!idle.end_longest(), "it is still being answered");
        drop(busy);
        assert!(!idle.end_longest(), "its answer is not sent yet");
        seats[0].flushed();
        assert!(idle.end_longest());
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let idle = Arc::<Idle>::default();
        drop(Seat::new(&idle));
        assert!(!idle.end_longest());
    }

    #[test]
    fn who_sends_byte_by_byte_waits_where_it_began_to() {
        let idle = Arc::<Idle>::default();
        let seats: Vec<Arc<Seat>> = (0..3).map(|_| Seat::new(&idle)).collect();
        let _busy = seats[0].begin().unwrap();
        let (bytes, body) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
        let body = futures_util::stream::unfold(body, async |mut body| {
            Some((Ok::<_, axum::Error>(body.recv().await?), body))
        });
        let mut body = Box::pin(Arriving::new(Body::from_stream(body), seats[0].clone()));
        let mut poll = || body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending());
        Seat::new(&idle);
        bytes.send(Bytes::from_static(b"x")).unwrap();
        assert!(matches!(poll(), Poll::Ready(Some(Ok(_)))));
        assert_eq!(idle.queue().waiting.len(), 2, "what has come is looked at");
        assert!(poll().is_pending());
        seats[1].begin().map(drop).unwrap();
        seats[1].flushed();
        // The third waits longest; the first has waited since before the second was answered.
        assert!(idle.end_longest() && seats[2].begin().is_none());
        assert!(idle.end_longest());
        assert!(matches!(poll(), Poll::Ready(Some(Err(_)))), "it had to make room");
        assert!(seats[1].begin().is_some());
    }
}
