//! The one task that writes: it takes all that waits, and answers when the file has it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fleet_core::{Revision, Timestamp};
use tokio::sync::{mpsc, oneshot};

use super::disk::{Disk, Kept};
use crate::clock::Clock;
use crate::watch::Watchers;
use crate::{
    Changes, Commit, EndedLease, Keyspace, LeaseId, Listing, StoreError, Transaction, Watch,
};

/// Where an answer goes.
type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the writer is asked for.
#[derive(Debug)]
pub(super) enum Request {
    Commit(Transaction, Answer<Commit>),
    Grant(Duration, Answer<LeaseId>),
    Renew(LeaseId, Answer<()>),
    Revoke(LeaseId, Answer<()>),
}

/// What readers see: the state that the file has.
#[derive(Debug)]
pub(super) struct Shown {
    inner: Mutex<(Keyspace, Watchers)>,
}

/// What one write of the file makes durable.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) made: Vec<Changes>,
    pub(super) granted: Vec<(LeaseId, Duration)>,
    pub(super) ended: Vec<LeaseId>,
}

/// Gives an answer once it is known whether the file has what it speaks of.
type Owed = Box<dyn FnOnce(Option<&Failure>) + Send>;

pub(super) struct Writer {
    /// The state with all that was asked, a little ahead of what is shown. Values are shared with
    /// what is shown, so it costs little.
    keyspace: Keyspace,
    shown: Arc<Shown>,
    clock: Clock,
    queue: mpsc::Receiver<Request>,
    /// The file, or why it is of no more use.
    disk: Result<Disk, Failure>,
}

/// How many requests one write of the file may serve.
const MOST_AT_ONCE: usize = 256;

/// How much later than due the writer may come to end a lease. If it comes later, the disk or the
/// whole process was held up, so renewals could not be taken in time either: none ends then.
const LATE: Duration = Duration::from_secs(1);

impl Writer {
    pub(super) fn new(
        disk: Disk,
        kept: Kept,
        clock: Clock,
        queue: mpsc::Receiver<Request>,
    ) -> (Self, Arc<Shown>) {
        let mut ahead = Keyspace::restore(kept.revision, kept.last_lease, kept.entries);
        let shown = Mutex::new((ahead.clone(), Watchers::default()));
        let shown = Arc::new(Shown { inner: shown });
        for (lease, ttl) in kept.leases {
            ahead.restore_lease(clock.now(), lease, ttl);
        }
        let keyspace = ahead.with_history(0); // nobody watches this one
        (Self { keyspace, shown: shown.clone(), clock, queue, disk: Ok(disk) }, shown)
    }

    /// Works until the store is gone and all that was asked is done.
    pub(super) async fn run(mut self) {
        let mut requests = Vec::new();
        loop {
            // A store that cannot write must not end a lease either: nobody could be told.
            let expiry = self.disk.as_ref().ok().and_then(|_| self.keyspace.next_expiry());
            tokio::select! {
                taken = self.queue.recv_many(&mut requests, MOST_AT_ONCE) => if taken == 0 {
                    return;
                },
                () = self.clock.wait_until(expiry) => {}
            }
            self.serve(requests.drain(..)).await;
        }
    }

    async fn serve(&mut self, requests: impl Iterator<Item = Request>) {
        let now = self.clock.now();
        let mut batch = Batch::default();
        let mut owed = Vec::new();
        if self.disk.is_ok() {
            self.end_leases(now, &mut batch);
        }
        for request in requests {
            owed.push(self.apply(now, request, &mut batch));
        }
        self.make_durable(batch).await;
        let failure = self.disk.as_ref().err();
        owed.into_iter().for_each(|answer| answer(failure));
    }

    /// Ends the leases that nobody has renewed, although they could have.
    fn end_leases(&mut self, now: Timestamp, batch: &mut Batch) {
        if self.keyspace.next_expiry().is_some_and(|due| now.since(due) > LATE) {
            tracing::warn!("the store was held up: every lease has its whole time again");
            self.keyspace.renew_all(now);
        }
        self.keyspace.expire(now).into_iter().for_each(|ended| batch.end(ended));
    }

