//! Pure: no I/O, no clock. Maps the state of a run to systemd's terms, and describes failed starts
//! and reloads.

use fleet_core::{ActiveState, LoadState, SystemdState};

use super::outcome::RunOutcome;
use super::state::{RunState, ServicePhase};
use crate::native::linux::exit::ProcessExit;

impl ServicePhase {
    /// Returns systemd's active state and sub-state.
    pub(crate) const fn systemd_states(self) -> (ActiveState, &'static str) {
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

/// Returns the state to publish.
pub(crate) fn to_systemd_state(run_state: &RunState) -> SystemdState {
    let (active, sub) = run_state.phase.systemd_states();
    SystemdState {
        result: run_state.outcome.map(|outcome| outcome.as_str().to_owned()),
        main_pid: run_state.main.map(|process| process.pid),
        exit: run_state.exit.or(run_state.exit_before).and_then(ProcessExit::status),
        restarts: run_state.restarts,
        ..SystemdState::new(LoadState::Loaded, active, sub)
    }
}

/// Returns the reason for a failed start. If a process could not be started, `problem` is the
/// reason and is returned unchanged.
pub(crate) fn start_failure_reason(run_state: &RunState, problem: Option<&str>) -> String {
    if let Some(problem) = problem {
        return problem.to_owned();
    }
    match (run_state.outcome, run_state.exit.and_then(ProcessExit::status)) {
        (Some(RunOutcome::StartLimitHit), _) => {
            "it hit its start limit: started too often in a short time".to_owned()
        }
        (Some(RunOutcome::Condition), _) => "a command of its ExecCondition= failed".to_owned(),
        (Some(RunOutcome::Protocol), _) => "it exited before it sent READY=1".to_owned(),
        (Some(RunOutcome::Timeout), _) => {
            "it took longer than its TimeoutStartSec= allows".to_owned()
        }
        (_, Some(status)) => format!("its main process {status}"),
        (_, None) => "a command before its main process failed".to_owned(),
    }
}

/// Returns the reason for a failed reload.
pub(crate) fn reload_failure_reason(run_state: &RunState) -> String {
    match run_state.reloaded {
        _ if run_state.phase != ServicePhase::Running
            && run_state.phase != ServicePhase::Exited =>
        {
            "it stopped during the reload"
        }
        Some(RunOutcome::Timeout) => "it timed out",
        _ => "a command of its ExecReload= failed",
    }
    .to_owned()
}
