//! Spawns a process inside its control group, with `clone3`.
//!
//! The alternative, to move a running process into a control group, is slow. During the move the
//! kernel blocks the start and exit of all other processes, even on an idle machine for tens of
//! milliseconds. A process that is spawned inside the group is also never outside of it.
//!
//! The standard library cannot spawn a process inside a group, so this module contains unsafe code.
//! If the kernel or a seccomp filter refuses the call, processes are moved instead. Processes
//! without a control group are spawned with `clone3` too.

use std::ffi::c_void;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;
use std::{io, ptr};

use nix::libc;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, pidfd_send_signal, waitpid};
use tokio::io::unix::AsyncFd;

use super::child::{ChildSetup, ExecStep, Program, SpawnError, StepError};
use super::exit::{ProcessExit, exit_from_status, read_exit};
use super::vfork;
use crate::async_fd::{read_next, register_readable, wait_readable};
use crate::{Clock as _, SystemClock};

/// Everything that a program starts with, in the kernel's terms.
#[derive(Debug)]
pub(crate) struct SpawnRequest<'a> {
    pub(crate) program: &'a Program,
    pub(crate) input: &'a File,
    /// Files for stdout and stderr; `None` inherits ours.
    pub(crate) outputs: &'a [Option<File>; 2],
    pub(crate) setup: &'a ChildSetup,
}

/// A child process, spawned by tokio or by `clone3`. If the handle is dropped, the child keeps
/// running and is reaped after its end.
#[derive(Debug)]
pub(crate) enum Child {
    Tokio(Box<tokio::process::Child>),
    Cloned(ClonedChild),
}

/// A child that was spawned without the standard library.
#[derive(Debug)]
pub(crate) struct ClonedChild {
    pid: Pid,
    /// `None` once it has been reaped.
    descriptor: Option<AsyncFd<OwnedFd>>,
}

/// Delay between the end of a child whose handle was dropped and the reaping of this child. Until
/// then, a recovery of the unit can still read the exit status of the child.
const REAP_DELAY: Duration = Duration::from_secs(1);

impl Child {
    /// Returns its pid; `None` once it has been reaped.
    pub(crate) fn id(&self) -> Option<u32> {
        match self {
            Self::Tokio(child) => child.id(),
            Self::Cloned(born) => Some(born.pid.as_raw_nonzero().get().unsigned_abs()),
        }
    }

    /// Waits for its end, and returns its exit status.
    pub(crate) async fn wait(&mut self) -> io::Result<ProcessExit> {
        match self {
            // Boxed: hardly any unit has a child of this kind, and all would take the memory.
            Self::Tokio(child) => Box::pin(child.wait()).await.map(exit_from_status),
            Self::Cloned(born) => {
                let Some(descriptor) = &born.descriptor else { return Ok(ProcessExit::Unobserved) };
                let end = read_next(descriptor, read_exit).await?;
                born.descriptor = None;
                Ok(end)
            }
        }
    }

    /// Kills it.
    pub(crate) fn start_kill(&mut self) -> io::Result<()> {
        match self {
            Self::Tokio(child) => child.start_kill(),
            Self::Cloned(born) => {
                let signal = |it: &AsyncFd<OwnedFd>| pidfd_send_signal(it.get_ref(), Signal::KILL);
                Ok(born.descriptor.as_ref().map_or(Ok(()), signal)?)
            }
        }
    }
}

impl Drop for ClonedChild {
    fn drop(&mut self) {
        let Some(descriptor) = self.descriptor.take() else { return };
        // Without a runtime this daemon is ending, and the process that inherits its orphans reaps
        // them.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        drop(runtime.spawn(async move {
            let has_ended = wait_readable(&descriptor).await.is_ok();
            SystemClock::start().sleep(REAP_DELAY).await;
            if has_ended {
                drop(read_next(&descriptor, read_exit).await);
            }
        }));
    }
}

/// The kernel's `struct clone_args`, in the version with `CLONE_INTO_CGROUP`.
#[derive(Debug, Default)]
#[repr(C, align(8))]
struct CloneArgs {
    flags: u64,
    descriptor: u64,
    numbers: [u64; 2],
    exit_signal: u64,
    /// Stack and its size, and then fields that keep their defaults.
    more: [u64; 5],
    group: u64,
}