    /// Applies a request to the state ahead; its effect is noted in the batch.
    fn apply(&mut self, now: Timestamp, request: Request, batch: &mut Batch) -> Owed {
        if let Err(failure) = &self.disk {
            return refuse(request, failure.clone());
        }
        match request {
            Request::Commit(transaction, answer) => {
                let result = self.keyspace.apply(now, &transaction).map(|outcome| {
                    batch.made.extend(outcome.changes);
                    outcome.commit
                });
                owe(answer, result, Failure::unknown)
            }
            Request::Grant(ttl, answer) => {
                let lease = self.keyspace.grant(now, ttl);
                batch.granted.push((lease, ttl));
                owe(answer, Ok(lease), Failure::unavailable)
            }
            Request::Renew(lease, answer) => {
                owe(answer, self.keyspace.renew(now, lease), Failure::unavailable)
            }
            Request::Revoke(lease, answer) => {
                if let Some(ended) = self.keyspace.revoke(lease) {
                    batch.end(ended);
                }
                owe(answer, Ok(()), Failure::unavailable)
            }
        }
    }

    /// Writes the batch to the file, then shows it. If that fails, the file is given up.
    async fn make_durable(&mut self, batch: Batch) {
        if batch.is_empty() {
            return;
        }
        let Ok(mut disk) = std::mem::replace(&mut self.disk, Err(Failure::gone())) else {
            return;
        };
        let written = tokio::task::spawn_blocking(move || {
            let result = disk.write(&batch);
            (disk, batch, result)
        });
        self.disk = match written.await {
            Ok((disk, batch, Ok(()))) => {
                self.shown.show(&batch.made);
                Ok(disk)
            }
            Ok((_, _, Err(error))) => Err(Failure::new(error)),
            Err(error) => Err(Failure::new(Box::new(error))),
        };
        if let Err(failure) = &self.disk {
            let error = failure as &dyn std::error::Error;
            tracing::error!(error, "the store takes no more writes");
        }
    }
}

impl Batch {
    fn end(&mut self, ended: EndedLease) {
        self.ended.push(ended.lease);
        self.made.extend(ended.changes);
    }

    fn is_empty(&self) -> bool {
        self.made.is_empty() && self.granted.is_empty() && self.ended.is_empty()
    }
}

impl Shown {
    pub(super) fn read(&self, prefix: &str) -> Listing {
        self.locked(|(keyspace, _)| keyspace.read(prefix))
    }

    pub(super) fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        self.locked(|(keyspace, watchers)| {
            let backlog = keyspace.changes_after(after, prefix)?;
            Ok(watchers.add(prefix, backlog))
        })
    }

    fn show(&self, made: &[Changes]) {
        self.locked(|(keyspace, watchers)| {
            for changes in made {
                keyspace.absorb(changes);
                watchers.publish(changes);
            }
        });
    }

    fn locked<T>(&self, work: impl FnOnce(&mut (Keyspace, Watchers)) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The answer that is owed, unless the file fails first.
fn owe<T: Send + 'static>(
    answer: Answer<T>,
    result: Result<T, StoreError>,
    failed: fn(Failure) -> StoreError,
) -> Owed {
    Box::new(move |failure| {
        let result = match failure {
            Some(failure) => Err(failed(failure.clone())),
            None => result,
        };
        // Whoever asked may have stopped waiting.
        drop(answer.send(result));
    })
}

/// The answer to whatever is asked of a store that has failed before.
fn refuse(request: Request, failure: Failure) -> Owed {
    let unavailable = failure.unavailable();
    match request {
        Request::Commit(_, answer) => owe(answer, Err(unavailable), Failure::unavailable),
        Request::Grant(_, answer) => owe(answer, Err(unavailable), Failure::unavailable),
        Request::Renew(_, answer) | Request::Revoke(_, answer) => {
            owe(answer, Err(unavailable), Failure::unavailable)
        }
    }
}

/// Why the file is of no more use.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the store's file cannot be written: mend that, then restart the daemon")]
pub(super) struct Failure(#[source] Arc<dyn std::error::Error + Send + Sync>);

/// The writer is not there any more, for example because its runtime was shut down.
#[derive(Debug, thiserror::Error)]
#[error("the store was closed")]
struct Gone;

impl Failure {
    fn new(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self(error.into())
    }

    pub(super) fn gone() -> Self {
        Self(Arc::new(Gone))
    }

    pub(super) fn unavailable(self) -> StoreError {
        StoreError::Unavailable(Box::new(self))
    }

    pub(super) fn unknown(self) -> StoreError {
        StoreError::Unknown(Box::new(self))
    }
}
