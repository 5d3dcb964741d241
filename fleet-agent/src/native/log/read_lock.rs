//! Protects the unread part of a log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Lock on the unread part of a log. The log keeps everything after the read offset until the lock
/// is dropped.
#[derive(Debug)]
pub(crate) struct ReadLock(Arc<ReadOffset>);

/// Offset from which a log has not been read.
#[derive(Debug)]
pub(super) struct ReadOffset(AtomicU64);

impl ReadLock {
    pub(super) fn from(offset: u64) -> Self {
        Self(Arc::new(ReadOffset(AtomicU64::new(offset))))
    }

    pub(super) fn read_offset(&self) -> Weak<ReadOffset> {
        Arc::downgrade(&self.0)
    }

    /// Returns the offset up to which the log has been read.
    pub(crate) fn offset(&self) -> u64 {
        self.0.offset()
    }

    /// Records that everything before this offset has been read.
    pub(crate) fn advance(&self, offset: u64) {
        self.0.0.store(offset, Ordering::SeqCst);
    }
}

impl ReadOffset {
    pub(super) fn offset(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
