//! Counts the bytes that are allocated and not yet freed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of allocated bytes.
pub(crate) fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: all work is that of the system's allocator; counting does not touch the memory.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the promises that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the promises that `System` asks for.
        unsafe { System.dealloc(pointer, layout) }
    }
}
