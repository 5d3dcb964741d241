//! Pure: no I/O, no clock. A service's state in systemd's words, and in a person's.

use fleet_core::{ActiveState, LoadState, SystemdState};

use super::life::{Memory, Phase};
use super::outcome::{End, Outcome};

impl Phase {
    /// The state and the sub-state that systemd prints for it.
    pub(crate) const fn words(self) -> (ActiveState, &'static str) {
        match self {
            Self::Dead => (ActiveState::Inactive, "dead"),
            Self::Condition => (ActiveState::Activating, "condition"),
            Self::StartPre => (ActiveState::Activating, "start-pre"),
            Self::Start => (ActiveState::Activating, "start"),
            Self::StartPost => (ActiveState::Activating, "start-post"),
            Self::Running => (ActiveState::Active, "running"),
            Self::Exited => (ActiveState::Active, "exited"),
            Self::Reload => (ActiveState::Reloading, "reload"),
            Self::ReloadSignal => (ActiveState::Reloading, "reload-signal"),
            Self::ReloadNotify => (ActiveState::Reloading, "reload-notify"),
            Self::Stop => (ActiveState::Deactivating, "stop"),
            Self::StopWatchdog => (ActiveState::Deactivating, "stop-watchdog"),
            Self::StopSigterm => (ActiveState::Deactivating, "stop-sigterm"),
            Self::StopSigkill => (ActiveState::Deactivating, "stop-sigkill"),
            Self::StopPost => (ActiveState::Deactivating, "stop-post"),
            Self::FinalSigterm => (ActiveState::Deactivating, "final-sigterm"),
            Self::FinalSigkill => (ActiveState::Deactivating, "final-sigkill"),
            Self::Failed => (ActiveState::Failed, "failed"),
            Self::AutoRestart => (ActiveState::Activating, "auto-restart"),
        }
    }
}

/// The state that everybody is shown.
pub(crate) fn state_of(memory: &Memory) -> SystemdState {
    let (active, sub) = memory.phase.words();
    SystemdState {
        result: memory.outcome.map(|outcome| outcome.as_str().to_owned()),
        main_pid: memory.main.map(|process| process.pid),
        exit: memory.exit.or(memory.exit_before).and_then(End::status),
        restarts: memory.restarts,
        ..SystemdState::new(LoadState::Loaded, active, sub)
    }
}

/// Why a start came to nothing. `problem` is what was last seen to go wrong outside a process.
pub(crate) fn why_not_started(memory: &Memory, problem: Option<&str>) -> String {
    if let Some(problem) = problem {
        return problem.to_owned();
    }
    match (memory.outcome, memory.exit.and_then(End::status)) {
        (Some(Outcome::StartLimitHit), _) => "it was started too often in a short time".to_owned(),
        (Some(Outcome::Condition), _) => "a command of its ExecCondition= says no".to_owned(),
        (Some(Outcome::Protocol), _) => "it ended before it said that it is ready".to_owned(),
        (Some(Outcome::Timeout), _) => "it took longer than its TimeoutStartSec= allows".to_owned(),
        (_, Some(status)) => format!("its main process {status}"),
        (_, None) => "a command before its main process failed".to_owned(),
    }
}

/// Why a reload came to nothing.
pub(crate) fn why_not_reloaded(memory: &Memory) -> String {
    match memory.reloaded {
        _ if memory.phase != Phase::Running && memory.phase != Phase::Exited => {
            "it ended meanwhile"
        }
        Some(Outcome::Timeout) => "it took longer than its time-out allows",
        _ => "a command of its ExecReload= failed",
    }
    .to_owned()
}
