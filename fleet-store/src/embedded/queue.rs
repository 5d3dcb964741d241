//! Where requests wait for the writer, and where the writer is while nothing waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use super::writer::{Failure, Writer, refuse};
use crate::{Commit, LeaseId, StoreError, Transaction};

/// Where an answer goes.
pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the writer is asked for.
#[derive(Debug)]
pub(super) enum Request {
    Commit(Transaction, Answer<Commit>),
    Grant(Duration, Answer<LeaseId>),
    Renew(LeaseId, Answer<()>),
    Revoke(LeaseId, Answer<()>),
    /// A lease may be over, which the writer finds out whatever it is asked for.
    Expire,
    /// The file is to be given free. Answered when it is.
    Close(Answer<()>),
}

/// The requests that wait, at most [`MOST_WAITING`], and the writer.
///
/// The writer works on a thread for what waits for a disk, and only while there is something to do.
/// So a request takes one way to another thread and one back, whatever the runtime is busy with,
/// and a clock that a test has stopped does not run ahead of the disk.
#[derive(Debug)]
pub(super) struct Queue {
    runtime: Handle,
    room: Semaphore,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    waiting: Vec<Request>,
    writer: Whereabouts,
}

#[derive(Debug)]
enum Whereabouts {
    Resting(Box<Writer>),
    /// It will look at what waits before it rests.
    Working,
    /// It is not there any more, for example because its runtime was shut down.
    Gone,
}

/// How many requests may wait for the writer; a caller beyond that waits for its turn.
const MOST_WAITING: usize = 1024;

impl Queue {
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub(super) fn new(writer: Writer) -> Arc<Self> {
        let writer = Whereabouts::Resting(Box::new(writer));
        Arc::new(Self {
            runtime: Handle::current(),
            room: Semaphore::new(MOST_WAITING),
            inner: Mutex::new(Inner { waiting: Vec::new(), writer }),
        })
    }

    /// Has a request done as soon as there is room for it; once it has its place, it is done
    /// whether or not somebody waits for the answer. Fails when the writer is gone.
    pub(super) async fn put(self: &Arc<Self>, request: Request) -> Result<(), Failure> {
        let place = self.room.acquire().await.map_err(|_| Failure::gone())?;
        place.forget(); // until it is taken
        self.put_at_once(request);
        Ok(())
    }

    /// Has a request done, whether there is room for it or not.
    pub(super) fn put_at_once(self: &Arc<Self>, request: Request) {
        let mut inner = self.locked();
        if matches!(inner.writer, Whereabouts::Gone) {
            drop(inner);
            return refuse(request, Failure::gone())(None);
        }
        inner.waiting.push(request);
        let writer = inner.writer.set_to_work();
        drop(inner);
        if let Some(writer) = writer {
            let turn = Turn { queue: self.clone(), writer: Some(writer) };
            drop(self.runtime.spawn_blocking(|| turn.work()));
        }
    }

    /// All that waits; if that is nothing, the writer is put to rest.
    fn take(&self, requests: &mut Vec<Request>, writer: &mut Option<Box<Writer>>) {
        let mut inner = self.locked();
        std::mem::swap(&mut inner.waiting, requests);
        if requests.is_empty()
            && let Some(writer) = writer.take()
        {
            inner.writer = Whereabouts::Resting(writer);
        }
        drop(inner);
        let placed = requests.iter().filter(|request| request.has_place());
        self.room.add_permits(placed.count());
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Whereabouts {
    /// The writer, if it is at rest.
    fn set_to_work(&mut self) -> Option<Box<Writer>> {
        match std::mem::replace(self, Self::Working) {
            Self::Resting(writer) => Some(writer),
            other => {
                *self = other;
                None
            }
        }
    }
}

impl Request {
    /// Whether it had to wait for room.
    fn has_place(&self) -> bool {
        !matches!(self, Self::Expire)
    }
}

/// The writer at work, from a rest to the next.
struct Turn {
    queue: Arc<Queue>,
    writer: Option<Box<Writer>>,
}

impl Turn {
    fn work(mut self) {
        let mut requests = Vec::new();
        loop {
            self.queue.take(&mut requests, &mut self.writer);
            let Some(writer) = &mut self.writer else { return };
            writer.serve(requests.drain(..));
        }
    }
}

impl Drop for Turn {
    /// Without rest it ends when the runtime is shut down, or by a panic. What was taken is
    /// answered as far as it can be, and nothing is taken any more.
    fn drop(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        self.queue.room.close();
        let mut inner = self.queue.locked();
        inner.writer = Whereabouts::Gone;
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        drop(writer);
        waiting.into_iter().for_each(|request| refuse(request, Failure::gone())(None));
    }
}
