//! Memory settings for long-running programs with temporary peaks of memory use.
//!
//! Both functions of this module are for programs, not for libraries. Without glibc they do
//! nothing.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use nix::libc;

/// Makes all threads created from now on share one malloc arena. The price is contention between
/// these threads. By default glibc creates several arenas, each for some of the threads. Memory
/// freed by one thread is hardly ever reused by a thread with another arena.
pub fn use_single_malloc_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes the allocator's own locks, and sets a number.
    #[expect(unsafe_code, reason = "no library in use wraps mallopt")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Returns freed memory to the kernel, which glibc otherwise keeps for reuse.
pub fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes the allocator's own locks, and touches no memory in use.
    #[expect(unsafe_code, reason = "no library in use wraps malloc_trim")]
    unsafe {
        libc::malloc_trim(0);
    }
}
