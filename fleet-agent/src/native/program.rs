//! The last that a process does before its program begins, which it does without the standard
//! library.

use std::ffi::CString;
use std::io::{self, Write as _};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::libc;
use rustix::io::Errno;
use rustix::process::getpid;

use super::birth::Birth;
use super::proc::SYSTEMD_EXEC_PID;
use super::step::{Failed, Step};

/// What the variable that tells a number takes at most: the name, `=`, ten digits and a zero byte.
const NUMBER: usize = SYSTEMD_EXEC_PID.len() + 12;

/// The arguments and the variables of a program as the kernel reads them: lists that end with
/// nothing.
#[derive(Debug)]
pub(crate) struct Words {
    arguments: Vec<*const libc::c_char>,
    /// The first is for its own number, which it alone knows, if it is to be told that.
    environment: Vec<AtomicPtr<libc::c_char>>,
}

impl Words {
    pub(crate) fn new(birth: &Birth<'_>) -> Self {
        let own = birth.knows_its_number.then(ptr::null);
        let environment = own.into_iter().chain(pointers(&birth.environment));
        Self {
            arguments: pointers(&birth.arguments).collect(),
            environment: environment.map(|it| AtomicPtr::new(it.cast_mut())).collect(),
        }
    }
}

fn pointers(texts: &[CString]) -> impl Iterator<Item = *const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()])
}

impl Birth<'_> {
    /// Runs in the child. Returns only with what keeps the program from being run.
    #[expect(unsafe_code, reason = "there is no safe way to execute a program")]
    pub(crate) fn become_program(&self, words: &Words) -> Failed {
        if let Err(failed) = self.prepare() {
            return failed;
        }
        let mut number = [0; NUMBER];
        if let Some(place) = words.environment.first().filter(|_| self.knows_its_number) {
            place.store(own_number(&mut number), Ordering::Relaxed);
        }
        // SAFETY: what is called here makes system calls alone, which is what a copy of one thread
        // may do, and what has the memory of another. All pointers are to what `give` holds, and
        // to `number`; an atomic pointer is a pointer to who reads it.
        unsafe {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
            let (arguments, variables) = (words.arguments.as_ptr(), words.environment.as_ptr());
            libc::execve(self.program.as_ptr(), arguments, variables.cast());
        }
        let error = Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::NOEXEC);
        Failed(Step::Program, error)
    }

    fn prepare(&self) -> Result<(), Failed> {
        self.connect().map_err(Failed::at(Step::Output))?;
        if let Some(directory) = &self.directory {
            rustix::process::chdir(directory.as_c_str()).map_err(Failed::at(Step::Directory))?;
        }
        self.preparation.enter()
    }

    fn connect(&self) -> rustix::io::Result<()> {
        rustix::stdio::dup2_stdin(self.input)?;
        if let Some(output) = &self.outputs[0] {
            rustix::stdio::dup2_stdout(output)?;
        }
        self.outputs[1].as_ref().map_or(Ok(()), rustix::stdio::dup2_stderr)
    }
}

/// The variable that tells this process its number, written without asking for memory.
fn own_number(text: &mut [u8; NUMBER]) -> *mut libc::c_char {
    let (mut before_the_zero, _) = text.split_at_mut(NUMBER - 1);
    // It is long enough, as is told above.
    drop(write!(before_the_zero, "{SYSTEMD_EXEC_PID}={}", getpid().as_raw_nonzero()));
    text.as_mut_ptr().cast()
}
