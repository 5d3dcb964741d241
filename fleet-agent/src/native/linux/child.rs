//! Setup of a child process before it executes its program, and the program itself, in the format
//! of `execve`.
//!
//! This is one of the modules of the service manager that contain unsafe code. After a fork, the
//! child runs with a copy of only one thread, and the compiler cannot check the rules for such
//! code. The child must not take locks or allocate, since another thread may have held a lock
//! during the fork. So the parent prepares everything that needs locks or allocations, and the
//! child only makes system calls.

use std::ffi::CString;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{io, ptr};

use fleet_core::graph::Rlimits;
use nix::libc;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{
    Gid, Resource, Rlimit, Uid, getpid, getpriority_process, getrlimit, setpriority_process,
    setrlimit,
};
use tokio::process::Command as Process;

use super::process_info::{LISTEN_PID, SYSTEMD_EXEC_PID};

/// Highest signal number of the kernel.
const LAST_SIGNAL: libc::c_int = 64;

/// Setup that the child performs. The fields are applied in this order, so that steps that need
/// privileges come before the privileges are dropped.
#[derive(Debug, Default)]
pub(crate) struct ChildSetup {
    /// Process list of the control group to enter.
    pub(crate) group: Option<File>,
    /// Whether `SIGPIPE` is ignored.
    pub(crate) ignore_sigpipe: bool,
    /// OOM score adjustment, in the kernel's format.
    pub(crate) oom_score_adjust: Option<String>,
    pub(crate) nice: Option<i32>,
    pub(crate) limits: Vec<(Resource, Rlimit)>,
    /// File mode creation mask.
    pub(crate) umask: Option<u32>,
    /// User and groups to change to; `None` keeps ours.
    pub(crate) identity: Option<Credentials>,
    /// Working directory, entered last and with the final privileges; `None` keeps ours.
    pub(crate) start: Option<WorkingDirectory>,
    /// Descriptors that the program gets.
    pub(crate) descriptors: InheritedDescriptors,
}

/// Descriptors that a program gets, numbered from [`FIRST_DESCRIPTOR`] in this order. Each is a
/// duplicate with a higher number than all of those, so that no move overwrites another.
#[derive(Debug, Default)]
pub(crate) struct InheritedDescriptors(Vec<OwnedFd>);

/// Number of the first descriptor that a program gets, as systemd defines it.
const FIRST_DESCRIPTOR: libc::c_int = 3;

/// Returns the first number after those of `count` descriptors.
fn first_free(count: usize) -> i32 {
    FIRST_DESCRIPTOR.saturating_add(i32::try_from(count).unwrap_or(i32::MAX))
}

impl InheritedDescriptors {
    /// Duplicates the descriptors that a program is to get.
    pub(crate) fn duplicate<Fd: AsFd>(all: impl ExactSizeIterator<Item = Fd>) -> io::Result<Self> {
        let first_free = first_free(all.len());
        let duplicate = |fd: Fd| rustix::io::fcntl_dupfd_cloexec(fd, first_free);
        Ok(Self(all.map(duplicate).collect::<Result<_, _>>()?))
    }

    /// Returns the first number after those that the program gets.
    pub(crate) fn first_free(&self) -> i32 {
        first_free(self.0.len())
    }

    /// Duplicates a descriptor of this process so that no move in the child overwrites it.
    pub(crate) fn keep_clear(&self, descriptor: impl AsFd) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(descriptor, self.first_free())?)
    }

    /// Moves the descriptors to their numbers. Runs in the child, in which every other descriptor
    /// with such a number is closed.
    fn take(&self) -> Result<(), Errno> {
        for (descriptor, number) in self.0.iter().zip(FIRST_DESCRIPTOR..) {
            // SAFETY: the call changes only the table of descriptors. The child exits or executes
            // its program without using any of the overwritten descriptors.
            #[expect(unsafe_code, reason = "the numbers of the program's descriptors are fixed")]
            if unsafe { libc::dup2(descriptor.as_raw_fd(), number) } < 0 {
                let error = io::Error::last_os_error();
                return Err(Errno::from_io_error(&error).unwrap_or(Errno::BADF));
            }
        }
        Ok(())
    }
}

/// The working directory of a process.
#[derive(Debug)]
pub(crate) struct WorkingDirectory {
    pub(crate) path: CString,
    /// Whether to use the root directory if `path` cannot be entered.
    pub(crate) optional: bool,
}

