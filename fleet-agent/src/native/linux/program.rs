//! A program in the format of `execve`, and its execution.

use std::ffi::CString;
use std::io::{self, Write as _};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::libc;
use rustix::io::Errno;
use rustix::process::getpid;

use super::exec_step::{ExecStep, StepError};
use super::process_info::SYSTEMD_EXEC_PID;

/// Size in bytes of the variable with the process's own pid: the name, `=`, ten digits and NUL.
const OWN_PID_VARIABLE_SIZE: usize = SYSTEMD_EXEC_PID.len() + 12;

/// A program with its arguments and environment.
#[derive(Debug)]
pub(crate) struct Program {
    path: CString,
    /// The strings to which the lists point.
    _texts: [Vec<CString>; 2],
    /// NULL-terminated.
    arguments: Vec<AtomicPtr<libc::c_char>>,
    /// Pointers to the variables, terminated by NULL. If `passes_own_pid` is set, the first pointer
    /// is reserved for the variable with the process's own pid, which only the child can fill in.
    environment: Vec<AtomicPtr<libc::c_char>>,
    passes_own_pid: bool,
}

impl Program {
    /// Creates a program from its path, its arguments and its environment (a list of `NAME=value`).
    /// `passes_own_pid` adds the variable [`SYSTEMD_EXEC_PID`] with the pid of the process, as
    /// systemd does.
    pub(crate) fn new(
        path: CString,
        arguments: Vec<CString>,
        environment: Vec<CString>,
        passes_own_pid: bool,
    ) -> Self {
        let own = passes_own_pid.then(AtomicPtr::default);
        Self {
            path,
            arguments: pointers(&arguments).collect(),
            environment: own.into_iter().chain(pointers(&environment)).collect(),
            _texts: [arguments, environment],
            passes_own_pid,
        }
    }

    /// Executes the program in the child, and returns only on failure. The function allocates
    /// nothing, takes no lock and cannot panic, because the child may share the memory of the
    /// daemon.
    #[expect(unsafe_code, reason = "there is no safe way to execute a program")]
    pub(crate) fn execute(&self) -> StepError {
        let mut number = [0; OWN_PID_VARIABLE_SIZE];
        if let Some(place) = self.environment.first().filter(|_| self.passes_own_pid) {
            place.store(own_pid_variable(&mut number), Ordering::Relaxed);
        }
        // SAFETY: this only makes system calls, which a copy of one thread may do, even one that
        // shares memory. The lists are NULL-terminated, and all their strings are kept in `self`,
        // or are `number`. An atomic pointer has the layout of a pointer.
        unsafe {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
            let (arguments, variables) = (self.arguments.as_ptr(), self.environment.as_ptr());
            libc::execve(self.path.as_ptr(), arguments.cast(), variables.cast());
        }
        let error = Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::NOEXEC);
        StepError(ExecStep::Program, error)
    }
}

fn pointers(texts: &[CString]) -> impl Iterator<Item = AtomicPtr<libc::c_char>> {
    let pointers = texts.iter().map(|text| AtomicPtr::new(text.as_ptr().cast_mut()));
    pointers.chain([AtomicPtr::default()])
}

/// Formats the variable with the pid of this process without allocating.
fn own_pid_variable(text: &mut [u8; OWN_PID_VARIABLE_SIZE]) -> *mut libc::c_char {
    let (mut before_the_zero, _) = text.split_at_mut(OWN_PID_VARIABLE_SIZE - 1);
    // The buffer is large enough, see `OWN_PID_VARIABLE_SIZE`.
    drop(write!(before_the_zero, "{SYSTEMD_EXEC_PID}={}", getpid().as_raw_nonzero()));
    text.as_mut_ptr().cast()
}
