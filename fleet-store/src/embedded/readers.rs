//! State visible to readers. It is never ahead of the file.

use std::sync::{Mutex, PoisonError};

use fleet_core::Revision;

use crate::watch::Watchers;
use crate::{Changes, Keyspace, Listing, StoreError, Watch};

/// The durable state and its watches.
#[derive(Debug)]
pub(super) struct ReaderState {
    inner: Mutex<(Keyspace, Watchers)>,
}

impl ReaderState {
    pub(super) fn new(keyspace: Keyspace) -> Self {
        Self { inner: Mutex::new((keyspace, Watchers::default())) }
    }

    pub(super) fn read(&self, prefix: &str) -> Listing {
        self.locked(|(keyspace, _)| keyspace.read(prefix))
    }

    pub(super) fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        self.locked(|(keyspace, watchers)| {
            let backlog = keyspace.changes_after(after, prefix)?;
            Ok(watchers.add(prefix, backlog))
        })
    }

    /// Publishes revisions that are now durable.
    pub(super) fn publish(&self, revisions: Vec<Changes>) {
        self.locked(|(keyspace, watchers)| {
            for changes in revisions {
                watchers.publish(&changes);
                keyspace.apply_changes(changes);
            }
        });
    }

    fn locked<T>(&self, work: impl FnOnce(&mut (Keyspace, Watchers)) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
