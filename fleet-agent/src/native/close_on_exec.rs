//! What the process that started this one left open.

use std::io;

use nix::libc;

/// Has every descriptor close where a program is executed, but for input, output and errors: also
/// those that whoever started this process left open. Otherwise all units would have them, whoever
/// they run as. It is for programs, and not for those who use them as a library.
///
/// # Errors
///
/// The kernel does not know how: it needs 5.11 or later.
pub fn set_cloexec_on_all() -> io::Result<()> {
    let (first, last): (libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX);
    // SAFETY: it is told numbers alone, and changes a mark of descriptors that matters only where
    // a program is executed; nobody's descriptor is closed by it.
    #[expect(unsafe_code, reason = "no library that we use marks all descriptors at once")]
    let answer =
        unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
