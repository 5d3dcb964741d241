//! Pure: no I/O, no clock. Results of runs, and the states of services, in systemd's words.

use fleet_core::graph::{Exit, InitUnit, ServiceType};
use fleet_core::unit_state::{ExitStatus, LoadState};
use fleet_core::{ActiveState, SystemdState};
use serde::{Deserialize, Serialize};

use super::state::{RunState, ServicePhase};
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::signals::Sig;

/// Outcome of a run; systemd's `Result`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RunOutcome {
    Success,
    ExitCode,
    Signal,
    CoreDump,
    Timeout,
    StartLimitHit,
    Resources,
    /// The service did not behave as its type requires.
    Protocol,
    Watchdog,
    /// A condition did not hold, which is no failure.
    Condition,
    /// An assertion did not hold.
    Assert,
    /// Unknown. For the restart policy, an unknown exit of the main process counts as a death by
    /// signal.
    Unobserved,
}

impl RunOutcome {
    /// Returns systemd's name of the outcome. An unobserved exit is called `exit-code`: systemd has
    /// no name for it, and `exit-code` is the least misleading of its names.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ExitCode | Self::Unobserved => "exit-code",
            Self::Signal => "signal",
            Self::CoreDump => "core-dump",
            Self::Timeout => "timeout",
            Self::StartLimitHit => "start-limit-hit",
            Self::Resources => "resources",
            Self::Protocol => "protocol",
            Self::Condition => "exec-condition",
            Self::Assert => "assert",
            Self::Watchdog => "watchdog",
        }
    }
}

impl ProcessExit {
    /// Returns the exit status in the terms common to all service managers.
    pub(crate) const fn status(self) -> Option<ExitStatus> {
        match self {
            Self::Code(code) => Some(ExitStatus::Code(code)),
            Self::Signal(signal) | Self::Dumped(signal) => Some(ExitStatus::Signal(signal)),
            Self::Unobserved => Some(ExitStatus::Unknown),
            Self::NotSpawned => None,
        }
    }

    /// Returns the outcome for a plain command: only exit code zero is success.
    const fn as_command(self) -> RunOutcome {
        match self {
            Self::Code(0) => RunOutcome::Success,
            Self::Code(_) => RunOutcome::ExitCode,
            Self::Signal(_) => RunOutcome::Signal,
            Self::Dumped(_) => RunOutcome::CoreDump,
            Self::Unobserved => RunOutcome::Unobserved,
            Self::NotSpawned => RunOutcome::Resources,
        }
    }

    /// Returns the exit in the graph's terms.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Code(code) => u8::try_from(code).map_or(Exit::Unknown, Exit::Status),
            Self::Signal(number) | Self::Dumped(number) => {
                Sig::portable_number(number).map_or(Exit::Unknown, Exit::Signal)
            }
            Self::Unobserved | Self::NotSpawned => Exit::Unknown,
        }
    }
}

/// Returns whether the service is a oneshot.
pub(crate) fn is_oneshot(spec: &InitUnit) -> bool {
    matches!(spec.kind, ServiceType::Oneshot { .. })
}

/// Returns the outcome of a control process. `SuccessExitStatus=` applies to it as well.
pub(crate) fn command_outcome(spec: &InitUnit, end: ProcessExit) -> RunOutcome {
    if spec.run.success.contains(end.exit()) { RunOutcome::Success } else { end.as_command() }
}

/// Returns the outcome of the main process.
pub(crate) fn main_outcome(spec: &InitUnit, end: ProcessExit) -> RunOutcome {
    match end.as_command() {
        _ if spec.is_success(end.exit()) => RunOutcome::Success,
        // It succeeded, but should not have exited.
        RunOutcome::Success => RunOutcome::ExitCode,
        outcome => outcome,
    }
}

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
