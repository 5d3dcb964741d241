//! Where requests wait for the writer, and where the writer is while nothing waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use super::writer::{WriteFailure, Writer, refuse};
use crate::{Commit, LeaseId, StoreError, Transaction};

/// Where an answer goes.
pub(super) type Responder<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the writer is asked for.
#[derive(Debug)]
pub(super) enum Request {
    Commit(Transaction, Responder<Commit>),
    Grant(Duration, Responder<LeaseId>),
    Renew(LeaseId, Responder<()>),
    Revoke(LeaseId, Responder<()>),
    /// A lease may be over, which the writer finds out whatever it is asked for.
    Expire,
    /// The file is to be given free. Answered when it is.
    Close(Responder<()>),
}

/// The requests that wait, at most [`MAX_WAITING`], and the writer.
///
/// The writer works on a thread for what waits for a disk, and only while there is something to do.
/// So a request takes one way to another thread and one back, whatever the runtime is busy with,
/// and a clock that a test has stopped does not run ahead of the disk.
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
    /// It will look at what waits before it rests.
    Working,
    /// It is not there any more, for example because its runtime was shut down.
    Gone,
}

/// How many requests may wait for the writer; a caller beyond that waits for its run.
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

    /// Has a request done as soon as there is slots for it; once it has its slot, it is done
    /// whether or not somebody waits for the answer. Fails when the writer is gone.
    pub(super) async fn submit(self: &Arc<Self>, request: Request) -> Result<(), WriteFailure> {
        let slot = self.slots.acquire().await.map_err(|_| WriteFailure::closed())?;
        slot.forget(); // until it is taken
        self.submit_now(request);
        Ok(())
    }

    /// Has a request done, whether there is slots for it or not.
    pub(super) fn submit_now(self: &Arc<Self>, request: Request) {
        let mut inner = self.locked();
        if matches!(inner.writer, WriterState::Gone) {
            drop(inner);
            return refuse(request, WriteFailure::closed())(None);
        }
        inner.waiting.push(request);
        let writer = inner.writer.start_working();
        drop(inner);
        if let Some(writer) = writer {
            let run = WriterRun { queue: self.clone(), writer: Some(writer) };
            drop(self.runtime.spawn_blocking(|| run.work()));
        }
    }

    /// All that waits; if that is nothing, the writer is put to rest.
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
    /// The writer, if it is at rest.
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
    /// Whether it had to wait for slots.
    fn holds_slot(&self) -> bool {
        !matches!(self, Self::Expire)
    }
}

/// The writer at work, from a rest to the next.
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
    /// Without rest it ends when the runtime is shut down, or by a panic. What was taken is
    /// answered as far as it can be, and nothing is taken any more.
    fn drop(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        self.queue.slots.close();
        let mut inner = self.queue.locked();
        inner.writer = WriterState::Gone;
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        drop(writer);
        waiting.into_iter().for_each(|request| refuse(request, WriteFailure::closed())(None));
    }
}
