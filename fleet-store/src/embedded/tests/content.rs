//! After any sequence of writes and reopenings, the file has the same content as a keyspace with
//! the same writes.

use fleet_core::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::backend::{EndedLease, Keyspace};
use crate::embedded::writer::Batch;

#[derive(Debug, Clone)]
pub(super) enum Step {
    Put {
        key: u8,
        size: usize,
        bound: bool,
    },
    Delete(u8),
    Grant,
    /// Revokes the lease that was granted this many leases before the last one.
    Revoke(u64),
    /// Writes all changes since the last write or reopening at once.
    Write,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let put = (0..20u8, 0..400usize, any::<bool>());
    let step = prop_oneof![
        6 => put.prop_map(|(key, size, bound)| Step::Put { key, size, bound }),
        2 => (0..20u8).prop_map(Step::Delete),
        2 => Just(Step::Grant),
        1 => (0..3u64).prop_map(Step::Revoke),
        4 => Just(Step::Write),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

const NOW: Timestamp = Timestamp::from_millis(0);
const TTL: Duration = Duration::from_secs(9);

/// A keyspace with its changes that are not written yet.
pub(super) struct Model {
    keyspace: Keyspace,
    last: LeaseId,
    granted: Vec<LeaseId>,
    pub(super) batch: Batch,
}

impl Model {
    pub(super) fn new() -> Self {
        let (keyspace, granted) = (Keyspace::new(), Vec::new());
        Self { keyspace, last: LeaseId(0), granted, batch: Batch::default() }
    }

    pub(super) fn step(&mut self, step: &Step) {
        match step {
            Step::Put { key, size, bound } => {
                let (key, value) = (format!("key/{key}"), vec![b'v'; *size]);
                let put = match self.granted.last().filter(|_| *bound) {
                    Some(lease) => Transaction::new().put_leased(key, value, *lease),
                    None => Transaction::new().put(key, value),
                };
                self.apply(&put);
            }
            Step::Delete(key) => self.apply(&Transaction::new().delete(format!("key/{key}"))),
            Step::Grant => {
                self.last = self.keyspace.grant(NOW, TTL);
                self.granted.push(self.last);
                self.batch.granted.push((self.last, TTL));
            }
            Step::Revoke(before) => self.revoke(LeaseId(self.last.0.saturating_sub(*before))),
            Step::Write | Step::Reopen => {}
        }
    }

    fn apply(&mut self, transaction: &Transaction) {
        self.batch.revisions.extend(self.keyspace.apply(NOW, transaction).unwrap().changes);
    }

    fn revoke(&mut self, lease: LeaseId) {
        let Some(EndedLease { lease, changes }) = self.keyspace.revoke(lease) else { return };
        self.granted.retain(|granted| *granted != lease);
        self.batch.ended.push(lease);
        self.batch.revisions.extend(changes);
    }

    pub(super) fn check(&self, image: StoreImage) {
        let leases = self.granted.iter().map(|lease| (*lease, TTL)).collect::<Vec<_>>();
        assert_eq!(image.leases, leases);
        assert_eq!(image.last_lease, self.last);
        assert_eq!(image.revision, self.keyspace.revision());
        assert_eq!(image.entries, self.keyspace.read("").entries);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn file_content_equals_the_keyspace(steps in steps()) {
        let file = FailingDisk::new();
        let (mut disk, _) = Disk::open_on(file.clone(), true).unwrap();
        let mut model = Model::new();
        for step in steps.iter().chain([&Step::Write, &Step::Reopen]) {
            model.step(step);
            if let Step::Write = step {
                disk.write(&std::mem::take(&mut model.batch)).unwrap();
            }
            if let Step::Reopen = step {
                disk.write(&std::mem::take(&mut model.batch)).unwrap();
                drop(disk);
                let (opened, image) = Disk::open_on(file.clone(), false).unwrap();
                model.check(image);
                disk = opened;
            }
        }
    }
}

/// Lets the disk fail after 0, 1, 2, … successful calls.
// Holds: I-6
#[test]
fn failed_write_loses_no_acknowledged_write() {
    for writes in 0.. {
        let file = FailingDisk::new();
        let (mut disk, _) = Disk::open_on(file.clone(), true).unwrap();
        let mut model = Model::new();
        file.left.store(writes, Ordering::SeqCst);
        let mut acknowledged = 0;
        let mut results = (0..12u8).map(|key| {
            model.step(&Step::Put { key: key % 3, size: 300, bound: false });
            disk.write(&std::mem::take(&mut model.batch))
        });
        let failed = results.any(|done| {
            acknowledged += u64::from(done.is_ok());
            done.is_err()
        });
        drop(disk);
        file.left.store(u64::MAX, Ordering::SeqCst);
        let (_, image) = Disk::open_on(file, false).unwrap();
        // The failed write may be present as a whole.
        let unknown = u64::from(failed);
        let revision = image.revision.0;
        assert!((acknowledged..=acknowledged + unknown).contains(&revision), "after {writes}");
        let keys = image.entries.iter().map(|entry| entry.modified.0).collect::<Vec<_>>();
        let last = (1..=revision).rev().take(3).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(keys.into_iter().collect::<std::collections::BTreeSet<_>>(), last);
        if !failed {
            return;
        }
    }
}
