//! A store in an etcd cluster. It implements the [`Store`] contract with etcd's v3 API.
//!
//! etcd orders all events, and the library `etcd-client` implements messages, connections,
//! encryption and tokens. This module adds the parts that both leave to their users:
//!
//! - failing over between endpoints
//! - separating calls that were certainly not applied from calls that may have been applied
//! - reading large ranges in pages of one revision
//! - resuming broken watches

mod client;
mod config;
mod failure;
mod key_prefix;
mod watch;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::GetOptions;
use etcd_client::proto::{PbKeyValue, PbRangeResponse, PbTxnOpResponse};
use fleet_core::Revision;

use crate::{
    Commit, Condition, Entry, Expect, LeaseId, Listing, Store, StoreError, Transaction, Watch,
    Write,
};
use client::{Client, Retry};
use failure::{Failure, FailureKind, ProtocolViolation};
use key_prefix::{KeyPrefix, etcd_lease_id, lease_id, revision_of, signed};

pub use config::{EtcdConfig, EtcdConfigError, EtcdIdentity, EtcdTls, EtcdUser};

/// Number of keys in a page, unless their values are too large.
const PAGE: i64 = 1000;
/// Maximum number of attempts to read, if etcd compacts the revision of each attempt meanwhile.
const READ_ATTEMPTS: usize = 3;
/// Maximum time to live that etcd grants, in seconds.
const LONGEST_TTL: i64 = 9_000_000_000;

/// A [`Store`] in an etcd cluster of version 3.4 or later.
///
/// Connections are made at the first call. Each call goes to the endpoint that responded last. If
/// that endpoint fails, the call is repeated at the next one. A call that might then be applied
/// twice is not repeated; it fails with [`StoreError::Unknown`].
///
/// When a watch's endpoint fails, the watch continues at another endpoint. If no endpoint is
/// available, the watch is cut off. Its reader gets the error after at most about five [time
/// limits](EtcdConfig::time_limit), plus one for each endpoint after the first.
///
/// All reads are linearizable, so a member without a quorum does not respond instead of returning
/// an old state.
pub struct EtcdStore {
    client: Arc<Client>,
    key_prefix: KeyPrefix,
}

