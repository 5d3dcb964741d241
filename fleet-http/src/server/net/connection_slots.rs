//! Slots that limit the number of open connections. If all slots are taken, the server closes one
//! connection to make room for a new one. It chooses the connection that has waited longest for its
//! client to send a request, or the rest of a request.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;

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

/// Slot of a connection. The connection waits in the queue for the head of a request, then for the
/// rest of its body if the handler reads that, and again once the response is flushed.
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
        let (idle, reclaim) = (idle.clone(), Arc::default());
        let slot = Self { idle, reclaim, state: Mutex::new(SlotState::Sending) };
        slot.on_flush();
        Arc::new(slot)
    }

    /// Waits until the slot is reclaimed; the connection must then end.
    pub(crate) async fn reclaimed(&self) {
        self.reclaim.notified().await;
    }

    /// Handles a flush of all pending output: if a response was being sent, the connection begins
    /// to wait for its next request.
    pub(crate) fn on_flush(&self) {
        let mut state = self.state();
        if matches!(*state, SlotState::Sending) {
            self.wait(&mut state);
        }
    }

    /// Handles a body that has not arrived completely: the connection begins to wait for the rest.
    /// If it waits already, it keeps its ticket. Otherwise, a client could stay at the end of the
    /// queue by sending a byte now and then.
    fn on_partial_body(&self) {
        let mut state = self.state();
        if matches!(*state, SlotState::Busy) {
            self.wait(&mut state);
        }
    }

    /// Adds the connection to the end of the queue.
    fn wait(&self, state: &mut SlotState) {
        let mut queue = self.idle.queue();
        let number = queue.next;
        queue.next += 1;
        queue.waiting.insert(number, self.reclaim.clone());
        *state = SlotState::Waiting(number);
        self.idle.parked.notify_one();
    }

    /// Sets the state to `Busy` or `Sending`. If the connection waited, removes it from the queue.
    /// Returns `false` if the slot was reclaimed during the wait.
    fn leave(&self, to: SlotState) -> bool {
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
        self.leave(SlotState::Busy);
    }
}

/// Keeps the connection out of the queue until dropped, at the end of the response. A response that
/// the client has not read yet must not be cut off.
#[derive(Debug)]
pub(crate) struct ResponseGuard(pub(crate) Arc<ConnectionSlot>);

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        self.0.leave(SlotState::Sending);
    }
}

/// Body of a request. While the handler waits for the rest of it, the connection's slot can be
/// reclaimed. Otherwise, clients that send their requests byte by byte could occupy all slots.
///
/// The connection does not wait before the handler reads the body. A handler that never reads it
/// may thus run to its end, and its response is not cut off.
pub(crate) struct RequestBody<B> {
    body: B,
    slot: Arc<ConnectionSlot>,
}

impl<B> RequestBody<B> {
    /// Ends the wait for the head of a request. Returns `None` if the slot was reclaimed during the
    /// wait. The server does not carry out such a request.
    pub(crate) fn new(body: B, slot: Arc<ConnectionSlot>) -> Option<Self> {
        slot.leave(SlotState::Busy).then_some(Self { body, slot })
    }
}

