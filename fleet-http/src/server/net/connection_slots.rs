//! Slots that limit the number of open connections. If all slots are taken, the server closes one
//! connection to make room for a new one. It chooses the connection that has waited longest for its
//! client to send a request, or the rest of a request.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;

use crate::server::auth::auth_policy::ReadPermit;

/// Queue of a listener's connections that wait for their clients to send data.
#[derive(Debug, Default)]
pub(crate) struct IdleQueue {
    queue: Mutex<Waiters>,
    /// Notified when a connection begins to wait.
    parked: Notify,
}

#[derive(Debug, Default)]
struct Waiters {
    next: u64,
    /// Waiting connections, longest first, with the signal that closes each.
    waiting: BTreeMap<u64, Arc<Notify>>,
}

impl IdleQueue {
    /// Closes the connection that has waited longest. If no connection waits, first waits until one
    /// does.
    pub(crate) async fn reclaim_one(&self) {
        while !self.reclaim_longest() {
            self.parked.notified().await;
        }
    }

    /// Closes the connection that has waited longest. Returns `false` if no connection was waiting.
    pub(crate) fn reclaim_longest(&self) -> bool {
        let longest = self.queue().waiting.pop_first();
        longest.map(|(_, reclaim)| reclaim.notify_one()).is_some()
    }

    /// Ignores poisoning: no panic can leave the map partially modified.
    fn queue(&self) -> MutexGuard<'_, Waiters> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Slot of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    idle: Arc<IdleQueue>,
    reclaim: Arc<Notify>,
    state: Mutex<SlotState>,
}

/// State of a connection.
#[derive(Debug)]
enum SlotState {
    /// The connection waits for a request, or for the rest of a request. The number is its ticket
    /// in the queue; the connection with the lowest ticket is closed first.
    Waiting(u64),
    /// The server handles a request of the connection.
    Busy,
    /// The response is complete but not yet flushed.
    Sending,
}

impl ConnectionSlot {
    /// Creates the slot of a new connection, which waits for its first request.
    pub(crate) fn new(idle: &Arc<IdleQueue>) -> Arc<Self> {
        let slot = Self {
            idle: idle.clone(),
            reclaim: Arc::default(),
            state: Mutex::new(SlotState::Busy),
        };
        slot.park();
        Arc::new(slot)
    }

    /// Marks the connection as busy with a request. Returns `None` if the slot was already
    /// reclaimed; the connection must then end.
    pub(crate) fn begin_request(self: &Arc<Self>) -> Option<BusyGuard> {
        self.set_state(SlotState::Busy).then(|| BusyGuard(self.clone()))
    }

    /// Waits until the slot is reclaimed; the connection must then end.
    pub(crate) async fn reclaimed(&self) {
        self.reclaim.notified().await;
    }

    /// Handles a flush of all pending output: if a response was being sent, the connection begins
    /// to wait for its next request.
    pub(crate) fn on_flush(&self) {
        if matches!(*self.state(), SlotState::Sending) {
            self.park();
        }
    }

    fn park(&self) {
        self.enqueue(None);
    }

    /// Adds the connection to the queue and returns its ticket. With a `ticket` from an earlier
    /// wait, the connection gets its earlier place again. Without one, it goes to the end of the
    /// queue.
    fn enqueue(&self, ticket: Option<u64>) -> u64 {
        let mut queue = self.idle.queue();
        let number = ticket.unwrap_or(queue.next);
        queue.next = queue.next.max(number + 1);
        queue.waiting.insert(number, self.reclaim.clone());
        drop(queue);
        *self.state() = SlotState::Waiting(number);
        self.idle.parked.notify_one();
        number
    }

    /// Sets the state to `Busy` or `Sending`. If the connection waited, removes it from the queue.
    /// Returns `false` if the slot was reclaimed during the wait.
    fn set_state(&self, to: SlotState) -> bool {
        match std::mem::replace(&mut *self.state(), to) {
            SlotState::Waiting(number) => self.idle.queue().waiting.remove(&number).is_some(),
            SlotState::Busy | SlotState::Sending => true,
        }
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.set_state(SlotState::Busy);
    }
}

/// Keeps the connection busy until dropped.
#[derive(Debug)]
pub(crate) struct BusyGuard(Arc<ConnectionSlot>);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        // A response that the client has not read yet must not be cut off.
        self.0.set_state(SlotState::Sending);
    }
}

