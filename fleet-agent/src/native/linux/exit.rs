//! Exit of a process, by a status or a signal, and the exit status of a process that is not a child
//! of this daemon.
//!
//! The kernel returns the exit status of a child to the daemon that waits for it. For other
//! processes the kernel only reports that they have ended. Since version 6.15 a pidfd also provides
//! the exit status, once the parent has reaped the process.
//!
//! This daemon is a subreaper, so it may become the parent of such a process later. It then waits
//! for the process like for any other child.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use fleet_core::graph;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::process::{Signal, WaitId, WaitIdOptions, WaitIdStatus, waitid};
use serde::{Deserialize, Serialize};

/// Exit of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProcessExit {
    /// Exited with this code.
    Code(i32),
    /// Terminated by this signal.
    Signal(i32),
    /// Terminated by this signal, with a core dump.
    Dumped(i32),
    /// Ended unobserved, with unknown status.
    Unobserved,
    /// Not spawned: the machine had no capacity for another process.
    NotSpawned,
}

/// Converts the exit status of a child.
pub(crate) fn exit_from_status(status: ExitStatus) -> ProcessExit {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProcessExit::Code(code),
        (None, Some(signal)) if status.core_dumped() => ProcessExit::Dumped(signal),
        (None, Some(signal)) => ProcessExit::Signal(signal),
        (None, None) => ProcessExit::Unobserved,
    }
}

/// Knowledge about the exit of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PidfdExit {
    Exited(ProcessExit),
    /// The process runs, or its parent has not reaped it yet.
    Pending,
    /// This kernel does not report the exit.
    Unsupported,
}

/// Queries the exit of a process.
pub(crate) fn exit_of(process: impl AsFd) -> PidfdExit {
    let process = process.as_fd();
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    match waitid(WaitId::PidFd(process), options) {
        Ok(Some(status)) => return PidfdExit::Exited(exit_from_wait(&status)),
        // Our child: it runs, or its tracer has not released it.
        Ok(None) => return PidfdExit::Pending,
        Err(_) => {}
    }
    match pidfd_info(process) {
        Ok(pidfd_info) if pidfd_info.mask & EXIT != 0 => {
            PidfdExit::Exited(exit_from_status(ExitStatus::from_raw(pidfd_info.exit_code)))
        }
        Ok(_) => PidfdExit::Pending,
        Err(_) => PidfdExit::Unsupported,
    }
}

/// Returns the exit of a process. Fails with `WouldBlock` while the process runs, and until its
/// parent has reaped it.
pub(crate) fn read_exit(process: &OwnedFd) -> io::Result<ProcessExit> {
    match exit_of(process) {
        PidfdExit::Exited(end) => Ok(end),
        // Or another reaper of orphans has reaped it.
        PidfdExit::Unsupported => Ok(ProcessExit::Unobserved),
        PidfdExit::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

fn exit_from_wait(status: &WaitIdStatus) -> ProcessExit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ProcessExit::Code(code),
        (None, Some(signal)) if status.dumped() => ProcessExit::Dumped(signal),
        (None, Some(signal)) => ProcessExit::Signal(signal),
        (None, None) => ProcessExit::Unobserved,
    }
}

/// The kernel's `struct pidfd_info`, in its first version.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct PidfdInfo {
    /// The requested fields before the call, and the available ones after it.
    mask: u64,
    control_group: u64,
    numbers: [u32; 11],
    exit_code: i32,
}

const EXIT: u64 = 1 << 3;
const GET_INFO: Opcode = opcode::read_write::<PidfdInfo>(0xff, 11);

fn pidfd_info(process: BorrowedFd<'_>) -> rustix::io::Result<PidfdInfo> {
    let mut pidfd_info = PidfdInfo { mask: EXIT, ..PidfdInfo::default() };
    // SAFETY: the request reads and writes a structure of the size in its number, which is that of
    // `PidfdInfo` and has no invalid values. Kernels without this request, and descriptors of other
    // kinds, refuse it.
    #[expect(unsafe_code, reason = "no library that we use knows this request")]
    unsafe {
        ioctl(process, Updater::<GET_INFO, PidfdInfo>::new(&mut pidfd_info))?;
    }
    Ok(pidfd_info)
}

/// A signal that exists on every Linux architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sig(pub(crate) Signal);

