//! Pure: the log of recent writes. Each write of the file adds one row.
//!
//! The keys of a write are scattered over the table of keys, so writing them in place would need
//! many small writes. Appending a log row is a single write for any number of keys. When the log is
//! full, the merged writes of all rows go to the tables in key order, each key once.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_core::Revision;

use super::disk::{digest, millis};
use super::writer::Batch;
use crate::{Changes, Entry, KeyChange, LeaseId};

/// Merged content of log rows.
#[derive(Debug, Default)]
pub(super) struct PendingWrites {
    /// All changes in order. The last one of each key counts.
    changes: Vec<(Revision, KeyChange)>,
    /// Time to live of each lease, or `None` if it has ended.
    pub(super) leases: BTreeMap<LeaseId, Option<Duration>>,
    /// Last revision, if there was any.
    pub(super) revision: Option<Revision>,
}

impl PendingWrites {
    pub(super) fn add(&mut self, batch: &Batch) {
        for Changes { revision, changes } in &batch.revisions {
            self.revision = Some(*revision);
            self.changes.extend(changes.iter().map(|change| (*revision, change.clone())));
        }
        self.leases.extend(batch.granted.iter().map(|(lease, ttl)| (*lease, Some(*ttl))));
        self.leases.extend(batch.ended.iter().map(|lease| (*lease, None)));
    }

    /// Returns the last change of each key with its revision.
    pub(super) fn keys(&self) -> BTreeMap<&str, (Revision, &KeyChange)> {
        let changes = self.changes.iter();
        changes.map(|(revision, change)| (&*change.key, (*revision, change))).collect()
    }

    /// Applies the changes to `entries`, which are in key order.
    pub(super) fn apply_to(&self, entries: &mut Vec<Entry>) {
        let keys = self.keys();
        entries.retain(|entry| !keys.contains_key(entry.key.as_str()));
        entries.extend(keys.into_iter().filter_map(|(key, (modified, change))| {
            let value = change.value.as_ref()?.to_vec();
            Some(Entry { key: key.to_owned(), value, modified, lease: change.lease })
        }));
        entries.sort_by(|a, b| a.key.cmp(&b.key));
    }
}

/// Marks a deleted key, in place of the length of its value.
const DELETED: u64 = u64::MAX;

/// Encodes a batch as row `number`. The row contains, in this order:
///
/// - a checksum
/// - the revisions with their changes
/// - the granted leases with their times to live in milliseconds
/// - the ended leases
///
/// Every number has eight bytes, little-endian. A list is preceded by its count, and a text by its
/// length.
pub(super) fn encode(number: u64, batch: &Batch) -> Vec<u8> {
    let mut row = vec![0; 8];
    put(&mut row, batch.revisions.len() as u64);
    for Changes { revision, changes } in &batch.revisions {
        put(&mut row, revision.0);
        put(&mut row, changes.len() as u64);
        for KeyChange { key, value, lease } in changes {
            put(&mut row, lease.map_or(0, |lease| lease.0));
            put(&mut row, key.len() as u64);
            put(&mut row, value.as_ref().map_or(DELETED, |value| value.len() as u64));
            row.extend_from_slice(key.as_bytes());
            row.extend_from_slice(value.as_deref().unwrap_or_default());
        }
    }
    put(&mut row, batch.granted.len() as u64);
    for (lease, ttl) in &batch.granted {
        put(&mut row, lease.0);
        put(&mut row, millis(*ttl));
    }
    put(&mut row, batch.ended.len() as u64);
    batch.ended.iter().for_each(|lease| put(&mut row, lease.0));
    let sum = checksum(number, &row[8..]);
    row[..8].copy_from_slice(&sum.to_le_bytes());
    row
}

/// Decodes the batch in row `number`; `None` if the row is damaged.
pub(super) fn decode(number: u64, row: &[u8]) -> Option<Batch> {
    let mut rest = row;
    if take_number(&mut rest)? != checksum(number, rest) {
        return None;
    }
    let rest = &mut rest;
    let revisions = sequence(rest, |rest| {
        let revision = Revision(take_number(rest)?);
        Some(Changes { revision, changes: sequence(rest, change)? })
    })?;
    let granted = sequence(rest, |rest| {
        Some((LeaseId(take_number(rest)?), Duration::from_millis(take_number(rest)?)))
    })?;
    let ended = sequence(rest, |rest| take_number(rest).map(LeaseId))?;
    rest.is_empty().then_some(Batch { revisions, granted, ended })
}

fn change(rest: &mut &[u8]) -> Option<KeyChange> {
    let lease = take_number(rest)?;
    let (key, value) = (take_number(rest)?, take_number(rest)?);
    let key = std::str::from_utf8(bytes(rest, key)?).ok()?.into();
    let value = if value == DELETED { None } else { Some(bytes(rest, value)?.into()) };
    Some(KeyChange { key, value, lease: (lease != 0).then_some(LeaseId(lease)) })
}

fn sequence<T>(rest: &mut &[u8], mut one: impl FnMut(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let count = take_number(rest)?;
    (0..count).map(|_| one(rest)).collect()
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_le_bytes(*number))
}

fn bytes<'a>(rest: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (bytes, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(bytes)
}

fn put(row: &mut Vec<u8>, number: u64) {
    row.extend_from_slice(&number.to_le_bytes());
}

/// Computes a row's checksum. The checksum covers the row's number, so a misplaced row is detected.
fn checksum(number: u64, rest: &[u8]) -> u64 {
    digest(&[&number.to_le_bytes(), rest])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        let change = |key: &str, value: Option<&[u8]>, lease| KeyChange {
            key: key.into(),
            value: value.map(Into::into),
            lease,
        };
        let first = vec![change("a", Some(b"1"), None), change("b", Some(b""), Some(LeaseId(7)))];
        let second = vec![change("a", None, None)];
        let revisions = vec![
            Changes { revision: Revision(4), changes: first },
            Changes { revision: Revision(5), changes: second },
        ];
        let ttl = Duration::from_secs(3);
        Batch { revisions, granted: vec![(LeaseId(7), ttl)], ended: vec![LeaseId(2)] }
    }

    #[test]
    fn log_row_round_trips_and_damage_is_detected() {
        for batch in [batch(), Batch::default()] {
            let row = encode(9, &batch);
            assert_eq!(decode(9, &row), Some(batch));
            assert_eq!(decode(8, &row), None, "as another row");
            for at in 0..row.len() {
                let mut bad = row.clone();
                bad[at] ^= 0x55;
                assert_eq!(decode(9, &bad), None, "byte {at}");
                assert_eq!(decode(9, &row[..at]), None, "cut off at {at}");
            }
            assert_eq!(decode(9, &[&row[..], b"x"].concat()), None);
        }
    }

    #[test]
    fn last_change_of_a_key_or_lease_counts() {
        let mut pending = PendingWrites::default();
        pending.add(&batch());
        pending.add(&Batch { ended: vec![LeaseId(7)], ..Batch::default() });
        assert_eq!(pending.revision, Some(Revision(5)));
        assert_eq!(pending.leases, [(LeaseId(2), None), (LeaseId(7), None)].into());
        let entry = |key: &str, modified| Entry {
            key: key.to_owned(),
            value: Vec::new(),
            modified: Revision(modified),
            lease: (key == "b").then_some(LeaseId(7)),
        };
        let mut entries = vec![entry("a", 1), entry("c", 2)];
        pending.apply_to(&mut entries);
        assert_eq!(entries, [entry("b", 4), entry("c", 2)]);
    }
}
