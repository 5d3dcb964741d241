//! How a process ended that is no child of ours.
//!
//! A child's end is waited for. Of others the kernel tells nothing but that they have ended, unless
//! it is 6.15 or later: then who holds a descriptor of the process learns its status from that,
//! once its parent has waited for it. A process that became our child later, because this daemon
//! takes in orphans, is waited for like any other.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::process::{WaitId, WaitIdOptions, WaitIdStatus, waitid};

use super::outcome::End;
use super::process::end_of;

/// What is known of the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Ended(End),
    /// Its parent has yet to wait for it.
    NotYet,
    /// This kernel does not tell.
    Never,
}

/// Asks how a process ended.
pub(crate) fn how_it_ended(process: impl AsFd) -> Known {
    let process = process.as_fd();
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    match waitid(WaitId::PidFd(process), options) {
        Ok(Some(status)) => return Known::Ended(end_told_by(&status)),
        // A child of ours: it runs, or whoever traces it has not let go of it.
        Ok(None) => return Known::NotYet,
        Err(_) => {}
    }
    match information(process) {
        Ok(information) if information.mask & EXIT != 0 => {
            Known::Ended(end_of(ExitStatus::from_raw(information.exit_code)))
        }
        Ok(_) => Known::NotYet,
        Err(_) => Known::Never,
    }
}

/// Takes the end of a process, or tells by `WouldBlock` that it runs, or that its parent has yet to
/// wait for it.
pub(crate) fn take_end(process: &OwnedFd) -> io::Result<End> {
    match how_it_ended(process) {
        Known::Ended(end) => Ok(end),
        // Or whoever reaps orphans has reaped it.
        Known::Never => Ok(End::Unseen),
        Known::NotYet => Err(io::ErrorKind::WouldBlock.into()),
    }
}

fn end_told_by(status: &WaitIdStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Code(code),
        (None, Some(signal)) if status.dumped() => End::Dumped(signal),
        (None, Some(signal)) => End::Signal(signal),
        (None, None) => End::Unseen,
    }
}

/// The kernel's `struct pidfd_info`, as it was first.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Information {
    /// What is asked for, and then what there is.
    mask: u64,
    control_group: u64,
    numbers: [u32; 11],
    exit_code: i32,
}

const EXIT: u64 = 1 << 3;
const GET_INFORMATION: Opcode = opcode::read_write::<Information>(0xff, 11);

fn information(process: BorrowedFd<'_>) -> rustix::io::Result<Information> {
    let mut information = Information { mask: EXIT, ..Information::default() };
    // SAFETY: the request reads and writes a structure of the size that its number carries, which
    // is that of `Information`, and which has no invalid values. Kernels that do not know the
    // request, or no descriptors of processes, refuse it.
    #[expect(unsafe_code, reason = "no library that we use knows this request")]
    unsafe {
        ioctl(process, Updater::<GET_INFORMATION, Information>::new(&mut information))?;
    }
    Ok(information)
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[test]
    fn a_child_is_waited_for_and_what_was_waited_for_is_known_or_never_will_be() {
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "read line; exit 7"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("it can be run");
        let pid = Pid::from_child(&child);
        let held = pidfd_open(pid, PidfdFlags::empty()).expect("it runs");
        assert_ne!(how_it_ended(&held), Known::Ended(End::Code(7)), "it runs");
        drop(child.stdin.take());
        child.wait().expect("it is our child");
        let known = how_it_ended(&held);
        assert!([Known::Ended(End::Code(7)), Known::Never].contains(&known), "{known:?}");
    }
}
