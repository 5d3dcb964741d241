//! Signals processes of a run: one, the leaders, or all of them.

use std::sync::Arc;

use rustix::process::{Pid, test_kill_process_group};

use super::RunDriver;
use crate::native::linux::proc::ProcessHandle;
use crate::native::linux::process_info::ProcessId;
use crate::native::linux::signals::Sig;
use crate::native::run::kill_all::{SignalTargets, kill_all};
use crate::native::run::machine::state::SignalScope;

impl RunDriver {
    pub(crate) fn signal(&mut self, signal: Sig, hangs_up: bool, reach: SignalScope) {
        let run_state = self.service.run_state();
        let targets = match reach {
            SignalScope::Leaders => SignalTargets::Leaders(
                run_state.main.into_iter().chain(run_state.control).collect(),
            ),
            SignalScope::All => self.all_processes(),
        };
        let signals = if hangs_up { vec![signal, Sig::HUP] } else { vec![signal] };
        self.sweep = Some(Box::pin(kill_all(Arc::clone(&self.context), targets, signals)));
    }

    /// Waits until no process of the run is left.
    pub(crate) fn await_gone(&mut self) {
        let (context, all_processes) = (Arc::clone(&self.context), self.all_processes());
        self.sweep = Some(Box::pin(kill_all(context, all_processes, Vec::new())));
    }

    /// Sends a signal to one process.
    pub(crate) fn signal_process(&self, process: ProcessId, signal: Sig) {
        let signalled = ProcessHandle::open(process)
            .and_then(|held| held.map_or(Ok(()), |it| it.signal(signal)));
        if let Err(error) = signalled {
            let (unit, pid) = (&self.unit, process.pid);
            tracing::warn!(%error, %unit, pid, ?signal, "cannot signal a process of a unit");
        }
    }

    /// Kills all processes of the run, including those that `KillMode=` spares. Their exits are
    /// then handled like any other exits.
    pub(crate) fn kill_all(&mut self) {
        if self.killing.as_ref().is_some_and(|it| !it.is_finished()) {
            return;
        }
        let killing = kill_all(Arc::clone(&self.context), self.all_processes(), vec![Sig::KILL]);
        self.killing = Some(tokio::spawn(killing).abort_handle());
    }

    /// Returns all processes of the run that can be found.
    fn all_processes(&self) -> SignalTargets {
        match &self.group {
            Some(group) => SignalTargets::Group(group.clone()),
            None => {
                let (invocation, leaders) = (self.invocation.clone(), self.leaders.clone());
                SignalTargets::Run { invocation, leaders }
            }
        }
    }

    /// Removes process groups without members from `leaders`, because the kernel may reuse their
    /// IDs. A group may have members long after its leader has exited.
    pub(crate) fn forget_empty_groups(&mut self) {
        self.leaders.retain(has_members);
    }
}

fn has_members(leader: &ProcessId) -> bool {
    let pid = i32::try_from(leader.pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process_group(pid) != Err(rustix::io::Errno::SRCH))
}
