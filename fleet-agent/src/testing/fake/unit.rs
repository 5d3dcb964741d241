//! A simulated unit, and the states that it takes.

use fleet_core::journal::JournalLine;
use fleet_core::unit::{ExitStatus, LoadState};
use fleet_core::{ActiveState, Epoch, Generation, KnownUnit, SystemdState, TargetState, Timestamp};
use fleet_unitfile::{UnitHash, UnitName};
use tokio::sync::mpsc;

use crate::testing::Behaviour;
use crate::{Drift, ManagedUnit, wall_time};

#[derive(Debug)]
pub(super) struct FakeUnit {
    pub(super) known: KnownUnit,
    pub(super) state: SystemdState,
    pub(super) drift: Option<Drift>,
    pub(super) lines: Vec<(Timestamp, String)>,
    pub(super) followers: Vec<mpsc::Sender<JournalLine>>,
}

impl FakeUnit {
    /// Creates a loaded unit without requests.
    pub(super) fn new(hash: UnitHash, epoch: Epoch) -> Self {
        let asked = TargetState::Loaded;
        Self {
            known: KnownUnit { hash, requested: asked, epoch, generation: Generation::ZERO },
            state: SystemdState::loaded(),
            drift: None,
            lines: Vec::new(),
            followers: Vec::new(),
        }
    }

    pub(super) fn write(&mut self, line: &str) {
        let at = wall_time();
        self.lines.push((at, line.to_owned()));
        self.followers.retain(|follower| {
            let line = JournalLine::new(line).with_time(at);
            let sent = follower.try_send(line);
            !matches!(sent, Err(mpsc::error::TrySendError::Closed(_)))
        });
    }

    pub(super) fn managed(&self, unit: &UnitName) -> ManagedUnit {
        ManagedUnit::new(unit.clone(), self.known, self.state.clone())
    }
}

/// Returns the state after a start, and why it failed, if it did.
pub(super) fn started(
    behaviour: Behaviour,
    problem: Option<String>,
    pid: u32,
) -> (SystemdState, Option<String>) {
    let running = SystemdState {
        result: Some("success".to_owned()),
        main_pid: Some(pid),
        ..SystemdState::new(LoadState::Loaded, ActiveState::Active, "running")
    };
    match (problem, behaviour) {
        (Some(problem), _) => (ended(&running, ExitStatus::Code(203)), Some(problem)),
        (None, Behaviour::Runs | Behaviour::Writes(_) | Behaviour::Reloads) => (running, None),
        (None, Behaviour::NeverReady) => {
            let starting = SystemdState { active: ActiveState::Activating, ..running };
            (SystemdState { sub: "start".to_owned(), ..starting }, None)
        }
        (None, Behaviour::Exits(code)) => (ended(&running, ExitStatus::Code(code)), None),
        (None, Behaviour::Task(code)) => {
            let exit = ExitStatus::Code(code);
            let problem = (code != 0).then(|| format!("its main process {exit}"));
            (ended(&running, exit), problem)
        }
    }
}

pub(super) fn ended(before: &SystemdState, exit: ExitStatus) -> SystemdState {
    let (active, sub, result) = match exit {
        ExitStatus::Code(0) => (ActiveState::Inactive, "dead", "success"),
        ExitStatus::Signal(_) => (ActiveState::Failed, "failed", "signal"),
        ExitStatus::Code(_) | ExitStatus::Unknown => (ActiveState::Failed, "failed", "exit-code"),
    };
    SystemdState {
        result: Some(result.to_owned()),
        exit: Some(exit),
        restarts: before.restarts,
        ..SystemdState::new(LoadState::Loaded, active, sub)
    }
}
