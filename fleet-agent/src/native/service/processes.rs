//! Pure: no I/O, no clock. What the end of one of its processes makes of a service.

use fleet_core::Timestamp;
use fleet_core::graph::{Cause, Command, Happening};

use super::Service;
use crate::native::life::{Action, Phase};
use crate::native::outcome::{End, Outcome, is_oneshot, main_outcome};

impl Service {
    pub(super) fn main_ended(&mut self, end: End, what: Happening, now: Timestamp) {
        self.now.exit = Some(end);
        let ignored = self.main_command().is_some_and(|command| forgives(command, end));
        // Nobody saw how it ended, but it was told to.
        let ignored = ignored || (end == End::Unseen && self.is_ending() && self.now.stop_asked);
        let outcome = if ignored { Outcome::Success } else { main_outcome(&self.spec, end) };
        // One that is to say when it is ready must live until then, unless others may say it.
        let promises = self.promises() && !self.outlives_main();
        let breaks_off = self.now.phase == Phase::Start && promises;
        let good = outcome == Outcome::Success;
        let (outcome, what) = match breaks_off && good {
            true => (Outcome::Protocol, Happening::Failed(Cause::Protocol)),
            false => (outcome, what),
        };
        if self.leaving && good {
            self.tell_exit();
        }
        let is_known = self.has_failed() && self.now.phase.is_stopping();
        self.blame(outcome, what);
        if is_known {
            self.tell_end();
        }
        match self.now.phase {
            Phase::Start if outcome != Outcome::Success => self.signal(Phase::StopSigterm, now),
            Phase::Start if is_oneshot(&self.spec) => {
                self.now.step += 1;
                self.run_next(now);
            }
            Phase::Start if self.outlives_main() => self.actions.push_back(Action::AwaitGone),
            Phase::Start => self.enter_list(Phase::StartPost, now),
            Phase::Running | Phase::ReloadSignal | Phase::ReloadNotify => self.enter_running(now),
            Phase::StopSigterm if std::mem::take(&mut self.leaving) => {
                self.signal(Phase::StopSigterm, now);
            }
            _ => self.end_if_gone(now),
        }
    }

    pub(super) fn control_ended(&mut self, end: End, now: Timestamp) {
        let outcome = self.outcome_of_control(end);
        let good = outcome == Outcome::Success;
        if self.now.phase == Phase::Reload && !good {
            return self.end_reload(outcome, now);
        }
        let is_lack = outcome == Outcome::Resources;
        let cause = if is_lack { Cause::Resources } else { Cause::Script(end.exit()) };
        self.blame(outcome, Happening::Failed(cause));
        match self.now.phase {
            Phase::StopPost | Phase::Stop | Phase::Reload if good => {
                self.now.step += 1;
                self.run_next(now);
            }
            phase if phase.is_starting() && good => {
                self.now.step += 1;
                self.run_next(now);
            }
            phase if phase.is_starting() || phase == Phase::Stop => {
                self.signal(Phase::StopSigterm, now);
            }
            Phase::StopPost => self.signal(Phase::FinalSigterm, now),
            _ => self.end_if_gone(now),
        }
    }

    /// Whether that is how a command beside the main process is to end.
    pub(super) fn is_good(&self, end: End) -> bool {
        self.outcome_of_control(end) == Outcome::Success
    }

    fn outcome_of_control(&self, end: End) -> Outcome {
        let command = self.commands().get(self.now.step);
        let ignored = command.is_some_and(|command| forgives(command, end));
        if ignored { Outcome::Success } else { self.verdict_of(end) }
    }

    fn has_failed(&self) -> bool {
        !matches!(self.now.outcome, None | Some(Outcome::Success))
    }

    /// The first thing that went wrong in a run is its result.
    pub(super) fn blame(&mut self, outcome: Outcome, what: Happening) {
        if !self.has_failed() {
            self.now.outcome = Some(outcome);
            if !matches!(outcome, Outcome::Success | Outcome::Condition) {
                self.note_failure(what);
            }
        }
    }
}

/// Whether it does not matter that a command ended so: what could not even be begun always does.
fn forgives(command: &Command, end: End) -> bool {
    command.ignore_failure && end != End::NeverWas
}
