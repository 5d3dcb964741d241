//! A durable store for one process, in one file.

mod backup;
mod disk;
mod error;
mod load;
mod log;
mod queue;
mod readers;
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
use load::StoreImage;
use queue::{Queue, Request};
use readers::ReaderState;
use writer::{WriteFailure, Writer, wake_for_leases};

/// A [`Store`] in one file, without a server. Acknowledged writes survive loss of power.
///
/// Only one process can have the file open. The whole store is also kept in memory, and reads are
/// served from memory. One thread performs the writes; it runs only while requests are waiting. It
/// takes all waiting requests, applies them in order, and makes them durable with one write of the
/// file. Then it publishes and acknowledges them. So many concurrent writers cost little more than
/// one.
///
/// Leases are durable. When the store is opened again, each lease has its full time to live. The
/// history of changes is not durable, so a watch from a revision before the opening fails with
/// [`StoreError::Compacted`].
///
/// A slow disk or a stopped process can delay the store itself. Such a delay ends no leases. All
/// leases get their full time to live again, because renewals were impossible during the delay.
///
/// If the file cannot be written, the current writes fail with [`StoreError::Unknown`]. All later
/// writes fail with [`StoreError::Unavailable`] until the store is opened again, and no lease ends
/// during that time. Reads continue and return the last durable state. After the store is opened
/// again, a write that failed as unknown may be present or absent.
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
    /// the file cannot be read or created.
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
        // redb panics on some damaged files.
        let (disk, image) = opened.await.map_err(|_| damaged(&path))??;
        Ok(Self::from_disk(disk, image))
    }

    fn from_disk(disk: Disk, image: StoreImage) -> Self {
        let clock = Clock::start();
        let (writer, readers) = Writer::new(disk, image, clock);
        let next_end = writer.next_end();
        let queue = Queue::new(writer);
        tokio::spawn(wake_for_leases(clock, next_end, Arc::downgrade(&queue)));
        Self { readers, queue }
    }

    /// Completes all submitted requests, and then closes the file, so that it can be opened again.
    /// Dropping the store does the same, but the file may close later if a write is running.
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
        response.await.map_err(|_| no_response(WriteFailure::closed()))?
    }
}

fn damaged(path: &Path) -> StoreError {
    let path = PathBuf::from(path);
    StoreError::Format(format!(
        "{} is damaged: restore a backup of it, or move it away to begin with an empty store",
        path.display()
    ))
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        Ok(self.readers.read(prefix))
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
