//! What the kernel tells of processes under `/proc`, and the wait for the end of any of them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

use super::exit::{Known, how_it_ended};
use super::life::ProcessId;
use super::outcome::End;
use super::signals::Sig;
use crate::Clock;
use crate::readable::readable;

/// The variable by which a process is known to belong to a run of a unit.
pub(crate) const INVOCATION_ID: &str = "INVOCATION_ID";

/// The variable that tells a process its own number if the service manager has begun it, and all
/// that it begins in turn the number of that one.
pub(crate) const SYSTEMD_EXEC_PID: &str = "SYSTEMD_EXEC_PID";

/// How long a parent is given to wait for its child, before it is given up to learn its status.
const PATIENCE_WITH_PARENTS: Duration = Duration::from_secs(1);

/// How many generations of parents are looked at.
const GENERATIONS: usize = 64;

/// A process that runs; one that has ended and waits for its parent does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    /// The run of a unit that it was started in, as far as it can be seen.
    pub(crate) invocation: Option<String>,
    /// The process that a service manager began, of which this one is or comes, as far as it can
    /// be seen.
    pub(crate) begun: Option<u32>,
}

/// The process of that number; `None` when none runs.
pub(crate) fn started(pid: u32) -> io::Result<Option<ProcessId>> {
    Ok(stat(pid)?.ok().filter(|it| it.runs).map(|it| it.process.id))
}

/// The process of that number, also when it has ended and was not waited for.
pub(crate) fn child(pid: u32) -> io::Result<Option<ProcessId>> {
    Ok(stat(pid)?.ok().map(|it| it.process.id))
}

/// The boot that this machine is in.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Whether one process belongs to a run, as [`members`](super::census::members) has it, without a
/// look at all others.
pub(crate) fn belongs(
    process: ProcessId,
    run: &str,
    leaders: &BTreeSet<ProcessId>,
) -> io::Result<bool> {
    let mut pid = process.pid;
    for _ in 0..GENERATIONS {
        let Ok(Stat { process, .. }) = stat(pid)? else { return Ok(false) };
        let carried = environment(pid)?.ok().and_then(|it| value(&it, INVOCATION_ID));
        if carried.as_deref() == Some(run) {
            return Ok(true);
        }
        if let Some(leader) = leaders.iter().find(|leader| leader.pid == process.group) {
            let is_reused = child(leader.pid)?.is_some_and(|now| now != *leader);
            if carried.is_none() && !is_reused {
                return Ok(true);
            }
        }
        pid = process.parent;
        if pid <= 1 {
            break;
        }
    }
    Ok(false)
}

/// A process that can be waited for and signalled, and cannot be mistaken for another.
#[derive(Debug)]
pub(crate) struct Watched {
    descriptor: AsyncFd<OwnedFd>,
}

impl Watched {
    /// Takes hold of a process; `None` when it does not run any more.
    pub(crate) fn open(process: ProcessId) -> io::Result<Option<Self>> {
        let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            Err(Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // The number may have been given to another process before the descriptor was made.
        if started(process.pid)? != Some(process) {
            return Ok(None);
        }
        let descriptor = readable(descriptor)?;
        Ok(Some(Self { descriptor }))
    }

    /// Sends a signal; a process that has ended does not mind.
    pub(crate) fn signal(&self, signal: Sig) -> io::Result<()> {
        match pidfd_send_signal(&self.descriptor, signal.0) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns when the process has ended.
    pub(crate) async fn ended(&self) -> io::Result<()> {
        self.descriptor.readable().await.map(drop)
    }

    /// Returns when the process has ended, with what there is to learn of its end.
    pub(crate) async fn end(&self, clock: &dyn Clock) -> io::Result<End> {
        self.ended().await?;
        let waited_for = async {
            loop {
                let mut ready = self.descriptor.readable().await?;
                match how_it_ended(self.descriptor.get_ref()) {
                    Known::Ended(end) => return Ok(end),
                    Known::Never => return Ok(End::Unseen),
                    Known::NotYet => ready.clear_ready(),
                }
            }
        };
        tokio::select! {
            end = waited_for => end,
            () = clock.sleep(PATIENCE_WITH_PARENTS) => Ok(End::Unseen),
        }
    }
}

/// What the kernel tells of a process by its number.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    process: Process,
    /// Of one that has ended nothing is left but this.
    runs: bool,
    /// It is a part of the kernel.
    is_kernel: bool,
    /// How long its environment is, in bytes; nothing while it begins to execute a program, and
    /// where the kernel does not tell.
    environment: Option<usize>,
}

fn stat(pid: u32) -> io::Result<Result<Stat, Missing>> {
    // Longer than any, and read at once: this is done at the start of each process.
    let mut text = [0; 4096];
    let read = File::open(format!("/proc/{pid}/stat")).and_then(|mut it| it.read(&mut text));
    let parsed = |length| parse_stat(pid, &String::from_utf8_lossy(text.get(..length)?));
    Ok(there(read)?.and_then(|length| parsed(length).ok_or(Missing::Hidden)))
}

/// Why nothing is told of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// There is none of that number.
    Gone,
    /// It is not ours to see.
    Hidden,
}

/// What was read of a process. That this daemon has no more files or memory says nothing of it.
fn there<T>(read: io::Result<T>) -> io::Result<Result<T, Missing>> {
    let error = match read {
        Ok(read) => return Ok(Ok(read)),
        Err(error) => error,
    };
    match Errno::from_io_error(&error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Err(error),
        Some(Errno::NOENT | Errno::SRCH) => Ok(Err(Missing::Gone)),
        _ => Ok(Err(Missing::Hidden)),
    }
}

/// The kernel's `PF_KTHREAD`.
const KERNEL_THREAD: u32 = 0x20_0000;

