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

/// Slot of a connection. The connection waits in the queue until its request has arrived
/// completely, and again once the response is flushed.
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
            let mut queue = self.idle.queue();
            let number = queue.next;
            queue.next += 1;
            queue.waiting.insert(number, self.reclaim.clone());
            *state = SlotState::Waiting(number);
            self.idle.parked.notify_one();
        }
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

/// Body of a request. Until it has arrived, the connection's slot can be reclaimed. Otherwise,
/// clients that send their requests byte by byte could occupy all slots.
pub(crate) struct RequestBody<B> {
    body: B,
    slot: Arc<ConnectionSlot>,
}

impl<B: HttpBody> RequestBody<B> {
    /// Returns `None` if the slot of a request without a body was reclaimed. The server does not
    /// carry out such a request.
    pub(crate) fn new(body: B, slot: Arc<ConnectionSlot>) -> Option<Self> {
        let is_kept = !body.is_end_stream() || slot.leave(SlotState::Busy);
        is_kept.then_some(Self { body, slot })
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
        if is_whole && !self.slot.leave(SlotState::Busy) {
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
        // The handler needs no more of the body.
        if matches!(*self.slot.state(), SlotState::Waiting(_)) {
            self.slot.leave(SlotState::Busy);
        }
    }
}
