//! Pure: the contract between fleet and whatever keeps its memory, as a trait and its words.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::Revision;

use crate::Watch;

/// A small revisioned key-value store.
///
/// Keys are texts, ordered by their bytes; values are bytes. Every transaction that writes
/// something makes the next [`Revision`], whole or not at all, and all clients see the revisions in
/// the same order. Whoever implements this trait promises, and whoever uses it may rely on, this:
///
/// * **Reads** return one consistent state and say which. A read begun after a commit was
///   acknowledged sees that commit.
/// * **Commits** check all conditions and apply all writes in one step. An acknowledged commit is
///   as durable as the backend promises (memory: while the process lives; embedded: through loss
///   of power; etcd: as long as most of its members have their disks).
/// * **Watches** deliver every change under their prefix after the revision they start from, in
///   order, exactly once, and never half of a revision. A watch that cannot go on ends with an
///   error; it never falls silent. It holds a bounded number of revisions for a slow reader and is
///   cut off beyond that; it never holds a writer up.
/// * **Leases** end when they were not renewed for their time to live, as measured by the store.
///   All keys bound to a lease are deleted in one revision when it ends, and no name of a lease is
///   given twice. After a restart of the store, or a time in which it could not serve anybody,
///   every lease has its whole time to live again.
/// * **Bounds**: a transaction within those of [`Transaction::check`] is never too large.
/// * **Errors** never mean *absent*. [`StoreError::Unknown`] says that a commit may or may not have
///   happened; everything else says that it did not. A store that cannot be reached, or not
///   in time, answers [`StoreError::Unavailable`], never with an empty listing or an ended lease.
/// * **Repeating**: reads, renewals, revocations and watches may be repeated after any error, and
///   so may a grant: a lease that nobody was told of ends in its time. A commit may be repeated
///   after [`StoreError::Unavailable`]; after [`StoreError::Unknown`] look first.
///
/// The suite in `fleet_store::testing` (feature `testing`) has a function for each of these.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// All entries whose key starts with `prefix`, in order of their keys, at the present revision.
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError>;

    /// Checks the conditions and applies the writes, all or nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`] when [`Transaction::check`] refuses it; [`StoreError::LeaseLost`]
    /// when all conditions hold and a key is to be bound to a lease that has ended.
    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError>;

    /// Watches the keys that start with `prefix`, from the first change after revision `after`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Compacted`] when changes since then are no longer kept;
    /// [`StoreError::Invalid`] when `after` is a revision that was not made yet.
    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError>;

    /// Makes a lease that ends unless renewed within `ttl`. The store may lengthen a very short
    /// one.
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError>;

    /// Gives a lease its whole time to live again.
    ///
    /// # Errors
    ///
    /// [`StoreError::LeaseLost`] when it has ended.
    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError>;

    /// Ends a lease now, and deletes the keys bound to it. Ending an ended lease is no error.
    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError>;
}

/// The state of a prefix at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The revision of the store that was read; a watch from here misses nothing.
    pub revision: Revision,
    /// The entries, in order of their keys.
    pub entries: Vec<Entry>,
}

/// One key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The revision that wrote this value.
    pub modified: Revision,
    /// The lease that the key is bound to, if any.
    pub lease: Option<LeaseId>,
}

/// The name of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Writes that happen only if all conditions hold.
///
/// ```
/// use fleet_store::{Condition, Transaction};
///
/// let transaction = Transaction::new()
///     .when(Condition::absent("leader"))
///     .put("leader", "machine-1");
/// assert_eq!(transaction.conditions.len(), 1);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// What must hold.
    pub conditions: Vec<Condition>,
    /// What is then written, in this order. Two writes of one key in a transaction are refused.
    pub writes: Vec<Write>,
}

impl Transaction {
    /// How many conditions, and how many writes, a transaction may have.
    pub const MAX_OPERATIONS: usize = 128;
    /// How many bytes the keys and values of a transaction may have together.
    pub const MAX_BYTES: usize = 1 << 20;

