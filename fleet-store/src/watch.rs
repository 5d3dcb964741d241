//! Watches: streams of a store's changes, revision by revision, each for one reader.

use std::collections::VecDeque;
use std::sync::Arc;

use fleet_core::Revision;
use tokio::sync::mpsc;

use crate::{LeaseId, StoreError};

/// All changes of one revision under the prefix of a watch.
///
/// A backend may send a revision without changes to report its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The revision.
    pub revision: Revision,
    /// Changes in key order.
    pub changes: Vec<KeyChange>,
}

/// Change of one key in a revision. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// The key.
    pub key: Arc<str>,
    /// New value, or `None` if the key was deleted.
    pub value: Option<Arc<[u8]>>,
    /// Lease that the key is now bound to, if any.
    pub lease: Option<LeaseId>,
}

impl Changes {
    /// Returns the changes of keys that start with `prefix`, or `None` if no key does.
    #[must_use]
    pub fn under(&self, prefix: &str) -> Option<Self> {
        let under = self.changes.iter().filter(|change| change.key.starts_with(prefix));
        let changes: Vec<KeyChange> = under.cloned().collect();
        (!changes.is_empty()).then_some(Self { revision: self.revision, changes })
    }
}

/// Stream of changes that ends with an error if it cannot continue, and never just falls silent.
#[derive(Debug)]
pub struct Watch {
    /// Past changes that are still to be delivered.
    backlog: VecDeque<Changes>,
    receiver: mpsc::Receiver<Changes>,
}

/// Sending half of a [`Watch`], held by the backend.
#[derive(Debug)]
pub struct WatchSender {
    /// Channel to the watch. `None` once the watch is cut off. Otherwise changes sent after the cut
    /// could reach the reader, which would not notice that earlier ones are missing.
    sender: Option<mpsc::Sender<Changes>>,
}

impl Watch {
    /// Creates a watch and its sender. The watch buffers at most `capacity` revisions, and at least
    /// one.
    ///
    /// ```
    /// use fleet_core::Revision;
    /// use fleet_store::{Changes, StoreError, Watch};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), StoreError> {
    /// let (mut sender, mut watch) = Watch::channel(1);
    /// assert!(sender.try_send(Changes { revision: Revision(1), changes: Vec::new() }));
    /// // The reader is slow, so it is cut off: it gets what it had, then the error.
    /// assert!(!sender.try_send(Changes { revision: Revision(2), changes: Vec::new() }));
    /// assert_eq!(watch.next().await?.revision, Revision(1));
    /// assert!(matches!(watch.next().await, Err(StoreError::WatchLost)));
    /// # Ok(())
    /// # }
    /// ```
    /// `capacity` is the number of revisions by which the reader may lag behind; the stores of this
    /// crate use 1024.
    #[must_use]
    pub fn channel(capacity: usize) -> (WatchSender, Self) {
        Self::with_backlog(Vec::new(), capacity)
    }

    /// Like [`channel`](Self::channel), but the watch first delivers `backlog`, which contains the
    /// changes from the watch's start revision until now. The backlog does not use up the capacity.
    #[must_use]
    pub fn with_backlog(backlog: Vec<Changes>, capacity: usize) -> (WatchSender, Self) {
        let (sender, receiver) = mpsc::channel(capacity.max(1));
        (WatchSender { sender: Some(sender) }, Self { backlog: backlog.into(), receiver })
    }

    /// Waits for the next revision with changes under the watch's prefix. Some backends also return
    /// revisions without changes, to report progress.
    ///
    /// Cancel-safe: dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::WatchLost`] when the watch cannot continue. By then, the watch has delivered
    /// everything before the gap. All later calls return the same error.
    pub async fn next(&mut self) -> Result<Changes, StoreError> {
        if let Some(changes) = self.backlog.pop_front() {
            return Ok(changes);
        }
        self.receiver.recv().await.ok_or(StoreError::WatchLost)
    }
}

impl WatchSender {
    /// Sends changes without waiting. Returns `false` if the reader is gone, or if the reader is
    /// too slow and was therefore cut off. After that, the sender cannot be used any more. Dropping
    /// a sender also cuts off its watch.
    #[must_use = "a watch that was cut off is to be dropped"]
    pub fn try_send(&mut self, changes: Changes) -> bool {
        let Some(sender) = &self.sender else {
            return false;
        };
        let sent = sender.try_send(changes).is_ok();
        if !sent {
            self.sender = None;
        }
        sent
    }

    /// Sends changes, and waits while the buffer is full. Returns `false` if the reader is gone or
    /// cut off. Waiting is meant for backends with a server that keeps the changes for a slow
    /// reader.
    #[must_use = "a watch that was cut off is to be dropped"]
    pub async fn send(&mut self, changes: Changes) -> bool {
        match &self.sender {
            Some(sender) => sender.send(changes).await.is_ok(),
            None => false,
        }
    }

    /// Returns whether the reader is gone or cut off.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.sender.as_ref().is_none_or(mpsc::Sender::is_closed)
    }

    /// Waits until the reader is gone. Returns immediately if it was cut off.
    pub async fn closed(&self) {
        if let Some(sender) = &self.sender {
            sender.closed().await;
        }
    }
}

/// Watches of an in-process store.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    watchers: Vec<(String, WatchSender)>,
}

impl Watchers {
    /// Maximum number of revisions by which a reader may lag behind before its watch is cut off.
    const CAPACITY: usize = 1024;

    /// Adds a watch that delivers `backlog`, then everything published from now on.
    pub(crate) fn add(&mut self, prefix: &str, backlog: Vec<Changes>) -> Watch {
        self.watchers.retain(|(_, sender)| !sender.is_closed());
        let (sender, watch) = Watch::with_backlog(backlog, Self::CAPACITY);
        self.watchers.push((prefix.to_owned(), sender));
        watch
    }

    /// Sends each watch those changes of a revision that match its prefix.
    pub(crate) fn publish(&mut self, changes: &Changes) {
        self.watchers.retain_mut(|(prefix, sender)| match changes.under(prefix) {
            Some(under) => sender.try_send(under),
            None => !sender.is_closed(),
        });
    }
}
