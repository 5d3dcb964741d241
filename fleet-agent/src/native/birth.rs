//! The birth of a process inside its control group.
//!
//! A process that is moved into a control group has the kernel stop the beginning and the end of
//! all others for the moment, and on a machine at rest that takes it tens of milliseconds. One
//! that begins inside needs no moving, and is at no time elsewhere. The standard library cannot
//! begin one so; so this is one of the three places of the service manager with unsafe code.
//! Where the kernel, or a filter before it, does not know the request, processes are moved.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, PipeWriter, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;

use nix::libc;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, pidfd_send_signal, waitpid};
use tokio::io::unix::AsyncFd;

use super::child::Preparation;
use super::exit::{Known, how_it_ended};
use super::outcome::End;
use super::process::end_of;
use crate::readable::readable;

/// All that a program begins with, in the kernel's terms.
#[derive(Debug)]
pub(crate) struct Birth<'a> {
    pub(crate) program: CString,
    pub(crate) arguments: Vec<CString>,
    /// Each `NAME=value`.
    pub(crate) environment: Vec<CString>,
    /// Entered before the rights are given up; nothing where they name a directory.
    pub(crate) directory: Option<CString>,
    pub(crate) input: File,
    /// Where its output and its errors go; nothing is where ours do.
    pub(crate) outputs: &'a [Option<File>; 2],
    pub(crate) preparation: &'a Preparation,
}

/// A child of ours, however it was begun. Dropped, it goes on.
#[derive(Debug)]
pub(crate) enum Child {
    Spawned(tokio::process::Child),
    Born { pid: Pid, descriptor: AsyncFd<OwnedFd> },
}

impl Child {
    /// Its number; `None` once it was waited for.
    pub(crate) fn id(&self) -> Option<u32> {
        match self {
            Self::Spawned(child) => child.id(),
            Self::Born { pid, .. } => Some(pid.as_raw_nonzero().get().unsigned_abs()),
        }
    }

    /// Waits for its end, and tells how that was.
    pub(crate) async fn wait(&mut self) -> io::Result<End> {
        let descriptor = match self {
            Self::Spawned(child) => return child.wait().await.map(end_of),
            Self::Born { descriptor, .. } => descriptor,
        };
        loop {
            let mut ready = descriptor.readable().await?;
            match how_it_ended(descriptor.get_ref()) {
                Known::Ended(end) => return Ok(end),
                // Whoever reaps orphans has reaped it.
                Known::Never => return Ok(End::Unseen),
                Known::NotYet => ready.clear_ready(),
            }
        }
    }

    /// Ends it.
    pub(crate) fn start_kill(&mut self) -> io::Result<()> {
        match self {
            Self::Spawned(child) => child.start_kill(),
            Self::Born { descriptor, .. } => {
                Ok(pidfd_send_signal(descriptor.get_ref(), Signal::KILL)?)
            }
        }
    }
}

/// The kernel's `struct clone_args`, as it is since a process can begin in a control group.
#[derive(Debug, Default)]
#[repr(C, align(8))]
struct Request {
    flags: u64,
    descriptor: u64,
    numbers: [u64; 2],
    exit_signal: u64,
    /// Stack, thread-local storage and numbers of one's own: a copy of ours will do.
    more: [u64; 5],
    group: u64,
}

const CLONE_PIDFD: u64 = 0x1000;
/// Nothing of ours may be run when a signal comes to it.
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
const CLONE_INTO_CGROUP: u64 = 1 << 33;

