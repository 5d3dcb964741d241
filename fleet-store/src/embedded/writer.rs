//! The writer: executes all waiting requests and responds once they are durable.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fleet_core::{Revision, Timestamp};
use tokio::sync::watch;

use super::disk::Disk;
use super::load::{BatchFailure, DiskState, Offline, Opener, StoreImage, WriteFailure, reopen};
use super::queue::{Queue, Request, Responder};
use super::readers::ReaderState;
use crate::backend::{EndedLease, Keyspace};
use crate::clock::Clock;
use crate::{Changes, KeyChange, LeaseId, StoreError};

/// Changes that one write of the file makes durable.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) revisions: Vec<Changes>,
    pub(super) granted: Vec<(LeaseId, Duration)>,
    pub(super) ended: Vec<LeaseId>,
}

/// Sends a response once the file was written, or has failed.
pub(super) type DeferredResponse = Box<dyn FnOnce(Result<(), &BatchFailure>) + Send>;

#[derive(Debug)]
pub(super) struct Writer {
    /// State after all executed requests, including those that are not durable yet. Readers have
    /// their own keyspace with only the durable state. The two keyspaces share their values, so the
    /// second one costs little memory.
    keyspace: Keyspace,
    readers: Arc<ReaderState>,
    clock: Clock,
    /// End of the next lease, or time of the next attempt to open the file, for [`wake_writer`].
    next_wake: watch::Sender<Option<Timestamp>>,
    disk: DiskState,
    opener: Box<dyn Opener>,
}

/// Maximum delay with which the writer still ends an expired lease. A longer delay means that the
/// disk or the process was stalled, so renewals were impossible. The writer then renews all leases
/// instead.
const MAX_EXPIRY_DELAY: Duration = Duration::from_secs(1);

