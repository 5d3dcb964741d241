//! Sends a signal to all processes of a run and waits until none is left.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::census::members;
use super::cgroup::Group;
use super::life::ProcessId;
use super::machine::Machine;
use super::proc::{Watched, started};
use super::signals::{CONT, Sig};

/// How long to wait before looking again, where a process could not be watched.
const PAUSE: Duration = Duration::from_secs(1);

/// Whom a signal is for.
#[derive(Debug, Clone)]
pub(crate) enum Targets {
    /// These processes.
    Leaders(Vec<ProcessId>),
    /// Everything in a control group.
    Group(Group),
    /// Everything that belongs to the run, as far as it can be seen.
    Run { invocation: String, leaders: Vec<ProcessId> },
}

/// Sends the signals to each target once, to those that appear later too, and returns when none is
/// left.
///
/// It waits on the kernel, without polling. It has no time limit: whoever waits for it does.
pub(crate) async fn sweep(machine: Arc<Machine>, targets: Targets, signals: Vec<Sig>) {
    let mut signalled = BTreeSet::new();
    loop {
        match targets.round(&machine, &signals, &mut signalled).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                if let Some(untold) = machine.unended.happens(machine.now()) {
                    tracing::warn!(%error, untold, "cannot end a process; trying again");
                }
                machine.clock.sleep(PAUSE).await;
            }
        }
    }
}

impl Targets {
    /// Signals those that are left now and waits for their end; whether none is left.
    async fn round(
        &self,
        machine: &Machine,
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
            return group.emptied().await.map(|()| true);
        }
        let left = self.left(machine).await?;
        if !left.is_empty() {
            return signal_and_wait(&left, signals, signalled).await.map(|()| false);
        }
        if let Self::Group(group) = self {
            // The kernel says it, whoever could not be seen.
            group.emptied().await?;
        }
        Ok(true)
    }

    async fn left(&self, machine: &Machine) -> io::Result<Vec<ProcessId>> {
        match self {
            Self::Leaders(leaders) => {
                let running = |leader: &ProcessId| {
                    started(leader.pid).map(|now| (now == Some(*leader)).then_some(*leader))
                };
                leaders.iter().filter_map(|leader| running(leader).transpose()).collect()
            }
            Self::Group(group) => {
                group.members()?.into_iter().filter_map(|pid| started(pid).transpose()).collect()
            }
            Self::Run { invocation, leaders } => {
                let all = machine.census.take().await?;
                let own = std::process::id();
                let members = members(&all, invocation, leaders).into_iter();
                Ok(members.map(|process| process.id).filter(|id| id.pid != own).collect())
            }
        }
    }
}

async fn signal_and_wait(
    left: &[ProcessId],
    signals: &[Sig],
    signalled: &mut BTreeSet<ProcessId>,
) -> io::Result<()> {
    let mut watched = Vec::with_capacity(left.len());
    for &process in left {
        let Some(held) = Watched::open(process)? else {
            continue;
        };
        if signalled.insert(process) {
            signals.iter().try_for_each(|&signal| held.signal(signal))?;
            // One that is stopped could not act on them.
            if signals != [Sig::KILL] && signals != [CONT] {
                held.signal(CONT)?;
            }
        }
        watched.push(held);
    }
    let ended = join_all(watched.iter().map(Watched::ended)).await;
    ended.into_iter().collect()
}
