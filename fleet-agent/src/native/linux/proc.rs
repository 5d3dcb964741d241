//! Reads processes from `/proc`, and waits for the end of arbitrary processes. Also identifies the
//! current boot.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

use super::cgroup::Group;
use super::exit::{ProcessExit, Sig, read_exit};
use super::process_info::{ProbeResult, ProcessId, Stat, probe_until_settled, stat};
use crate::Clock;
use crate::async_fd::{read_next, register_readable, wait_readable};
use crate::clock::boot_id;

/// Maximum time to wait until the parent of an exited process has reaped it. After that time the
/// exit status counts as unknown.
const PARENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Limit on the number of ancestors that are checked.
const GENERATIONS: usize = 64;

/// Returns the running process with this pid; `None` if there is none.
pub(crate) fn started(pid: u32) -> io::Result<Option<ProcessId>> {
    Ok(stat(pid)?.ok().filter(|it| it.runs).map(|it| it.process.id))
}

/// Returns the process with this pid, even if it is a zombie.
pub(crate) fn child(pid: u32) -> io::Result<Option<ProcessId>> {
    Ok(stat(pid)?.ok().map(|it| it.process.id))
}

/// Returns whether a process belongs to a run. If the run has a control group, the members of the
/// group belong to the run, and no other process does. Otherwise the environment and the process
/// group decide, for the process and its ancestors.
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

/// Returns whether a process or one of its ancestors belongs to a run. The rules are those of
/// [`members`](super::process_table::members), but only the ancestors are read and not all
/// processes.
///
/// The search ends at this daemon: neither the daemon nor its ancestors make a process a member.
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

/// Handle to wait for a process and to signal it. Even if the pid is reused, the handle does not
/// refer to the later process.
#[derive(Debug)]
pub(crate) struct ProcessHandle {
    descriptor: AsyncFd<OwnedFd>,
}

impl ProcessHandle {
    /// Opens a process; `None` if it no longer runs.
    pub(crate) fn open(process: ProcessId) -> io::Result<Option<Self>> {
        let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            // No process has this pid, or it is that of a thread, for which kernels have two
            // errors.
            Err(Errno::SRCH | Errno::NOENT | Errno::INVAL) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // The pid may have been reused before the descriptor was created.
        if started(process.pid)? != Some(process) {
            return Ok(None);
        }
        let descriptor = register_readable(descriptor)?;
        Ok(Some(Self { descriptor }))
    }

    /// Sends a signal; a process that has ended is no error.
    pub(crate) fn signal(&self, signal: Sig) -> io::Result<()> {
        match pidfd_send_signal(&self.descriptor, signal.0) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns once the process has ended.
    pub(crate) async fn ended(&self) -> io::Result<()> {
        wait_readable(&self.descriptor).await
    }

    /// Waits for the process to end. Returns the exit status, or `Unobserved` if the parent does
    /// not reap the process within [`PARENT_TIMEOUT`].
    pub(crate) async fn end(&self, clock: &dyn Clock) -> io::Result<ProcessExit> {
        self.ended().await?;
        tokio::select! {
            end = read_next(&self.descriptor, read_exit) => end,
            () = clock.sleep(PARENT_TIMEOUT) => Ok(ProcessExit::Unobserved),
        }
    }
}

/// A boot of a machine, or of a container.
///
/// The restart of a container counts as a reboot too: all processes of the container are gone,
/// although the kernel has not restarted. A container is identified by its pid namespace and by the
/// start time of its first process. The namespace number alone is not enough, since the kernel
/// reuses the number of a removed namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Boot {
    /// The kernel's boot ID.
    id: String,
    /// Inode of the pid namespace, if it can be read.
    namespace: Option<u64>,
    /// Start time of the first process in it, if it can be read.
    first: Option<u64>,
}

impl Boot {
    /// Returns the current boot.
    pub(crate) fn current() -> io::Result<Self> {
        let namespace = std::fs::metadata("/proc/self/ns/pid").ok().map(|it| it.ino());
        let first = child(1).ok().flatten().map(|process| process.start);
        Ok(Self { id: boot_id()?, namespace, first })
    }

