//! Sends a signal to all processes of a run and waits until none is left.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::life::ProcessId;
use super::machine::Machine;
use super::proc::{Watched, members, started};
use super::signals::{CONT, Sig};

/// How long to wait before looking again, where a process could not be watched.
const PAUSE: Duration = Duration::from_secs(1);

/// Whom a signal is for.
#[derive(Debug, Clone)]
pub(crate) enum Targets {
    /// These processes.
    Leaders(Vec<ProcessId>),
    /// Everything that belongs to the run.
    Run { invocation: String, leaders: BTreeSet<ProcessId> },
}

/// Signals each target once, those that appear later too, and returns when none is left.
///
/// It waits on the kernel, without polling. It has no time limit: whoever waits for it does.
pub(crate) async fn sweep(machine: Arc<Machine>, targets: Targets, signal: Sig) {
    let mut signalled = BTreeSet::new();
    loop {
        let done = match targets.left(&machine).await {
            Ok(left) if left.is_empty() => return,
            Ok(left) => signal_and_wait(&left, signal, &mut signalled).await,
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            tracing::warn!(%error, "cannot end a process; trying again");
            machine.clock.sleep(PAUSE).await;
        }
    }
}

impl Targets {
    async fn left(&self, machine: &Machine) -> io::Result<Vec<ProcessId>> {
        match self {
            Self::Leaders(leaders) => {
                let running = |leader: &ProcessId| {
                    started(leader.pid).map(|now| (now == Some(*leader)).then_some(*leader))
                };
                leaders.iter().filter_map(|leader| running(leader).transpose()).collect()
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
    signal: Sig,
    signalled: &mut BTreeSet<ProcessId>,
) -> io::Result<()> {
    let mut watched = Vec::with_capacity(left.len());
    for &process in left {
        let Some(held) = Watched::open(process)? else {
            continue;
        };
        if signalled.insert(process) {
            held.signal(signal)?;
            // One that is stopped could not act on the signal.
            if signal != Sig::KILL && signal != CONT {
                held.signal(CONT)?;
            }
        }
        watched.push(held);
    }
    let ended = join_all(watched.iter().map(Watched::ended)).await;
    ended.into_iter().collect()
}