impl EtcdStore {
    /// Creates a store for the configured cluster. This does not connect, so only later calls
    /// notice an unreachable cluster.
    ///
    /// # Errors
    ///
    /// [`EtcdConfigError`] when the configuration cannot be used.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn new(config: &EtcdConfig) -> Result<Self, EtcdConfigError> {
        let client = Arc::new(Client::new(config)?);
        Ok(Self { client, key_prefix: KeyPrefix::new(&config.key_prefix) })
    }

    /// Reads all pages of a range at the revision of the first one.
    async fn read_pages(&self, prefix: &str) -> Result<(Revision, Vec<PbKeyValue>), Failure> {
        let (mut key, end) = self.key_prefix.range(prefix);
        let options = GetOptions::new().with_range(end);
        let (mut revision, mut limit, mut kvs) = (Revision::ZERO, PAGE, Vec::new());
        loop {
            let options = options.clone().with_revision(signed(revision));
            let page = self.read_page(&key, &options, &mut limit).await?;
            if revision == Revision::ZERO {
                revision = revision_of(page.header.as_ref());
            }
            kvs.extend(page.kvs);
            match kvs.last() {
                Some(last) if page.more => key = [&last.key[..], &[0]].concat(),
                _ => return Ok((revision, kvs)),
            }
        }
    }

    /// Reads one page. Reduces its size if the response would be too large.
    async fn read_page(
        &self,
        key: &[u8],
        options: &GetOptions,
        limit: &mut i64,
    ) -> Result<PbRangeResponse, Failure> {
        loop {
            let options = options.clone().with_limit(*limit);
            match self.client.get(key, &options).await {
                Err(failure) if failure.kind == FailureKind::TooLarge && *limit > 1 => {
                    *limit = (*limit / 4).max(1);
                }
                page => return page,
            }
        }
    }

    /// Returns the refusal of a transaction, with the first condition that did not hold. etcd does
    /// not report that condition, so this reads the keys of all conditions at `revision`, the
    /// revision of etcd's response. Even if this read fails, the transaction was certainly not
    /// applied.
    async fn refusal(
        &self,
        conditions: &[Condition],
        revision: Revision,
    ) -> Result<Commit, StoreError> {
        let reading = self.key_prefix.read_at(conditions, revision);
        let read =
            self.client.txn(&reading, Retry::Always).await.map_err(Failure::into_read_error)?;
        let found = read.responses.into_iter().map(|read| {
            let Some(PbTxnOpResponse::ResponseRange(range)) = read.response else {
                return Ok(None);
            };
            range.kvs.into_iter().next().map(|kv| self.key_prefix.entry(kv)).transpose()
        });
        for (condition, found) in found.enumerate() {
            let found = found?;
            if conditions.get(condition).is_some_and(|expected| !holds(expected, found.as_ref())) {
                return Ok(Commit::Refused { condition, found });
            }
        }
        let violation = ProtocolViolation("a transaction failed although its conditions hold");
        Err(StoreError::Unavailable(Box::new(violation)))
    }

    /// Determines which lease of a transaction has ended.
    async fn lost_lease(&self, leases: BTreeSet<LeaseId>) -> Result<LeaseId, StoreError> {
        let last = leases.last().copied().unwrap_or(LeaseId(0));
        for lease in leases {
            if lease == last || self.seconds_left(lease).await? <= 0 {
                return Ok(lease);
            }
        }
        Ok(last)
    }

    async fn seconds_left(&self, lease: LeaseId) -> Result<i64, StoreError> {
        let Some(id) = etcd_lease_id(lease) else { return Ok(0) };
        let asking = self
            .client
            .call(Retry::Always, |endpoint| async move { endpoint.seconds_left(id).await });
        asking.await.map_err(Failure::into_read_error)
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        let mut left = READ_ATTEMPTS;
        let (revision, kvs) = loop {
            left -= 1;
            match self.read_pages(prefix).await {
                Err(failure) if failure.kind == FailureKind::Compacted && left > 0 => {}
                read => break read.map_err(Failure::into_read_error)?,
            }
        };
        let entries = kvs.into_iter().map(|kv| self.key_prefix.entry(kv));
        Ok(Listing { revision, entries: entries.collect::<Result<_, _>>()? })
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        transaction.check()?;
        let leases = leases(&transaction);
        if let Some(lease) = leases.iter().find(|lease| etcd_lease_id(**lease).is_none()) {
            return Err(StoreError::LeaseLost(*lease));
        }
        let conditions = transaction.conditions.clone();
        let is_read_only = transaction.writes.is_empty();
        let retry = if is_read_only { Retry::Always } else { Retry::IfNotDone };
        let txn = self.key_prefix.transaction(transaction);
        let response = match self.client.txn(&txn, retry).await {
            Ok(response) => response,
            Err(failure) if failure.kind == FailureKind::NoLease => {
                return Err(StoreError::LeaseLost(self.lost_lease(leases).await?));
            }
            Err(failure) if is_read_only => return Err(failure.into_read_error()),
            Err(failure) => return Err(failure.into_write_error()),
        };
        let revision = revision_of(response.header.as_ref());
        if response.succeeded {
            return Ok(Commit::Applied(revision));
        }
        self.refusal(&conditions, revision).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        watch::watch(self.client.clone(), self.key_prefix.clone(), prefix, after).await
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        let seconds = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
        let ttl = i64::try_from(seconds).unwrap_or(LONGEST_TTL).clamp(1, LONGEST_TTL);
        // Granting is idempotent: a lost lease binds no keys and expires.
        let granting =
            self.client.call(Retry::Always, |endpoint| async move { endpoint.grant(ttl).await });
        let name = granting.await.map_err(Failure::into_read_error)?;
        let violation = || {
            StoreError::Unavailable(Box::new(ProtocolViolation(
                "a lease was granted without an ID",
            )))
        };
        lease_id(name).ok_or_else(violation)
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
        let id = etcd_lease_id(lease).ok_or(StoreError::LeaseLost(lease))?;
        let renewing =
            self.client.call(Retry::Always, |endpoint| async move { endpoint.renew(id).await });
        match renewing.await {
            Err(failure) if failure.kind == FailureKind::NoLease => {
                Err(StoreError::LeaseLost(lease))
            }
            renewed => renewed.map_err(Failure::into_read_error),
        }
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        let Some(id) = etcd_lease_id(lease) else { return Ok(()) };
        let revoking =
            self.client.call(Retry::Always, |endpoint| async move { endpoint.revoke(id).await });
        match revoking.await {
            Err(failure) if failure.kind == FailureKind::NoLease => Ok(()),
            revoked => revoked.map_err(Failure::into_write_error),
        }
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").field("key_prefix", &self.key_prefix).finish_non_exhaustive()
    }
}

/// Returns the leases that a transaction binds keys to.
fn leases(transaction: &Transaction) -> BTreeSet<LeaseId> {
    let lease = |write: &Write| match write {
        Write::Put { lease, .. } => *lease,
        Write::Delete { .. } => None,
    };
    transaction.writes.iter().filter_map(lease).collect()
}

fn holds(condition: &Condition, found: Option<&Entry>) -> bool {
    match &condition.expect {
        Expect::Absent => found.is_none(),
        Expect::Present => found.is_some(),
        Expect::Value(value) => found.is_some_and(|entry| entry.value == *value),
        Expect::ModifiedAt(revision) => found.is_some_and(|entry| entry.modified == *revision),
    }
}
