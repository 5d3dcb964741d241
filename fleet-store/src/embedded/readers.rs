//! State visible to readers. It is never ahead of the file.

use std::sync::{Mutex, PoisonError};

use fleet_core::Revision;

use super::load::WriteFailure;
use crate::backend::Keyspace;
use crate::watch::Watchers;
use crate::{Changes, Listing, StoreError, Watch};

/// The durable state and its watches.
#[derive(Debug)]
pub(super) struct ReaderState {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    keyspace: Keyspace,
    watchers: Watchers,
    /// Why the store is offline, if it is.
    offline: Option<WriteFailure>,
}

impl ReaderState {
    pub(super) fn new(keyspace: Keyspace) -> Self {
        let watchers = Watchers::default();
        Self { inner: Mutex::new(Inner { keyspace, watchers, offline: None }) }
    }

    pub(super) fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.locked(|inner| inner.online().map(|inner| inner.keyspace.read(prefix)))
    }

    pub(super) fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        self.locked(|inner| {
            let inner = inner.online()?;
            let backlog = inner.keyspace.changes_after(after, prefix)?;
            Ok(inner.watchers.add(prefix, backlog))
        })
    }

    /// Returns the revision of the durable state, also while the store is offline.
    pub(super) fn revision(&self) -> Revision {
        self.locked(|inner| inner.keyspace.revision())
    }

    /// Publishes revisions that are now durable.
    pub(super) fn publish(&self, revisions: Vec<Changes>) {
        self.locked(|inner| inner.publish(revisions));
    }

    /// Ends all watches, and lets reads and watches fail from now on.
    pub(super) fn go_offline(&self, failure: WriteFailure) {
        self.locked(|inner| {
            inner.watchers = Watchers::default();
            inner.offline = Some(failure);
        });
    }

    /// Serves reads again, after these additional revisions.
    pub(super) fn go_online(&self, revisions: Vec<Changes>) {
        self.locked(|inner| {
            inner.publish(revisions);
            inner.offline = None;
        });
    }

    /// Serves reads from the content of a file that was not read before.
    pub(super) fn load(&self, keyspace: Keyspace) {
        self.locked(|inner| {
            inner.keyspace = keyspace;
            inner.offline = None;
        });
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inner {
    fn online(&mut self) -> Result<&mut Self, StoreError> {
        match &self.offline {
            Some(failure) => Err(failure.clone().unavailable()),
            None => Ok(self),
        }
    }

    fn publish(&mut self, revisions: Vec<Changes>) {
        for changes in revisions {
            self.watchers.publish(&changes);
            self.keyspace.apply_changes(changes);
        }
    }
}