/// Reads a line of `/proc/PID/stat`. The name of the program stands in brackets and may hold
/// anything, so what follows is counted from the last bracket.
fn parse_stat(pid: u32, text: &str) -> Option<Stat> {
    let (_, after) = text.rsplit_once(')')?;
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field)?.parse::<u32>().ok();
    // Its first thread may have ended, while others go on.
    let runs = !matches!(*fields.first()?, "Z" | "X" | "x") || number(17)? > 1;
    let id = ProcessId { pid, start: fields.get(19)?.parse().ok()? };
    let (parent, group) = (number(1)?, number(2)?);
    Some(Stat {
        process: Process { id, parent, group, invocation: None, begun: None },
        runs,
        is_kernel: number(6)? & KERNEL_THREAD != 0,
        environment: environment_length(&fields),
    })
}

/// From its beginning to its end.
fn environment_length(fields: &[&str]) -> Option<usize> {
    let place = |field: usize| fields.get(field)?.parse::<usize>().ok().filter(|&place| place > 0);
    place(48)?.checked_sub(place(47)?)
}

/// What there is to see of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look {
    Runs(Process),
    /// It runs, and its environment could not be seen, as it begins to execute a program.
    Becomes(Process),
    /// It is none that could be a unit's.
    Nothing,
    /// It has ended, and nobody has waited for it yet.
    Ended,
    /// There is none of that number any more.
    Gone,
}

/// Looks at the process of that number.
pub(crate) fn look(pid: u32) -> io::Result<Look> {
    let carried = environment(pid)?;
    let stat = match stat(pid)? {
        Ok(stat) => stat,
        Err(Missing::Hidden) => return Ok(Look::Nothing),
        Err(Missing::Gone) => return Ok(Look::Gone),
    };
    Ok(match carried {
        _ if !stat.runs => Look::Ended,
        _ if stat.is_kernel => Look::Nothing,
        Err(Missing::Hidden) => Look::Runs(stat.process),
        Ok(carried) if is_whole(&carried, &stat) => Look::Runs(stat.process.carrying(&carried)),
        _ => Look::Becomes(stat.process),
    })
}

/// Whether that is all of the environment. It breaks off, and may do so before its beginning, where
/// the process has executed a program meanwhile.
fn is_whole(carried: &[u8], stat: &Stat) -> bool {
    static IS_TOLD: OnceLock<bool> = OnceLock::new();
    let own = || parse_own().is_some_and(|it| it.environment.is_some());
    stat.environment == Some(carried.len()) || !*IS_TOLD.get_or_init(own)
}

fn parse_own() -> Option<Stat> {
    stat(std::process::id()).ok()?.ok()
}

impl Process {
    fn carrying(self, carried: &[u8]) -> Self {
        let begun = value(carried, SYSTEMD_EXEC_PID).and_then(|number| number.parse().ok());
        Self { invocation: value(carried, INVOCATION_ID), begun, ..self }
    }
}

/// What a process was given as its environment.
fn environment(pid: u32) -> io::Result<Result<Vec<u8>, Missing>> {
    there(std::fs::read(format!("/proc/{pid}/environ")))
}

/// The value of a variable in an environment as the kernel tells it.
fn value(environment: &[u8], name: &str) -> Option<String> {
    let mut variables = environment.split(|&byte| byte == 0);
    let value = variables.find_map(|it| it.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    value.map(|value| String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_files_is_not_the_end_of_a_process() {
        let errno = |no: Errno| there::<()>(Err(no.into()));
        assert!(errno(Errno::MFILE).is_err());
        assert!(matches!(errno(Errno::NOENT), Ok(Err(Missing::Gone))));
        assert!(matches!(errno(Errno::SRCH), Ok(Err(Missing::Gone))));
        assert!(matches!(errno(Errno::ACCESS), Ok(Err(Missing::Hidden))));
    }

    #[test]
    fn a_program_may_be_called_anything() {
        let line = "7 (a) Z (b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1000 2";
        let Stat { process, runs, is_kernel, .. } = parse_stat(7, line).expect("it is well formed");
        assert_eq!((process.id.start, process.parent, process.group), (4711, 1, 7));
        assert_eq!((runs, is_kernel), (true, false));
        let ended = parse_stat(7, &line.replace(" S ", " Z ")).expect("it is well formed");
        assert_eq!((ended.process, ended.runs), (process, false));
        assert_eq!(ended.environment, None);
        let long = format!("{line}{} 140 147 0", " 1".repeat(25));
        assert_eq!(parse_stat(7, &long).expect("it is well formed").environment, Some(7));
        let becomes = long.replace("140 147", "0 0");
        assert_eq!(parse_stat(7, &becomes).expect("it is well formed").environment, None);
        // Its first thread has ended, and another has not.
        let others = line.replace(" S ", " Z ").replace(" 20 0 1 ", " 20 0 2 ");
        assert!(parse_stat(7, &others).expect("it is well formed").runs);
        assert!(parse_stat(7, &line.replace("4194560", "2129984")).expect("it is so").is_kernel);
        assert_eq!(parse_stat(7, "7 (a"), None);
    }

    #[test]
    fn this_very_process_runs() {
        let own = started(std::process::id()).expect("it can be read").expect("it runs");
        assert!(matches!(look(own.pid), Ok(Look::Runs(process)) if process.id == own));
        let length = environment(own.pid).expect("it can be read").map(|it| it.len()).ok();
        assert_eq!(parse_own().expect("it runs").environment, length);
        assert_eq!(look(u32::MAX).expect("nothing is in the way"), Look::Gone);
        assert_eq!(started(u32::MAX).expect("nothing is in the way"), None);
    }
}