/// The signals that unit files may use, besides real-time signals.
const NAMES: [(&str, Signal); 31] = [
    ("SIGHUP", Signal::HUP),
    ("SIGINT", Signal::INT),
    ("SIGQUIT", Signal::QUIT),
    ("SIGILL", Signal::ILL),
    ("SIGTRAP", Signal::TRAP),
    ("SIGABRT", Signal::ABORT),
    ("SIGBUS", Signal::BUS),
    ("SIGFPE", Signal::FPE),
    ("SIGKILL", Signal::KILL),
    ("SIGUSR1", Signal::USR1),
    ("SIGSEGV", Signal::SEGV),
    ("SIGUSR2", Signal::USR2),
    ("SIGPIPE", Signal::PIPE),
    ("SIGALRM", Signal::ALARM),
    ("SIGTERM", Signal::TERM),
    ("SIGSTKFLT", Signal::STKFLT),
    ("SIGCHLD", Signal::CHILD),
    ("SIGCONT", Signal::CONT),
    ("SIGSTOP", Signal::STOP),
    ("SIGTSTP", Signal::TSTP),
    ("SIGTTIN", Signal::TTIN),
    ("SIGTTOU", Signal::TTOU),
    ("SIGURG", Signal::URG),
    ("SIGXCPU", Signal::XCPU),
    ("SIGXFSZ", Signal::XFSZ),
    ("SIGVTALRM", Signal::VTALARM),
    ("SIGPROF", Signal::PROF),
    ("SIGWINCH", Signal::WINCH),
    ("SIGIO", Signal::IO),
    ("SIGPWR", Signal::POWER),
    ("SIGSYS", Signal::SYS),
];

/// Resumes a stopped process.
pub(crate) const CONT: Sig = Sig(Signal::CONT);

impl Sig {
    /// Cannot be caught or ignored.
    pub(crate) const KILL: Self = Self(Signal::KILL);

    /// Reports the loss of the terminal.
    pub(crate) const HUP: Self = Self(Signal::HUP);

    /// Converts a number of this architecture to that of x86 and ARM.
    pub(crate) fn portable_number(here: i32) -> Option<u8> {
        let index = NAMES.iter().position(|(_, signal)| signal.as_raw() == here);
        let number = index.and_then(|index| i32::try_from(index + 1).ok()).unwrap_or(here);
        u8::try_from(number).ok()
    }

    /// Returns its number on this machine.
    #[cfg(test)]
    pub(crate) fn number(self) -> i32 {
        self.0.as_raw()
    }
}

impl From<graph::Signal> for Sig {
    fn from(signal: graph::Signal) -> Self {
        if let Some(number) = signal.real_time_number() {
            return Self(real_time(number));
        }
        let name = signal.to_string();
        let found = NAMES.iter().find(|(known, _)| *known == name);
        Self(found.expect("a test checks that both lists have the same names").1)
    }
}

/// Returns a real-time signal.
#[expect(unsafe_code, reason = "rustix makes only signals with names without it")]
fn real_time(number: u8) -> Signal {
    // SAFETY: the number is a real-time signal that the C library does not reserve for itself, and
    // these signals are only sent to other processes, never handled in this one.
    unsafe { Signal::from_raw_unchecked(i32::from(number)) }
}

/// Returns the name of a signal without `SIG` (`KILL`), as systemd passes it to `ExecStopPost=`.
/// Returns the number as text if the signal has no name.
pub(crate) fn short_name(number: i32) -> String {
    let real_time = || {
        let signal = graph::Signal::from_number(u8::try_from(number).ok()?)?;
        signal.real_time_number().map(|_| signal.to_string())
    };
    let named = NAMES.iter().find(|(_, signal)| signal.as_raw() == number);
    let name = named.map(|(name, _)| (*name).to_owned()).or_else(real_time);
    name.map_or_else(|| number.to_string(), |name| name[3..].to_owned())
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[test]
    fn exit_of_reaped_child_is_known_or_unsupported() {
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "read line; exit 7"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("it can be run");
        let pid = Pid::from_child(&child);
        let held = pidfd_open(pid, PidfdFlags::empty()).expect("it runs");
        assert_ne!(exit_of(&held), PidfdExit::Exited(ProcessExit::Code(7)), "it runs");
        drop(child.stdin.take());
        child.wait().expect("it is our child");
        let known = exit_of(&held);
        assert!(
            [PidfdExit::Exited(ProcessExit::Code(7)), PidfdExit::Unsupported].contains(&known),
            "{known:?}"
        );
    }

    #[test]
    fn every_unit_file_signal_has_a_number() {
        let real_time = (34..=64).filter_map(graph::Signal::from_number);
        for signal in graph::Signal::all().chain(real_time) {
            let number = Sig::from(signal).number();
            assert_eq!(format!("SIG{}", short_name(number)), signal.to_string());
        }
        assert_eq!(Sig::from(graph::Signal::KILL), Sig::KILL);
        assert_eq!(short_name(9), "KILL");
        assert_eq!(short_name(40), "RTMIN+6");
        assert_eq!(short_name(33), "33");
    }
}
