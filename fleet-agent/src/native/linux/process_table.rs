//! All processes of the machine, the ones that belong to a run, and the methods of tracking them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex;

use super::probe_cache::ProbeCache;
use super::process_info::{ProbeResult, ProcessId, ProcessInfo, probe};
use crate::clock::pause;

/// Maximum number of times that one read of all processes lists `/proc`. It is listed again if a
/// listed process has ended or cannot be read yet. Processes that have already been read are not
/// read again.
const MAX_LISTS: usize = 1000;

/// Maximum numbers of repeated lists because a process is about to exec or to exit. The first
/// `YIELD_ATTEMPTS` follow each other without a pause, and the next `SLEEP_ATTEMPTS` after a
/// millisecond each. The limit is needed for processes that are blocked, for example by a file
/// system that does not respond.
const YIELD_ATTEMPTS: usize = 10;
const SLEEP_ATTEMPTS: usize = 250;

/// Reads all processes of the machine, once for all concurrent callers.
#[derive(Debug, Default)]
pub(crate) struct ProcessTable {
    /// Number of reads so far.
    reads: AtomicU64,
    last: Mutex<(u64, Arc<Vec<ProcessInfo>>)>,
    cache: Arc<std::sync::Mutex<ProbeCache>>,
    /// Processes to examine again in the next read.
    forgotten: std::sync::Mutex<Vec<u32>>,
}

impl ProcessTable {
    /// Returns all processes, listed after this call began. Their properties may be up to a second
    /// old; see [`ProbeCache`].
    pub(crate) async fn read(&self) -> io::Result<Arc<Vec<ProcessInfo>>> {
        let requested = self.reads.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if last.0 <= requested {
            let number = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
            let (cache, forgotten) = (Arc::clone(&self.cache), self.take_forgotten());
            let read = tokio::task::spawn_blocking(move || read_with(&cache, &forgotten)).await;
            *last = (number, Arc::new(read.map_err(io::Error::other)??));
        }
        Ok(Arc::clone(&last.1))
    }

    /// Makes the next read examine these processes again.
    pub(crate) fn forget(&self, pids: &[u32]) {
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner).extend(pids);
    }

    fn take_forgotten(&self) -> Vec<u32> {
        std::mem::take(&mut *self.forgotten.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn read_with(
    cache: &std::sync::Mutex<ProbeCache>,
    forgotten: &[u32],
) -> io::Result<Vec<ProcessInfo>> {
    // Reads exclude each other already.
    let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
    cache.forget(forgotten);
    let cache = RefCell::new(cache);
    read_until_complete(|| cache.borrow_mut().list(), |pid| cache.borrow_mut().probe(pid, probe))
}

/// Reads all processes of the machine. If the list cannot be completed, returns an error, because
/// callers treat a missing process as ended.
pub(crate) fn read_all() -> io::Result<Vec<ProcessInfo>> {
    read_until_complete(list, probe)
}

fn list() -> io::Result<Vec<u32>> {
    let number = |entry: io::Result<std::fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok())).transpose()
    };
    std::fs::read_dir("/proc")?.filter_map(number).collect()
}

/// Lists all processes repeatedly, and probes each new one: `probe` reads its parent, process group
/// and environment. Returns once every process on the last list has been probed.
///
/// A single list would miss two kinds of processes:
///
/// - A child that was created after the list was read, if its parent ended before it was probed.
/// - A process whose environment is just being replaced by an exec, since the environment shows to
///   which run a process belongs.
///
/// After [`YIELD_ATTEMPTS`] and [`SLEEP_ATTEMPTS`] (260 attempts), a process that is still in an
/// exec or about to exit is returned as it was read last.
///
/// A process that a returned one has created after the last list was read is still missing. So a
/// caller that kills the returned processes must read again after they have ended.
///
/// # Errors
///
/// `list` or `probe` fails, or listed processes have ended each time on nearly [`MAX_LISTS`] lists.
fn read_until_complete(
    mut list: impl FnMut() -> io::Result<Vec<u32>>,
    mut probe: impl FnMut(u32) -> io::Result<ProbeResult>,
) -> io::Result<Vec<ProcessInfo>> {
    let mut known: BTreeMap<u32, Option<ProcessInfo>> = BTreeMap::new();
    let (mut transient, mut awaited) = (Vec::new(), 0);
    for _ in 0..MAX_LISTS {
        transient.clear();
        let mut ended = false;
        for pid in list()? {
            if known.contains_key(&pid) {
                continue;
            }
            match probe(pid)? {
                ProbeResult::Running(process) => drop(known.insert(pid, Some(process))),
                ProbeResult::Irrelevant => drop(known.insert(pid, None)),
                ProbeResult::Transient(process) => transient.push(process),
                ProbeResult::Zombie => {
                    ended = true;
                    known.insert(pid, None);
                }
                ProbeResult::Gone => ended = true,
            }
        }
        if ended {
            continue;
        }
        awaited += 1;
        if transient.is_empty() || awaited > YIELD_ATTEMPTS + SLEEP_ATTEMPTS {
            return Ok(known.into_values().flatten().chain(transient).collect());
        }
        wait_for_transient(awaited);
    }
    Err(io::Error::other("too many processes exit while they are listed"))
}