/// User and groups of a process.
#[derive(Debug)]
pub(crate) struct Credentials {
    pub(crate) uid: Option<Uid>,
    pub(crate) gid: Option<Gid>,
    /// All supplementary groups; `None` keeps ours, the only choice without root.
    pub(crate) groups: Option<Vec<Gid>>,
}

impl ChildSetup {
    /// Configures the command to run this setup and to execute the program.
    pub(crate) fn apply(self, process: &mut Process, program: Program) {
        let become_program = move || {
            let failed = self.enter().err().unwrap_or_else(|| program.execute());
            Err(failed.1.into())
        };
        // SAFETY: `enter` and `execute` only make system calls, with existing memory and
        // descriptors: they allocate nothing, take no lock, and cannot panic. Paths passed to the
        // kernel are NUL-terminated already, so they are not copied.
        #[expect(unsafe_code, reason = "there is no safe way to enter a control group at birth")]
        unsafe {
            process.pre_exec(become_program);
        }
    }

    /// Performs the setup. Runs in the child.
    pub(crate) fn enter(&self) -> Result<(), StepError> {
        reset_signals(self.ignore_sigpipe);
        // With its own process group, and without a controlling terminal that could stop it.
        rustix::process::setsid().map_err(StepError::at(ExecStep::Session))?;
        if let Some(group) = &self.group {
            // The kernel reads 0 as the writing process.
            rustix::io::write(group, b"0").map_err(StepError::at(ExecStep::Group))?;
        }
        if let Some(score) = &self.oom_score_adjust {
            write_score(score).map_err(StepError::at(ExecStep::OomScore))?;
        }
        if let Some(nice) = self.nice {
            set_nice(nice).map_err(StepError::at(ExecStep::Nice))?;
        }
        for (resource, limit) in &self.limits {
            set_limit(*resource, *limit).map_err(StepError::at(ExecStep::Limits))?;
        }
        if let Some(mask) = self.umask {
            rustix::process::umask(Mode::from_raw_mode(mask));
        }
        self.identity.as_ref().map_or(Ok(()), Credentials::take)?;
        self.start
            .as_ref()
            .map_or(Ok(()), WorkingDirectory::enter)
            .map_err(StepError::at(ExecStep::Directory))?;
        // Last, because this closes descriptors that the other steps may use.
        self.descriptors.take().map_err(StepError::at(ExecStep::Descriptors))
    }
}

/// Resets the disposition of each signal to the default. Otherwise a signal that is ignored in this
/// process would stay ignored in the program. `nohup`, shells and this daemon all ignore some
/// signals. With `ignore_sigpipe`, the program starts with `SIGPIPE` ignored.
pub(crate) fn reset_signals(ignore_sigpipe: bool) {
    let none = ptr::null_mut::<u64>();
    for signal in 1..=LAST_SIGNAL {
        let is_ignored = ignore_sigpipe && signal == libc::SIGPIPE;
        // The kernel's `struct sigaction`: all zeros for the default, and a leading one to ignore.
        let done = [u64::from(is_ignored), 0, 0, 0];
        // SAFETY: the structure has no handler, so no code of ours runs on a signal. The kernel
        // refuses signals whose disposition is fixed, which changes nothing. The C library would
        // skip the two signals that it reserves.
        #[expect(unsafe_code, reason = "no library in use resets dispositions in a child")]
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, done.as_ptr(), none, size_of::<u64>());
        }
    }
}

/// Writes the OOM score adjustment of the child. If the kernel refuses permission, as it does in
/// containers, the adjustment stays as it is. systemd does the same.
fn write_score(score: &str) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/oom_score_adj", flags, Mode::empty());
    match file.and_then(|file| rustix::io::write(file, score.as_bytes())) {
        Ok(_) | Err(Errno::PERM | Errno::ACCESS) => Ok(()),
        Err(error) => Err(error),
    }
}

impl WorkingDirectory {
    fn enter(&self) -> rustix::io::Result<()> {
        match rustix::process::chdir(self.path.as_c_str()) {
            Err(_) if self.optional => rustix::process::chdir(c"/"),
            entered => entered,
        }
    }
}

