//! Probes of processes that are used again within a second.
//!
//! A scan of all processes reads two files per process. During an ordered stop of many units, one
//! scan follows the other, and nearly all processes are the same each time. So a scan reuses recent
//! probes, and reads only the list of processes again.
//!
//! A reused probe may show a process as it was up to [`LIFETIME`] ago:
//!
//! - A process that has ended since may count as running if it is a zombie. Callers that wait for
//!   the end of a process check it, and call [`ProbeCache::forget`].
//! - A process that has left its run since still counts as a member, which it was.
//! - A process cannot have entered a run since: only the daemon's own children do, between their
//!   fork and their exec. Their probes are never reused, nor are those of processes younger than
//!   [`MIN_AGE`].
//! - Another process with the same pid has another inode in `/proc`.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::DirEntryExt as _;
use std::time::Duration;

use super::process_info::{INVOCATION_ID, ProbeResult, ProcessInfo};
use crate::clock::since_boot;

/// Time for which a probe may be used again.
const LIFETIME: Duration = Duration::from_secs(1);

/// Minimum age of a process whose probe may be used again.
const MIN_AGE: Duration = Duration::from_secs(1);

/// Unit of start times in `/proc`: the kernel's `USER_HZ`, which is the same on all architectures
/// that fleet supports.
const TICKS_PER_SECOND: u64 = 100;

/// Recent probes.
#[derive(Debug, Default)]
pub(crate) struct ProbeCache {
    probes: BTreeMap<u32, CachedProbe>,
    /// Inodes of the last list of processes.
    inodes: BTreeMap<u32, u64>,
}

#[derive(Debug)]
struct CachedProbe {
    inode: u64,
    /// Time of the probe since boot.
    at: Duration,
    result: ProbeResult,
}

impl ProbeCache {
    /// Lists all processes.
    pub(crate) fn list(&mut self) -> io::Result<Vec<u32>> {
        self.inodes.clear();
        for entry in std::fs::read_dir("/proc")? {
            let entry = entry?;
            if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                self.inodes.insert(pid, entry.ino());
            }
        }
        self.probes.retain(|pid, _| self.inodes.contains_key(pid));
        Ok(self.inodes.keys().copied().collect())
    }

    /// Returns a recent probe of a listed process, or else the result of `probe`.
    pub(crate) fn probe(
        &mut self,
        pid: u32,
        probe: impl FnOnce(u32) -> io::Result<ProbeResult>,
    ) -> io::Result<ProbeResult> {
        let (inode, now) = (self.inodes.get(&pid).copied(), since_boot());
        let is_recent =
            |it: &&CachedProbe| Some(it.inode) == inode && now.saturating_sub(it.at) < LIFETIME;
        if let Some(known) = self.probes.get(&pid).filter(is_recent) {
            return Ok(known.result.clone());
        }
        let result = probe(pid)?;
        match inode {
            // The kernel gives no inode below 2 to a process that it could not look up.
            Some(inode) if inode > 1 && is_settled(&result, now) => {
                let known = CachedProbe { inode, at: now, result: result.clone() };
                self.probes.insert(pid, known);
            }
            _ => drop(self.probes.remove(&pid)),
        }
        Ok(result)
    }

    /// Forgets the probes of these processes.
    pub(crate) fn forget(&mut self, pids: &[u32]) {
        pids.iter().for_each(|pid| drop(self.probes.remove(pid)));
    }
}

/// Returns whether a probe stays valid for a while.
fn is_settled(result: &ProbeResult, now: Duration) -> bool {
    match result {
        ProbeResult::Irrelevant => true,
        ProbeResult::Running(process) => is_old(process, now) && !may_be_before_exec(process),
        ProbeResult::Transient(_) | ProbeResult::Zombie | ProbeResult::Gone => false,
    }
}

fn is_old(process: &ProcessInfo, now: Duration) -> bool {
    let started = process.id.start.saturating_mul(1000 / TICKS_PER_SECOND);
    let started = Duration::from_millis(started);
    now.saturating_sub(started) >= MIN_AGE
}

/// Returns whether a process may be a child of this daemon that has not executed its program yet.
/// Until then, it has the daemon's environment.
fn may_be_before_exec(process: &ProcessInfo) -> bool {
    process.parent == std::process::id()
        && process.invocation.as_deref().is_none_or(|invocation| {
            std::env::var_os(INVOCATION_ID).is_some_and(|own| own == invocation)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::linux::process_info::ProcessId;

    fn running(parent: u32, invocation: Option<&str>) -> ProbeResult {
        let id = ProcessId { pid: 1, start: 0 };
        let invocation = invocation.map(str::to_owned);
        ProbeResult::Running(ProcessInfo { id, parent, group: 1, invocation, exec_pid: None })
    }

    /// Returns how often two scans probe a process.
    fn probes(result: &ProbeResult, between: impl FnOnce(&mut ProbeCache)) -> usize {
        let mut cache = ProbeCache::default();
        let mut count = 0;
        let mut scan = |cache: &mut ProbeCache| {
            cache.list().expect("they can be listed");
            let probed = cache.probe(1, |_| {
                count += 1;
                Ok(result.clone())
            });
            assert_eq!(&probed.expect("it can be read"), result);
        };
        scan(&mut cache);
        between(&mut cache);
        scan(&mut cache);
        count
    }

    #[test]
    fn recent_probe_of_a_settled_process_is_reused() {
        let own = std::process::id();
        assert_eq!(probes(&running(own + 1, Some("a")), |_| {}), 1);
        assert_eq!(probes(&running(own, Some("a")), |_| {}), 1);
        assert_eq!(probes(&ProbeResult::Irrelevant, |_| {}), 1);
        assert_eq!(probes(&running(own, None), |_| {}), 2, "it has not executed its program");
        assert_eq!(probes(&ProbeResult::Zombie, |_| {}), 2);
        let young = |result| match result {
            ProbeResult::Running(process) => {
                let id = ProcessId { start: u64::MAX, ..process.id };
                ProbeResult::Running(ProcessInfo { id, ..process })
            }
            other => other,
        };
        assert_eq!(probes(&young(running(own + 1, Some("a"))), |_| {}), 2);
    }

    #[test]
    fn outdated_probe_is_not_reused() {
        let result = running(std::process::id() + 1, Some("a"));
        assert_eq!(probes(&result, |cache| cache.forget(&[1])), 2);
        let change = |change: fn(&mut CachedProbe)| {
            move |cache: &mut ProbeCache| cache.probes.values_mut().for_each(change)
        };
        assert_eq!(probes(&result, change(|known| known.inode += 1)), 2);
        assert_eq!(probes(&result, change(|known| known.at -= LIFETIME)), 2);
    }
}
