//! Pure: conversions between the contract and etcd's API, under the store's key prefix.

use etcd_client::proto::{PbKeyValue, PbResponseHeader};
use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp};
use fleet_core::Revision;

use crate::{Condition, Entry, Expect, LeaseId, StoreError, Transaction, Write};

/// Prefix that all keys of a store have in etcd. The users of the store do not see it.
#[derive(Debug, Clone)]
pub(super) struct KeyPrefix {
    prefix: String,
}

/// A key under the prefix that no store has written.
#[derive(Debug, thiserror::Error)]
#[error(
    "etcd key $'{key}' is not UTF-8, so a program other than fleet wrote it: run etcdctl del \
     $'{key}' in bash"
)]
struct NonUtf8Key {
    /// The key with the escapes of a shell.
    key: String,
}

impl KeyPrefix {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Returns the key in etcd.
    pub(super) fn etcd_key(&self, key: &str) -> Vec<u8> {
        [self.prefix.as_bytes(), key.as_bytes()].concat()
    }

    /// Returns the key without the prefix.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] when the key is not UTF-8. Fleet never writes such a key, but
    /// silently skipping it would report it as absent.
    pub(super) fn store_key(&self, key: &[u8]) -> Result<String, StoreError> {
        let inner = key.get(self.prefix.len()..).unwrap_or_default();
        String::from_utf8(inner.to_vec()).map_err(|_| {
            let key = key.escape_ascii().to_string();
            StoreError::Unavailable(Box::new(NonUtf8Key { key }))
        })
    }

    /// Returns the range of etcd keys that start with `prefix`: the first key, and the end of the
    /// range.
    pub(super) fn range(&self, prefix: &str) -> (Vec<u8>, Vec<u8>) {
        let first = self.etcd_key(prefix);
        let beyond = end_of_range(&first);
        // etcd rejects an empty key; a zero byte is the first possible key.
        (if first.is_empty() { vec![0] } else { first }, beyond)
    }

    /// Returns the key and the options of a cheap read at `revision`, where zero means the current
    /// one. The header of the response contains the current revision.
    pub(super) fn probe(&self, revision: Revision) -> (Vec<u8>, GetOptions) {
        let options = GetOptions::new().with_count_only().with_revision(signed(revision));
        (self.etcd_key("\0"), options)
    }

    pub(super) fn entry(&self, kv: PbKeyValue) -> Result<Entry, StoreError> {
        Ok(Entry {
            key: self.store_key(&kv.key)?,
            modified: unsigned(kv.mod_revision),
            lease: lease_id(kv.lease),
            value: kv.value,
        })
    }

    pub(super) fn transaction(&self, transaction: Transaction) -> Txn {
        let mut writes: Vec<_> = transaction.writes.into_iter().map(|w| self.write(w)).collect();
        if writes.is_empty() {
            // A transaction without a read or write may be evaluated by a stale member.
            let (key, options) = self.probe(Revision::ZERO);
            writes.push(TxnOp::get(key, Some(options)));
        }
        let conditions = transaction.conditions.into_iter();
        let conditions: Vec<_> = conditions.map(|c| self.compare(c)).collect();
        Txn::new().when(conditions).and_then(writes)
    }

    /// Reads the keys of the conditions at `revision`.
    pub(super) fn read_at(&self, conditions: &[Condition], revision: Revision) -> Txn {
        let reads = conditions.iter().map(|condition| {
            let options = GetOptions::new().with_revision(signed(revision));
            TxnOp::get(self.etcd_key(&condition.key), Some(options))
        });
        Txn::new().and_then(reads.collect::<Vec<_>>())
    }

    fn compare(&self, condition: Condition) -> Compare {
        let key = self.etcd_key(&condition.key);
        match condition.expect {
            Expect::Absent => Compare::create_revision(key, CompareOp::Equal, 0),
            Expect::Present => Compare::create_revision(key, CompareOp::NotEqual, 0),
            Expect::Value(value) => Compare::value(key, CompareOp::Equal, value),
            Expect::ModifiedAt(revision) => {
                // etcd reports revision 0 for absent keys, so 0 would match them. Nothing matches
                // -1.
                let revision = if revision == Revision::ZERO { -1 } else { signed(revision) };
                Compare::mod_revision(key, CompareOp::Equal, revision)
            }
        }
    }

    fn write(&self, write: Write) -> TxnOp {
        match write {
            Write::Put { key, value, lease } => {
                let lease = lease.and_then(etcd_lease_id).unwrap_or(0);
                TxnOp::put(self.etcd_key(&key), value, Some(PutOptions::new().with_lease(lease)))
            }
            Write::Delete { key } => TxnOp::delete(self.etcd_key(&key), None),
        }
    }
}

/// Returns the end of the range of keys that start with `prefix`. A zero byte means that the range
/// has no upper end.
fn end_of_range(prefix: &[u8]) -> Vec<u8> {
    let mut beyond = prefix.to_vec();
    while let Some(last) = beyond.pop() {
        if last < u8::MAX {
            beyond.push(last + 1);
            return beyond;
        }
    }
    vec![0]
}

/// Converts a revision for etcd. Real revisions are far below the limit.
pub(super) fn signed(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// Returns the revision in a response header. etcd sends a header with every response.
pub(super) fn revision_of(header: Option<&PbResponseHeader>) -> Revision {
    unsigned(header.map_or(0, |header| header.revision))
}

pub(super) fn unsigned(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or(0))
}

/// Returns etcd's ID of a lease; `None` if etcd cannot have granted it.
pub(super) fn etcd_lease_id(lease: LeaseId) -> Option<i64> {
    i64::try_from(lease.0).ok().filter(|name| *name > 0)
}

/// Returns the lease of a key; zero means none.
pub(super) fn lease_id(name: i64) -> Option<LeaseId> {
    u64::try_from(name).ok().filter(|name| *name > 0).map(LeaseId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_covers_exactly_its_prefix() {
        let table: [(&str, &str, &[u8], &[u8]); 5] = [
            ("", "", b"\0", b"\0"),
            ("", "a/", b"a/", b"a0"),
            ("ns/", "", b"ns/", b"ns0"),
            ("ns/", "b", b"ns/b", b"ns/c"),
            ("", "\u{10ffff}", &[0xf4, 0x8f, 0xbf, 0xbf], &[0xf4, 0x8f, 0xbf, 0xc0]),
        ];
        for (outer, prefix, first, last) in table {
            let range = KeyPrefix::new(outer).range(prefix);
            assert_eq!(range, (first.to_vec(), last.to_vec()), "{outer:?} {prefix:?}");
        }
        assert_eq!(end_of_range(&[7, 255, 255]), [8]);
        assert_eq!(end_of_range(&[255]), [0]);
    }

    #[test]
    fn non_utf8_key_is_an_error() {
        let prefix = KeyPrefix::new("ns/");
        assert_eq!(prefix.store_key(b"ns/a").unwrap(), "a");
        assert!(matches!(prefix.store_key(b"ns/\xff"), Err(StoreError::Unavailable(_))));
    }

    #[test]
    fn invalid_etcd_lease_id_is_none() {
        assert_eq!(etcd_lease_id(LeaseId(0)), None);
        assert_eq!(etcd_lease_id(LeaseId(u64::MAX)), None);
        assert_eq!(etcd_lease_id(LeaseId(7)), Some(7));
        assert_eq!((lease_id(0), lease_id(7)), (None, Some(LeaseId(7))));
    }
}