fn wait_for_transient(awaited: usize) {
    if awaited <= YIELD_ATTEMPTS {
        std::thread::yield_now();
    } else {
        pause(Duration::from_millis(1));
    }
}

/// Returns all processes of a run:
///
/// - A process belongs to the run if its environment has the invocation ID of the run.
/// - A process without any invocation ID belongs to the run if it is in the process group of one of
///   the leaders.
/// - Descendants of these processes belong to the run too.
///
/// This daemon belongs to no run, although a unit may have started it, for example through a login.
/// The daemon's children inherit that unit's invocation ID and have it until they exec, even if
/// they are spawned for another unit. So such a child is no member either, unless it is in the
/// group of a leader.
pub(crate) fn members<'a>(
    all: &'a [ProcessInfo],
    invocation: &str,
    leaders: &[ProcessId],
) -> Vec<&'a ProcessInfo> {
    let groups = own_groups(all, leaders);
    let own = std::process::id();
    let shown = all.iter().find(|it| it.id.pid == own).and_then(|it| it.invocation.as_deref());
    // A process in a group of the leaders is a member all the same, for example a child of a shell
    // that became this process.
    let may_be_before_exec = |process: &ProcessInfo| {
        process.parent == own && shown == Some(invocation) && !groups.contains(&process.group)
    };
    let mut inside: BTreeSet<u32> = BTreeSet::new();
    for process in all.iter().filter(|process| process.id.pid != own) {
        let carries = process.invocation.as_deref() == Some(invocation);
        let grouped = process.invocation.is_none() && groups.contains(&process.group);
        if carries && !may_be_before_exec(process) || grouped {
            inside.insert(process.id.pid);
        }
    }
    loop {
        let before = inside.len();
        let children = all.iter().filter(|process| inside.contains(&process.parent));
        let children = children.map(|process| process.id.pid).filter(|&pid| pid != own);
        let children: Vec<u32> = children.collect();
        inside.extend(children);
        if inside.len() == before {
            break;
        }
    }
    all.iter().filter(|process| inside.contains(&process.id.pid)).collect()
}

/// Returns the process groups that still belong to the leaders. The kernel reuses a pid only once
/// the process group with that ID is empty. So if another process now has the pid of a leader, the
/// leader's group no longer exists.
fn own_groups(all: &[ProcessInfo], leaders: &[ProcessId]) -> BTreeSet<u32> {
    let is_reused = |leader: &ProcessId| {
        all.iter().any(|process| process.id.pid == leader.pid && process.id != *leader)
    };
    leaders.iter().filter(|leader| !is_reused(leader)).map(|leader| leader.pid).collect()
}

/// Method by which a native service manager finds all processes of a unit in order to stop them.
/// `Display` describes the method in a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tracking {
    /// By a control group per run, which its processes cannot leave.
    ControlGroups,
    /// By process group, parent process and environment variables. A process that has changed all
    /// three is not found.
    Environment {
        /// Reason why control groups are not used.
        why: String,
    },
}