    /// Reads the stored boot; `None` if there is none.
    pub(crate) fn read(file: &Path) -> io::Result<Option<Self>> {
        match std::fs::read_to_string(file) {
            Ok(text) => Ok(Some(Self::parse(&text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the two boots differ. If they do, no process of one boot can exist in the
    /// other. A value that only one of the two boots has is not compared.
    pub(crate) fn differs_from(&self, other: &Self) -> bool {
        let differ = |one: Option<u64>, other: Option<u64>| {
            one.zip(other).is_some_and(|(one, other)| one != other)
        };
        self.id != other.id
            || differ(self.namespace, other.namespace)
            || differ(self.first, other.first)
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let mut boot = Self { id: lines.next().unwrap_or_default().to_owned(), ..Self::default() };
        for (key, value) in lines.filter_map(|line| line.split_once(' ')) {
            match key {
                "namespace" => boot.namespace = value.parse().ok(),
                "first" => boot.first = value.parse().ok(),
                _ => {}
            }
        }
        boot
    }

    /// Formats the boot for storage.
    pub(crate) fn text(&self) -> String {
        let line =
            |key, value: Option<u64>| value.map(|it| format!("\n{key} {it}")).unwrap_or_default();
        self.id.clone() + &line("namespace", self.namespace) + &line("first", self.first)
    }
}

/// Returns a text that identifies the current boot of the machine or container, for
/// [`is_current_boot`].
///
/// # Errors
///
/// The boot ID of the kernel cannot be read.
pub fn current_boot() -> io::Result<String> {
    Ok(Boot::current()?.text())
}

/// Returns whether a process that ran in the boot of this text may still run.
///
/// # Errors
///
/// As for [`current_boot`].
pub fn is_current_boot(text: &str) -> io::Result<bool> {
    Ok(!Boot::parse(text).differs_from(&Boot::current()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;

    use super::*;

    #[test]
    fn own_process_is_running() {
        let own = started(std::process::id()).expect("it can be read").expect("it runs");
        assert_eq!(child(own.pid).expect("it can be read"), Some(own));
        assert_eq!(started(u32::MAX).expect("no error is expected"), None);
    }

    /// The arguments describe the run of a unit that has started this test process, for example a
    /// shell of an `sshd` unit. Neither this process nor its child belongs to that run.
    #[test]
    fn own_children_belong_to_no_run() {
        let group = rustix::process::getpgrp().as_raw_nonzero().get().unsigned_abs();
        let leader = child(group).expect("it can be read");
        let leader = leader.unwrap_or(ProcessId { pid: group, start: 0 });
        let mut sleep = std::process::Command::new("sleep");
        let mut sleep = sleep.arg("1000").process_group(0).spawn().expect("it can be started");
        let begun = child(sleep.id()).expect("it can be read").expect("it runs");
        let is_of = |process| descends_from_run(process, "a", &[leader]).expect("it can be read");
        let (of_child, of_own) = (is_of(begun), is_of(child(std::process::id()).unwrap().unwrap()));
        sleep.kill().and_then(|()| sleep.wait()).expect("it is a child");
        assert_eq!((of_child, of_own), (false, false));
    }

    #[tokio::test]
    async fn pid_reused_by_thread_counts_as_gone() {
        let held = std::thread::spawn(|| {
            let number = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            assert_ne!(number, std::process::id());
            let thread = child(number).expect("it can be read").expect("it runs");
            let earlier = ProcessId { start: thread.start.wrapping_sub(1), ..thread };
            [earlier, thread].map(ProcessHandle::open)
        });
        let held = held.join().expect("it ends");
        for held in held {
            assert!(held.expect("it is no error").is_none());
        }
    }

    #[test]
    fn restarted_container_is_another_boot() {
        let written = "a\nnamespace 5\nfirst 7";
        let rows = [
            ("a\nnamespace 5\nfirst 7", false),
            ("b\nnamespace 5\nfirst 7", true),
            ("a\nnamespace 6\nfirst 7", true),
            // The number of the namespace was reused.
            ("a\nnamespace 5\nfirst 8", true),
            // Only the boot ID is known.
            ("a", false),
            ("b", true),
            // The first process or the namespace is hidden.
            ("a\nnamespace 5", false),
            ("a\nfirst 8", true),
        ];
        let written = Boot::parse(written);
        assert_eq!(Boot::parse(&written.text()), written);
        for (other, expected) in rows {
            let other = Boot::parse(other);
            assert_eq!(written.differs_from(&other), expected, "{other:?}");
            assert_eq!(other.differs_from(&written), expected, "{other:?}");
        }
    }

    #[test]
    fn current_boot_has_all_values() {
        let present = Boot::current().expect("it can be read");
        assert!(present.namespace.is_some() && present.first.is_some(), "{present:?}");
        let is_current = |boot: &Boot| is_current_boot(&boot.text()).expect("it can be read");
        assert!(is_current(&present));
        let first = present.first.map(|first| first + 1);
        assert!(!is_current(&Boot { first, ..present }), "the container has restarted");
    }
}
