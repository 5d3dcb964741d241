//! The memory of a program that lives long, and at times needs much.
//!
//! Both are for programs, and not for those who use them as a library. Elsewhere than on glibc they
//! do nothing.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use nix::libc;

/// Has all threads that are begun from now on allocate from one heap, where they wait for one
/// another. By itself glibc has a heap for each of some threads, and what one thread has freed
/// another hardly ever uses.
pub fn use_single_malloc_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes the locks of the allocator itself, and sets a number.
    #[expect(unsafe_code, reason = "no library that we use tells the allocator so")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives memory that was freed back to the kernel, which glibc keeps in case it is needed again.
pub fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes the locks of the allocator itself, and touches no memory that is in use.
    #[expect(unsafe_code, reason = "no library that we use has the allocator do so")]
    unsafe {
        libc::malloc_trim(0);
    }
}