impl Birth<'_> {
    /// Begins the program inside the control group of that directory; `None` where processes
    /// cannot begin so.
    pub(crate) fn give(&self, group: BorrowedFd<'_>) -> io::Result<Option<Child>> {
        let (mut outcome, told) = io::pipe()?;
        let Some((pid, descriptor)) = self.begin(group, &told)? else { return Ok(None) };
        drop(told);
        let mut number = [0; 4];
        // It closes with the execution of the program, and holds what kept it from that.
        match outcome.read_exact(&mut number) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            read => {
                read?;
                // It ends at once, and nobody else waits for it.
                let _ = waitpid(Some(pid), WaitOptions::empty());
                return Err(io::Error::from_raw_os_error(i32::from_ne_bytes(number)));
            }
        }
        match readable(descriptor) {
            Ok(descriptor) => Ok(Some(Child::Born { pid, descriptor })),
            Err(error) => {
                // Nobody could wait for it.
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::empty());
                Err(error)
            }
        }
    }

    fn begin(
        &self,
        group: BorrowedFd<'_>,
        told: &PipeWriter,
    ) -> io::Result<Option<(Pid, OwnedFd)>> {
        // The child can allocate nothing.
        let arguments = pointers(&self.arguments);
        let environment = pointers(&self.environment);
        let mut descriptor: libc::c_int = -1;
        let mut request = Request {
            flags: CLONE_PIDFD | CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP,
            descriptor: (&raw mut descriptor) as u64,
            exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
            group: u64::from(group.as_raw_fd().unsigned_abs()),
            ..Request::default()
        };
        // SAFETY: the request is a structure of the size that is told, and asks for a copy of this
        // process as `fork` makes one. The copy has this thread alone: until its program begins it
        // makes system calls with memory and descriptors that were there before, allocates
        // nothing, takes no lock, cannot panic, and never returns from here. The lists that it
        // hands to the kernel end with a null pointer, and live until then.
        #[expect(unsafe_code, reason = "no library that we use begins a process in a group")]
        let (pid, descriptor) = unsafe {
            let size = size_of::<Request>();
            match libc::syscall(libc::SYS_clone3, &raw mut request, size) {
                0 => {
                    let error = self.become_program(&arguments, &environment);
                    // Without a reader nobody is there who would want to know.
                    let _ = rustix::io::write(told, &error.raw_os_error().to_ne_bytes());
                    libc::_exit(127);
                }
                -1 => return unsupported(io::Error::last_os_error()),
                pid => (pid, OwnedFd::from_raw_fd(descriptor)),
            }
        };
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Ok(pid.map(|pid| (pid, descriptor)))
    }

    /// Runs in the child. Returns only with what keeps the program from being run.
    #[expect(unsafe_code, reason = "there is no safe way to execute a program")]
    fn become_program(
        &self,
        arguments: &[*const libc::c_char],
        environment: &[*const libc::c_char],
    ) -> Errno {
        if let Err(error) = self.prepare() {
            return error;
        }
        // SAFETY: what is called here makes system calls alone, which is what a copy of one
        // thread may do. All pointers are to what `begin` holds.
        unsafe {
            // As the standard library has it: our program ignores the signal, others need not.
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
            libc::execve(self.program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
        }
        Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::NOEXEC)
    }

    fn prepare(&self) -> rustix::io::Result<()> {
        rustix::stdio::dup2_stdin(&self.input)?;
        if let Some(output) = &self.outputs[0] {
            rustix::stdio::dup2_stdout(output)?;
        }
        if let Some(error) = &self.outputs[1] {
            rustix::stdio::dup2_stderr(error)?;
        }
        rustix::process::setpgid(None, None)?;
        if let Some(directory) = &self.directory {
            rustix::process::chdir(directory.as_c_str())?;
        }
        let prepared = self.preparation.enter();
        prepared.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// A list as the kernel reads it.
fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// Old kernels do not know the request, and filters may refuse what they cannot look into.
fn unsupported<T>(error: io::Error) -> io::Result<Option<T>> {
    let unknown = [Errno::NOSYS, Errno::PERM, Errno::INVAL, Errno::TOOBIG];
    let is_unknown = Errno::from_io_error(&error).is_some_and(|no| unknown.contains(&no));
    if is_unknown { Ok(None) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::cgroup::Groups;

    fn text(text: &str) -> CString {
        CString::new(text).expect("it has no zero byte")
    }

    /// How a program ended that was begun in a group of its own, and what it wrote.
    async fn give(program: &str, script: &str) -> Option<(io::Result<End>, String)> {
        let home = tempfile::tempdir().expect("a directory can be made");
        // Where there are no groups, nothing begins in one.
        let groups = Groups::find(home.path()).ok()?;
        let group = groups.of_run("born", "0");
        let (inside, _) = group.open().expect("it can be made");
        let path = home.path().join("out");
        let output = File::create(&path).expect("it can be made");
        let birth = Birth {
            program: text(program),
            arguments: ["sh", "-c", script].map(text).to_vec(),
            environment: vec![text("WHO=me"), text("PATH=/bin:/usr/bin")],
            directory: Some(text("/usr")),
            input: File::open("/dev/null").expect("it is there"),
            outputs: &[Some(output), None],
            preparation: &Preparation { umask: Some(0o27), ..Preparation::default() },
        };
        let end = match birth.give(std::os::fd::AsFd::as_fd(&inside)) {
            Ok(child) => child?.wait().await,
            Err(error) => Err(error),
        };
        groups.tidy();
        Some((end, std::fs::read_to_string(&path).expect("it can be read")))
    }

    #[tokio::test]
    async fn a_program_begins_in_its_group_with_all_that_it_is_given() {
        let script = "echo $WHO $PWD $(umask) $(cut -d' ' -f5 /proc/$$/stat | grep -cx $$); \
                      grep -c /born.0 /proc/self/cgroup; kill -PIPE $$";
        let Some((end, wrote)) = give("/bin/sh", script).await else { return };
        // Ours ignores the signal; a program does not.
        assert_eq!(end.expect("it ended"), End::Signal(13));
        assert_eq!(wrote, "me /usr 0027 1\n1\n");
    }

    #[tokio::test]
    async fn what_is_no_program_is_told() {
        let Some((end, _)) = give("/etc/passwd", "").await else { return };
        assert_eq!(end.map_err(|error| error.kind()), Err(io::ErrorKind::PermissionDenied));
    }
}
