//! What a unit file asks of the supervisor, in the supervisor's own terms.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use fleet_core::graph::NotifyAccess;

use super::signals::Sig;

/// systemd's limit for a start or a stop.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(90);

/// A service, ready to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceSpec {
    pub(crate) kind: Kind,
    pub(crate) remain_after_exit: bool,
    pub(crate) commands: Commands,
    pub(crate) restart: RestartSpec,
    pub(crate) success: StatusSet,
    pub(crate) start_limit: StartLimitSpec,
    /// `None` is for ever.
    pub(crate) timeout_start: Option<Duration>,
    /// `None` is for ever.
    pub(crate) timeout_stop: Option<Duration>,
    pub(crate) kill: KillSpec,
    pub(crate) context: Context,
    /// Where a process that went into the background leaves its number.
    pub(crate) pid_file: Option<PathBuf>,
    /// Whose messages count.
    pub(crate) notify_access: NotifyAccess,
    /// What makes the main process read its configuration again, where it tells of that itself.
    pub(crate) reload_signal: Option<Sig>,
    /// `None` is for ever.
    pub(crate) timeout_reload: Option<Duration>,
    /// How often it has to say that it works.
    pub(crate) watchdog: Option<Duration>,
    pub(crate) abort: AbortSpec,
    /// How long it may run.
    pub(crate) runtime_max: Option<Duration>,
}

/// How a service is ended that did not say in time that it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AbortSpec {
    pub(crate) signal: Sig,
    /// `None` is for ever.
    pub(crate) time_out: Option<Duration>,
}

/// When a start is over, and what the end of the main process means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Started as soon as the program was executed; `simple` and `exec` are both this exact.
    Simple,
    /// Started when its main process says so.
    Notify,
    /// Started when its command has ended and left a main process behind, which its file names.
    Forking,
    /// Started when all its commands have ended.
    Oneshot,
}

/// The commands of a service, one list for each moment of its life.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Commands {
    pub(crate) start_pre: Vec<Command>,
    pub(crate) start: Vec<Command>,
    pub(crate) start_post: Vec<Command>,
    pub(crate) reload: Vec<Command>,
    pub(crate) stop: Vec<Command>,
    pub(crate) stop_post: Vec<Command>,
}

/// One command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Command {
    /// The program, absolute or to be searched for; variables are not expanded in it.
    pub(crate) program: String,
    /// What the program is told its name is, where that is not its path.
    pub(crate) name: Option<String>,
    pub(crate) arguments: Vec<String>,
    /// `-`: a failure counts as success.
    pub(crate) ignore_failure: bool,
    /// `+`, `!` or `!!`: it keeps the rights of root.
    pub(crate) privileged: bool,
    /// `:`: `$` is an ordinary character.
    pub(crate) verbatim: bool,
}

/// When a service that ended is started again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RestartSpec {
    pub(crate) policy: RestartPolicy,
    pub(crate) delay: Duration,
    pub(crate) prevent: StatusSet,
    pub(crate) force: StatusSet,
}

/// The values of `Restart=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    No,
    OnSuccess,
    OnFailure,
    OnAbnormal,
    OnAbort,
    OnWatchdog,
    Always,
}

/// At most `burst` starts within `interval`; either at zero means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StartLimitSpec {
    /// `None` is for ever.
    pub(crate) interval: Option<Duration>,
    pub(crate) burst: u32,
}

/// Exit codes and signals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StatusSet {
    pub(crate) codes: BTreeSet<i32>,
    pub(crate) signals: BTreeSet<i32>,
}

/// How processes are ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KillSpec {
    pub(crate) mode: KillMode,
    pub(crate) signal: Sig,
    pub(crate) final_signal: Sig,
    pub(crate) send_sigkill: bool,
    pub(crate) send_sighup: bool,
}

/// The values of `KillMode=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillMode {
    ControlGroup,
    Mixed,
    Process,
    None,
}

/// What surrounds each process of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) environment_files: Vec<EnvironmentFile>,
    pub(crate) pass_environment: Vec<String>,
    pub(crate) unset_environment: Vec<String>,
    pub(crate) directory: WorkingDirectory,
    pub(crate) user: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) umask: Option<u32>,
    pub(crate) output: Output,
    /// `None` is the same as `output`.
    pub(crate) error: Option<Output>,
}

/// A file of variables, read when a process is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvironmentFile {
    pub(crate) path: PathBuf,
    /// `-`: it may be missing.
    pub(crate) optional: bool,
}

/// Where a process starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WorkingDirectory {
    pub(crate) place: Place,
    /// `-`: it may be missing, and the root directory serves then.
    pub(crate) optional: bool,
}

/// A directory, or the one that the user calls home.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Place {
    #[default]
    Root,
    Home,
    At(PathBuf),
}

/// Where a process writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Output {
    /// The unit's log.
    #[default]
    Log,
    /// Nowhere.
    Null,
}

impl Default for KillSpec {
    fn default() -> Self {
        Self {
            mode: KillMode::ControlGroup,
            signal: Sig::TERM,
            final_signal: Sig::KILL,
            send_sigkill: true,
            send_sighup: false,
        }
    }
}

impl Default for AbortSpec {
    fn default() -> Self {
        Self { signal: Sig::ABRT, time_out: Some(DEFAULT_TIMEOUT) }
    }
}

impl Commands {
    /// All commands, in the order of their moments.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Command> {
        let start = [&self.start_pre, &self.start, &self.start_post, &self.reload];
        start.into_iter().chain([&self.stop, &self.stop_post]).flatten()
    }
}

impl ServiceSpec {
    /// For a unit whose file cannot be obeyed any more, but which may still run: it can be stopped,
    /// and nothing else.
    pub(crate) fn only_to_stop() -> Self {
        Self {
            kind: Kind::Simple,
            remain_after_exit: false,
            commands: Commands::default(),
            restart: RestartSpec {
                policy: RestartPolicy::No,
                delay: Duration::ZERO,
                prevent: StatusSet::default(),
                force: StatusSet::default(),
            },
            success: StatusSet::default(),
            start_limit: StartLimitSpec { interval: None, burst: 0 },
            timeout_start: Some(DEFAULT_TIMEOUT),
            timeout_stop: Some(DEFAULT_TIMEOUT),
            kill: KillSpec::default(),
            context: Context::default(),
            pid_file: None,
            notify_access: NotifyAccess::None,
            reload_signal: None,
            timeout_reload: Some(DEFAULT_TIMEOUT),
            watchdog: None,
            abort: AbortSpec::default(),
            runtime_max: None,
        }
    }
}
