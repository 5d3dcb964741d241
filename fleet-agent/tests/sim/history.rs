//! The cluster at every revision, read with the daemons' own code.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::{Revision, Snapshot};
use fleet_store::backend::WatchSender;
use fleet_store::registry::Key;
use fleet_store::{
    Changes, Commit, Layout, LeaseId, Listing, MemoryStore, Mirror, Registry, Store, StoreError,
    Transaction, Watch,
};
use futures_util::FutureExt as _;

use crate::spy::{Author, Authors};

/// The effect of one revision.
pub(crate) struct Moment {
    /// The cluster at the revision.
    pub(crate) snapshot: Arc<Snapshot>,
    /// Its author; `None` if a lease has ended.
    pub(crate) author: Option<Author>,
    /// The written keys, each with whether it was deleted.
    pub(crate) written: Vec<(Key, bool)>,
}

/// All revisions of a store so far.
pub(crate) struct History {
    moments: BTreeMap<Revision, Moment>,
    authors: Authors,
    layout: Layout,
    watch: Watch,
    /// Feeds the mirror one revision at a time.
    feed: WatchSender,
    mirror: Mirror,
}

impl History {
    pub(crate) async fn start(store: &MemoryStore, authors: Authors) -> Self {
        let layout = Layout::new(Layout::DEFAULT_PREFIX);
        let watch = store.watch(layout.prefix(), Revision::ZERO).await;
        let (feed, fed) = Watch::channel(1);
        let fed = Arc::new(Fed { watch: Mutex::new(Some(fed)) });
        let mirror = Mirror::start(&Registry::new(fed, layout.prefix()));
        Self {
            moments: BTreeMap::new(),
            authors,
            watch: watch.expect("an empty store can be watched"),
            layout,
            feed,
            mirror,
        }
    }

    /// Reads all new revisions; returns the last one known before.
    pub(crate) async fn catch_up(&mut self) -> Revision {
        let before = self.last();
        while let Some(changes) = self.watch.next().now_or_never() {
            self.add(changes.expect("the reader is never too slow")).await;
        }
        before
    }

    async fn add(&mut self, changes: Changes) {
        let revision = changes.revision;
        let key = |change: &fleet_store::KeyChange| {
            let key = self.layout.parse(&change.key).expect("only a registry writes here");
            (key, change.value.is_none())
        };
        let written = changes.changes.iter().map(key).collect();
        // The history continues when the store is replaced; a mirror of one lineage would not.
        let lineage = self.layout.key(&Key::Lineage);
        let seen = changes.changes.iter().filter(|change| *change.key != *lineage).cloned();
        let changes = Changes { changes: seen.collect(), ..changes };
        assert!(self.feed.try_send(changes), "the mirror follows");
        let snapshot = self.mirror.wait_for(revision).await.expect("it is not shut down");
        let authors = self.authors.lock().unwrap_or_else(PoisonError::into_inner);
        let author = authors.get(&revision).copied();
        self.moments.insert(revision, Moment { snapshot, author, written });
    }

    fn last(&self) -> Revision {
        self.moments.last_key_value().map_or(Revision::ZERO, |(revision, _)| *revision)
    }

    /// Returns the revisions after this one.
    pub(crate) fn since(&self, revision: Revision) -> impl Iterator<Item = &Moment> {
        self.moments.range(revision.next()..).map(|(_, moment)| moment)
    }

    /// Returns the cluster at every revision of a range, latest first.
    pub(crate) fn between(&self, from: Revision, to: Revision) -> impl Iterator<Item = &Snapshot> {
        // A revision without writes to this cluster leaves it unchanged.
        let first = self.moments.range(..=from).next_back().map_or(from, |(first, _)| *first);
        let moments = self.moments.range(first.min(to)..=to).rev();
        moments.map(|(_, moment)| &*moment.snapshot)
    }

    /// Returns the cluster at a revision.
    pub(crate) fn at(&self, revision: Revision) -> Arc<Snapshot> {
        let moment = self.moments.range(..=revision).next_back();
        moment.map_or_else(Arc::default, |(_, moment)| moment.snapshot.clone())
    }

    /// Returns the current cluster.
    pub(crate) fn now(&self) -> Arc<Snapshot> {
        self.at(self.last())
    }

    /// Whether unit files of destroyed or replaced units are still stored.
    pub(crate) fn has_unused_contents(&self) -> bool {
        !self.mirror.unused_contents().is_empty()
    }

    /// Returns the latest revision.
    pub(crate) fn revision(&self) -> Revision {
        self.last()
    }
}

/// An empty store that can be watched once, and whose watch delivers the fed changes.
struct Fed {
    watch: Mutex<Option<Watch>>,
}

fn refuse<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable("this store can only be watched, and once".into()))
}

#[async_trait]
impl Store for Fed {
    async fn read(&self, _prefix: &str) -> Result<Listing, StoreError> {
        Ok(Listing { revision: Revision::ZERO, entries: Vec::new() })
    }

    async fn commit(&self, _transaction: Transaction) -> Result<Commit, StoreError> {
        refuse()
    }

    async fn watch(&self, _prefix: &str, _after: Revision) -> Result<Watch, StoreError> {
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        watch.map_or_else(refuse, Ok)
    }

    async fn grant(&self, _ttl: Duration) -> Result<LeaseId, StoreError> {
        refuse()
    }

    async fn renew(&self, _lease: LeaseId) -> Result<(), StoreError> {
        refuse()
    }

    async fn revoke(&self, _lease: LeaseId) -> Result<(), StoreError> {
        refuse()
    }
}
