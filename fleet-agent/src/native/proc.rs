//! What the kernel tells of processes under `/proc`, and the wait for the end of any of them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::sync::Mutex;

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
    Ok(stat(pid)?.filter(|(_, runs)| *runs).map(|(process, _)| process.id))
}

/// The process of that number, also when it has ended and was not waited for.
pub(crate) fn child(pid: u32) -> io::Result<Option<ProcessId>> {
    Ok(stat(pid)?.map(|(process, _)| process.id))
}

/// The boot that this machine is in.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// All processes that belong to a run: those that carry its identity, those in the groups of the
/// leaders that it began with unless they carry another, and everything that these have started.
pub(crate) fn members<'a>(
    all: &'a [Process],
    invocation: &str,
    leaders: &BTreeSet<ProcessId>,
) -> Vec<&'a Process> {
    let groups = own_groups(all, leaders);
    let mut inside: BTreeSet<u32> = BTreeSet::new();
    for process in all {
        let carries = process.invocation.as_deref() == Some(invocation);
        let grouped = process.invocation.is_none() && groups.contains(&process.group);
        if carries || grouped {
            inside.insert(process.id.pid);
        }
    }
    loop {
        let before = inside.len();
        let children = all.iter().filter(|process| inside.contains(&process.parent));
        let children: Vec<u32> = children.map(|process| process.id.pid).collect();
        inside.extend(children);
        if inside.len() == before {
            break;
        }
    }
    all.iter().filter(|process| inside.contains(&process.id.pid)).collect()
}

/// Whether one process belongs to a run, as [`members`] has it, without a look at all others.
pub(crate) fn belongs(
    process: ProcessId,
    run: &str,
    leaders: &BTreeSet<ProcessId>,
) -> io::Result<bool> {
    let mut pid = process.pid;
    for _ in 0..GENERATIONS {
        let Some((process, _)) = stat(pid)? else { return Ok(false) };
        let carried = value(&environment(pid)?, INVOCATION_ID);
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

/// The groups that are still those of the leaders. The kernel gives a number to a new process only
/// when its group is empty, so a later process of that number shows that the group is a stranger's.
fn own_groups(all: &[Process], leaders: &BTreeSet<ProcessId>) -> BTreeSet<u32> {
    let is_reused = |leader: &ProcessId| {
        all.iter().any(|process| process.id.pid == leader.pid && process.id != *leader)
    };
    leaders.iter().filter(|leader| !is_reused(leader)).map(|leader| leader.pid).collect()
}

/// Reads all processes of the machine, once for everybody who asks at the same time.
#[derive(Debug, Default)]
pub(crate) struct Census {
    begun: AtomicU64,
    last: Mutex<(u64, Arc<Vec<Process>>)>,
}

impl Census {
    /// All processes, read after this was called.
    pub(crate) async fn take(&self) -> io::Result<Arc<Vec<Process>>> {
        let asked = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if last.0 <= asked {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            let read = tokio::task::spawn_blocking(read_all).await;
            *last = (number, Arc::new(read.map_err(io::Error::other)??));
        }
        Ok(Arc::clone(&last.1))
    }
}

/// Reads all processes of the machine. A list that is not complete is an error: whoever is missing
/// from it would be taken for ended.
pub(crate) fn read_all() -> io::Result<Vec<Process>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some((process, true)) = stat(pid)? {
            let carried = environment(pid)?;
            let begun = value(&carried, SYSTEMD_EXEC_PID).and_then(|number| number.parse().ok());
            all.push(Process { invocation: value(&carried, INVOCATION_ID), begun, ..process });
        }
    }
    Ok(all)
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
            Err(rustix::io::Errno::SRCH) => return Ok(None),
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
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
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

/// A process, and whether it runs.
fn stat(pid: u32) -> io::Result<Option<(Process, bool)>> {
    // Longer than any, and read at once: this is done at the start of each process.
    let mut text = [0; 4096];
    let read = File::open(format!("/proc/{pid}/stat")).and_then(|mut it| it.read(&mut text));
    let read = there(read)?.and_then(|length| text.get(..length));
    Ok(read.and_then(|text| parse_stat(pid, &String::from_utf8_lossy(text))))
}

/// What was read of a process; `None` if it is not there, or hidden from us. That this daemon has
/// no more files or memory says nothing of the process.
fn there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    use rustix::io::Errno;
    let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if Errno::from_io_error(&error).is_some_and(|no| scarce.contains(&no)) => {
            Err(error)
        }
        Err(_) => Ok(None),
    }
}

