//! Pure: no I/O, no clock. The phases of a service's life, what is remembered of it, and what it
//! may want done.

use fleet_core::graph::Command;
use serde::{Deserialize, Serialize};

use super::outcome::{ProcessExit, RunOutcome};
use super::signals::Sig;

/// Where a service is in its life; the names are systemd's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ServicePhase {
    #[default]
    Dead,
    /// The commands that decide whether it starts run.
    Condition,
    StartPre,
    Start,
    StartPost,
    Running,
    Exited,
    /// The commands of a reload run.
    Reload,
    /// The main process was told to reload, and has not said that it does.
    ReloadSignal,
    /// The main process has said that it reloads.
    ReloadNotify,
    Stop,
    /// It missed its watchdog.
    StopWatchdog,
    StopSigterm,
    StopSigkill,
    StopPost,
    FinalSigterm,
    FinalSigkill,
    Failed,
    /// It is over, and will be started again. Shown only: no run knows.
    AutoRestart,
}

/// A process that cannot be mistaken for another, even if its number is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    /// When it started, in the kernel's ticks since boot.
    pub(crate) start: u64,
}

/// Whether a process is the service itself, or a helper before, beside or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    Main,
    Control,
}

/// Which processes a signal is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalScope {
    /// The main and the control process.
    Leaders,
    /// Every process of the service, whoever started it.
    All,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunAction {
    /// A new run begins, which gets an identity of its own.
    NewRun,
    /// Run a command; answered by `on_spawned` or `on_spawn_failed`.
    Spawn { command: Command, role: Role },
    /// Send a signal, and `SIGHUP` after it if `hangs_up`, to what comes later too; answered by
    /// `on_gone` once none is left.
    Signal { signal: Sig, hangs_up: bool, reach: SignalScope },
    /// Send a signal to one process. Nothing is waited for.
    SignalProcess { process: ProcessId, signal: Sig },
    /// Look for the process that the file of the service names, until there is one; answered by
    /// `on_main`.
    AwaitMain,
    /// Wait until none of its processes is left; answered by `on_gone`.
    AwaitGone,
    /// Look for a line of its output that says that it is ready; answered by `on_line`.
    AwaitLine,
}

/// What must be remembered of a service to go on with it in another daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunState {
    pub(crate) phase: ServicePhase,
    pub(crate) step: usize,
    pub(crate) main: Option<ProcessId>,
    pub(crate) control: Option<ProcessId>,
    pub(crate) spawning: Option<Role>,
    pub(crate) outcome: Option<RunOutcome>,
    /// How the main process of this run ended.
    pub(crate) exit: Option<ProcessExit>,
    /// How that of the run before ended, if this one is its automatic restart.
    #[serde(default)]
    pub(crate) exit_before: Option<ProcessExit>,
    pub(crate) restarts: u32,
    /// How often in a row it had ended by itself before this run, but for what is forgiven since.
    #[serde(default)]
    pub(crate) attempts: u32,
    /// How many of these ends, since the last good one, were failures.
    #[serde(default)]
    pub(crate) failures: u32,
    /// Whether it was tried too often since, so that it is not tried again.
    #[serde(default)]
    pub(crate) gave_up: bool,
    pub(crate) stop_requested: bool,
    /// Its command has ended well, and its main process is looked for.
    #[serde(default)]
    pub(crate) awaits_main: bool,
    /// What became of the last reload in this run; nothing while one is under way.
    #[serde(default)]
    pub(crate) reloaded: Option<RunOutcome>,
    /// What it last said of itself.
    #[serde(default)]
    pub(crate) status: Option<String>,
}

impl ServicePhase {
    /// Whether it is a phase of stopping.
    pub(crate) fn is_stopping(self) -> bool {
        matches!(self, Self::Stop | Self::StopPost) || self.is_signalling()
    }

    /// Whether it is up, whatever it does.
    pub(crate) fn is_up(self) -> bool {
        matches!(self, Self::Running | Self::Exited) || self.is_reloading()
    }

    /// Whether its start is under way.
    pub(crate) fn is_starting(self) -> bool {
        matches!(self, Self::Condition | Self::StartPre | Self::Start | Self::StartPost)
    }

    /// Whether it reads its configuration again.
    pub(crate) fn is_reloading(self) -> bool {
        matches!(self, Self::Reload | Self::ReloadSignal | Self::ReloadNotify)
    }

    /// Whether it is a phase of signalling, and of waiting for the effect.
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
