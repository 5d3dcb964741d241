//! What is run for a unit, and how it is ended.

use std::time::Duration;

use super::{Command, Condition, ExecEnvironment, ResourceLimits, Signal, StatusSet};

/// What a unit that is not virtual runs. If any of it changes, the unit has to be started anew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Run {
    /// What has to be true of the machine for it to start.
    pub conditions: Vec<Condition>,
    /// Whether it shall start at all: it does when each of these exits with 0 (`ExecCondition=`).
    pub exec_condition: Vec<Command>,
    /// What must have ended well before it starts.
    pub start_pre: Vec<Command>,
    /// What it is; more than one for a oneshot only, where each follows the one before.
    pub start: Vec<Command>,
    /// What must have ended well before it counts as started.
    pub start_post: Vec<Command>,
    /// What makes it read its configuration again; nothing if it cannot.
    pub reload: Vec<Command>,
    /// The signal to its main process that makes it do so, where it says by itself when it begins
    /// and ends (`Type=notify-reload`).
    pub reload_signal: Option<Signal>,
    /// What makes it end; nothing if a signal does.
    pub stop: Vec<Command>,
    /// What is run when it has ended, however it did.
    pub stop_post: Vec<Command>,
    /// Ends of its main process that are no failure, beside those that are none anyway: status 0
    /// of a oneshot; status 0 and the usual signals (HUP, INT, TERM, PIPE) of a unit that does not
    /// fail by ending.
    pub success: StatusSet,
    /// What becomes of it when its main process has ended well without having been asked to. Only
    /// units in the foreground or with a pidfile go by it.
    pub on_clean_exit: OnCleanExit,
    /// How it is ended.
    pub kill: Kill,
    /// How it is ended that missed its watchdog.
    pub watchdog_action: WatchdogAction,
    /// Whom messages of its readiness are taken from.
    pub notify_access: NotifyAccess,
    /// How often it has to say that it works; nothing if it does not.
    pub watchdog: Option<Duration>,
    /// How long it may run; nothing if for ever.
    pub runtime_max: Option<Duration>,
    /// For what its processes find around them.
    pub exec_environment: ExecEnvironment,
    /// What its processes may take.
    pub resources: ResourceLimits,
}

/// What a good end of its main process makes of a unit that nobody asked to stop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnCleanExit {
    /// It has failed, unless its end is listed as a success; then it is up.
    #[default]
    Fail,
    /// It is down, without having failed, as systemd has it.
    Complete,
    /// It is up, with nothing running (`RemainAfterExit=yes`).
    Remain,
}

/// How a unit is ended whose watchdog heard nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchdogAction {
    /// What its processes are sent.
    pub signal: Signal,
    /// How long their end may take; nothing is for ever.
    pub timeout: Option<Duration>,
}

/// How the processes of a unit are ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// Which ones are signalled.
    pub mode: KillMode,
    /// What they are asked to end with.
    pub signal: Signal,
    /// What those are ended with that did not.
    pub final_signal: Signal,
    /// Whether they are, or left alone.
    pub send_sigkill: bool,
    /// Whether `SIGHUP` follows the first signal at once.
    pub send_sighup: bool,
}

/// Which processes of a unit are signalled. Those that are left when its stop is over run on,
/// beside what the unit starts later, as systemd has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KillMode {
    /// All of them.
    #[default]
    ControlGroup,
    /// The main one with the first signal, all with the last.
    Mixed,
    /// The main one.
    Process,
}

/// Whose messages about a unit's readiness count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NotifyAccess {
    /// Nobody's.
    None,
    /// The main process's.
    #[default]
    Main,
    /// Those of the processes that the service manager executed.
    Exec,
    /// Those of all processes of the unit.
    All,
}

impl Default for WatchdogAction {
    /// `SIGABRT` and 90 seconds.
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
