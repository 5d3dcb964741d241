//! Reaches the processes of a run: one of them, its leaders, or all that can be found.

use std::sync::Arc;

use rustix::process::{Pid, test_kill_process_group};

use super::Driver;
use crate::native::life::{ProcessId, Reach};
use crate::native::proc::Watched;
use crate::native::signals::Sig;
use crate::native::sweep::{Targets, sweep};

impl Driver {
    pub(super) fn signal(&mut self, signal: Sig, hangs_up: bool, reach: Reach) {
        let memory = self.service.memory();
        let targets = match reach {
            Reach::Leaders => {
                Targets::Leaders(memory.main.into_iter().chain(memory.control).collect())
            }
            Reach::All => self.everything(),
        };
        let signals = if hangs_up { vec![signal, Sig::HUP] } else { vec![signal] };
        self.sweep = Some(Box::pin(sweep(Arc::clone(&self.machine), targets, signals)));
    }

    /// Waits until none of the processes of the run is left.
    pub(super) fn await_gone(&mut self) {
        let (machine, everything) = (Arc::clone(&self.machine), self.everything());
        self.sweep = Some(Box::pin(sweep(machine, everything, Vec::new())));
    }

    /// Sends a signal to one process that goes on, or that nobody waits for.
    pub(super) fn tell(&self, process: ProcessId, signal: Sig) {
        let told =
            Watched::open(process).and_then(|held| held.map_or(Ok(()), |it| it.signal(signal)));
        if let Err(error) = told {
            tracing::warn!(%error, unit = %self.unit, "cannot signal a process");
        }
    }

    /// Kills all that belongs to the run, also what its `KillMode=` would leave. What becomes of it
    /// is seen as any other end.
    pub(crate) fn kill_all(&mut self) {
        if self.killing.as_ref().is_some_and(|it| !it.is_finished()) {
            return;
        }
        let killing = sweep(Arc::clone(&self.machine), self.everything(), vec![Sig::KILL]);
        self.killing = Some(tokio::spawn(killing).abort_handle());
    }

    /// All processes of the run, as far as they can be found.
    fn everything(&self) -> Targets {
        match &self.group {
            Some(group) => Targets::Group(group.clone()),
            None => {
                let (invocation, leaders) = (self.invocation.clone(), self.leaders.clone());
                Targets::Run { invocation, leaders }
            }
        }
    }

    /// Once a group has no member its number may be given to strangers. Its leader may have ended
    /// long before.
    pub(super) fn forget_groups(&mut self) {
        self.leaders.retain(has_members);
    }
}

fn has_members(leader: &ProcessId) -> bool {
    let pid = i32::try_from(leader.pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process_group(pid) != Err(rustix::io::Errno::SRCH))
}
