//! Queue of requests to the writer. While the writer is idle, the queue also holds the writer
//! itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use super::load::WriteFailure;
use super::writer::{Writer, refuse};
use crate::{Commit, LeaseId, StoreError, Transaction};

/// Channel for the response to a request.
pub(super) type Responder<T> = oneshot::Sender<Result<T, StoreError>>;

/// Requests to the writer.
#[derive(Debug)]
pub(super) enum Request {
    Commit(Transaction, Responder<Commit>),
    Grant(Duration, Responder<LeaseId>),
    Renew(LeaseId, Responder<()>),
    Revoke(LeaseId, Responder<()>),
    /// A lease may have expired, or a retry is due. The writer checks this with every request.
    Wake,
    /// Closes the file. The response is sent once it is closed.
    Close(Responder<()>),
}

/// The waiting requests, at most [`MAX_WAITING`], and the writer.
///
/// The writer runs on a blocking thread, and only while requests are waiting. So a request costs
/// one switch to another thread and one back, however busy the runtime is. A running blocking
/// thread also keeps tokio from advancing a paused test clock.
#[derive(Debug)]
pub(super) struct Queue {
    runtime: Handle,
    slots: Semaphore,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    waiting: Vec<Request>,
    writer: WriterState,
}

#[derive(Debug)]
enum WriterState {
    Idle(Box<Writer>),
    /// Checks the queue again before it becomes idle.
    Working,
    /// Dropped, for example because its runtime was shut down.
    Gone,
}

/// Maximum number of waiting requests. Further callers wait for a free slot.
const MAX_WAITING: usize = 1024;

impl Queue {
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub(super) fn new(writer: Writer) -> Arc<Self> {
        let writer = WriterState::Idle(Box::new(writer));
        Arc::new(Self {
            runtime: Handle::current(),
            slots: Semaphore::new(MAX_WAITING),
            inner: Mutex::new(Inner { waiting: Vec::new(), writer }),
        })
    }

    /// Submits a request as soon as the queue has a free slot. Once submitted, the request is
    /// executed even if the caller stops waiting for the response. Returns an error if the writer
    /// is gone.
    pub(super) async fn submit(self: &Arc<Self>, request: Request) -> Result<(), WriteFailure> {
        let slot = self.slots.acquire().await.map_err(|_| WriteFailure::Closed)?;
        slot.forget(); // until the writer takes the request
        self.submit_now(request);
        Ok(())
    }

    /// Submits a request even if no slot is free.
    pub(super) fn submit_now(self: &Arc<Self>, request: Request) {
        let mut inner = self.locked();
        if matches!(inner.writer, WriterState::Gone) {
            drop(inner);
            return refuse(request, WriteFailure::Closed)(Ok(()));
        }
        inner.waiting.push(request);
        let writer = inner.writer.start_working();
        drop(inner);
        if let Some(writer) = writer {
            let run = WriterRun { queue: self.clone(), writer: Some(writer) };
            drop(self.runtime.spawn_blocking(|| run.work()));
        }
    }

    /// Takes all waiting requests. If there are none, the writer becomes idle.
    fn take(&self, requests: &mut Vec<Request>, writer: &mut Option<Box<Writer>>) {
        let mut inner = self.locked();
        std::mem::swap(&mut inner.waiting, requests);
        if requests.is_empty()
            && let Some(writer) = writer.take()
        {
            inner.writer = WriterState::Idle(writer);
        }
        drop(inner);
        let queued = requests.iter().filter(|request| request.holds_slot());
        self.slots.add_permits(queued.count());
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriterState {
    /// Returns the writer if it is idle.
    fn start_working(&mut self) -> Option<Box<Writer>> {
        match std::mem::replace(self, Self::Working) {
            Self::Idle(writer) => Some(writer),
            other => {
                *self = other;
                None
            }
        }
    }
}

impl Request {
    /// Returns whether the request occupies a slot.
    fn holds_slot(&self) -> bool {
        !matches!(self, Self::Wake)
    }
}

/// One run of the writer, until it is idle again.
struct WriterRun {
    queue: Arc<Queue>,
    writer: Option<Box<Writer>>,
}

impl WriterRun {
    fn work(mut self) {
        let mut requests = Vec::new();
        loop {
            self.queue.take(&mut requests, &mut self.writer);
            let Some(writer) = &mut self.writer else { return };
            writer.serve(requests.drain(..));
        }
    }
}

impl Drop for WriterRun {
    /// Closes the queue if this run still holds the writer, which happens only after a panic or a
    /// runtime shutdown. (A normal run returns the writer to the queue before it ends.) Waiting
    /// requests and all later ones then get an error.
    fn drop(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        self.queue.slots.close();
        let mut inner = self.queue.locked();
        inner.writer = WriterState::Gone;
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        drop(writer);
        waiting.into_iter().for_each(|request| refuse(request, WriteFailure::Closed)(Ok(())));
    }
}
