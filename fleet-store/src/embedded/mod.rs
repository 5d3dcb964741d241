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

/// A [`Store`] in one file, without a server: what was acknowledged survives the loss of power.
///
/// One process may have the file open. All of the store is held in memory, too, and reads are
/// served from there. Writes go to one thread, which works while there are any: it takes all that
/// wait, applies them in order, makes them durable by one write of the file, and only then shows
/// and acknowledges them. So many writers at once cost little more than one.
///
/// Leases are durable, and each has its whole time to live again when the store is opened. The
/// changes of the past are not: a watch from before the opening is refused as
/// [`StoreError::Compacted`].
///
/// A store that is held up itself, by a slow disk or because the process was stopped, ends no lease
/// for that: whoever could not renew one in that time has its whole time again.
///
/// When the file cannot be written, the writes under way end as [`StoreError::Unknown`], and all
/// later ones as [`StoreError::Unavailable`] until the store is opened anew; leases do not end
/// meanwhile. Reads go on, and show what was in the file before; a write that ended as unknown may
/// be there when it is opened anew.
#[derive(Debug)]
pub struct EmbeddedStore {
    readers: Arc<ReaderState>,
    queue: Arc<Queue>,
}

impl EmbeddedStore {
    /// Opens the store in the file at `path`, or makes an empty one if there is no such file. The
    /// directory must exist. While making it, a file of that name with `.new` appended is used.
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`] when another process has it open; [`StoreError::Format`] when the file
    /// is damaged, or no store of a format that this version reads; [`StoreError::Unavailable`]
    /// when the file cannot be read or revisions.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref().to_owned();
        let opened = tokio::task::spawn_blocking({
            let path = path.clone();
            move || Disk::open(&path)
        });
        // What the file's library takes for impossible, it answers with a panic.
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

    /// Finishes what was asked, and gives the file free for the next to open it. Dropping the store
    /// does the same, a little later if it is being written.
    pub async fn close(self) {
        let (closed, wait) = oneshot::channel();
        let asked = self.queue.submit(Request::Close(closed)).await;
        // If nobody answers, the writer is gone, and the file is free already.
        drop((asked, wait.await));
    }

    /// Has the writer do something, and waits for its answer.
    async fn request<T: Send>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Request + Send,
        unanswered: fn(WriteFailure) -> StoreError,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.queue.submit(request(answer)).await.map_err(WriteFailure::unavailable)?;
        answered.await.map_err(|_| unanswered(WriteFailure::closed()))?
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
        self.request(|answer| Request::Commit(transaction, answer), WriteFailure::unknown).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        self.readers.watch(prefix, after)
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.request(|answer| Request::Grant(ttl, answer), WriteFailure::unavailable).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.request(|answer| Request::Renew(lease, answer), WriteFailure::unavailable).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.request(|answer| Request::Revoke(lease, answer), WriteFailure::unavailable).await
    }
}
