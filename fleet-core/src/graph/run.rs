//! What is run for a unit, and how it is ended.

use std::time::Duration;

use super::{Command, Resources, Signal, StatusSet, Surroundings};

/// What a unit that is not virtual runs. If any of it changes, the unit has to be started anew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Run {
    /// Whether it shall start at all: it does when each of these exits with 0 (`ExecCondition=`).
    pub condition: Vec<Command>,
    /// What must have ended well before it starts.
    pub start_pre: Vec<Command>,
    /// What it is; more than one for a oneshot only, where each follows the one before.
    pub start: Vec<Command>,
    /// What must have ended well before it counts as started.
    pub start_post: Vec<Command>,
    /// What makes it read its configuration again; nothing if it cannot.
    pub reload: Vec<Command>,
    /// What makes it end; nothing if a signal does.
    pub stop: Vec<Command>,
    /// What is run when it has ended, however it did.
    pub stop_post: Vec<Command>,
    /// All ends of its main process that are no failure, 0 too where that is none. (For a oneshot
    /// it always is none; for a unit of systemd it is, and so are HUP, INT, TERM and PIPE.)
    pub success: StatusSet,
    /// Whether it is not up any more when its main process has ended well, as units of systemd
    /// without `RemainAfterExit=` are. A oneshot says this by its kind.
    pub ends: bool,
    /// How it is ended.
    pub kill: Kill,
    /// Whom messages of its readiness are taken from.
    pub notify_access: NotifyAccess,
    /// How often it has to say that it works; nothing if it does not.
    pub watchdog: Option<Duration>,
    /// How long it may run; nothing if for ever.
    pub runtime_max: Option<Duration>,
    /// For what its processes find around them.
    pub surroundings: Surroundings,
    /// What its processes may take.
    pub resources: Resources,
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

/// Which processes of a unit are signalled. Those that are left when its stop is over are always
/// found and ended before the unit starts again.
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