    /// A transaction that does nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition.
    #[must_use]
    pub fn when(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Adds a write of `value` under `key`, bound to no lease.
    #[must_use]
    pub fn put(self, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.write(Write::Put { key: key.into(), value: value.into(), lease: None })
    }

    /// Adds a write of `value` under `key` that goes when `lease` ends.
    #[must_use]
    pub fn put_leased(
        self,
        key: impl Into<String>,
        value: impl Into<Vec<u8>>,
        lease: LeaseId,
    ) -> Self {
        self.write(Write::Put { key: key.into(), value: value.into(), lease: Some(lease) })
    }

    /// Adds a deletion of `key`. Deleting an absent key does nothing.
    #[must_use]
    pub fn delete(self, key: impl Into<String>) -> Self {
        self.write(Write::Delete { key: key.into() })
    }

    /// Adds a write.
    #[must_use]
    pub fn write(mut self, write: Write) -> Self {
        self.writes.push(write);
        self
    }

    /// The bytes of all keys and values.
    #[must_use]
    pub fn size(&self) -> usize {
        let conditions = self.conditions.iter().map(Condition::size);
        let writes = self.writes.iter().map(Write::size);
        conditions.chain(writes).sum()
    }

    /// Whether a store has to take it: every backend calls this first.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`] when it is over the bounds, writes a key twice or names an empty
    /// one.
    pub fn check(&self) -> Result<(), StoreError> {
        let most = Self::MAX_OPERATIONS;
        if self.conditions.len() > most || self.writes.len() > most {
            let text = format!("more than {most} conditions or writes in one transaction");
            return Err(StoreError::Invalid(text));
        }
        if self.size() > Self::MAX_BYTES {
            let text = format!("more than {} bytes in one transaction", Self::MAX_BYTES);
            return Err(StoreError::Invalid(text));
        }
        self.check_keys()
    }

    fn check_keys(&self) -> Result<(), StoreError> {
        let mut written = BTreeSet::new();
        if let Some(twice) = self.writes.iter().map(Write::key).find(|key| !written.insert(*key)) {
            return Err(StoreError::Invalid(format!("key {twice:?} is written twice")));
        }
        let mut all = self.conditions.iter().map(|c| c.key.as_str()).chain(written);
        if all.any(str::is_empty) {
            return Err(StoreError::Invalid("a key is empty".to_owned()));
        }
        Ok(())
    }
}

/// What must hold of one key for a transaction to be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The key.
    pub key: String,
    /// What must hold of it.
    pub expect: Expect,
}

/// What a condition expects of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// The key does not exist.
    Absent,
    /// The key exists.
    Present,
    /// The key has exactly this value.
    Value(Vec<u8>),
    /// The key exists and was last written by exactly this revision.
    ModifiedAt(Revision),
}

impl Condition {
    /// `key` does not exist.
    pub fn absent(key: impl Into<String>) -> Self {
        Self { key: key.into(), expect: Expect::Absent }
    }

    /// `key` exists.
    pub fn present(key: impl Into<String>) -> Self {
        Self { key: key.into(), expect: Expect::Present }
    }

    /// `key` has exactly this value.
    pub fn value(key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), expect: Expect::Value(value.into()) }
    }

    /// `key` was last written by exactly this revision.
    pub fn modified_at(key: impl Into<String>, revision: Revision) -> Self {
        Self { key: key.into(), expect: Expect::ModifiedAt(revision) }
    }

    fn size(&self) -> usize {
        let value = if let Expect::Value(value) = &self.expect { value.len() } else { 0 };
        self.key.len() + value
    }
}

/// One write of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Sets a key, and binds it to a lease or to none.
    Put {
        /// The key.
        key: String,
        /// Its new value.
        value: Vec<u8>,
        /// The lease that it goes with.
        lease: Option<LeaseId>,
    },
    /// Deletes a key; an absent one stays absent.
    Delete {
        /// The key.
        key: String,
    },
}

impl Write {
    /// The key that is written.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Delete { key } => key.len(),
        }
    }
}

/// What became of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Commit {
    /// It was applied. The revision is the new one, or the present one if nothing was written.
    Applied(Revision),
    /// A condition did not hold, so nothing was written.
    Refused {
        /// The first condition that did not hold, counted from zero.
        condition: usize,
        /// The entry under that condition's key, if there is one.
        found: Option<Entry>,
    },
}

/// Why a store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached or used just now; nothing happened.
    #[error("the store is unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The store's answer did not come: the commit may or may not have happened.
    #[error("the store did not say whether the commit happened")]
    Unknown(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The lease has ended.
    #[error("lease {0} has ended")]
    LeaseLost(LeaseId),
    /// Changes as old as that are no longer kept; read again and watch from there.
    #[error("changes up to revision {oldest} are no longer kept")]
    Compacted {
        /// The oldest revision after which all changes are kept.
        oldest: Revision,
    },
    /// The watch fell too far behind, or lost its connection; read again and watch from there.
    #[error("the watch was cut off")]
    WatchLost,
    /// The request itself is wrong, for example it writes one key twice; nothing happened.
    #[error("the store refuses the request: {0}")]
    Invalid(String),
    /// The store's file is damaged, or of a format that this version cannot read.
    #[error("the store cannot be opened: {0}")]
    Format(String),
    /// There is a file already where a new one was to be made.
    #[error("{path} exists already: move it away, or choose another name")]
    Exists {
        /// The file.
        path: String,
    },
    /// Another process uses the store.
    #[error("{path} is in use by another process: end it, or choose another data directory")]
    InUse {
        /// The store's file.
        path: String,
    },
}
