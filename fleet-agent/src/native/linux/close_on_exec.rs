//! Descriptors inherited from the parent of this process.

use std::io;

use nix::libc;

/// Marks every descriptor except stdin, stdout and stderr as close-on-exec, including descriptors
/// inherited from the parent process. Otherwise all units would inherit these descriptors, even
/// units that run as another user. This function is for programs, not for libraries.
///
/// # Errors
///
/// The kernel is older than version 5.11, so `close_range` cannot set this flag.
pub fn set_cloexec_on_all() -> io::Result<()> {
    let (first, last): (libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX);
    // SAFETY: the arguments are plain numbers. It changes a flag of descriptors that only matters
    // on exec, and closes none.
    #[expect(unsafe_code, reason = "no library that we use marks all descriptors at once")]
    let answer =
        unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
