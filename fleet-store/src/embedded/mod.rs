//! A durable store for one process, in one file.

mod backup;
mod disk;
mod load;
mod queue;
mod readers;
mod salvage;
#[cfg(test)]
mod tests;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::Revision;
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::{Commit, LeaseId, Listing, Store, StoreError, Transaction, Watch};
use disk::Disk;
use load::{PathOpener, WriteFailure};
use queue::{Queue, Request};
use readers::ReaderState;
pub use salvage::Salvage;
use writer::{Writer, wake_writer};

/// A [`Store`] in one file, without a server. Acknowledged writes survive loss of power.
///
/// Only one process can have the file open. The whole store is also in memory, from where reads are
/// served.
///
/// One thread performs the writes, and runs only while requests are waiting. It takes all waiting
/// requests, applies them in order, and makes them durable with a single write of the file. Only
/// then does it publish and acknowledge them. This batching makes many concurrent writers little
/// more expensive than one.
///
/// Leases are durable. When the store is opened again, each lease has its full time to live. The
/// history of changes is not durable, so a watch from a revision before the opening fails with
/// [`StoreError::Compacted`].
///
/// A slow disk or a stopped process can stall the store itself, so that no lease can be renewed.
/// After such a stall, all leases get their full time to live again instead of ending.
///
/// If a write of the file fails, for example because the disk is full, the store opens the file
/// again at once. If that succeeds, the commits in progress have failed without effect. Otherwise
/// they fail with [`StoreError::Unknown`], and the store goes offline: all requests, reads and
/// watches fail with [`StoreError::Unavailable`], and no lease ends. The store tries to open the
/// file every few seconds, and continues once it can be written again.
#[derive(Debug)]
pub struct EmbeddedStore {
    readers: Arc<ReaderState>,
    queue: Arc<Queue>,
}

impl EmbeddedStore {
    /// Opens the store in the file at `path`, or creates an empty one if the file does not exist.
    /// The directory must exist. While the store is being created, its file has the suffix `.new`.
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`] when another process has the file open; [`StoreError::Format`] when
    /// the file is damaged, or not a store in a supported format; [`StoreError::Unavailable`] when
    /// the file cannot be read or created. A full disk is no error: the store is offline until
    /// there is space.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref().to_owned();
        let opened = tokio::task::spawn_blocking({
            let path = path.clone();
            move || Disk::open(&path)
        });
        let (clock, opener) = (Clock::start(), Box::new(PathOpener(path.clone())));
        // redb panics on some damaged files.
        match opened.await.map_err(|_| damaged(&path))? {
            Ok((disk, image)) => Ok(Self::start(Writer::new(disk, image, clock, opener), clock)),
            Err(error) if error.is_full_disk() => {
                let failure = WriteFailure::from_opening(error.at(&path));
                let error = &failure as &dyn std::error::Error;
                tracing::error!(error, "the store is offline: its disk is full");
                Ok(Self::start(Writer::offline(failure, clock, opener), clock))
            }
            Err(error) => Err(error.at(&path)),
        }
    }

    /// Starts a store with this writer.
    fn start((writer, readers): (Writer, Arc<ReaderState>), clock: Clock) -> Self {
        let wakes = writer.wakes();
        let queue = Queue::new(writer);
        tokio::spawn(wake_writer(clock, wakes, Arc::downgrade(&queue)));
        Self { readers, queue }
    }

    /// Completes all submitted requests and closes the file, so that it can be opened again.
    /// Dropping the store has the same effect, but does not wait: while a write is running, the
    /// file stays open.
    pub async fn close(self) {
        let (closed, wait) = oneshot::channel();
        let submitted = self.queue.submit(Request::Close(closed)).await;
        // Without a response the writer is gone, and the file is closed already.
        drop((submitted, wait.await));
    }

    /// Submits a request to the writer and waits for the response.
    async fn request<T: Send>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Request + Send,
        no_response: fn(WriteFailure) -> StoreError,
    ) -> Result<T, StoreError> {
        let (responder, response) = oneshot::channel();
        self.queue.submit(request(responder)).await.map_err(WriteFailure::unavailable)?;
        response.await.map_err(|_| no_response(WriteFailure::Closed))?
    }
}

fn damaged(path: &Path) -> StoreError {
    let path = PathBuf::from(path);
    StoreError::Format(format!(
        "{file} is damaged: move the file away, and import a backup with \"fleetctl import \
         --config\"; without a backup, save the readable part of the file with \"fleetctl export \
         --salvage {file} export.jsonl\" and import that",
        file = path.display()
    ))
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.readers.read(prefix)
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        self.request(|responder| Request::Commit(transaction, responder), WriteFailure::unknown)
            .await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        self.readers.watch(prefix, after)
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.request(|responder| Request::Grant(ttl, responder), WriteFailure::unavailable).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.request(|responder| Request::Renew(lease, responder), WriteFailure::unavailable).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.request(|responder| Request::Revoke(lease, responder), WriteFailure::unavailable).await
    }
}
