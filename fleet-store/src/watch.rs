//! Watches: the changes of a store, revision by revision, to one reader each.

use std::collections::VecDeque;
use std::sync::Arc;

use fleet_core::Revision;
use tokio::sync::mpsc;

use crate::{LeaseId, StoreError};

/// All changes that one revision made under the prefix of a watch.
///
/// A backend may send one without changes to tell how far the store has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The revision.
    pub revision: Revision,
    /// What it changed, in order of the keys.
    pub changes: Vec<KeyChange>,
}

/// What a revision made of one key. Cloning is cheap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// The key.
    pub key: Arc<str>,
    /// Its value, or nothing if it was deleted.
    pub value: Option<Arc<[u8]>>,
    /// The lease that it is now bound to, if any.
    pub lease: Option<LeaseId>,
}

impl Changes {
    /// Those of the changes whose keys start with `prefix`; nothing if there are none.
    #[must_use]
    pub fn under(&self, prefix: &str) -> Option<Self> {
        let under = self.changes.iter().filter(|change| change.key.starts_with(prefix));
        let changes: Vec<KeyChange> = under.cloned().collect();
        (!changes.is_empty()).then_some(Self { revision: self.revision, changes })
    }
}

/// A stream of changes that never falls silent: it ends with an error.
#[derive(Debug)]
pub struct Watch {
    /// What had happened before the watch began, still to be delivered.
    backlog: VecDeque<Changes>,
    receiver: mpsc::Receiver<Changes>,
}

/// The backend's end of a [`Watch`].
#[derive(Debug)]
pub struct WatchSender {
    /// Nothing once the watch was cut off, so that nothing can follow a gap.
    sender: Option<mpsc::Sender<Changes>>,
}

impl Watch {
    /// A watch, and the end to feed it from, that holds at most `capacity` revisions (at least one)
    /// which its reader has not taken.
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
    #[must_use]
    pub fn channel(capacity: usize) -> (WatchSender, Self) {
        Self::with_backlog(Vec::new(), capacity)
    }

    /// Like [`channel`](Self::channel), for a watch that first delivers `backlog`: the changes
    /// between the revision that it starts from and now. They do not count towards the capacity.
    #[must_use]
    pub fn with_backlog(backlog: Vec<Changes>, capacity: usize) -> (WatchSender, Self) {
        let (sender, receiver) = mpsc::channel(capacity.max(1));
        (WatchSender { sender: Some(sender) }, Self { backlog: backlog.into(), receiver })
    }

    /// Waits for the next revision that changed something under the watch's prefix.
    ///
    /// May be dropped before it is done without losing anything.
    ///
    /// # Errors
    ///
    /// [`StoreError::WatchLost`] when the watch cannot go on; all that came before the gap has been
    /// delivered then. It stays so.
    pub async fn next(&mut self) -> Result<Changes, StoreError> {
        if let Some(changes) = self.backlog.pop_front() {
            return Ok(changes);
        }
        self.receiver.recv().await.ok_or(StoreError::WatchLost)
    }
}

impl WatchSender {
    /// Hands changes over without waiting. False when the reader is gone, or is too slow and has
    /// been cut off: then the sender is of no more use. Dropping a sender cuts its watch off, too.
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

    /// Hands changes over, and waits where there is no room: for a backend whose server keeps what
    /// a slow reader has not taken yet. False when the reader is gone or was cut off.
    #[must_use = "a watch that was cut off is to be dropped"]
    pub async fn send(&mut self, changes: Changes) -> bool {
        match &self.sender {
            Some(sender) => sender.send(changes).await.is_ok(),
            None => false,
        }
    }

    /// Whether the reader is gone or was cut off.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.sender.as_ref().is_none_or(mpsc::Sender::is_closed)
    }

    /// Waits until the reader is gone; at once if it was cut off.
    pub async fn closed(&self) {
        if let Some(sender) = &self.sender {
            sender.closed().await;
        }
    }
}

/// The watches of a store within one process.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    watchers: Vec<(String, WatchSender)>,
}

impl Watchers {
    /// How many revisions a reader may be behind before it is cut off.
    const CAPACITY: usize = 1024;

    /// Adds a watch that delivers `backlog` and then what is published from now on.
    pub(crate) fn add(&mut self, prefix: &str, backlog: Vec<Changes>) -> Watch {
        self.watchers.retain(|(_, sender)| !sender.is_closed());
        let (sender, watch) = Watch::with_backlog(backlog, Self::CAPACITY);
        self.watchers.push((prefix.to_owned(), sender));
        watch
    }

    /// Hands the changes of one revision to every watch that they concern.
    pub(crate) fn publish(&mut self, changes: &Changes) {
        self.watchers.retain_mut(|(prefix, sender)| match changes.under(prefix) {
            Some(under) => sender.try_send(under),
            None => !sender.is_closed(),
        });
    }
}