impl fmt::Display for Tracking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlGroups => f.write_str("by control groups"),
            Self::Environment { why } => write!(
                f,
                "by process group, parent and environment, not by control groups: {why}; a \
                 process that leaves all three is not found"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, group: u32, invocation: Option<&str>) -> ProcessInfo {
        let id = ProcessId { pid, start: 0 };
        ProcessInfo { id, parent, group, invocation: invocation.map(str::to_owned), exec_pid: None }
    }

    #[test]
    fn members_by_invocation_group_and_descent() {
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
            let leader = |&pid: &u32| ProcessId { pid, start: 0 };
            let leaders: Vec<ProcessId> = groups.iter().map(leader).collect();
            members(&all, "a", &leaders).iter().map(|p| p.id.pid).collect::<Vec<_>>()
        };
        assert_eq!(pids(&[10]), [10, 11, 12, 13, 14]);
        assert_eq!(pids(&[9]), [9, 10, 11, 12, 13, 14]);
    }

    #[test]
    fn own_process_and_children_are_no_members() {
        let own = std::process::id();
        let leader = ProcessId { pid: own + 3, start: 0 };
        let all = [
            process(own + 1, 1, own + 1, Some("a")),
            process(own, own + 1, own + 1, Some("a")),
            process(own + 2, own, own + 2, Some("b")),
            process(own + 3, own, own + 3, Some("a")),
            process(own + 4, own, own + 4, Some("a")),
            process(own + 5, own, own, Some("a")),
            process(own + 6, own + 3, own + 6, Some("a")),
        ];
        let found: Vec<u32> = members(&all, "a", &[leader]).iter().map(|it| it.id.pid).collect();
        let expected = [own + 1, own + 3, own + 6];
        assert_eq!(found, expected, "its child for that run is a member after the exec");
    }

    #[test]
    fn reused_process_group_is_left_alone() {
        let mut all = [process(9, 1, 9, None), process(10, 9, 9, None)];
        let leaders = [ProcessId { pid: 9, start: 0 }];
        assert_eq!(members(&all, "a", &leaders).len(), 2);
        all[0].id.start = 5;
        assert_eq!(members(&all, "a", &leaders), Vec::<&ProcessInfo>::new());
    }

    /// Reads scripted lists and scripted probes; returns the pids.
    fn read(lists: &[&[u32]], probes: &[(u32, ProbeResult)]) -> Vec<u32> {
        let (mut lists, mut probes) = (lists.iter(), probes.iter());
        let all = read_until_complete(
            || Ok(lists.next().expect("there is one").to_vec()),
            |pid| {
                let (expected, probe) = probes.next().expect("there is one");
                assert_eq!(*expected, pid, "it is its turn");
                Ok(probe.clone())
            },
        );
        let pids = all.expect("no error is expected").into_iter().map(|it| it.id.pid).collect();
        assert_eq!((lists.len(), probes.len()), (0, 0), "that is too few");
        pids
    }

    fn runs(pid: u32) -> (u32, ProbeResult) {
        (pid, ProbeResult::Running(process(pid, 1, pid, None)))
    }

    #[test]
    fn child_created_after_list_is_found() {
        let probes = [runs(1), (8, ProbeResult::Gone), (9, ProbeResult::Irrelevant), runs(10)];
        assert_eq!(read(&[&[1, 8, 9], &[1, 9, 10]], &probes), [1, 10]);
        // It is a zombie.
        let probes = [runs(1), (8, ProbeResult::Zombie), runs(10)];
        assert_eq!(read(&[&[1, 8], &[1, 8, 10]], &probes), [1, 10]);
        // It is gone itself, before it was probed.
        let probes = [runs(1), (8, ProbeResult::Gone), (10, ProbeResult::Gone), runs(11)];
        assert_eq!(read(&[&[1, 8], &[1, 10], &[1, 11]], &probes), [1, 11]);
    }

    #[test]
    fn transient_process_is_probed_again() {
        let becomes = || ProbeResult::Transient(process(8, 1, 8, None));
        let probes = [(8, becomes()), runs(9), (8, becomes()), runs(8)];
        assert_eq!(read(&[&[8, 9], &[8, 9], &[8, 9]], &probes), [8, 9]);
        // It stays blocked, and counts as far as it can be read.
        let for_ever =
            read_until_complete(|| Ok(vec![8]), |_| Ok(becomes())).expect("no error is expected");
        assert_eq!(for_ever, [process(8, 1, 8, None)]);
        // A missed process could belong to a unit.
        read_until_complete(|| Ok(vec![8]), |_| Ok(ProbeResult::Gone))
            .expect_err("the list never completes");
    }

    /// Each process of the run starts the next, execs twice, and exits.
    #[test]
    fn handing_over_run_is_never_empty() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let (flag, run) = (home.path().join("flag"), home.path().display().to_string());
        std::fs::write(&flag, "").expect("it can be created");
        let relay = "test -e \"$FLAG\" && exec setsid sh -c \"$RELAY\" & exit";
        let mut first = std::process::Command::new("/bin/sh");
        first.args(["-c", relay]).env("RELAY", relay).env("FLAG", &flag);
        first.env(super::super::process_info::INVOCATION_ID, &run);
        let mut first = first.spawn().expect("there is a shell");
        let none = [];
        let count = || members(&read_all().expect("they can be read"), &run, &none).len();
        let empty = (0..100).filter(|_| count() == 0).count();
        std::fs::remove_file(&flag).expect("it can be removed");
        while count() > 0 {
            std::thread::yield_now();
        }
        first.wait().expect("it is a child");
        assert_eq!(empty, 0);
    }

    #[test]
    fn own_process_is_listed() {
        let own = std::process::id();
        let all = read_all().expect("they can be read");
        assert!(all.iter().any(|process| process.id.pid == own));
    }
}
