//! What a process of a unit does between its beginning and its program.
//!
//! This is one of the places of the service manager with unsafe code: the standard library
//! cannot know what runs in a process that is a copy of one thread of ours. Nothing there may take
//! a lock or allocate, for another thread may have held the lock when the copy was made. So all
//! that needs either is prepared before, and the child makes system calls alone.

use std::ffi::CString;
use std::fs::File;

use fleet_core::graph::Rlimits;
use nix::libc;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Resource, Rlimit, Uid};
use tokio::process::Command as Process;

use super::best_effort_limits::{set_limit, set_nice};
use super::exec_step::{ExecStep, StepError};
use super::program::Program;

/// The last signal that the kernel has.
const LAST_SIGNAL: libc::c_int = 64;

/// What the child does for itself, in this order: what needs rights comes before they are given up.
#[derive(Debug, Default)]
pub(crate) struct ChildSetup {
    /// The list of processes of the control group that it enters.
    pub(crate) group: Option<File>,
    /// Whether `SIGPIPE` does nothing to it.
    pub(crate) ignore_sigpipe: bool,
    /// How readily it is ended when memory is short, as the kernel reads it.
    pub(crate) oom_score_adjust: Option<String>,
    pub(crate) nice: Option<i32>,
    pub(crate) limits: Vec<(Resource, Rlimit)>,
    /// Which rights to its new files nobody gets.
    pub(crate) umask: Option<u32>,
    /// Who it is to be; `None` is who we are.
    pub(crate) identity: Option<Credentials>,
    /// Where it begins, entered last, by the rights that it then has; `None` is where we are.
    pub(crate) start: Option<WorkingDirectory>,
}

/// The directory that a process begins in.
#[derive(Debug)]
pub(crate) struct WorkingDirectory {
    pub(crate) path: CString,
    /// Whether it begins in the root directory where it cannot enter that.
    pub(crate) optional: bool,
}

/// Who a process is to be.
#[derive(Debug)]
pub(crate) struct Credentials {
    pub(crate) uid: Option<Uid>,
    pub(crate) gid: Option<Gid>,
    /// All groups beside; `None` leaves them as they are, which is all that who is not root can do.
    pub(crate) groups: Option<Vec<Gid>>,
}

impl ChildSetup {
    /// Has the process prepare itself so, and become that program.
    pub(crate) fn apply(self, process: &mut Process, program: Program) {
        let become_program = move || {
            let failed = self.enter().err().unwrap_or_else(|| program.execute());
            Err(failed.1.into())
        };
        // SAFETY: `enter` and `execute` only make system calls, with memory and descriptors that
        // were there before: they allocate nothing, take no lock, and cannot panic. Paths that they
        // hand to the kernel end with a zero byte already, so they are not copied.
        #[expect(unsafe_code, reason = "there is no safe way to enter a control group at birth")]
        unsafe {
            process.pre_exec(become_program);
        }
    }

    /// Runs in the child.
    pub(crate) fn enter(&self) -> Result<(), StepError> {
        reset_signals(self.ignore_sigpipe);
        // With a process group of its own, and without a terminal that it could be stopped by.
        rustix::process::setsid().map_err(StepError::at(ExecStep::Session))?;
        if let Some(group) = &self.group {
            // The process that writes is the one that is meant by 0.
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
            .map_err(StepError::at(ExecStep::Directory))
    }
}

/// Has each signal do what it does to a program that says nothing of it. What is ignored would stay
/// so in the program: `nohup` and shells ignore some for what they start, and we do one ourselves,
/// which the program may want ignored as well.
fn reset_signals(but_sigpipe: bool) {
    let none = std::ptr::null_mut::<u64>();
    for signal in 1..=LAST_SIGNAL {
        let is_ignored = but_sigpipe && signal == libc::SIGPIPE;
        // The kernel's `struct sigaction`, which is all zeros for what is usual, and begins with a
        // one where nothing is done.
        let done = [u64::from(is_ignored), 0, 0, 0];
        // SAFETY: nothing of ours is to be run by the signal from then on, and the structure says
        // so. Those that nobody can change are refused, which changes nothing. The C library would
        // leave out the two that it has for itself.
        #[expect(unsafe_code, reason = "no library that we use says what a signal does")]
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, done.as_ptr(), none, size_of::<u64>());
        }
    }
}

/// Who may not set it goes without, as systemd has it: in a container nobody may.
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
        // The child has this one thread, so what is said of a thread holds for the process.
        if let Some(groups) = &self.groups {
            rustix::thread::set_thread_groups(groups)?;
        }
        self.gid.map_or(Ok(()), |gid| rustix::thread::set_thread_res_gid(gid, gid, gid))
    }
}

/// The limits of a unit in the kernel's terms. A soft limit without a hard one is both. Where it
/// says nothing of files, that is its limit of them.
pub(crate) fn limits(limits: &Rlimits, files: Option<Rlimit>) -> Vec<(Resource, Rlimit)> {
    let limit = |&(current, maximum): &(Option<u64>, Option<u64>)| Rlimit { current, maximum };
    let known = |name: &str| RESOURCES.iter().find(|it| it.0 == name).map(|it| it.1);
    let said = limits.iter().filter_map(|(name, value)| Some((known(name)?, limit(value))));
    let files = files.filter(|_| !limits.contains_key("nofile"));
    files.map(|files| (Resource::Nofile, files)).into_iter().chain(said).collect()
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
