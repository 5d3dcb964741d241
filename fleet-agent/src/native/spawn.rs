//! The request of a process inside its control group.
//!
//! A process that is moved into a control group has the kernel stop the beginning and the end of
//! all others for the moment, and on a machine at rest that takes it tens of milliseconds. One
//! that begins inside needs no moving, and is at no time elsewhere. The standard library cannot
//! begin one so; so this is one of the places of the service manager with unsafe code.
//! Where the kernel, or a filter before it, does not know the request, processes are moved. Those
//! without a control group are begun in the same way.

use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use nix::libc;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, pidfd_send_signal, waitpid};
use tokio::io::unix::AsyncFd;

use super::child::ChildSetup;
use super::exec_step::{ExecStep, SpawnError, StepError};
use super::exit::read_exit;
use super::outcome::ProcessExit;
use super::process::exit_from_status;
use super::program::Program;
use super::vfork;
use crate::async_fd::{read_next, register_readable, wait_readable};
use crate::{Clock as _, SystemClock};

/// All that a program begins with, in the kernel's terms.
#[derive(Debug)]
pub(crate) struct SpawnRequest<'a> {
    pub(crate) program: &'a Program,
    pub(crate) input: &'a File,
    /// Where its output and its errors go; nothing is where ours do.
    pub(crate) outputs: &'a [Option<File>; 2],
    pub(crate) setup: &'a ChildSetup,
}

/// A child of ours, however it was begun. Dropped, it goes on, and is waited for all the same.
#[derive(Debug)]
pub(crate) enum Child {
    Tokio(Box<tokio::process::Child>),
    Cloned(ClonedChild),
}

/// A child that the standard library did not begin.
#[derive(Debug)]
pub(crate) struct ClonedChild {
    pid: Pid,
    /// Nothing once it was waited for.
    descriptor: Option<AsyncFd<OwnedFd>>,
}

/// How long whoever takes a unit back has to learn how a child ended that was let go of, before it
/// is waited for only so that it does not stay.
const REAP_DELAY: Duration = Duration::from_secs(1);

impl Child {
    /// Its number; `None` once it was waited for.
    pub(crate) fn id(&self) -> Option<u32> {
        match self {
            Self::Tokio(child) => child.id(),
            Self::Cloned(born) => Some(born.pid.as_raw_nonzero().get().unsigned_abs()),
        }
    }

    /// Waits for its end, and tells how that was.
    pub(crate) async fn wait(&mut self) -> io::Result<ProcessExit> {
        match self {
            // In a place of its own: hardly a unit has such a child, and all would have the room.
            Self::Tokio(child) => Box::pin(child.wait()).await.map(exit_from_status),
            Self::Cloned(born) => {
                let Some(descriptor) = &born.descriptor else { return Ok(ProcessExit::Unobserved) };
                let end = read_next(descriptor, read_exit).await?;
                born.descriptor = None;
                Ok(end)
            }
        }
    }

    /// Ends it.
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
        // Without a runtime this daemon is ending, and who takes in its orphans waits for them.
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

/// The kernel's `struct clone_args`, as it is since a process can begin in a control group.
#[derive(Debug, Default)]
#[repr(C, align(8))]
struct CloneArgs {
    flags: u64,
    descriptor: u64,
    numbers: [u64; 2],
    exit_signal: u64,
    /// Stack and its size, and then what is as with us.
    more: [u64; 5],
    group: u64,
}

const CLONE_PIDFD: u64 = 0x1000;
/// Nothing of ours may be run when a signal comes to it.
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
const CLONE_INTO_CGROUP: u64 = 1 << 33;

impl SpawnRequest<'_> {
    /// Begins the program, inside the control group of that directory if there is one; `None` where
    /// processes cannot begin so.
    pub(crate) fn clone_child(
        &self,
        group: Option<BorrowedFd<'_>>,
    ) -> Result<Option<Child>, SpawnError> {
        // The child can allocate nothing.
        let start = ChildStart { request: self, failure: AtomicI32::new(0) };
        // Who gives up rights must not do so with our memory in reach: it would count as theirs.
        let begun = if vfork::IS_SUPPORTED && self.setup.identity.is_none() {
            start.clone_sharing_memory(group)
        } else {
            start.clone_copying(group)
        };
        let Some((pid, descriptor)) = begun? else { return Ok(None) };
        let failure = start.failure.into_inner();
        if failure != 0 {
            // It ends at once, and nobody else waits for it.
            let _ = waitpid(Some(pid), WaitOptions::empty());
            return Err(SpawnError::from_code(failure));
        }
        match register_readable(descriptor) {
            Ok(descriptor) => {
                Ok(Some(Child::Cloned(ClonedChild { pid, descriptor: Some(descriptor) })))
            }
            Err(error) => {
                // Nobody could wait for it.
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::empty());
                Err(error.into())
            }
        }
    }
}

