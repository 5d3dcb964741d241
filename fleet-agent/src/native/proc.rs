//! What the kernel tells of processes under `/proc`, and the wait for the end of any of them.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

use super::cgroup::Group;
use super::exit::read_exit;
use super::outcome::ProcessExit;
use super::process_info::{ProbeResult, Stat, probe_until_settled, stat};
use super::run_state::ProcessId;
use super::signals::Sig;
use crate::Clock;
use crate::async_fd::{read_next, register_readable, wait_readable};

/// How long a parent is given to wait for its child, before it is given up to learn its status.
const PARENT_TIMEOUT: Duration = Duration::from_secs(1);

/// How many generations of parents are looked at.
const GENERATIONS: usize = 64;

/// The process of that number; `None` when none runs.
pub(crate) fn started(pid: u32) -> io::Result<Option<ProcessId>> {
    Ok(stat(pid)?.ok().filter(|it| it.runs).map(|it| it.process.id))
}

/// The process of that number, also when it has ended and was not waited for.
pub(crate) fn child(pid: u32) -> io::Result<Option<ProcessId>> {
    Ok(stat(pid)?.ok().map(|it| it.process.id))
}

/// The boot that this machine is in.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Whether one process belongs to a run: it is in its control group, where there is one.
pub(crate) fn belongs_to_run(
    process: ProcessId,
    group: Option<&Group>,
    run: &str,
    leaders: &[ProcessId],
) -> io::Result<bool> {
    match group {
        Some(group) => Ok(group.members()?.contains(&process.pid)),
        None => descends_from_run(process, run, leaders),
    }
}

/// Whether one process belongs to a run, as [`members`](super::process_table::members) has it, without a
/// look at all others: this process belongs to none, and what it has begun to none by that.
fn descends_from_run(process: ProcessId, run: &str, leaders: &[ProcessId]) -> io::Result<bool> {
    let (own, mut pid) = (std::process::id(), process.pid);
    for _ in 0..GENERATIONS {
        if pid == own {
            break;
        }
        let Ok(Stat { process, .. }) = stat(pid)? else { return Ok(false) };
        let variables = match probe_until_settled(pid)? {
            ProbeResult::Running(process) => process.invocation,
            _ => None,
        };
        if variables.as_deref() == Some(run) {
            return Ok(true);
        }
        if let Some(leader) = leaders.iter().find(|leader| leader.pid == process.group) {
            let is_reused = child(leader.pid)?.is_some_and(|now| now != *leader);
            if variables.is_none() && !is_reused {
                return Ok(true);
            }
        }
        pid = process.parent;
        if pid <= 1 {
            break;
        }
    }
    Ok(false)
}

/// A process that can be waited for and signalled, and cannot be mistaken for another.
#[derive(Debug)]
pub(crate) struct ProcessHandle {
    descriptor: AsyncFd<OwnedFd>,
}

impl ProcessHandle {
    /// Takes hold of a process; `None` when it does not run any more.
    pub(crate) fn open(process: ProcessId) -> io::Result<Option<Self>> {
        let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            // The number of none, or by now that of a thread, for which kernels have two words.
            Err(Errno::SRCH | Errno::NOENT | Errno::INVAL) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // The number may have been given to another process before the descriptor was made.
        if started(process.pid)? != Some(process) {
            return Ok(None);
        }
        let descriptor = register_readable(descriptor)?;
        Ok(Some(Self { descriptor }))
    }

    /// Sends a signal; a process that has ended does not mind.
    pub(crate) fn signal(&self, signal: Sig) -> io::Result<()> {
        match pidfd_send_signal(&self.descriptor, signal.0) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns when the process has ended.
    pub(crate) async fn ended(&self) -> io::Result<()> {
        wait_readable(&self.descriptor).await
    }

    /// Returns when the process has ended, with what there is to learn of its end.
    pub(crate) async fn end(&self, clock: &dyn Clock) -> io::Result<ProcessExit> {
        self.ended().await?;
        tokio::select! {
            end = read_next(&self.descriptor, read_exit) => end,
            () = clock.sleep(PARENT_TIMEOUT) => Ok(ProcessExit::Unobserved),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;

    use super::*;

    #[test]
    fn this_very_process_runs() {
        let own = started(std::process::id()).expect("it can be read").expect("it runs");
        assert_eq!(child(own.pid).expect("it can be read"), Some(own));
        assert_eq!(started(u32::MAX).expect("nothing is in the way"), None);
    }

    /// As one that a unit has begun does, as by a shell of an `sshd` that is one.
    #[test]
    fn what_who_looks_has_begun_is_of_no_run_for_that() {
        let group = rustix::process::getpgrp().as_raw_nonzero().get().unsigned_abs();
        let leader = child(group).expect("it can be read");
        let leader = leader.unwrap_or(ProcessId { pid: group, start: 0 });
        let mut sleep = std::process::Command::new("sleep");
        let mut sleep = sleep.arg("1000").process_group(0).spawn().expect("it can be begun");
        let begun = child(sleep.id()).expect("it can be read").expect("it runs");
        let is_of = |process| descends_from_run(process, "a", &[leader]).expect("it can be read");
        let (of_child, of_own) = (is_of(begun), is_of(child(std::process::id()).unwrap().unwrap()));
        sleep.kill().and_then(|()| sleep.wait()).expect("it is a child");
        assert_eq!((of_child, of_own), (false, false));
    }

    #[tokio::test]
    async fn a_process_whose_number_a_thread_has_by_now_is_gone() {
        let held = std::thread::spawn(|| {
            let number = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            assert_ne!(number, std::process::id());
            let thread = child(number).expect("it can be read").expect("it runs");
            let earlier = ProcessId { start: thread.start.wrapping_sub(1), ..thread };
            [earlier, thread].map(ProcessHandle::open)
        });
        let held = held.join().expect("it ends");
        for held in held {
            assert!(held.expect("that is no failure").is_none());
        }
    }
}
