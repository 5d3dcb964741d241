//! Pure: the `Store` trait, which is the contract between fleet and its storage backends, and its
//! types.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::Revision;

use crate::Watch;

/// A small key-value store with revisions.
///
/// Keys are text, ordered by their bytes; values are bytes. Each transaction that writes something
/// creates the next [`Revision`]. A transaction is applied whole or not at all, and all clients see
/// the revisions in the same order. Every implementation guarantees the following to its callers:
///
/// * **Reads** return one consistent state and its revision. A read that begins after a commit was
///   acknowledged sees that commit.
/// * **Commits** check all conditions and apply all writes in one step. An acknowledged commit is
///   as durable as the backend promises. In memory, it lasts while the process lives. In the
///   embedded store, it survives loss of power. In etcd, it lasts as long as a majority of the
///   members keep their disks.
/// * **Watches** deliver every change under their prefix after their start revision, in order and
///   exactly once. They never deliver only a part of a revision. A watch that cannot continue ends
///   with an error; it never just stops delivering. The buffer for a slow reader is
///   bounded. When it is full, the watch may be cut off, but it never blocks a writer.
/// * **Leases** end if they are not renewed within their time to live, as measured by the store.
///   When a lease ends, one revision deletes all keys bound to it. A lease ID is never used twice.
///   After a restart of the store, or a time in which it could not serve requests, every lease has
///   its full time to live again.
/// * **Bounds**: a transaction within the limits of [`Transaction::check`] is never too large for
///   the backend.
/// * **Errors** never mean *absent*. [`StoreError::Unknown`] means that a commit may or may not
///   have been applied; every other error means that it was not applied. If a store cannot be
///   reached in time, it returns [`StoreError::Unavailable`]. It never reports an empty listing or
///   an ended lease instead.
/// * **Retries**: reads, renewals, revocations and watches may be retried after any error. Grants
///   may be retried as well, because a lease expires if its ID never reached the caller. A commit
///   may be retried after [`StoreError::Unavailable`]. After [`StoreError::Unknown`], the caller
///   must first read whether the commit was applied.
///
/// The suite in `fleet_store::testing` (feature `testing`) has a function for each of these
/// guarantees.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Returns all entries with keys that start with `prefix`, in key order, at the current
    /// revision.
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError>;

    /// Checks the conditions and applies the writes, all or nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`] when [`Transaction::check`] fails; [`StoreError::LeaseLost`] when
    /// all conditions hold and a write binds a key to a lease that has ended.
    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError>;

    /// Watches the keys that start with `prefix`, from the first change after revision `after`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Compacted`] when the changes since `after` are no longer kept;
    /// [`StoreError::Invalid`] when `after` does not exist yet.
    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError>;

    /// Grants a lease that ends unless it is renewed within `ttl`. The store may round up a very
    /// short `ttl`.
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError>;

    /// Renews a lease for its full time to live.
    ///
    /// # Errors
    ///
    /// [`StoreError::LeaseLost`] when the lease has ended.
    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError>;

    /// Ends a lease now and deletes the keys bound to it. Revoking an ended lease is not an error.
    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError>;
}

/// State of a prefix at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Revision of the store that was read. A watch from here misses nothing.
    pub revision: Revision,
    /// Entries in key order.
    pub entries: Vec<Entry>,
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// Revision that wrote this value.
    pub modified: Revision,
    /// Lease that the key is bound to, if any.
    pub lease: Option<LeaseId>,
}

/// ID of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Writes that are applied only if all conditions hold.
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
    /// Conditions that must all hold.
    pub conditions: Vec<Condition>,
    /// Writes to apply, in this order. A transaction may have at most one write per key.
    pub writes: Vec<Write>,
}

impl Transaction {
    /// Maximum number of conditions, and of writes, in a transaction.
    pub const MAX_OPERATIONS: usize = 128;
    /// Maximum total size of a transaction's keys and values, in bytes.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Creates an empty transaction.
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

    /// Adds a write of `value` under `key` without a lease.
    #[must_use]
    pub fn put(self, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.write(Write::Put { key: key.into(), value: value.into(), lease: None })
    }