impl Credentials {
    fn take(&self) -> Result<(), StepError> {
        self.change_groups().map_err(StepError::at(ExecStep::Groups))?;
        let change = |uid| rustix::thread::set_thread_res_uid(uid, uid, uid);
        self.uid.map_or(Ok(()), change).map_err(StepError::at(ExecStep::Identity))
    }

    fn change_groups(&self) -> rustix::io::Result<()> {
        // The child has a single thread, so thread credentials apply to the process.
        if let Some(groups) = &self.groups {
            rustix::thread::set_thread_groups(groups)?;
        }
        self.gid.map_or(Ok(()), |gid| rustix::thread::set_thread_res_gid(gid, gid, gid))
    }
}

/// Converts the resource limits of a unit to the types of the system call. `files` is the limit of
/// open files for a unit that sets none itself.
pub(crate) fn limits(limits: &Rlimits, files: Option<Rlimit>) -> Vec<(Resource, Rlimit)> {
    let limit = |&(current, maximum): &(Option<u64>, Option<u64>)| Rlimit { current, maximum };
    let set = limits.iter().filter_map(|(name, value)| Some((resource(name)?, limit(value))));
    let files = files.filter(|_| !limits.contains_key("nofile"));
    files.map(|files| (Resource::Nofile, files)).into_iter().chain(set).collect()
}

/// Returns the limit that the kernel knows by this name.
pub(crate) fn resource(name: &str) -> Option<Resource> {
    RESOURCES.iter().find(|it| it.0 == name).map(|it| it.1)
}

const RESOURCES: [(&str, Resource); 16] = [
    ("as", Resource::As),
    ("core", Resource::Core),
    ("cpu", Resource::Cpu),
    ("data", Resource::Data),
    ("fsize", Resource::Fsize),
    ("locks", Resource::Locks),
    ("memlock", Resource::Memlock),
    ("msgqueue", Resource::Msgqueue),
    ("nice", Resource::Nice),
    ("nofile", Resource::Nofile),
    ("nproc", Resource::Nproc),
    ("rss", Resource::Rss),
    ("rtprio", Resource::Rtprio),
    ("rttime", Resource::Rttime),
    ("sigpending", Resource::Sigpending),
    ("stack", Resource::Stack),
];

/// Nice level that needs no permission.
const LEAST_URGENT: i32 = 19;

/// Sets a limit of this process, or the highest permitted value.
pub(crate) fn set_limit(resource: Resource, wanted: Rlimit) -> Result<(), Errno> {
    match setrlimit(resource, wanted) {
        Err(Errno::PERM) => {}
        done => return done,
    }
    let present = getrlimit(resource);
    // Without a hard limit, the refusal has another cause.
    let most = present.maximum.ok_or(Errno::PERM)?;
    let closest = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    let limit = Rlimit { current: closest(wanted.current), maximum: closest(wanted.maximum) };
    if limit == present { Ok(()) } else { setrlimit(resource, limit) }
}

/// Sets the nice level of this process, or the most urgent permitted one.
pub(crate) fn set_nice(wanted: i32) -> Result<(), Errno> {
    let refused = match setpriority_process(None, wanted) {
        Err(refused @ (Errno::PERM | Errno::ACCESS)) => refused,
        done => return done,
    };
    let present = getpriority_process(None)?;
    if wanted > present {
        // A less urgent level needs no permission, so the refusal has another cause.
        return Err(refused);
    }
    let most_urgent = most_urgent(getrlimit(Resource::Nice).current);
    if present > most_urgent { setpriority_process(None, most_urgent) } else { Ok(()) }
}

/// Returns the most urgent nice level that a limit permits.
fn most_urgent(limit: Option<u64>) -> i32 {
    let steps = limit.and_then(|limit| i32::try_from(limit).ok()).unwrap_or(i32::MAX);
    LEAST_URGENT + 1 - steps.clamp(1, 40)
}

/// Variables whose value is the process's own pid, which only the child can fill in.
const PID_VARIABLES: [&str; 2] = [SYSTEMD_EXEC_PID, LISTEN_PID];

/// Size in bytes of the longest of these variables: the name, `=`, ten digits and NUL.
const PID_VARIABLE_SIZE: usize = SYSTEMD_EXEC_PID.len() + 12;

/// Returns whether a variable has the process's own pid as its value.
pub(crate) fn is_pid_variable(name: &str) -> bool {
    PID_VARIABLES.contains(&name)
}

