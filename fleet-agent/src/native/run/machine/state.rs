//! Pure: no I/O, no clock. The phases of a run, its persistent state, and its actions.

use fleet_core::graph::Command;
use serde::{Deserialize, Serialize};

use super::outcome::RunOutcome;
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::process_info::ProcessId;
use crate::native::linux::signals::Sig;

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
    /// Watch the pid file until it names the main process; answered by `on_main`.
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