/// Wakes the writer whenever a lease may have expired or a retry is due, while the writer exists.
pub(super) async fn wake_writer(
    clock: Clock,
    mut next_wake: watch::Receiver<Option<Timestamp>>,
    queue: Weak<Queue>,
) {
    loop {
        let due = *next_wake.borrow_and_update();
        tokio::select! {
            changed = next_wake.changed() => if changed.is_err() { return },
            () = clock.wait_until(due) => {
                let Some(queue) = queue.upgrade() else { return };
                queue.submit_now(Request::Wake);
                drop(queue);
                // The writer ends the lease, renews it, or retries. Each changes the next time.
                if next_wake.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Writer {
    /// Creates the writer of an open file.
    pub(super) fn new(
        disk: Disk,
        image: StoreImage,
        clock: Clock,
        opener: Box<dyn Opener>,
    ) -> (Self, Arc<ReaderState>) {
        let mut writer = Self::closed(clock, opener);
        writer.load(disk, image);
        let readers = writer.readers.clone();
        (writer, readers)
    }

    /// Creates the writer of a file that cannot be opened at present.
    pub(super) fn offline(
        failure: WriteFailure,
        clock: Clock,
        opener: Box<dyn Opener>,
    ) -> (Self, Arc<ReaderState>) {
        let mut writer = Self::closed(clock, opener);
        writer.readers.go_offline(failure.clone());
        writer.disk = DiskState::Offline(Offline::new(failure, None, clock.now()));
        writer.next_wake.send_replace(writer.next_wake());
        let readers = writer.readers.clone();
        (writer, readers)
    }

    fn closed(clock: Clock, opener: Box<dyn Opener>) -> Self {
        let readers = Arc::new(ReaderState::new(Keyspace::new()));
        let (next_wake, disk) = (watch::Sender::new(None), DiskState::Closed);
        Self { keyspace: Keyspace::new(), readers, clock, next_wake, disk, opener }
    }

    /// Uses an open file that was not read before.
    fn load(&mut self, disk: Disk, image: StoreImage) {
        let entries = image.entries.clone();
        self.readers.load(Keyspace::restore(image.revision, image.last_lease, entries));
        self.restore(disk, image);
        self.next_wake.send_replace(self.next_wake());
    }

    /// Sets the writer's own state to that of the file. Each lease gets its full time to live.
    fn restore(&mut self, disk: Disk, image: StoreImage) {
        let mut keyspace = Keyspace::restore(image.revision, image.last_lease, image.entries);
        for (lease, ttl) in image.leases {
            keyspace.restore_lease(self.clock.now(), lease, ttl);
        }
        self.keyspace = keyspace.with_history(0); // this keyspace has no watches
        self.disk = DiskState::Open(disk);
    }

    /// Subscribes to the time at which the writer needs to be woken.
    pub(super) fn wakes(&self) -> watch::Receiver<Option<Timestamp>> {
        self.next_wake.subscribe()
    }

    fn next_wake(&self) -> Option<Timestamp> {
        match &self.disk {
            DiskState::Open(_) => self.keyspace.next_expiry(),
            // A store that cannot write must not end leases: it could not publish that.
            DiskState::Offline(offline) => Some(offline.retry_at),
            DiskState::Closed => None,
        }
    }

    /// Executes requests with one write of the file.
    pub(super) fn serve(&mut self, requests: impl Iterator<Item = Request>) {
        let now = self.clock.now();
        self.retry_if_due(now);
        let mut batch = Batch::default();
        let mut responses = Vec::new();
        if matches!(self.disk, DiskState::Open(_)) {
            self.end_leases(now, &mut batch);
        }
        let mut closes = false;
        for request in requests {
            closes |= matches!(request, Request::Close(_));
            responses.push(self.apply(now, request, &mut batch));
        }
        let result = self.make_durable(batch, now);
        if closes {
            self.disk = DiskState::Closed;
        }
        let next_wake = self.next_wake();
        self.next_wake.send_if_modified(|wake| std::mem::replace(wake, next_wake) != next_wake);
        responses.into_iter().for_each(|responder| responder(result.as_ref().copied()));
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
        if let Some(failure) = self.disk.failure() {
            return refuse(request, failure);
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
            Request::Wake => Box::new(|_| {}),
            Request::Close(responder) => defer(responder, Ok(()), WriteFailure::unavailable),
        }
    }

    /// Writes the batch to the file, and publishes it to the readers. After a failure, opens the
    /// file again to find out whether the batch is in it.
    fn make_durable(&mut self, batch: Batch, now: Timestamp) -> Result<(), BatchFailure> {
        let DiskState::Open(disk) = &mut self.disk else { return Ok(()) }; // all were refused
        if batch.is_empty() {
            return Ok(());
        }
        // redb panics on some damaged files.
        let failure = match catch_unwind(AssertUnwindSafe(|| disk.write(&batch))) {
            Ok(Ok(())) => {
                self.readers.publish(batch.revisions);
                return Ok(());
            }
            Ok(Err(error)) => WriteFailure::new(error),
            Err(_) => WriteFailure::new("the database library has panicked".into()),
        };
        let error = &failure as &dyn std::error::Error;
        tracing::error!(error, "a write of the store failed: opening its file again");
        // Closes the file, so that it can be opened again.
        self.disk = DiskState::Offline(Offline::new(failure.clone(), Some(batch), now));
        match self.reopen(now) {
            Some(true) => Ok(()),
            Some(false) => Err(BatchFailure::NotWritten(failure)),
            None => Err(BatchFailure::Unknown(failure)),
        }
    }

    /// Opens the file again if it is time for that.
    fn retry_if_due(&mut self, now: Timestamp) {
        if matches!(&self.disk, DiskState::Offline(offline) if offline.retry_at <= now) {
            self.reopen(now);
        }
    }

    /// Tries to open the file of an offline store. On success, the store is online again, and the
    /// result says whether the file contains the batch whose write had failed.
    fn reopen(&mut self, now: Timestamp) -> Option<bool> {
        let DiskState::Offline(offline) = &mut self.disk else { return None };
        match reopen(&*self.opener, offline.lost.as_ref(), self.readers.revision()) {
            Ok((disk, image)) => {
                let lost = offline.lost.take();
                let is_written = lost.as_ref().is_some_and(|lost| image.contains(lost));
                match lost {
                    None => self.load(disk, image),
                    Some(lost) => {
                        self.restore(disk, image);
                        self.readers.go_online(if is_written {
                            lost.revisions
                        } else {
                            Vec::new()
                        });
                    }
                }
                tracing::info!("the store's file can be written again");
                Some(is_written)
            }
            Err(failure) => {
                let error = &failure as &dyn std::error::Error;
                tracing::warn!(error, "the store is offline");
                self.readers.go_offline(failure.clone());
                offline.postpone(failure, now);
                None
            }
        }
    }
}

impl Batch {
    fn end(&mut self, ended: EndedLease) {
        self.ended.push(ended.lease);
        self.revisions.extend(ended.changes);
    }

    /// Returns the last revision of the batch, if it changes any key.
    pub(super) fn last_revision(&self) -> Option<Revision> {
        self.revisions.last().map(|changes| changes.revision)
    }

    /// Returns the last change of each key with its revision.
    pub(super) fn last_changes(&self) -> BTreeMap<&str, (Revision, &KeyChange)> {
        let changes = self.revisions.iter().flat_map(|Changes { revision, changes }| {
            changes.iter().map(|change| (&*change.key, (*revision, change)))
        });
        changes.collect()
    }

    fn is_empty(&self) -> bool {
        self.revisions.is_empty() && self.granted.is_empty() && self.ended.is_empty()
    }
}

/// Creates a response that sends `result` after the file was written. If it is unknown whether the
/// file was written, the response sends the error from `unknown` instead.
fn defer<T: Send + 'static>(
    responder: Responder<T>,
    result: Result<T, StoreError>,
    unknown: fn(WriteFailure) -> StoreError,
) -> DeferredResponse {
    Box::new(move |written| {
        let result = match written {
            Ok(()) => result,
            Err(BatchFailure::NotWritten(failure)) => Err(failure.clone().unavailable()),
            Err(BatchFailure::Unknown(failure)) => Err(unknown(failure.clone())),
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
        Request::Wake => Box::new(|_| {}),
        Request::Close(responder) => defer(responder, Ok(()), WriteFailure::unavailable),
    }
}
