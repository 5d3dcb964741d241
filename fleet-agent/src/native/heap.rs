//! Memory settings for long-running programs with temporary peaks of memory use.
//!
//! Both functions of this module affect the whole process, so they are for programs, not for
//! libraries. Without glibc they do nothing.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use nix::libc;

/// Makes all threads created from now on share one malloc arena. By default glibc spreads threads
/// over several arenas, and memory freed in one arena is hardly ever reused by threads of another.
/// The price of a single arena is contention between these threads.
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