    /// Adds a write of `value` under `key` that is deleted when `lease` ends.
    #[must_use]
    pub fn put_leased(
        self,
        key: impl Into<String>,
        value: impl Into<Vec<u8>>,
        lease: LeaseId,
    ) -> Self {
        self.write(Write::Put { key: key.into(), value: value.into(), lease: Some(lease) })
    }

    /// Adds a deletion of `key`. Deleting an absent key has no effect.
    #[must_use]
    pub fn delete(self, key: impl Into<String>) -> Self {
        self.write(Write::Delete { key: key.into() })
    }

    /// Adds all conditions and writes of another transaction.
    #[must_use]
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.conditions.extend(other.conditions);
        self.writes.extend(other.writes);
        self
    }

    /// Adds a write.
    #[must_use]
    pub fn write(mut self, write: Write) -> Self {
        self.writes.push(write);
        self
    }

    /// Returns the total size of all keys and values, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let conditions = self.conditions.iter().map(Condition::size);
        let writes = self.writes.iter().map(Write::size);
        conditions.chain(writes).sum()
    }

    /// Checks that the transaction is valid. Every backend calls this first.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`] when the transaction exceeds the limits, writes a key twice or has
    /// an empty key.
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

/// A condition on one key for a transaction to be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The key.
    pub key: String,
    /// Expected state of the key.
    pub expect: Expect,
}

/// Expected state of a condition's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// The key does not exist.
    Absent,
    /// The key exists.
    Present,
    /// The key has exactly this value.
    Value(Vec<u8>),
    /// This revision was the last to write the key.
    ModifiedAt(Revision),
}

impl Condition {
    /// Expects that `key` does not exist.
    pub fn absent(key: impl Into<String>) -> Self {
        Self { key: key.into(), expect: Expect::Absent }
    }

    /// Expects that `key` exists.
    pub fn present(key: impl Into<String>) -> Self {
        Self { key: key.into(), expect: Expect::Present }
    }

    /// Expects that `key` has exactly this value.
    pub fn value(key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), expect: Expect::Value(value.into()) }
    }

    /// Expects that `revision` was the last to write `key`.
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
    /// Sets a key and its lease.
    Put {
        /// The key.
        key: String,
        /// Its new value.
        value: Vec<u8>,
        /// Lease to bind the key to; `None` unbinds it.
        lease: Option<LeaseId>,
    },
    /// Deletes a key; has no effect if the key is absent.
    Delete {
        /// The key.
        key: String,
    },
}

impl Write {
    /// Returns the key to write.
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

/// Result of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Commit {
    /// Applied. Carries the new revision, or the current one if nothing was written.
    Applied(Revision),
    /// Not applied, because a condition did not hold.
    Refused {
        /// Index of the first condition that did not hold.
        condition: usize,
        /// Entry under that condition's key, if it exists.
        found: Option<Entry>,
    },
}

/// Errors of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached or used at present; nothing has changed.
    #[error("the store is unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No response arrived; the commit may or may not have been applied.
    #[error("the store did not confirm the write: the write might have been applied")]
    Unknown(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The lease has ended.
    #[error("lease {0} has ended")]
    LeaseLost(LeaseId),
    /// Older changes are no longer kept; read again and watch from there.
    #[error("the store has discarded the changes up to revision {oldest}")]
    Compacted {
        /// Oldest revision after which all changes are kept.
        oldest: Revision,
    },
    /// The watch fell too far behind or lost its connection. The reader must read again, and watch
    /// from the revision of that read on.
    #[error("the watch of the store was interrupted")]
    WatchLost,
    /// The request is invalid, for example because it writes one key twice. The store is unchanged.
    #[error("the store refuses the request: {0}")]
    Invalid(String),
    /// The store's file is damaged or has a format that this version cannot read.
    #[error("the store cannot be opened: {0}")]
    Format(String),
    /// The file to create exists already.
    #[error("{path} already exists: move the file away, or choose another name")]
    Exists {
        /// The file.
        path: String,
    },
    /// Another process has the store open.
    #[error(
        "{path} is in use by another process: end that process, or choose another data directory"
    )]
    InUse {
        /// The store's file.
        path: String,
    },
}
