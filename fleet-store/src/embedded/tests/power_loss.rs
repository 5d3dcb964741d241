//! Loss of power at any time. Data that was not yet synced may then be on the disk completely,
//! partly or not at all.

use std::sync::{Mutex, MutexGuard};

use super::content::{Model, Step};
use super::*;

/// A disk with a write cache.
#[derive(Debug, Clone)]
struct CachedDisk {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    /// Content as read back, including the cache.
    shown: Vec<u8>,
    /// Content that is certainly on the disk.
    durable: Vec<u8>,
    /// Cached changes, in order.
    cached: Vec<CachedWrite>,
    /// Number of mutating calls before the loss of power.
    left: u64,
}

#[derive(Debug)]
enum CachedWrite {
    Length(usize),
    Bytes(usize, Vec<u8>),
}

/// Bytes that a disk writes atomically.
const SECTOR: usize = 512;

impl CachedDisk {
    fn holding(bytes: Vec<u8>, left: u64) -> Self {
        let inner = Inner { shown: bytes.clone(), durable: bytes, cached: Vec::new(), left };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    fn lose_power_after(&self, calls: u64) {
        self.locked().left = calls;
    }

    /// Returns the disk after a loss of power, with a random subset of the cached sectors written.
    fn after_power_loss(&self, seed: u64) -> Self {
        let (inner, mut chance) = (self.locked(), seed);
        let mut happens = || {
            chance = chance.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            chance >> 63 == 0
        };
        let mut bytes = inner.durable.clone();
        for cached in &inner.cached {
            match cached {
                CachedWrite::Length(length) if happens() => bytes.resize(*length, 0),
                CachedWrite::Length(_) => {}
                CachedWrite::Bytes(at, written) => {
                    for (number, sector) in written.chunks(SECTOR).enumerate() {
                        let from = at + number * SECTOR;
                        // Bytes beyond the known length of the file are lost.
                        if happens() && from + sector.len() <= bytes.len() {
                            bytes[from..from + sector.len()].copy_from_slice(sector);
                        }
                    }
                }
            }
        }
        Self::holding(bytes, u64::MAX)
    }
}

impl Inner {
    fn call(&mut self) -> io::Result<()> {
        self.left = self.left.checked_sub(1).ok_or(io::ErrorKind::Other)?;
        Ok(())
    }
}

impl StorageBackend for CachedDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.locked().shown.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap();
        out.copy_from_slice(&self.locked().shown[from..from + out.len()]);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut inner = self.locked();
        inner.call()?;
        let length = usize::try_from(length).unwrap();
        inner.shown.resize(length, 0);
        inner.cached.push(CachedWrite::Length(length));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut inner = self.locked();
        inner.call()?;
        inner.durable = inner.shown.clone();
        inner.cached.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut inner = self.locked();
        inner.call()?;
        let from = usize::try_from(offset).unwrap();
        inner.shown[from..from + data.len()].copy_from_slice(data);
        inner.cached.push(CachedWrite::Bytes(from, data.to_vec()));
        Ok(())
    }
}

fn put(model: &mut Model, number: u8) -> writer::Batch {
    model.step(&Step::Put { key: number % 3, size: 300, bound: false });
    std::mem::take(&mut model.batch)
}

/// Loses power at some disk call of twelve writes. Each repetition loses power one call later,
/// until all writes succeed.
// Holds: I-6
#[test]
fn power_loss_loses_no_acknowledged_write() {
    for calls in 0.. {
        let file = CachedDisk::holding(Vec::new(), u64::MAX);
        let (mut disk, _) = Disk::open_on(file.clone(), true).unwrap();
        let mut model = Model::new();
        file.lose_power_after(calls);
        let mut results = (0..12).map(|number| disk.write(&put(&mut model, number)));
        let acknowledged = results.by_ref().take_while(Result::is_ok).count() as u64;
        let unknown = u64::from(acknowledged < 12);
        for seed in 0..4 {
            let (_, image) = Disk::open_on(file.after_power_loss(seed), false).unwrap();
            let revision = image.revision.0;
            let all = acknowledged..=acknowledged + unknown;
            assert!(all.contains(&revision), "{acknowledged} {revision} after {calls}, {seed}");
            let mut keys = image.entries.iter().map(|entry| entry.modified.0).collect::<Vec<_>>();
            keys.sort_unstable();
            assert_eq!(keys, (revision.saturating_sub(2).max(1)..=revision).collect::<Vec<_>>());
        }
        if unknown == 0 {
            return;
        }
    }
}

/// Loses power at some disk call while a file is opened, which writes to it. Each repetition loses
/// power one call later, until the opening succeeds.
// Holds: I-6
#[test]
fn interrupted_opening_loses_nothing() {
    let (file, mut model) = (CachedDisk::holding(Vec::new(), u64::MAX), Model::new());
    let (mut disk, _) = Disk::open_on(file.clone(), true).unwrap();
    model.step(&Step::Grant);
    (0..5).for_each(|number| disk.write(&put(&mut model, number)).unwrap());
    drop(disk);
    let closed = file.locked().shown.clone();
    for calls in 0.. {
        let file = CachedDisk::holding(closed.clone(), calls);
        let opened = Disk::open_on(file.clone(), false).is_some();
        for seed in 0..4 {
            model.check(Disk::open_on(file.after_power_loss(seed), false).unwrap().1);
        }
        if opened {
            break;
        }
    }
}
