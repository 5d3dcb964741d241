//! The writer: executes all waiting requests and responds once they are durable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fleet_core::Timestamp;
use tokio::sync::watch;

use super::disk::Disk;
use super::load::StoreImage;
use super::queue::{Queue, Request, Responder};
use super::readers::ReaderState;
use crate::clock::Clock;
use crate::{Changes, EndedLease, Keyspace, LeaseId, StoreError};

/// Changes that one write of the file makes durable.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) revisions: Vec<Changes>,
    pub(super) granted: Vec<(LeaseId, Duration)>,
    pub(super) ended: Vec<LeaseId>,
}

/// Sends a response once the file was written, or has failed.
pub(super) type DeferredResponse = Box<dyn FnOnce(Option<&WriteFailure>) + Send>;

#[derive(Debug)]
pub(super) struct Writer {
    /// State after all executed requests, including those that are not durable yet. Readers have
    /// their own keyspace with only the durable state. The two keyspaces share their values, so the
    /// second one costs little memory.
    keyspace: Keyspace,
    readers: Arc<ReaderState>,
    clock: Clock,
    /// End of the next lease, for [`wake_for_leases`].
    next_end: watch::Sender<Option<Timestamp>>,
    /// The file, or the error that made it unusable.
    disk: Result<Disk, WriteFailure>,
}

/// Maximum delay with which the writer still ends an expired lease. A longer delay means that the
/// disk or the process was stalled, so renewals were impossible. The writer then renews all leases
/// instead.
const MAX_EXPIRY_DELAY: Duration = Duration::from_secs(1);

