//! Pure: no I/O, no clock. The phases of a run, its persistent
//! state, its actions, and its outcome in systemd's words.

use fleet_core::graph::{Command, Exit, InitUnit, ServiceType};
use fleet_core::unit::{ExitStatus, LoadState};
use fleet_core::{ActiveState, SystemdState};
use serde::{Deserialize, Serialize};

use crate::native::linux::exit::{ProcessExit, Sig};
use crate::native::linux::process_info::ProcessId;

/// Phase of a service; the names are systemd's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ServicePhase {
    #[default]
    Dead,
    /// Runs `ExecCondition=`.
    Condition,
    StartPre,
    Start,
    StartPost,
    Running,
    Exited,
    /// Runs `ExecReload=`.
    Reload,
    /// The reload signal is sent; the main process has not sent `RELOADING=1` yet.
    ReloadSignal,
    /// The main process has sent `RELOADING=1`.
    ReloadNotify,
    Stop,
    /// The watchdog has expired.
    StopWatchdog,
    StopSigterm,
    StopSigkill,
    StopPost,
    FinalSigterm,
    FinalSigkill,
    Failed,
    /// The service has ended and waits for a restart. This phase is only published. The state
    /// machine of a run never enters it.
    AutoRestart,
}

/// Role of a process: the service itself, or one of its other commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    Main,
    Control,
}

/// Processes that a signal is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalScope {
    /// The main and the control process.
    Leaders,
    /// All processes of the service.
    All,
}

/// Action for the driver of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunAction {
    /// Begin the run, with a new invocation ID.
    NewRun,
    /// Run a command; answered by `on_spawned` or `on_spawn_failed`.
    Spawn { command: Command, role: Role },
    /// Send a signal to the processes in `reach`, followed by `SIGHUP` if `hangs_up`. Processes
    /// that appear later get the signals too. Once none of the processes is left, the driver calls
    /// `on_all_gone`.
    Signal { signal: Sig, hangs_up: bool, reach: SignalScope },
    /// Send a signal to one process, without waiting.
    SignalProcess { process: ProcessId, signal: Sig },
    /// Watch the pid file until it names the main process; answered by `on_main`. Without a pid
    /// file, look for the main process among those of the run; answered by `on_main` or
    /// `on_no_main`.
    AwaitMain,
    /// Wait until no process of the run is left; answered by `on_all_gone`.
    AwaitGone,
    /// Wait for the output line that signals readiness; answered by `on_line`.
    AwaitLine,
}

/// Persistent state of a run, from which another daemon can continue it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunState {
    pub(crate) phase: ServicePhase,
    pub(crate) step: usize,
    pub(crate) main: Option<ProcessId>,
    pub(crate) control: Option<ProcessId>,
    pub(crate) spawning: Option<Role>,
    pub(crate) outcome: Option<RunOutcome>,
    /// Exit of the main process of this run.
    pub(crate) exit: Option<ProcessExit>,
    /// Exit of the main process of the previous run. Set only if this run is an automatic restart.
    pub(crate) exit_before: Option<ProcessExit>,
    pub(crate) restarts: u32,
    /// Number of consecutive runs before this one that ended without a stop request, since the
    /// counter was last reset. The planner alone counts; its numbers are kept with the run.
    pub(crate) attempts: u32,
    /// Number of failures among these since the last success.
    pub(crate) failures: u32,
    /// Whether the unit has hit its start limit since, and is not retried.
    pub(crate) gave_up: bool,
    pub(crate) stop_requested: bool,
    /// Exit of a stop command that was the first failure of this run.
    pub(crate) stop_command: Option<ProcessExit>,
    /// Whether the start command of a forking service has succeeded, but the main process is still
    /// unknown.
    pub(crate) awaits_main: bool,
    /// Result of the last reload in this run; `None` during a reload.
    pub(crate) reloaded: Option<RunOutcome>,
    /// Latest `STATUS=` message.
    pub(crate) status: Option<String>,
}

impl RunState {
    /// Returns whether the run is over, and its requested stop failed.
    pub(crate) fn has_failed_to_stop(&self) -> bool {
        let timed_out = self.outcome == Some(RunOutcome::Timeout);
        let failed = self.phase == ServicePhase::Failed;
        failed && self.stop_requested && (timed_out || self.stop_command.is_some())
    }

    /// Whether the run is not over. Its processes may still exist, so the next daemon adopts it.
    pub(crate) fn is_in_progress(&self) -> bool {
        use ServicePhase::{AutoRestart, Dead, Failed};
        !matches!(self.phase, Dead | Failed | AutoRestart)
    }
}

impl ServicePhase {
    /// Whether this is a phase of stopping.
    pub(crate) fn is_stopping(self) -> bool {
        matches!(self, Self::Stop | Self::StopPost) || self.is_signalling()
    }

    /// Whether the service is active, including during a reload.
    pub(crate) fn is_up(self) -> bool {
        matches!(self, Self::Running | Self::Exited) || self.is_reloading()
    }

    /// Whether this is a phase of starting.
    pub(crate) fn is_starting(self) -> bool {
        matches!(self, Self::Condition | Self::StartPre | Self::Start | Self::StartPost)
    }

    /// Whether this is a phase of reloading.
    pub(crate) fn is_reloading(self) -> bool {
        matches!(self, Self::Reload | Self::ReloadSignal | Self::ReloadNotify)
    }

    /// Whether this phase sends a signal and waits for its effect.
    pub(crate) fn is_signalling(self) -> bool {
        matches!(
            self,
            Self::StopWatchdog
                | Self::StopSigterm
                | Self::StopSigkill
                | Self::FinalSigterm
                | Self::FinalSigkill
        )
    }
}

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
        (_, None) => "one of its start commands failed".to_owned(),
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
