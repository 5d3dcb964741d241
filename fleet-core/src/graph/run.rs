//! Commands of a unit and how it is stopped.

use std::time::Duration;

use super::{Command, ExecEnvironment, ResourceLimits, Signal, StatusSet, UnitCondition};

/// Commands of a unit, and the settings for running and stopping them.
/// [`InitUnit::needs_restart_for`](super::InitUnit::needs_restart_for) says which of them a running
/// unit gets only by a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Run {
    /// Conditions on the machine for the start.
    pub conditions: Vec<UnitCondition>,
    /// Commands that must all exit with status 0; otherwise, the unit does not start
    /// (`ExecCondition=`).
    pub exec_condition: Vec<Command>,
    /// Commands that must succeed before the start.
    pub start_pre: Vec<Command>,
    /// Start command. A oneshot may have several, run one after the other.
    pub start: Vec<Command>,
    /// Commands that must succeed before the unit counts as started.
    pub start_post: Vec<Command>,
    /// Commands that reload the configuration. Empty if the unit has none.
    pub reload: Vec<Command>,
    /// Signal that makes the main process reload its configuration. The process itself reports the
    /// start and the end of the reload (`Type=notify-reload`).
    pub reload_signal: Option<Signal>,
    /// Commands that stop the unit. Empty if the unit is stopped by a signal.
    pub stop: Vec<Command>,
    /// Commands that run after the unit has stopped, successfully or not.
    pub stop_post: Vec<Command>,
    /// Exits of the main process that count as success in addition to the usual ones. The usual
    /// ones are:
    ///
    /// - For a oneshot: exit status 0.
    /// - For other units: exit status 0 and the signals HUP, INT, TERM and PIPE, unless
    ///   `on_clean_exit` is [`OnCleanExit::Fail`].
    pub success: StatusSet,
    /// State of the unit after a clean exit of its main process that was not requested. Applies
    /// only to foreground units and units with a PID file.
    pub on_clean_exit: OnCleanExit,
    /// The way in which the processes are killed.
    pub kill: Kill,
    /// The way in which the unit is stopped after a missed watchdog.
    pub watchdog_action: WatchdogAction,
    /// Processes from which readiness messages are accepted.
    pub notify_access: NotifyAccess,
    /// Interval of the watchdog; `None` disables it.
    pub watchdog: Option<Duration>,
    /// Maximum runtime; `None` means no limit.
    pub runtime_max: Option<Duration>,
    /// Environment of the processes.
    pub exec_environment: ExecEnvironment,
    /// Resource limits of the processes together.
    pub resources: ResourceLimits,
}

/// State of a unit after a clean exit of its main process that was not requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnCleanExit {
    /// Failed. But if [`Run::success`] contains the exit, the unit stays active (exited).
    #[default]
    Fail,
    /// Completed, as in systemd.
    Complete,
    /// Active (exited), without processes (`RemainAfterExit=yes`).
    Remain,
}

/// The way in which a unit is stopped after it missed its watchdog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchdogAction {
    /// Signal for its processes.
    pub signal: Signal,
    /// Timeout of the stop; `None` means no limit.
    pub timeout: Option<Duration>,
}

/// The way in which the processes of a unit are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// Processes that receive the signals.
    pub mode: KillMode,
    /// First signal.
    pub signal: Signal,
    /// Signal for processes that are left after the stop timeout.
    pub final_signal: Signal,
    /// Whether the final signal is sent. Otherwise, the remaining processes keep running.
    pub send_sigkill: bool,
    /// Whether `SIGHUP` is sent immediately after the first signal.
    pub send_sighup: bool,
}

/// Processes that receive the stop signals. As in systemd, processes that are still left after the
/// stop keep running beside the unit's next start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KillMode {
    /// All processes of the unit.
    #[default]
    ControlGroup,
    /// First signal to the main process, final signal to all.
    Mixed,
    /// The main process only.
    Process,
}

/// Processes from which readiness messages are accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NotifyAccess {
    /// None.
    None,
    /// The main process.
    #[default]
    Main,
    /// Processes that the service manager executed.
    Exec,
    /// All processes of the unit.
    All,
}

impl Default for WatchdogAction {
    /// Returns `SIGABRT` and 90 seconds.
    fn default() -> Self {
        Self { signal: Signal::ABRT, timeout: Some(Duration::from_secs(90)) }
    }
}

impl Default for Kill {
    fn default() -> Self {
        Self {
            mode: KillMode::ControlGroup,
            signal: Signal::TERM,
            final_signal: Signal::KILL,
            send_sigkill: true,
            send_sighup: false,
        }
    }
}