/// A process between its beginning and its program.
struct ChildStart<'a> {
    request: &'a SpawnRequest<'a>,
    /// What kept it from its program, as the number of that, or 0.
    failure: AtomicI32,
}

type CloneResult = io::Result<Option<(Pid, OwnedFd)>>;

impl ChildStart<'_> {
    /// Begins it with our memory, which this thread does not touch before its program begins.
    fn clone_sharing_memory(&self, group: Option<BorrowedFd<'_>>) -> CloneResult {
        let mut stack = vfork::stack();
        let mut descriptor: libc::c_int = -1;
        let mut request = CloneArgs::new(group, &raw mut descriptor);
        request.flags |= vfork::FLAGS;
        (request.more[0], request.more[1]) = vfork::stack_range(&mut stack);
        // SAFETY: the request is a structure of the size that is told, with a stack that nobody
        // else has. What the process does is `become_program`, which makes system calls alone, as
        // its words say. What is told to it is this, which stays there; it writes to `failure`
        // and to the place of its number alone, which may be changed by anybody.
        #[expect(unsafe_code, reason = "no library that we use begins a process in a group")]
        let answer = unsafe {
            let told = ptr::from_ref(self).cast();
            vfork::clone3((&raw const request).cast(), size_of::<CloneArgs>(), child_main, told)
        };
        if answer < 0 {
            let number = i32::try_from(-answer).unwrap_or(libc::EINVAL);
            return unsupported(io::Error::from_raw_os_error(number));
        }
        Ok(begun(answer as i64, descriptor))
    }

    /// Begins it as a copy of this daemon.
    fn clone_copying(&self, group: Option<BorrowedFd<'_>>) -> CloneResult {
        let (mut outcome, told) = io::pipe()?;
        let mut descriptor: libc::c_int = -1;
        let request = CloneArgs::new(group, &raw mut descriptor);
        // SAFETY: the request is a structure of the size that is told, and asks for a copy of this
        // process as `fork` makes one. The copy has this thread alone: until its program begins it
        // makes system calls with memory and descriptors that were there before, allocates
        // nothing, takes no lock, cannot panic, and never returns from here.
        #[expect(unsafe_code, reason = "no library that we use begins a process in a group")]
        let pid = unsafe {
            match libc::syscall(libc::SYS_clone3, &raw const request, size_of::<CloneArgs>()) {
                0 => {
                    let failed = self.request.become_program();
                    // Without a reader nobody is there who would want to know.
                    let _ = rustix::io::write(&told, &failed.code().to_ne_bytes());
                    libc::_exit(127);
                }
                -1 => return unsupported(io::Error::last_os_error()),
                pid => pid,
            }
        };
        drop(told);
        let mut number = [0; 4];
        // It closes with the execution of the program, and holds what kept it from that.
        match outcome.read_exact(&mut number) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            read => {
                read?;
                self.failure.store(i32::from_ne_bytes(number), Ordering::Relaxed);
            }
        }
        Ok(begun(pid, descriptor))
    }
}

/// Runs in a process that has our memory.
#[expect(unsafe_code, reason = "the kernel hands over no more than a pointer")]
unsafe extern "C" fn child_main(told: *const c_void) -> ! {
    // SAFETY: it is told what `clone_sharing_memory` hands over, and ends without undoing anything.
    unsafe {
        let start = &*told.cast::<ChildStart<'_>>();
        let failed = start.request.become_program();
        start.failure.store(failed.code(), Ordering::Relaxed);
        libc::_exit(127)
    }
}

/// The process of a number, with the descriptor that the kernel made of it.
#[expect(unsafe_code, reason = "a descriptor is owned by whoever the kernel made it for")]
fn begun(pid: i64, descriptor: libc::c_int) -> Option<(Pid, OwnedFd)> {
    // SAFETY: the kernel made it for this, and nobody else knows of it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.map(|pid| (pid, descriptor))
}

impl CloneArgs {
    /// For a process whose descriptor comes to that place, inside a control group if there is one.
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
    /// Runs in the child. Returns only with what keeps the program from being run.
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

/// Old kernels do not know the request, and filters may refuse what they cannot look into.
fn unsupported<T>(error: io::Error) -> io::Result<Option<T>> {
    let unknown = [Errno::NOSYS, Errno::PERM, Errno::INVAL, Errno::TOOBIG];
    let is_unknown = Errno::from_io_error(&error).is_some_and(|no| unknown.contains(&no));
    if is_unknown { Ok(None) } else { Err(error) }
}
