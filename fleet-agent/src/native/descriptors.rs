//! How many files this process may have open: each unit takes some of them.

use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::OnceLock;

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit of before, once it was raised.
static INITIAL_SOFT_LIMIT: OnceLock<Option<u64>> = OnceLock::new();

/// What share of the files that may be open no unit may be started with, and how many these are at
/// least and at most.
const SHARE: u64 = 8;
const LEAST: u64 = 16;
const MOST: u64 = 128;

/// Lets this process have as many files open as its hard limit allows. Units are given the soft
/// limit that was found: some programs do worse with a higher one, and those that want it can raise
/// it themselves. It is for programs, and not for those who use them as a library.
///
/// # Errors
///
/// The kernel allows no process that many files any more.
pub fn raise_file_limit() -> io::Result<()> {
    let found = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: found.maximum, ..found })?;
    // A second time it is found raised.
    INITIAL_SOFT_LIMIT.get_or_init(|| found.current);
    Ok(())
}

/// The limit for units that say nothing of it; nothing where they inherit what is right.
pub(crate) fn unit_nofile_limit() -> Option<Rlimit> {
    let found = *INITIAL_SOFT_LIMIT.get()?;
    let maximum = getrlimit(Resource::Nofile).maximum;
    Some(Rlimit { current: found.into_iter().chain(maximum).min(), maximum })
}

/// Why no unit may be started with so few files left: to end units takes some, and so does whoever
/// asks how they are.
pub(crate) fn descriptor_shortage() -> Option<String> {
    shortage(1)
}

/// Refuses to take more units back than so many, where too few files are left: nobody could be
/// answered, and no unit be stopped. Half of those that are kept back will do, as the other half
/// may have been in use when the units were left.
pub(crate) fn check_descriptors_left(units: usize) -> io::Result<()> {
    let words = |why| format!("more units run than the {units} that could be taken back: {why}");
    shortage(2).map_or(Ok(()), |why| Err(io::Error::other(words(why))))
}

/// Why too few files are left, where that part of those that are kept back is not free.
fn shortage(part: u64) -> Option<String> {
    let most = getrlimit(Resource::Nofile).current?;
    let free = most.saturating_sub((most / SHARE).clamp(LEAST, MOST) / part);
    // The kernel gives the least number that is free.
    let is_scarce = match fcntl_dupfd_cloexec(io::stdin(), 0) {
        Ok(next) => u64::try_from(next.as_raw_fd()).is_ok_and(|next| next >= free),
        Err(error) => is_out_of_descriptors(error),
    };
    let how = "LimitNOFILE=, or ulimit -n, says how many";
    let words = || format!("too few are left of the {most} files that may be open: {how}");
    is_scarce.then(words)
}

/// Whether this process, or the machine, may open no more files.
pub(crate) fn is_out_of_descriptors(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE)
}