/// A program with its arguments and environment.
#[derive(Debug)]
pub(crate) struct Program {
    path: CString,
    /// The strings to which the lists point.
    _texts: [Vec<CString>; 2],
    /// NULL-terminated.
    arguments: Vec<AtomicPtr<libc::c_char>>,
    /// Pointers to the variables, terminated by NULL. The first pointers are reserved for
    /// `pid_variables`.
    environment: Vec<AtomicPtr<libc::c_char>>,
    pid_variables: Vec<&'static str>,
}

impl Program {
    /// Creates a program from its path, its arguments and its environment (a list of `NAME=value`).
    /// For each name of [`is_pid_variable`] that `passes` confirms, the program also gets a
    /// variable with the pid of the process, as in systemd.
    pub(crate) fn new(
        path: CString,
        arguments: Vec<CString>,
        environment: Vec<CString>,
        passes: impl Fn(&str) -> bool,
    ) -> Self {
        let pid_variables: Vec<&str> =
            PID_VARIABLES.into_iter().filter(|name| passes(name)).collect();
        let own = pid_variables.iter().map(|_| AtomicPtr::default());
        Self {
            path,
            arguments: pointers(&arguments).collect(),
            environment: own.chain(pointers(&environment)).collect(),
            _texts: [arguments, environment],
            pid_variables,
        }
    }

    /// Executes the program in the child, and returns only on failure. The function allocates
    /// nothing, takes no lock and cannot panic, because the child may share the memory of the
    /// daemon.
    #[expect(unsafe_code, reason = "there is no safe way to execute a program")]
    pub(crate) fn execute(&self) -> StepError {
        let mut texts = [[0; PID_VARIABLE_SIZE]; PID_VARIABLES.len()];
        let places = self.environment.iter().zip(&self.pid_variables);
        for ((place, name), text) in places.zip(&mut texts) {
            place.store(pid_variable(name, text), Ordering::Relaxed);
        }
        // SAFETY: this only makes system calls, which a copy of one thread may do, even one that
        // shares memory. The lists are NULL-terminated, and all their strings are kept in `self`,
        // or are `texts`. An atomic pointer has the layout of a pointer.
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

/// Formats a variable with the pid of this process without allocating.
fn pid_variable(name: &str, text: &mut [u8; PID_VARIABLE_SIZE]) -> *mut libc::c_char {
    let (mut before_the_zero, _) = text.split_at_mut(PID_VARIABLE_SIZE - 1);
    // The buffer is large enough, see `PID_VARIABLE_SIZE`.
    drop(write!(before_the_zero, "{name}={}", getpid().as_raw_nonzero()));
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
    Descriptors,
    Program,
}

const ALL: [ExecStep; 12] = [
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
    ExecStep::Descriptors,
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
    use rustix::process::{Uid, geteuid};
    use rustix::thread::set_thread_res_uid;

    use super::*;

    /// Nice levels belong to the thread, which drops its privileges alone.
    #[test]
    fn nice_level_is_as_close_as_permitted() {
        let before = getrlimit(Resource::Nice);
        // If it cannot be raised, the present limit counts.
        let maximum = before.maximum.map(|most| most.max(22));
        let raised = setrlimit(Resource::Nice, Rlimit { current: Some(22), maximum });
        let levels = std::thread::spawn(|| {
            if geteuid().is_root() {
                let nobody_user = Uid::from_raw(65534);
                set_thread_res_uid(nobody_user, nobody_user, nobody_user)
                    .expect("root may use any account");
            }
            let allowed = most_urgent(getrlimit(Resource::Nice).current);
            let present = getpriority_process(None).expect("it has one");
            let set = set_nice(-5).and_then(|()| getpriority_process(None));
            (set, (-5).max(present.min(allowed)))
        });
        let (set, closest) = levels.join().expect("it ends");
        if raised.is_ok() {
            setrlimit(Resource::Nice, before).expect("it was so before");
        }
        assert_eq!(set, Ok(closest));
    }

    #[test]
    fn nice_limit_maps_to_level() {
        let levels = [Some(0), Some(1), Some(20), Some(40), Some(99), None].map(most_urgent);
        assert_eq!(levels, [19, 19, 0, -20, -20, -20]);
    }

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
