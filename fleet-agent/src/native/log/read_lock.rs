//! Who reads all of a log, so that nothing is given up that they have not read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// How far somebody has read a log. What comes after is kept for them until this is dropped.
#[derive(Debug)]
pub(crate) struct ReadLock(Arc<ReadOffset>);

/// The place from which on a log was not read.
#[derive(Debug)]
pub(super) struct ReadOffset(AtomicU64);

impl ReadLock {
    pub(super) fn from(place: u64) -> Self {
        Self(Arc::new(ReadOffset(AtomicU64::new(place))))
    }

    pub(super) fn read_offset(&self) -> Weak<ReadOffset> {
        Arc::downgrade(&self.0)
    }

    /// How far it was read.
    pub(crate) fn place(&self) -> u64 {
        self.0.place()
    }

    /// All before that place was read.
    pub(crate) fn go_on(&self, place: u64) {
        self.0.0.store(place, Ordering::SeqCst);
    }
}

impl ReadOffset {
    pub(super) fn place(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
