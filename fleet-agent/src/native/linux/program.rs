//! A program in the format of `execve`, its execution, and the steps between the spawn and the exec
//! of a process with their errors.

use std::ffi::CString;
use std::io::{self, Write as _};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::libc;
use rustix::io::Errno;
use rustix::process::getpid;

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

/// The steps before a program runs, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExecStep {
    Begin,
    Output,
    Session,
    Group,
    OomScore,
    Nice,
    Limits,
    Groups,
    Identity,
    Directory,
    Program,
}

const ALL: [ExecStep; 11] = [
    ExecStep::Begin,
    ExecStep::Output,
    ExecStep::Session,
    ExecStep::Group,
    ExecStep::OomScore,
    ExecStep::Nice,
    ExecStep::Limits,
    ExecStep::Groups,
    ExecStep::Identity,
    ExecStep::Directory,
    ExecStep::Program,
];

/// A process that did not reach its exec.
#[derive(Debug)]
pub(crate) struct SpawnError {
    /// The failed step.
    pub(crate) step: ExecStep,
    /// The cause.
    pub(crate) error: io::Error,
}

/// The failed step and its error, as the child reports them. Both fit into one number, because the
/// child can neither allocate nor return more than a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepError(pub(crate) ExecStep, pub(crate) Errno);

impl StepError {
    /// Encodes the step and the error in one number, which is never 0.
    pub(crate) fn code(self) -> i32 {
        (self.0 as i32) << 16 | self.1.raw_os_error()
    }

    /// Creates the error of this step.
    pub(crate) fn at(step: ExecStep) -> impl Fn(Errno) -> Self {
        move |errno| Self(step, errno)
    }
}

impl SpawnError {
    /// Decodes the number that a failed child has returned.
    pub(crate) fn from_code(number: i32) -> Self {
        let step = usize::try_from(number >> 16).ok().and_then(|at| ALL.get(at));
        let error = io::Error::from_raw_os_error(number & 0xffff);
        Self { step: step.copied().unwrap_or(ExecStep::Program), error }
    }
}

/// Converts an error from before the creation of the process.
impl From<io::Error> for SpawnError {
    fn from(error: io::Error) -> Self {
        Self { step: ExecStep::Begin, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_error_round_trips_as_number() {
        for step in ALL {
            let number = StepError(step, Errno::ACCESS).code();
            let decoded = SpawnError::from_code(number);
            assert_eq!(
                (decoded.step, decoded.error.kind()),
                (step, io::ErrorKind::PermissionDenied)
            );
            assert_ne!(number, 0);
        }
    }
}