/// Body of a response. The connection waits again once the body is sent.
pub(crate) struct SlotBody {
    body: Body,
    _busy: BusyGuard,
    /// Permit of a read-only request.
    _permit: Option<Arc<ReadPermit>>,
}

impl SlotBody {
    pub(crate) fn new(body: Body, busy: BusyGuard, permit: Option<Arc<ReadPermit>>) -> Self {
        Self { body, _busy: busy, _permit: permit }
    }
}

impl HttpBody for SlotBody {
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

/// Body of a request. While the server waits for more of the body, the connection's slot can be
/// reclaimed. Otherwise, clients that send their requests byte by byte could occupy all slots.
pub(crate) struct RequestBody<B> {
    body: B,
    slot: Arc<ConnectionSlot>,
    /// Ticket of the connection in the queue, once it has waited. The ticket is kept when data
    /// arrives. Otherwise, a client could stay at the end of the queue by sending a byte now and
    /// then.
    ticket: Option<u64>,
    is_waiting: bool,
}

impl<B> RequestBody<B> {
    pub(crate) fn new(body: B, slot: Arc<ConnectionSlot>) -> Self {
        Self { body, slot, ticket: None, is_waiting: false }
    }

    /// Ends the wait for more of the body. Returns `false` if the slot was reclaimed.
    fn resume(&mut self) -> bool {
        !std::mem::take(&mut self.is_waiting) || self.slot.set_state(SlotState::Busy)
    }
}

impl<B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Unpin> HttpBody for RequestBody<B> {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if !self.resume() {
            return Poll::Ready(Some(Err(
                "the server has closed the connection to accept another one".into(),
            )));
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_pending() {
            self.ticket = Some(self.slot.enqueue(self.ticket));
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

impl<B> Drop for RequestBody<B> {
    fn drop(&mut self) {
        self.resume();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn longest_waiting_is_reclaimed_and_busy_is_kept() {
        let idle = Arc::<IdleQueue>::default();
        let slots: Vec<Arc<ConnectionSlot>> = (0..4).map(|_| ConnectionSlot::new(&idle)).collect();
        let busy = slots[0].begin_request().unwrap();
        let again = slots[1].begin_request().unwrap();
        drop(again);
        slots[1].on_flush();
        // The order is the third, the fourth, then the second, which was served in between.
        for next in [2, 3, 1] {
            assert!(idle.reclaim_longest());
            assert!(slots[next].begin_request().is_none(), "{next}");
        }
        assert!(!idle.reclaim_longest());
        slots[0].on_flush();
        assert!(!idle.reclaim_longest(), "its request is still being served");
        drop(busy);
        assert!(!idle.reclaim_longest(), "its response is not flushed yet");
        slots[0].on_flush();
        assert!(idle.reclaim_longest());
    }

    #[test]
    fn dropped_slot_leaves_the_queue() {
        let idle = Arc::<IdleQueue>::default();
        drop(ConnectionSlot::new(&idle));
        assert!(!idle.reclaim_longest());
    }

    #[test]
    fn byte_by_byte_body_keeps_its_queue_position() {
        let idle = Arc::<IdleQueue>::default();
        let slots: Vec<Arc<ConnectionSlot>> = (0..3).map(|_| ConnectionSlot::new(&idle)).collect();
        let _busy = slots[0].begin_request().unwrap();
        let (bytes, body) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
        let body = futures_util::stream::unfold(body, async |mut body| {
            Some((Ok::<_, axum::Error>(body.recv().await?), body))
        });
        let mut body = Box::pin(RequestBody::new(Body::from_stream(body), slots[0].clone()));
        let mut poll = || body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending());
        ConnectionSlot::new(&idle);
        bytes.send(Bytes::from_static(b"x")).unwrap();
        assert!(matches!(poll(), Poll::Ready(Some(Ok(_)))));
        assert_eq!(idle.queue().waiting.len(), 2, "the received byte is being processed");
        assert!(poll().is_pending());
        slots[1].begin_request().map(drop).unwrap();
        slots[1].on_flush();
        // The third is first. The first follows, since it has waited since before the second was
        // served.
        assert!(idle.reclaim_longest() && slots[2].begin_request().is_none());
        assert!(idle.reclaim_longest());
        assert!(matches!(poll(), Poll::Ready(Some(Err(_)))), "the slot was reclaimed");
        assert!(slots[1].begin_request().is_some());
    }
}
