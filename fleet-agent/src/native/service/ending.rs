//! Pure: no I/O, no clock. How the processes of a service are ended, and what follows.

use fleet_core::Timestamp;
use fleet_core::graph::{Cause, Happening, KillMode, StopReason};

use super::Service;
use crate::native::life::{Action, Phase, Reach};
use crate::native::outcome::Outcome;
use crate::native::signals::Sig;

impl Service {
    /// Whoever decides wants the run to end, for this reason. One that ends already goes on so.
    pub(crate) fn end(&mut self, reason: &StopReason, now: Timestamp) {
        match reason {
            StopReason::Failed(cause) if !self.now.phase.is_stopping() => {
                self.blame(Outcome::Timeout, Happening::Failed(*cause));
            }
            StopReason::Failed(_) | StopReason::Ended | StopReason::Skipped => {}
            _ => self.now.stop_asked |= !self.is_at_rest(),
        }
        match self.now.phase {
            // Its own command may still run.
            phase if phase.is_starting() || phase == Phase::Reload => {
                self.signal(Phase::StopSigterm, now);
            }
            Phase::Running | Phase::Exited | Phase::ReloadSignal | Phase::ReloadNotify => {
                self.enter_list(Phase::Stop, now);
            }
            _ => {}
        }
    }

    /// Whoever decides has lost patience: what is left ends by its last signal.
    pub(crate) fn kill(&mut self, now: Timestamp) {
        if self.is_at_rest() {
            return;
        }
        self.blame(Outcome::Timeout, Happening::Failed(Cause::StopTimeOut));
        let may_kill = self.spec.run.kill.send_sigkill;
        match self.now.phase {
            Phase::StopSigkill | Phase::FinalSigkill => {}
            Phase::StopPost | Phase::FinalSigterm if may_kill => {
                self.signal(Phase::FinalSigkill, now);
            }
            Phase::StopPost | Phase::FinalSigterm => self.finish(now),
            _ if may_kill => self.signal(Phase::StopSigkill, now),
            _ => self.enter_stop_post(now),
        }
    }

    /// Enters a phase whose whole work is a signal and the wait for its effect.
    pub(super) fn signal(&mut self, phase: Phase, now: Timestamp) {
        self.enter(phase, now);
        self.swept = false;
        self.leaving = false;
        self.now.awaits_main = false;
        self.now.spawning = None;
        let reach = self.reach();
        if reach == Reach::Leaders && self.now.main.is_none() && self.now.control.is_none() {
            return self.after_signal(now);
        }
        let kill = self.spec.run.kill;
        let gentle = matches!(phase, Phase::StopSigterm | Phase::FinalSigterm);
        let signal = match phase {
            Phase::StopWatchdog => self.spec.run.abort.signal,
            _ if gentle => kill.signal,
            _ => kill.final_signal,
        };
        let hangs_up = gentle && kill.send_sighup;
        self.actions.push_back(Action::Signal { signal: Sig::from(signal), hangs_up, reach });
    }

    pub(super) fn end_if_gone(&mut self, now: Timestamp) {
        let leaders_gone = self.now.main.is_none() && self.now.control.is_none();
        if self.is_ending() && leaders_gone && (self.swept || self.reach() != Reach::All) {
            self.after_signal(now);
        }
    }

    fn after_signal(&mut self, now: Timestamp) {
        let rest = self.spec.run.kill.mode == KillMode::Mixed && self.spec.run.kill.send_sigkill;
        match self.now.phase {
            Phase::StopWatchdog | Phase::StopSigterm if rest => {
                self.signal(Phase::StopSigkill, now);
            }
            Phase::FinalSigterm if rest => self.signal(Phase::FinalSigkill, now),
            Phase::StopWatchdog | Phase::StopSigterm | Phase::StopSigkill => {
                self.enter_stop_post(now);
            }
            _ => self.finish(now),
        }
    }

    pub(super) fn enter_stop_post(&mut self, now: Timestamp) {
        // What did not even end by SIGKILL is given up.
        (self.now.main, self.now.control) = (None, None);
        if self.spec.run.stop_post.is_empty() {
            self.finish(now);
        } else {
            self.enter_list(Phase::StopPost, now);
        }
    }

    pub(super) fn finish(&mut self, now: Timestamp) {
        (self.now.main, self.now.control) = (None, None);
        let outcome = self.now.outcome.unwrap_or(Outcome::Success);
        let failed = !matches!(outcome, Outcome::Success | Outcome::Condition);
        self.enter(if failed { Phase::Failed } else { Phase::Dead }, now);
    }

    fn reach(&self) -> Reach {
        let killing = matches!(self.now.phase, Phase::StopSigkill | Phase::FinalSigkill);
        match self.spec.run.kill.mode {
            KillMode::ControlGroup => Reach::All,
            KillMode::Mixed if killing => Reach::All,
            KillMode::Mixed | KillMode::Process => Reach::Leaders,
        }
    }
}
