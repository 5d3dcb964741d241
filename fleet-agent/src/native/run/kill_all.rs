//! Signals all processes of a run, and waits until none is left.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::native::linux::cgroup::Group;
use crate::native::linux::exit::{CONT, Sig};
use crate::native::linux::proc::{ProcessHandle, started};
use crate::native::linux::process_info::{ProcessId, ProcessInfo, stat};
use crate::native::linux::process_table::{members, read_all};
use crate::native::state::manager_context::ManagerContext;

/// Wait before a retry, if a process could not be opened.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of reads of a control group's process list in one call of [`running_processes`].
/// The list is read again at once if a listed process has ended before it could be examined.
const MAX_LISTS: usize = 100;

/// The processes to signal.
#[derive(Debug, Clone)]
pub(crate) enum SignalTargets {
    /// These processes.
    Leaders(Vec<ProcessId>),
    /// All processes of a control group.
    Group(Group),
    /// All processes of the run, as far as they can be seen.
    Run { invocation: String, leaders: Vec<ProcessId> },
}

/// Sends the signals once to each process of `targets`, including processes that appear later.
/// Returns when no process of `targets` is left. If `signals` is empty, only waits for the
/// processes to end.
///
/// The wait needs no polling. It has no timeout of its own, because the caller sets one.
pub(crate) async fn kill_all(
    context: Arc<ManagerContext>,
    targets: SignalTargets,
    signals: Vec<Sig>,
) {
    let mut signalled = BTreeSet::new();
    loop {
        match targets.round(&context, &signals, &mut signalled).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                if let Some(suppressed) = context.kill_failures.should_log(context.now()) {
                    let text = "cannot signal the processes of a unit: trying again";
                    tracing::warn!(%error, ?targets, suppressed, "{text}");
                }
                context.clock.sleep(PAUSE).await;
            }
        }
    }
}

impl SignalTargets {
    /// Signals the current processes and waits until they have ended. Returns `false` if there were
    /// such processes, because they may have started others meanwhile. Returns `true` if no process
    /// was left.
    async fn round(
        &self,
        context: &ManagerContext,
        signals: &[Sig],
        signalled: &mut BTreeSet<ProcessId>,
    ) -> io::Result<bool> {
        if let Self::Group(group) = self
            && group.is_empty()?
        {
            return Ok(true);
        }
        if let (Self::Group(group), [Sig::KILL]) = (self, signals) {
            group.kill()?;
            return group.wait_empty().await.map(|()| true);
        }
        let remaining = self.remaining(context).await?;
        if !remaining.is_empty() {
            return signal_and_wait(&remaining, signals, signalled).await.map(|()| false);
        }
        if let Self::Group(group) = self {
            // The kernel knows of processes that are hidden from us.
            group.wait_empty().await?;
        }
        Ok(true)
    }

    /// Returns the running processes whose parent is not one of these processes.
    pub(crate) fn roots(&self) -> io::Result<Vec<ProcessId>> {
        let all: Vec<ProcessInfo> = match self {
            Self::Leaders(_) => Vec::new(),
            Self::Group(group) => {
                let stats: io::Result<Vec<_>> = group.members()?.into_iter().map(stat).collect();
                stats?.into_iter().flatten().filter(|it| it.runs).map(|it| it.process).collect()
            }
            Self::Run { invocation, leaders } => {
                members(&read_all()?, invocation, leaders).into_iter().cloned().collect()
            }
        };
        let pids: BTreeSet<u32> = all.iter().map(|process| process.id.pid).collect();
        let roots = all.iter().filter(|process| !pids.contains(&process.parent));
        Ok(roots.map(|process| process.id).collect())
    }

    async fn remaining(&self, context: &ManagerContext) -> io::Result<Vec<ProcessId>> {
        match self {
            Self::Leaders(leaders) => {
                let running = |leader: &ProcessId| {
                    started(leader.pid).map(|now| (now == Some(*leader)).then_some(*leader))
                };
                leaders.iter().filter_map(|leader| running(leader).transpose()).collect()
            }
            Self::Group(group) => running_processes(|| group.members(), started),
            Self::Run { invocation, leaders } => {
                loop {
                    let all = context.process_table.read().await?;
                    let found = members(&all, invocation, leaders).into_iter();
                    let (mut running, mut ended) = (Vec::new(), Vec::new());
                    for process in found.map(|process| process.id) {
                        match started(process.pid)? {
                            Some(now) if now == process => running.push(process),
                            _ => ended.push(process.pid),
                        }
                    }
                    context.process_table.forget(&ended);
                    // An ended process may have started others after they were listed.
                    if !running.is_empty() || ended.is_empty() {
                        return Ok(running);
                    }
                }
            }
        }
    }
}