/// Reads a line of `/proc/PID/stat`. The name of the program stands in brackets and may hold
/// anything, so what follows is counted from the last bracket.
fn parse_stat(pid: u32, text: &str) -> Option<(Process, bool)> {
    let (_, after) = text.rsplit_once(')')?;
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let runs = !matches!(*fields.first()?, "Z" | "X" | "x");
    let number = |field: usize| fields.get(field)?.parse::<u32>().ok();
    let start = fields.get(19)?.parse().ok()?;
    let process = Process {
        id: ProcessId { pid, start },
        parent: number(1)?,
        group: number(2)?,
        invocation: None,
        begun: None,
    };
    Some((process, runs))
}

/// What a process was given as its environment; nothing if it is not there, or hidden from us.
fn environment(pid: u32) -> io::Result<Vec<u8>> {
    Ok(there(std::fs::read(format!("/proc/{pid}/environ")))?.unwrap_or_default())
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

    fn process(pid: u32, parent: u32, group: u32, invocation: Option<&str>) -> Process {
        let id = ProcessId { pid, start: 0 };
        Process { id, parent, group, invocation: invocation.map(str::to_owned), begun: None }
    }

    #[test]
    fn members_are_found_by_identity_group_and_descent() {
        let all = [
            process(9, 1, 9, None),
            process(10, 1, 10, Some("a")),
            process(11, 10, 10, None),
            process(12, 1, 12, Some("a")),
            process(13, 14, 13, None),
            process(14, 12, 14, None),
            process(15, 1, 10, Some("b")),
        ];
        let pids = |groups: &[u32]| {
            let leaders = groups.iter().map(|&pid| ProcessId { pid, start: 0 }).collect();
            members(&all, "a", &leaders).iter().map(|p| p.id.pid).collect::<Vec<_>>()
        };
        assert_eq!(pids(&[10]), [10, 11, 12, 13, 14]);
        assert_eq!(pids(&[9]), [9, 10, 11, 12, 13, 14]);
    }

    #[test]
    fn a_group_whose_number_was_given_to_a_stranger_is_left_alone() {
        let mut all = [process(9, 1, 9, None), process(10, 9, 9, None)];
        let leaders = BTreeSet::from([ProcessId { pid: 9, start: 0 }]);
        assert_eq!(members(&all, "a", &leaders).len(), 2);
        all[0].id.start = 5;
        assert_eq!(members(&all, "a", &leaders), Vec::<&Process>::new());
    }

    #[test]
    fn want_of_files_is_not_the_end_of_a_process() {
        let errno = |no: rustix::io::Errno| there::<()>(Err(no.into()));
        assert!(errno(rustix::io::Errno::MFILE).is_err());
        assert!(matches!(errno(rustix::io::Errno::NOENT), Ok(None)));
        assert!(matches!(errno(rustix::io::Errno::SRCH), Ok(None)));
    }

    #[test]
    fn a_program_may_be_called_anything() {
        let line = "7 (a) Z (b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1000 2";
        let (read, runs) = parse_stat(7, line).expect("the line is well formed");
        assert_eq!((read.id.start, read.parent, read.group, runs), (4711, 1, 7, true));
        let ended = parse_stat(7, &line.replace(" S ", " Z ")).expect("it is well formed");
        assert_eq!((ended.0, ended.1), (read, false));
        assert_eq!(parse_stat(7, "7 (a"), None);
    }

    #[test]
    fn this_very_process_runs() {
        let own = started(std::process::id()).expect("it can be read").expect("it runs");
        let all = read_all().expect("they can be read");
        assert!(all.iter().any(|process| process.id == own));
        assert_eq!(started(u32::MAX).expect("nothing is in the way"), None);
    }
}
