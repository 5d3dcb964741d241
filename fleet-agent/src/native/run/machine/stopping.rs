//! Pure: no I/O, no clock. Stopping the processes of a service.

use fleet_core::Timestamp;
use fleet_core::graph::{EventKind, FailureCause, KillMode, StopReason};

use super::ServiceRun;
use super::outcome::RunOutcome;
use super::state::{RunAction, ServicePhase, SignalScope};
use crate::native::linux::signals::Sig;

impl ServiceRun {
    /// Stops the run. One that is stopping already continues to do so.
    pub(crate) fn stop(&mut self, reason: &StopReason, now: Timestamp) {
        match reason {
            StopReason::Failed(cause) if !self.state.phase.is_stopping() => {
                self.record_outcome(RunOutcome::Timeout, EventKind::Failed(*cause));
            }
            StopReason::Failed(_) | StopReason::Completed | StopReason::Skipped => {}
            _ => self.state.stop_requested |= !self.is_idle(),
        }
        match self.state.phase {
            // A command may still run.
            phase if phase.is_starting() || phase == ServicePhase::Reload => {
                self.signal(ServicePhase::StopSigterm, now);
            }
            ServicePhase::Running
            | ServicePhase::Exited
            | ServicePhase::ReloadSignal
            | ServicePhase::ReloadNotify => {
                self.enter_list(ServicePhase::Stop, now);
            }
            _ => {}
        }
    }

    /// Escalates to the final signal: the deadline of the planner has passed.
    pub(crate) fn kill(&mut self, now: Timestamp) {
        if self.is_idle() {
            return;
        }
        self.record_outcome(RunOutcome::Timeout, EventKind::Failed(FailureCause::StopTimeout));
        let may_kill = self.spec.run.kill.send_sigkill;
        match self.state.phase {
            ServicePhase::StopSigkill | ServicePhase::FinalSigkill => {}
            ServicePhase::StopPost | ServicePhase::FinalSigterm if may_kill => {
                self.signal(ServicePhase::FinalSigkill, now);
            }
            ServicePhase::StopPost | ServicePhase::FinalSigterm => self.finish(now),
            _ if may_kill => self.signal(ServicePhase::StopSigkill, now),
            _ => self.enter_stop_post(now),
        }
    }

    /// Enters a phase that sends a signal and waits for its effect.
    pub(crate) fn signal(&mut self, phase: ServicePhase, now: Timestamp) {
        self.enter(phase, now);
        self.all_gone = false;
        self.stopping_itself = false;
        self.state.awaits_main = false;
        self.state.spawning = None;
        let reach = self.reach();
        if reach == SignalScope::Leaders
            && self.state.main.is_none()
            && self.state.control.is_none()
        {
            return self.after_signal(now);
        }
        let kill = self.spec.run.kill;
        let gentle = matches!(phase, ServicePhase::StopSigterm | ServicePhase::FinalSigterm);
        let signal = match phase {
            ServicePhase::StopWatchdog => self.spec.run.watchdog_action.signal,
            _ if gentle => kill.signal,
            _ => kill.final_signal,
        };
        let hangs_up = gentle && kill.send_sighup;
        self.actions.push_back(RunAction::Signal { signal: Sig::from(signal), hangs_up, reach });
    }

    pub(crate) fn end_if_gone(&mut self, now: Timestamp) {
        let leaders_gone = self.state.main.is_none() && self.state.control.is_none();
        if self.is_ending() && leaders_gone && (self.all_gone || self.reach() != SignalScope::All) {
            self.after_signal(now);
        }
    }

    fn after_signal(&mut self, now: Timestamp) {
        let then_kill =
            self.spec.run.kill.mode == KillMode::Mixed && self.spec.run.kill.send_sigkill;
        match self.state.phase {
            ServicePhase::StopWatchdog | ServicePhase::StopSigterm if then_kill => {
                self.signal(ServicePhase::StopSigkill, now);
            }
            ServicePhase::FinalSigterm if then_kill => self.signal(ServicePhase::FinalSigkill, now),
            ServicePhase::StopWatchdog | ServicePhase::StopSigterm | ServicePhase::StopSigkill => {
                self.enter_stop_post(now);
            }
            _ => self.finish(now),
        }
    }

    pub(crate) fn enter_stop_post(&mut self, now: Timestamp) {
        // Processes that survive SIGKILL are given up.
        (self.state.main, self.state.control) = (None, None);
        if self.spec.run.stop_post.is_empty() {
            self.finish(now);
        } else {
            self.enter_list(ServicePhase::StopPost, now);
        }
    }

    pub(crate) fn finish(&mut self, now: Timestamp) {
        (self.state.main, self.state.control) = (None, None);
        let outcome = self.state.outcome.unwrap_or(RunOutcome::Success);
        let failed = !matches!(outcome, RunOutcome::Success | RunOutcome::Condition);
        self.enter(if failed { ServicePhase::Failed } else { ServicePhase::Dead }, now);
    }

    fn reach(&self) -> SignalScope {
        let killing =
            matches!(self.state.phase, ServicePhase::StopSigkill | ServicePhase::FinalSigkill);
        match self.spec.run.kill.mode {
            KillMode::ControlGroup => SignalScope::All,
            KillMode::Mixed if killing => SignalScope::All,
            KillMode::Mixed | KillMode::Process => SignalScope::Leaders,
        }
    }
}