/// Returns the running processes of a control group.
///
/// A listed process that has already ended may have started another process, which only the next
/// list contains. So the list is read again after each process that is missing for the first time.
/// (A pid that is missing twice belongs to a process that is hidden from this daemon.)
///
/// After [`MAX_LISTS`] reads, returns the running processes of the last list.
///
/// # Errors
///
/// A read fails, or the last of [`MAX_LISTS`] lists still contains only processes that have ended.
fn running_processes(
    mut list: impl FnMut() -> io::Result<Vec<u32>>,
    mut probe: impl FnMut(u32) -> io::Result<Option<ProcessId>>,
) -> io::Result<Vec<ProcessId>> {
    let mut unseen = BTreeSet::new();
    let mut running = Vec::new();
    for _ in 0..MAX_LISTS {
        let mut ended = false;
        running.clear();
        for pid in list()? {
            match probe(pid)? {
                Some(process) => running.push(process),
                None => ended |= unseen.insert(pid),
            }
        }
        if !ended {
            return Ok(running);
        }
    }
    match running.is_empty() {
        true => Err(io::Error::other("its processes exit faster than they can be read")),
        false => Ok(running),
    }
}

/// Calls `one` for each process, and returns the results or the first error. An error does not end
/// the loop. Otherwise a process that may not be signalled would keep the later ones from being
/// signalled.
fn for_each_process<T>(
    all: &[ProcessId],
    mut one: impl FnMut(ProcessId) -> io::Result<Option<T>>,
) -> io::Result<Vec<T>> {
    let mut failure = None;
    let mut reached = Vec::with_capacity(all.len());
    for &process in all {
        match one(process) {
            Ok(it) => reached.extend(it),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(reached), Err)
}

async fn signal_and_wait(
    remaining: &[ProcessId],
    signals: &[Sig],
    signalled: &mut BTreeSet<ProcessId>,
) -> io::Result<()> {
    let handles = for_each_process(remaining, |process| {
        let Some(held) = ProcessHandle::open(process)? else { return Ok(None) };
        if signalled.insert(process) {
            signals.iter().try_for_each(|&signal| held.signal(signal))?;
            // A stopped process could not handle them.
            if !signals.is_empty() && signals != [Sig::KILL] && signals != [CONT] {
                held.signal(CONT)?;
            }
        }
        Ok(Some(held))
    })?;
    let ended = join_all(handles.iter().map(ProcessHandle::ended)).await;
    ended.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `running_processes` with the scripted lists. Only the pids in `seen` can be read.
    fn running(lists: &[&[u32]], seen: &[u32]) -> Vec<u32> {
        let mut lists = lists.iter();
        let list = || Ok(lists.next().expect("there is one").to_vec());
        let probe = |pid| Ok(seen.contains(&pid).then_some(ProcessId { pid, start: 0 }));
        let found = running_processes(list, probe).expect("no error is expected");
        assert_eq!(lists.len(), 0, "that is too few");
        found.into_iter().map(|process| process.pid).collect()
    }

    #[test]
    fn failed_signal_does_not_skip_other_processes() {
        let all = [7, 8, 9].map(|pid| ProcessId { pid, start: 0 });
        let mut tried = Vec::new();
        let answer = for_each_process(&all, |process| {
            tried.push(process);
            match process.pid {
                9 => Ok(Some(())),
                pid => Err(io::Error::other(format!("no {pid}"))),
            }
        });
        assert_eq!(answer.expect_err("they cannot be reached").to_string(), "no 7");
        assert_eq!(tried, all);
        let gone = for_each_process(&all, |it| Ok((it.pid != 8).then_some(it.pid)));
        assert_eq!(gone.expect("no error is expected"), [7, 9]);
    }

    #[test]
    fn child_of_ended_process_is_found() {
        assert_eq!(running(&[&[8], &[9]], &[9]), [9]);
        assert_eq!(running(&[&[7, 8], &[7, 9]], &[7, 9]), [7, 9]);
        // Its parent hands over to the next one in the same way.
        assert_eq!(running(&[&[8], &[9], &[10]], &[10]), [10]);
        assert_eq!(running(&[&[8], &[]], &[]), [0; 0]);
    }

    #[test]
    fn hidden_process_does_not_cause_endless_lists() {
        assert_eq!(running(&[&[8], &[8]], &[]), [0; 0]);
        assert_eq!(running(&[&[7, 8], &[8, 9]], &[9]), [9]);
        let mut pid = 0;
        let list = || {
            pid += 1;
            Ok(vec![pid])
        };
        running_processes(list, |_| Ok(None)).expect_err("the list never ends");
    }
}
