//! Pure: the contract's words in etcd's, and back, below the prefix of the store's keys.

use fleet_core::Revision;

use super::wire::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, KeyValue, Operand, PutRequest,
    RangeRequest, Request, RequestOp, TxnRequest,
};
use crate::{Condition, Entry, Expect, LeaseId, StoreError, Transaction, Write};

/// The keys in etcd that are a store's: those that start with its prefix, which is no part of them
/// on this side.
#[derive(Debug, Clone)]
pub(super) struct Space {
    prefix: String,
}

/// Somebody wrote a key among the store's that cannot be one of them.
#[derive(Debug, thiserror::Error)]
#[error("etcd has a key that is no text, {key:?}: delete it")]
struct NoText {
    key: String,
}

impl Space {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The key as etcd has it.
    pub(super) fn outer(&self, key: &str) -> Vec<u8> {
        [self.prefix.as_bytes(), key.as_bytes()].concat()
    }

    /// The key as this side has it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] when it is no text: fleet wrote no such key, and to leave it out
    /// would be to say that it is not there.
    pub(super) fn inner(&self, key: &[u8]) -> Result<String, StoreError> {
        let inner = key.get(self.prefix.len()..).unwrap_or_default();
        String::from_utf8(inner.to_vec()).map_err(|_| {
            let key = String::from_utf8_lossy(key).into_owned();
            StoreError::Unavailable(Box::new(NoText { key }))
        })
    }

    /// The first key under `prefix` as etcd has it, and the first one beyond.
    pub(super) fn range(&self, prefix: &str) -> (Vec<u8>, Vec<u8>) {
        let first = self.outer(prefix);
        let beyond = beyond(&first);
        // An empty key stands for none.
        (if first.is_empty() { vec![0] } else { first }, beyond)
    }

    /// A question that costs little: it is answered with the present revision.
    pub(super) fn look(&self, revision: Revision) -> RangeRequest {
        let key = self.outer("\0");
        let revision = signed(revision);
        RangeRequest { key, revision, count_only: true, ..RangeRequest::default() }
    }

    pub(super) fn entry(&self, kv: KeyValue) -> Result<Entry, StoreError> {
        Ok(Entry {
            key: self.inner(&kv.key)?,
            modified: unsigned(kv.mod_revision),
            lease: lease_of(kv.lease),
            value: kv.value,
        })
    }

    pub(super) fn transaction(&self, transaction: Transaction) -> TxnRequest {
        let mut success: Vec<_> = transaction.writes.into_iter().map(|w| self.write(w)).collect();
        if success.is_empty() {
            // Without it a member that lags behind would judge the conditions by what it has.
            success.push(range_op(self.look(Revision::ZERO)));
        }
        let conditions = transaction.conditions.into_iter();
        TxnRequest { compare: conditions.map(|c| self.compare(c)).collect(), success }
    }

    /// Reads each of these keys as it was at `revision`.
    pub(super) fn read_at(&self, conditions: &[Condition], revision: Revision) -> TxnRequest {
        let reads = conditions.iter().map(|condition| {
            let key = self.outer(&condition.key);
            let revision = signed(revision);
            range_op(RangeRequest { key, revision, ..RangeRequest::default() })
        });
        TxnRequest { compare: Vec::new(), success: reads.collect() }
    }

    fn compare(&self, condition: Condition) -> Compare {
        let (equal, unequal) = (CompareResult::Equal, CompareResult::NotEqual);
        let (target, result, operand) = match condition.expect {
            Expect::Absent => (CompareTarget::Create, equal, Operand::CreateRevision(0)),
            Expect::Present => (CompareTarget::Create, unequal, Operand::CreateRevision(0)),
            Expect::Value(value) => (CompareTarget::Value, equal, Operand::Value(value)),
            Expect::ModifiedAt(revision) => {
                // Of an absent key etcd says zero, which is no revision that wrote anything.
                let revision = if revision == Revision::ZERO { -1 } else { signed(revision) };
                (CompareTarget::Mod, equal, Operand::ModRevision(revision))
            }
        };
        Compare {
            result: result.into(),
            target: target.into(),
            key: self.outer(&condition.key),
            operand: Some(operand),
        }
    }

    fn write(&self, write: Write) -> RequestOp {
        let request = match write {
            Write::Put { key, value, lease } => {
                let lease = lease.and_then(name_of).unwrap_or(0);
                Request::Put(PutRequest { key: self.outer(&key), value, lease })
            }
            Write::Delete { key } => Request::Delete(DeleteRangeRequest { key: self.outer(&key) }),
        };
        RequestOp { request: Some(request) }
    }
}

fn range_op(range: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Request::Range(range)) }
}

/// The first key after all that start with `prefix`; a zero byte stands for the end of all keys.
fn beyond(prefix: &[u8]) -> Vec<u8> {
    let mut beyond = prefix.to_vec();
    while let Some(last) = beyond.pop() {
        if last < u8::MAX {
            beyond.push(last + 1);
            return beyond;
        }
    }
    vec![0]
}

/// A revision as etcd counts it. None is near the end of the numbers.
pub(super) fn signed(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or(0))
}

/// A lease as etcd names it; nothing for a name that it cannot have given.
pub(super) fn name_of(lease: LeaseId) -> Option<i64> {
    i64::try_from(lease.0).ok().filter(|name| *name > 0)
}

/// The lease of a key: zero stands for none.
pub(super) fn lease_of(name: i64) -> Option<LeaseId> {
    u64::try_from(name).ok().filter(|name| *name > 0).map(LeaseId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_what_starts_with_its_prefix_and_nothing_else() {
        let table: [(&str, &str, &[u8], &[u8]); 5] = [
            ("", "", b"\0", b"\0"),
            ("", "a/", b"a/", b"a0"),
            ("ns/", "", b"ns/", b"ns0"),
            ("ns/", "b", b"ns/b", b"ns/c"),
            ("", "\u{10ffff}", &[0xf4, 0x8f, 0xbf, 0xbf], &[0xf4, 0x8f, 0xbf, 0xc0]),
        ];
        for (outer, prefix, first, last) in table {
            let range = Space::new(outer).range(prefix);
            assert_eq!(range, (first.to_vec(), last.to_vec()), "{outer:?} {prefix:?}");
        }
        assert_eq!(beyond(&[7, 255, 255]), [8]);
        assert_eq!(beyond(&[255]), [0]);
    }

    #[test]
    fn a_key_that_is_no_text_is_an_error() {
        let space = Space::new("ns/");
        assert_eq!(space.inner(b"ns/a").unwrap(), "a");
        assert!(matches!(space.inner(b"ns/\xff"), Err(StoreError::Unavailable(_))));
    }

    #[test]
    fn a_name_that_etcd_cannot_have_given_is_none() {
        assert_eq!(name_of(LeaseId(0)), None);
        assert_eq!(name_of(LeaseId(u64::MAX)), None);
        assert_eq!(name_of(LeaseId(7)), Some(7));
        assert_eq!((lease_of(0), lease_of(7)), (None, Some(LeaseId(7))));
    }
}