const CLONE_PIDFD: u64 = 0x1000;
/// Resets signal handlers in the child: no handler of ours may run there.
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
const CLONE_INTO_CGROUP: u64 = 1 << 33;

impl SpawnRequest<'_> {
    /// Spawns the program, inside the control group `group` if there is one. Returns `None` if the
    /// system does not support `clone3` with these flags, or if it killed the child at once.
    ///
    /// Linux 6.14 and many stable kernels compare two counters of kills: that of our own group, and
    /// that of `group`. If they differ, because `cgroup.kill` of one of them was written before,
    /// the kernel kills each child that is spawned inside `group`. A child that moves there lives.
    pub(crate) fn clone_child(
        &self,
        group: Option<BorrowedFd<'_>>,
    ) -> Result<Option<Child>, SpawnError> {
        // The child cannot allocate.
        let start = ChildStart {
            request: self,
            has_begun: AtomicBool::new(false),
            failure: AtomicI32::new(0),
        };
        // A child that drops privileges must not share our memory, which would become accessible
        // with its rights.
        let begun = if vfork::IS_SUPPORTED && self.setup.identity.is_none() {
            start.clone_sharing_memory(group)
        } else {
            start.clone_copying(group)
        };
        let Some((pid, descriptor)) = begun? else { return Ok(None) };
        let failure = start.failure.into_inner();
        let has_begun = start.has_begun.into_inner();
        if failure != 0 || !has_begun {
            // It exits at once, and no other code waits for it.
            let _ = waitpid(Some(pid), WaitOptions::empty());
            return if has_begun { Err(SpawnError::from_code(failure)) } else { Ok(None) };
        }
        match register_readable(descriptor) {
            Ok(descriptor) => {
                Ok(Some(Child::Cloned(ClonedChild { pid, descriptor: Some(descriptor) })))
            }
            Err(error) => {
                // No other code could wait for it.
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::empty());
                Err(error.into())
            }
        }
    }
}

/// A process before it executes its program.
struct ChildStart<'a> {
    request: &'a SpawnRequest<'a>,
    /// Whether the child has run any code.
    has_begun: AtomicBool,
    /// Code of the failure before the exec, or 0.
    failure: AtomicI32,
}

/// First byte that a copied child sends.
const BEGUN: u8 = b'b';

type CloneResult = io::Result<Option<(Pid, OwnedFd)>>;

impl ChildStart<'_> {
    /// Clones a child that shares the memory of this process, like `vfork`. The kernel suspends the
    /// calling thread until the child has executed the program or exited.
    fn clone_sharing_memory(&self, group: Option<BorrowedFd<'_>>) -> CloneResult {
        let mut stack = vfork::stack();
        let mut descriptor: libc::c_int = -1;
        let mut request = CloneArgs::new(group, &raw mut descriptor);
        request.flags |= vfork::FLAGS;
        (request.more[0], request.more[1]) = vfork::stack_range(&mut stack);
        // SAFETY: the arguments are a structure of the given size, with a stack that is used by the
        // child alone. The child runs `become_program`, which only makes system calls, as
        // documented there. Its argument is `self`, which outlives it. It writes to `has_begun`
        // and `failure`, which are atomic, and to the pid slot, which only it uses.
        #[expect(unsafe_code, reason = "no library that we use begins a process in a group")]
        let answer = unsafe {
            let argument = ptr::from_ref(self).cast();
            vfork::clone3((&raw const request).cast(), size_of::<CloneArgs>(), child_main, argument)
        };
        if answer < 0 {
            let number = i32::try_from(-answer).unwrap_or(libc::EINVAL);
            return unsupported(io::Error::from_raw_os_error(number));
        }
        Ok(begun(answer as i64, descriptor))
    }

    /// Clones a copy of this daemon, like `fork`.
    fn clone_copying(&self, group: Option<BorrowedFd<'_>>) -> CloneResult {
        let (mut reader, writer) = io::pipe()?;
        // The child must not overwrite it.
        let writer = self.request.setup.descriptors.keep_clear(writer)?;
        let mut descriptor: libc::c_int = -1;
        let request = CloneArgs::new(group, &raw mut descriptor);
        // SAFETY: the arguments are a structure of the given size, and request a copy of this
        // process as `fork` does. The copy has this thread alone. Until the exec it makes system
        // calls with existing memory and descriptors, allocates nothing, takes no lock, cannot
        // panic, and never returns from here.
        #[expect(unsafe_code, reason = "no library that we use begins a process in a group")]
        let pid = unsafe {
            match libc::syscall(libc::SYS_clone3, &raw const request, size_of::<CloneArgs>()) {
                0 => {
                    let _ = rustix::io::write(&writer, &[BEGUN]);
                    let failed = self.request.become_program();
                    // A write without a reader fails, and is not needed then.
                    let _ = rustix::io::write(&writer, &failed.code().to_ne_bytes());
                    libc::_exit(127);
                }
                -1 => return unsupported(io::Error::last_os_error()),
                pid => pid,
            }
        };
        drop(writer);
        // The pipe closes on exec. Before, it may get the code of the failure.
        let mut report = Vec::new();
        reader.read_to_end(&mut report)?;
        self.has_begun.store(report.first() == Some(&BEGUN), Ordering::Relaxed);
        if let Some(Ok(code)) = report.get(1..).map(TryInto::try_into) {
            self.failure.store(i32::from_ne_bytes(code), Ordering::Relaxed);
        }
        Ok(begun(pid, descriptor))
    }
}