impl<B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Unpin> HttpBody for RequestBody<B> {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let is_whole = matches!(frame, Poll::Ready(None)) || self.body.is_end_stream();
        if !is_whole {
            self.slot.on_partial_body();
        } else if !self.slot.leave(SlotState::Busy) {
            return Poll::Ready(Some(Err(
                "the server has closed the connection to accept another one".into(),
            )));
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
        // The handler needs no more of the body. If it has read a part, it only reports an error,
        // which a reclaim may cut off.
        if matches!(*self.slot.state(), SlotState::Waiting(_)) {
            self.slot.leave(SlotState::Busy);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use axum::body::Body;
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    use super::*;

    fn slots(idle: &Arc<IdleQueue>, count: usize) -> Vec<Arc<ConnectionSlot>> {
        (0..count).map(|_| ConnectionSlot::new(idle)).collect()
    }

    /// Begins a request without a body. Returns `None` if the slot was reclaimed.
    fn begin(slot: &Arc<ConnectionSlot>) -> Option<ResponseGuard> {
        RequestBody::new(Body::empty(), slot.clone()).map(|_| ResponseGuard(slot.clone()))
    }

    /// Serves a request without a body.
    fn serve(slot: &Arc<ConnectionSlot>) {
        begin(slot).map(drop).unwrap();
        slot.on_flush();
    }

    /// Begins a request whose body arrives through the returned channel.
    fn upload(slot: &Arc<ConnectionSlot>) -> (UnboundedSender<Bytes>, RequestBody<Body>) {
        let (bytes, body) = unbounded_channel::<Bytes>();
        let body = futures_util::stream::unfold(body, async |mut body| {
            Some((Ok::<_, axum::Error>(body.recv().await?), body))
        });
        (bytes, RequestBody::new(Body::from_stream(body), slot.clone()).unwrap())
    }

    fn poll(body: &mut RequestBody<Body>) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn served_connection_goes_to_the_end_of_the_queue() {
        let idle = Arc::<IdleQueue>::default();
        let slots = slots(&idle, 3);
        serve(&slots[0]);
        for next in [1, 2, 0] {
            assert!(idle.reclaim_longest());
            assert!(begin(&slots[next]).is_none(), "{next}");
        }
        assert!(!idle.reclaim_longest());
    }

    #[test]
    fn response_is_not_reclaimable_until_flushed() {
        let idle = Arc::<IdleQueue>::default();
        let slot = ConnectionSlot::new(&idle);
        let busy = begin(&slot).unwrap();
        slot.on_flush();
        assert!(!idle.reclaim_longest(), "its request is still being served");
        drop(busy);
        assert!(!idle.reclaim_longest(), "its response is not flushed yet");
        slot.on_flush();
        assert!(idle.reclaim_longest());
    }

    #[test]
    fn request_with_body_is_refused_if_reclaimed_before() {
        let idle = Arc::<IdleQueue>::default();
        let slot = ConnectionSlot::new(&idle);
        assert!(idle.reclaim_longest());
        assert!(RequestBody::new(Body::from("x"), slot).is_none());
    }

    #[test]
    fn upload_waits_behind_idle_connections() {
        let idle = Arc::<IdleQueue>::default();
        let slots = slots(&idle, 2);
        let (_bytes, mut body) = upload(&slots[0]);
        assert!(poll(&mut body).is_pending());
        assert!(idle.reclaim_longest());
        assert!(begin(&slots[1]).is_none(), "it was idle for longer");
    }

    #[test]
    fn byte_by_byte_body_keeps_its_queue_position() {
        let idle = Arc::<IdleQueue>::default();
        let slots = slots(&idle, 2);
        let (bytes, mut body) = upload(&slots[0]);
        assert!(poll(&mut body).is_pending());
        serve(&slots[1]);
        bytes.send(Bytes::from_static(b"x")).unwrap();
        assert!(matches!(poll(&mut body), Poll::Ready(Some(Ok(_)))));
        assert!(poll(&mut body).is_pending());
        assert!(idle.reclaim_longest());
        assert!(begin(&slots[1]).is_some(), "the slow body waited longer");
    }

    #[test]
    fn whole_body_takes_the_connection_out_of_the_queue() {
        let idle = Arc::<IdleQueue>::default();
        let slot = ConnectionSlot::new(&idle);
        let (bytes, mut body) = upload(&slot);
        assert!(poll(&mut body).is_pending());
        drop(bytes);
        assert!(matches!(poll(&mut body), Poll::Ready(None)));
        assert!(!idle.reclaim_longest());
    }

    #[test]
    fn reclaim_during_the_body_is_an_error() {
        let idle = Arc::<IdleQueue>::default();
        let slot = ConnectionSlot::new(&idle);
        let (bytes, mut body) = upload(&slot);
        assert!(poll(&mut body).is_pending());
        assert!(idle.reclaim_longest());
        drop(bytes);
        assert!(matches!(poll(&mut body), Poll::Ready(Some(Err(_)))));
    }

    #[test]
    fn early_response_with_unread_body_is_kept() {
        let idle = Arc::<IdleQueue>::default();
        let slot = ConnectionSlot::new(&idle);
        let response = ResponseGuard(slot.clone());
        let (_bytes, unread) = upload(&slot);
        assert!(!idle.reclaim_longest(), "the handler may have begun");
        drop(unread);
        drop(response);
        assert!(!idle.reclaim_longest(), "its response is not flushed yet");
        slot.on_flush();
        assert!(idle.reclaim_longest());
    }

    #[test]
    fn early_response_to_a_partial_body_is_kept() {
        let idle = Arc::<IdleQueue>::default();
        let slot = ConnectionSlot::new(&idle);
        let response = ResponseGuard(slot.clone());
        let (_bytes, mut body) = upload(&slot);
        assert!(poll(&mut body).is_pending());
        drop(body);
        assert!(!idle.reclaim_longest(), "the response is being made");
        drop(response);
        slot.on_flush();
        assert!(idle.reclaim_longest());
    }

    #[test]
    fn dropped_slot_leaves_the_queue() {
        let idle = Arc::<IdleQueue>::default();
        drop(ConnectionSlot::new(&idle));
        assert!(!idle.reclaim_longest());
    }
}