/// Wakes the writer whenever a lease may have expired, while the writer exists.
pub(super) async fn wake_for_leases(
    clock: Clock,
    mut next_end: watch::Receiver<Option<Timestamp>>,
    queue: Weak<Queue>,
) {
    loop {
        let due = *next_end.borrow_and_update();
        tokio::select! {
            changed = next_end.changed() => if changed.is_err() { return },
            () = clock.wait_until(due) => {
                let Some(queue) = queue.upgrade() else { return };
                queue.submit_now(Request::Expire);
                drop(queue);
                // The writer ends the lease, or has just renewed it. Either way the next end
                // changes.
                if next_end.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Writer {
    pub(super) fn new(disk: Disk, image: StoreImage, clock: Clock) -> (Self, Arc<ReaderState>) {
        let mut ahead = Keyspace::restore(image.revision, image.last_lease, image.entries);
        let readers = Arc::new(ReaderState::new(ahead.clone()));
        for (lease, ttl) in image.leases {
            ahead.restore_lease(clock.now(), lease, ttl);
        }
        let keyspace = ahead.with_history(0); // this keyspace has no watches
        let next_end = watch::Sender::new(keyspace.next_expiry());
        (Self { keyspace, readers: readers.clone(), clock, next_end, disk: Ok(disk) }, readers)
    }

    /// Subscribes to the end of the next lease.
    pub(super) fn next_end(&self) -> watch::Receiver<Option<Timestamp>> {
        self.next_end.subscribe()
    }

    /// Executes requests with one write of the file.
    pub(super) fn serve(&mut self, requests: impl Iterator<Item = Request>) {
        let now = self.clock.now();
        let mut batch = Batch::default();
        let mut responses = Vec::new();
        if self.disk.is_ok() {
            self.end_leases(now, &mut batch);
        }
        let mut closes = false;
        for request in requests {
            closes |= matches!(request, Request::Close(_));
            responses.push(self.apply(now, request, &mut batch));
        }
        self.make_durable(batch);
        // A store that cannot write must not end leases: it could not publish that.
        let next_end = self.disk.as_ref().ok().and_then(|_| self.keyspace.next_expiry());
        self.next_end.send_if_modified(|end| std::mem::replace(end, next_end) != next_end);
        let failure = self.disk.as_ref().err().cloned();
        if closes {
            self.disk = Err(WriteFailure::closed());
        }
        responses.into_iter().for_each(|responder| responder(failure.as_ref()));
    }

    /// Ends the leases that were not renewed, unless renewals were impossible.
    fn end_leases(&mut self, now: Timestamp, batch: &mut Batch) {
        let delay = self.keyspace.next_expiry().map(|due| now.since(due));
        if let Some(delay) = delay.filter(|delay| *delay > MAX_EXPIRY_DELAY) {
            tracing::warn!(
                ?delay,
                "the store was stalled, so that no lease could be renewed: extended all leases"
            );
            self.keyspace.renew_all(now);
        }
        self.keyspace.expire(now).into_iter().for_each(|ended| batch.end(ended));
    }

    /// Executes a request on the writer's own state, and adds the resulting changes to the batch.
    fn apply(&mut self, now: Timestamp, request: Request, batch: &mut Batch) -> DeferredResponse {
        if let Err(failure) = &self.disk {
            return refuse(request, failure.clone());
        }
        match request {
            Request::Commit(transaction, responder) => {
                let result = self.keyspace.apply(now, &transaction).map(|outcome| {
                    batch.revisions.extend(outcome.changes);
                    outcome.commit
                });
                defer(responder, result, WriteFailure::unknown)
            }
            Request::Grant(ttl, responder) => {
                let lease = self.keyspace.grant(now, ttl);
                batch.granted.push((lease, ttl));
                defer(responder, Ok(lease), WriteFailure::unavailable)
            }
            Request::Renew(lease, responder) => {
                defer(responder, self.keyspace.renew(now, lease), WriteFailure::unavailable)
            }
            Request::Revoke(lease, responder) => {
                if let Some(ended) = self.keyspace.revoke(lease) {
                    batch.end(ended);
                }
                defer(responder, Ok(()), WriteFailure::unavailable)
            }
            Request::Expire => Box::new(|_| {}),
            Request::Close(responder) => defer(responder, Ok(()), WriteFailure::unavailable),
        }
    }

    /// Writes the batch to the file, and publishes it to the readers. After a failure, the writer
    /// never uses the file again.
    fn make_durable(&mut self, batch: Batch) {
        let Ok(disk) = &mut self.disk else { return };
        if batch.is_empty() {
            return;
        }
        // redb panics on some damaged files.
        let failure = match catch_unwind(AssertUnwindSafe(|| disk.write(&batch))) {
            Ok(Ok(())) => return self.readers.publish(batch.revisions),
            Ok(Err(error)) => WriteFailure::new(error),
            Err(_) => WriteFailure::new("the database library has panicked".into()),
        };
        let error = &failure as &dyn std::error::Error;
        tracing::error!(error, "cannot write the store: refusing all writes until fleetd restarts");
        self.disk = Err(failure);
    }
}

impl Batch {
    fn end(&mut self, ended: EndedLease) {
        self.ended.push(ended.lease);
        self.revisions.extend(ended.changes);
    }

    fn is_empty(&self) -> bool {
        self.revisions.is_empty() && self.granted.is_empty() && self.ended.is_empty()
    }
}

/// Creates a response that sends `result` after the file was written. If the write fails, the
/// response sends the error from `failed` instead.
fn defer<T: Send + 'static>(
    responder: Responder<T>,
    result: Result<T, StoreError>,
    failed: fn(WriteFailure) -> StoreError,
) -> DeferredResponse {
    Box::new(move |failure| {
        let result = match failure {
            Some(failure) => Err(failed(failure.clone())),
            None => result,
        };
        // The caller may have stopped waiting.
        drop(responder.send(result));
    })
}

/// Creates the response to a request to a failed store.
pub(super) fn refuse(request: Request, failure: WriteFailure) -> DeferredResponse {
    let unavailable = failure.unavailable();
    match request {
        Request::Commit(_, responder) => {
            defer(responder, Err(unavailable), WriteFailure::unavailable)
        }
        Request::Grant(_, responder) => {
            defer(responder, Err(unavailable), WriteFailure::unavailable)
        }
        Request::Renew(_, responder) | Request::Revoke(_, responder) => {
            defer(responder, Err(unavailable), WriteFailure::unavailable)
        }
        Request::Expire => Box::new(|_| {}),
        Request::Close(responder) => defer(responder, Ok(()), WriteFailure::unavailable),
    }
}

/// Reason why the writer accepts no more writes.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum WriteFailure {
    /// An error made the file unusable.
    #[error("the store's file cannot be written: correct the cause, then restart fleetd")]
    Failed(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// The writer is gone, for example because its runtime was shut down.
    #[error("the store was closed")]
    Closed,
}

impl WriteFailure {
    fn new(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self::Failed(error.into())
    }

    pub(super) fn closed() -> Self {
        Self::Closed
    }

    pub(super) fn unavailable(self) -> StoreError {
        StoreError::Unavailable(Box::new(self))
    }

    pub(super) fn unknown(self) -> StoreError {
        StoreError::Unknown(Box::new(self))
    }
}