/// Runs in a child that shares our memory.
#[expect(unsafe_code, reason = "the kernel hands over no more than a pointer")]
unsafe extern "C" fn child_main(argument: *const c_void) -> ! {
    // SAFETY: the argument is the one that `clone_sharing_memory` passes, and this exits without
    // unwinding.
    unsafe {
        let start = &*argument.cast::<ChildStart<'_>>();
        start.has_begun.store(true, Ordering::Relaxed);
        let failed = start.request.become_program();
        start.failure.store(failed.code(), Ordering::Relaxed);
        libc::_exit(127)
    }
}

/// Converts the results of `clone3` to a pid and an owned pidfd.
#[expect(unsafe_code, reason = "the kernel creates the descriptor for this process")]
fn begun(pid: i64, descriptor: libc::c_int) -> Option<(Pid, OwnedFd)> {
    // SAFETY: the kernel created it for this call, and no other code uses it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.map(|pid| (pid, descriptor))
}

impl CloneArgs {
    /// Creates the arguments for a child that starts in the control group `group`, if there is one.
    /// The kernel stores the pidfd of the child at the address `descriptor`.
    fn new(group: Option<BorrowedFd<'_>>, descriptor: *mut libc::c_int) -> Self {
        let inside = if group.is_some() { CLONE_INTO_CGROUP } else { 0 };
        Self {
            flags: CLONE_PIDFD | CLONE_CLEAR_SIGHAND | inside,
            descriptor: descriptor as u64,
            exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
            group: group.map_or(0, |group| u64::from(group.as_raw_fd().unsigned_abs())),
            ..Self::default()
        }
    }
}

impl SpawnRequest<'_> {
    /// Runs in the child. Returns only on failure.
    fn become_program(&self) -> StepError {
        match self.prepare() {
            Ok(()) => self.program.execute(),
            Err(failed) => failed,
        }
    }

    fn prepare(&self) -> Result<(), StepError> {
        self.connect().map_err(StepError::at(ExecStep::Output))?;
        self.setup.enter()
    }

    fn connect(&self) -> rustix::io::Result<()> {
        rustix::stdio::dup2_stdin(self.input)?;
        if let Some(output) = &self.outputs[0] {
            rustix::stdio::dup2_stdout(output)?;
        }
        self.outputs[1].as_ref().map_or(Ok(()), rustix::stdio::dup2_stderr)
    }
}

/// Returns `None` if the error means that the system does not support the call, and the error
/// otherwise. Old kernels do not know the call. Seccomp filters may refuse it because they cannot
/// inspect its arguments.
fn unsupported<T>(error: io::Error) -> io::Result<Option<T>> {
    let unknown = [Errno::NOSYS, Errno::PERM, Errno::INVAL, Errno::TOOBIG];
    let is_unknown = Errno::from_io_error(&error).is_some_and(|no| unknown.contains(&no));
    if is_unknown { Ok(None) } else { Err(error) }
}
