//! The store that an etcd cluster keeps: the contract in terms of etcd's v3 API.
//!
//! What happens in which order is etcd's, and how it is told is the library's, `etcd-client`: the
//! messages, the connections, their encryption, the tokens. Here is what both leave to their user:
//! asking another endpoint, telling what surely did not happen from what may have, reading a large
//! range in pages of one revision, and going on with a watch where it broke off.

mod assemble;
mod client;
mod config;
mod endpoint;
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

pub use config::{EtcdConfig, EtcdConfigError, EtcdIdentity, EtcdTls, EtcdUser};

use crate::{Commit, Condition, Entry, Expect, LeaseId, Listing};
use crate::{Store, StoreError, Transaction, Watch, Write};
use client::{Client, Retry};
use failure::{Failure, FailureKind, ProtocolViolation};
use key_prefix::{KeyPrefix, etcd_lease_id, lease_id, revision_of, signed};

/// How many keys are read at once, unless their values are too large for that.
const PAGE: i64 = 1000;
/// How often a read begins anew when what it reads is compacted away meanwhile.
const READ_ATTEMPTS: usize = 3;
/// The longest time to live that etcd grants, in seconds.
const LONGEST_TTL: i64 = 9_000_000_000;

/// A [`Store`] that an etcd cluster of version 3.4 or later keeps.
///
/// Nothing is connected before the first call. Each call goes to the endpoint that answered last,
/// and on to the next when that fails, unless it might be done twice thereby: then it ends as
/// [`StoreError::Unknown`]. A watch goes on at another endpoint when its own fails; when none is to
/// be had it is cut off, so that it is never behind for more than about five time limits, and one
/// more for each endpoint after the first, without its reader knowing.
///
/// All members are asked for the present, never for what they happen to have. A member that has
/// lost the others answers nothing.
pub struct EtcdStore {
    client: Arc<Client>,
    key_prefix: KeyPrefix,
}

impl EtcdStore {
    /// A store in the cluster of this configuration.
    ///
    /// # Errors
    ///
    /// [`EtcdConfigError`] when no cluster could be reached by it. Whether one is reached only the
    /// calls tell.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn new(config: &EtcdConfig) -> Result<Self, EtcdConfigError> {
        let client = Arc::new(Client::new(config)?);
        Ok(Self { client, key_prefix: KeyPrefix::new(&config.key_prefix) })
    }

    /// Reads page after page, all at the revision of the first.
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

    /// Reads one page, a smaller one where it would be too large to be sent.
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

    /// What a transaction was refused for: its first condition that did not hold at the revision
    /// that it was judged at. A failure to find out does not put the refusal in doubt.
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
        let violation = ProtocolViolation("it refused a transaction whose conditions hold");
        Err(StoreError::Unavailable(Box::new(violation)))
    }

    /// Which of the leases that a transaction binds keys to has ended.
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
        let asks = transaction.writes.is_empty();
        let retry = if asks { Retry::Always } else { Retry::IfNotDone };
        let txn = self.key_prefix.transaction(transaction);
        let response = match self.client.txn(&txn, retry).await {
            Ok(response) => response,
            Err(failure) if failure.kind == FailureKind::NoLease => {
                return Err(StoreError::LeaseLost(self.lost_lease(leases).await?));
            }
            Err(failure) if asks => return Err(failure.into_read_error()),
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
        let whole = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
        let ttl = i64::try_from(whole).unwrap_or(LONGEST_TTL).clamp(1, LONGEST_TTL);
        // A lease that nobody knows of binds no key and ends by itself.
        let granting =
            self.client.call(Retry::Always, |endpoint| async move { endpoint.grant(ttl).await });
        let name = granting.await.map_err(Failure::into_read_error)?;
        let violation =
            || StoreError::Unavailable(Box::new(ProtocolViolation("a lease without a name")));
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

/// The leases that a transaction binds keys to.
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
