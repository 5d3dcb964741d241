//! A program as the kernel reads it, and the last that a process does before it becomes it.

use std::ffi::CString;
use std::io::{self, Write as _};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::libc;
use rustix::io::Errno;
use rustix::process::getpid;

use super::exec_step::{ExecStep, StepError};
use super::process_info::SYSTEMD_EXEC_PID;

/// What the variable that tells a number takes at most: the name, `=`, ten digits and a zero byte.
const NUMBER: usize = SYSTEMD_EXEC_PID.len() + 12;

/// A program with all that it is told.
#[derive(Debug)]
pub(crate) struct Program {
    path: CString,
    /// What the lists point to.
    _texts: [Vec<CString>; 2],
    /// A list that ends with nothing.
    arguments: Vec<AtomicPtr<libc::c_char>>,
    /// The first is for its own number, which it alone knows, if it is to be told that.
    environment: Vec<AtomicPtr<libc::c_char>>,
    passes_own_pid: bool,
}

impl Program {
    /// The program in that file, with its arguments and its variables, each `NAME=value`; whether
    /// one more is to tell it its own number, as systemd's programs are told.
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

    /// Runs in the child, for which it makes system calls alone: it asks for no memory, takes no
    /// lock, and cannot panic. Returns only with what keeps the program from being run.
    #[expect(unsafe_code, reason = "there is no safe way to execute a program")]
    pub(crate) fn execute(&self) -> StepError {
        let mut number = [0; NUMBER];
        if let Some(place) = self.environment.first().filter(|_| self.passes_own_pid) {
            place.store(own_pid_variable(&mut number), Ordering::Relaxed);
        }
        // SAFETY: what is called here makes system calls alone, which is what a copy of one thread
        // may do, and what has the memory of another. The lists end with nothing, and all that they
        // point to is kept with them, or is `number`; an atomic pointer is a pointer to who reads
        // it.
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

/// The variable that tells this process its number, written without asking for memory.
fn own_pid_variable(text: &mut [u8; NUMBER]) -> *mut libc::c_char {
    let (mut before_the_zero, _) = text.split_at_mut(NUMBER - 1);
    // It is long enough, as is told above.
    drop(write!(before_the_zero, "{SYSTEMD_EXEC_PID}={}", getpid().as_raw_nonzero()));
    text.as_mut_ptr().cast()
}
