//! System calls that no library in use offers.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use nix::libc;
use rustix::mount::MountAttrFlags;

use super::plan::BpfInstruction;

/// The kernel's `struct mount_attr`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Sets and clears attributes of the mount at `tree`, with all mounts below it if `recursive`.
pub(super) fn change_mount(
    tree: impl AsFd,
    set: MountAttrFlags,
    clear: MountAttrFlags,
    recursive: bool,
) -> io::Result<()> {
    let attributes = MountAttributes {
        set: set.bits().into(),
        clear: clear.bits().into(),
        propagation: 0,
        user_namespace: 0,
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is NUL-terminated, and the structure has the size that is passed. The kernel
    // only reads both.
    #[expect(unsafe_code, reason = "rustix has no function for this call")]
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    check(answer)
}

/// Installs a filter of system calls for this thread and everything it executes. Without
/// `CAP_SYS_ADMIN`, the thread must have set `no_new_privs`.
pub(super) fn install_filter(instructions: &[BpfInstruction]) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> = instructions
        .iter()
        .map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k })
        .collect();
    let len = filter.len().try_into().map_err(|_| io::ErrorKind::FileTooLarge)?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: the program points to as many instructions as it says, which outlive the call. The
    // kernel copies and checks them.
    #[expect(unsafe_code, reason = "seccompiler sets no_new_privs, which root's services must not")]
    let answer = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
            0_usize,
            0_usize,
        )
    };
    check(answer.into())
}

/// Sets the scheduling policy, with its flags, and the priority of this process.
pub(super) fn set_scheduler(policy: i32, priority: i32) -> io::Result<()> {
    // SAFETY: the type consists of integers, for which zero is valid.
    #[expect(unsafe_code, reason = "some systems have more fields than the priority")]
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = priority;
    // SAFETY: the kernel only reads the parameter.
    #[expect(unsafe_code, reason = "rustix has no function for this call")]
    let answer = unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) };
    check(answer.into())
}

/// Sets the class and the priority of this process's access to disks.
pub(super) fn set_io_priority(class: i32, priority: i32) -> io::Result<()> {
    const WHO_PROCESS: i32 = 1;
    const CLASS_SHIFT: i32 = 13;
    let value = class << CLASS_SHIFT | priority;
    // SAFETY: all arguments are numbers.
    #[expect(unsafe_code, reason = "the C library has no function for this call")]
    let answer = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, value) };
    check(answer)
}

/// Sets the personality of this process.
pub(super) fn set_personality(personality: u32) -> io::Result<()> {
    // SAFETY: the argument is a number.
    #[expect(unsafe_code, reason = "rustix has no function for this call")]
    let answer = unsafe { libc::personality(personality.into()) };
    check(answer.into())
}

/// Performs an operation on keyrings. Returns its answer.
pub(super) fn keyctl(operation: i32, arguments: [i64; 2]) -> io::Result<i64> {
    let [first, second] = arguments;
    // SAFETY: for the operations in use, all arguments are numbers.
    #[expect(unsafe_code, reason = "no library in use has functions for this call")]
    let answer = unsafe { libc::syscall(libc::SYS_keyctl, operation, first, second, 0, 0) };
    check(answer).map(|()| answer)
}

/// Adds a key of a user to a keyring. Returns its number.
pub(super) fn add_key(name: &CStr, contents: &[u8], keyring: i64) -> io::Result<i64> {
    // SAFETY: the texts are NUL-terminated, and the contents have the length that is passed.
    #[expect(unsafe_code, reason = "no library in use has functions for this call")]
    let answer = unsafe {
        libc::syscall(
            libc::SYS_add_key,
            c"user".as_ptr(),
            name.as_ptr(),
            contents.as_ptr(),
            contents.len(),
            keyring,
        )
    };
    check(answer).map(|()| answer)
}

fn check(answer: i64) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
