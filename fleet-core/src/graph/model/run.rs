//! How a unit runs: its commands, exit statuses, restarts, and the execution environment of its
//! processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use fleet_unitfile::values::expand_variables;

use super::cgroup_filters::CgroupFilters;
use super::condition::UnitCondition;
use super::exec_options::{Credential, ExecDirectories, Scheduling};
use super::sandbox::Sandbox;
use super::signal::Signal;

/// Commands of a unit, and the settings for running and stopping them.
/// [`InitUnit::needs_restart_for`](crate::graph::InitUnit::needs_restart_for) says which of them a
/// running unit gets only by a restart.
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
    /// Processes whose exit ends the unit.
    pub exit_type: ExitType,
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
    /// Devices and network addresses that the processes may use.
    pub cgroup_filters: CgroupFilters,
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

/// Processes whose exit ends a unit (`ExitType=`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExitType {
    /// The main process.
    #[default]
    Main,
    /// All processes. The exit status of the main process still is that of the unit.
    Cgroup,
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

/// One command line. No shell interprets it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// Path of the program. Variables in the path are not expanded. In units from systemd, the
    /// program may be a name without a path, for which the supervisor searches the usual
    /// directories.
    pub program: String,
    /// Value of `argv[0]` if it differs from the path of the program (prefix `@`). Variables in it
    /// are expanded.
    pub name: Option<String>,
    /// Arguments of the program. At execution `$NAME` as a whole word, `${NAME}` and `$$` are
    /// expanded as in systemd.
    pub arguments: Vec<String>,
    /// Whether a failure counts as success (`-`).
    pub ignore_failure: bool,
    /// Whether `$` is an ordinary character in the arguments (`:`).
    pub verbatim: bool,
    /// Whether the command keeps the user and groups of the supervisor (`+`, `!`). The prefix `!!`
    /// changes nothing, because it is for kernels without ambient capabilities.
    pub privileged: bool,
    /// Whether the command also runs without the restrictions of the unit's sandbox (`+`).
    pub unconfined: bool,
}

impl Command {
    /// Creates a command from a program and its arguments.
    #[must_use]
    pub fn new(program: impl Into<String>, arguments: impl IntoIterator<Item = String>) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Returns the argument vector with variables expanded as systemd expands them. `$NAME` as a
    /// whole word is replaced by the words of the variable's value, or by nothing if the variable
    /// is unset. `${NAME}` is replaced by the value, and `$$` by a dollar sign.
    ///
    /// ```
    /// use fleet_core::graph::Command;
    ///
    /// let command = Command::new("/bin/run", ["$FLAGS", "${NAME}.log"].map(str::to_owned));
    /// let value = |name: &str| if name == "FLAGS" { Some("-v -n") } else { Some("web") };
    /// assert_eq!(command.argv(value), ["/bin/run", "-v", "-n", "web.log"]);
    /// let command = Command { name: Some("${NAME}".to_owned()), ..command };
    /// assert_eq!(command.argv(value), ["web", "-v", "-n", "web.log"]);
    /// ```
    pub fn argv<V: AsRef<str>>(&self, variable: impl Fn(&str) -> Option<V>) -> Vec<String> {
        let name = self.name.as_ref().unwrap_or(&self.program);
        let words = [name].into_iter().chain(&self.arguments);
        if self.verbatim {
            return words.cloned().collect();
        }
        words.flat_map(|word| expand_variables(word, &variable)).collect()
    }
}

/// A set of ways in which a process may exit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusSet {
    /// Exit statuses.
    pub codes: BTreeSet<u8>,
    /// Signals that killed the process.
    pub signals: BTreeSet<Signal>,
}

impl StatusSet {
    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty() && self.signals.is_empty()
    }

    /// Returns whether the set contains this exit.
    #[must_use]
    pub fn contains(&self, exit: Exit) -> bool {
        match exit {
            Exit::Status(status) => self.codes.contains(&status),
            Exit::Signal(number) => {
                Signal::from_number(number).is_some_and(|signal| self.signals.contains(&signal))
            }
            Exit::Unknown => false,
        }
    }
}

/// The way in which a main process exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exit {
    /// Exited with this status.
    Status(u8),
    /// Killed by this signal, as numbered on x86 and ARM.
    Signal(u8),
    /// Unknown, because the process was no child of the supervisor or exited while no supervisor
    /// ran.
    Unknown,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::Signal(number) => match Signal::from_number(number) {
                Some(signal) => signal.fmt(f),
                None => write!(f, "signal {number}"),
            },
            Self::Unknown => f.write_str("an unknown status"),
        }
    }
}

/// Restart policy of a unit. By default, the unit of a stanza is restarted after each failure,
/// without a limit. The delay is one second at first and doubles up to one minute. A unit file has
/// systemd's defaults instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restart {
    /// The exits that lead to a restart.
    pub when: RestartWhen,
    /// Exits of the main process that never lead to a restart, regardless of `when` and `force`.
    pub prevent: StatusSet,
    /// Exits of the main process that always lead to a restart, regardless of `when`.
    pub force: StatusSet,
    /// Delay after the first failure.
    pub delay: Duration,
    /// Maximum delay.
    pub max_delay: Duration,
    /// Growth of the delay.
    pub growth: DelayGrowth,
    /// Limit after which the unit is not restarted again.
    pub limit: RestartLimit,
    /// Time for which the unit has to be active until its earlier failures are forgotten. `None`
    /// stands for ten seconds or twice the restart delay, the longer of the two.
    pub reset: Option<Duration>,
}

/// Exits after which a unit is restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartWhen {
    /// Never.
    Never,
    /// After success only.
    OnSuccess,
    /// After any failure.
    OnFailure,
    /// After a failure such as a signal, a timeout or a missed watchdog. A failure status, or a
    /// program that cannot be executed, leads to no restart.
    OnAbnormal,
    /// Only after an unrequested signal, or an exit with unknown status.
    OnAbort,
    /// Only after a missed watchdog.
    OnWatchdog,
    /// After any unrequested exit.
    Always,
}

/// Growth of the delay from one failure to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelayGrowth {
    /// Multiplies the delay by this factor; 1 keeps it constant.
    Factor(u32),
    /// Multiplies the delay by the same ratio after each failure, so that it reaches the maximum
    /// after this many failures (`RestartSteps=`).
    Steps(u32),
}

/// Limit after which a failing unit is not restarted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartLimit {
    /// No limit.
    None,
    /// The unit is not restarted after more failures than this. A success, or a long active time,
    /// resets the count.
    Failures(u32),
    /// The unit is not restarted if that would be more than `burst` starts within `interval`. In
    /// systemd, `StartLimitBurst=` and `StartLimitIntervalSec=` set this limit.
    Starts {
        /// Maximum number of starts.
        burst: u32,
        /// Length of the interval.
        interval: Duration,
    },
}

impl Restart {
    /// Returns the policy that never restarts.
    #[must_use]
    pub fn never() -> Self {
        Self { when: RestartWhen::Never, ..Self::default() }
    }
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            when: RestartWhen::OnFailure,
            prevent: StatusSet::default(),
            force: StatusSet::default(),
            delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(60),
            growth: DelayGrowth::Factor(2),
            limit: RestartLimit::None,
            reset: None,
        }
    }
}

/// Execution environment of each process of a unit. The default is minimal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecEnvironment {
    /// Variables; later ones override earlier ones.
    pub environment: Vec<(String, String)>,
    /// Environment files, read when a process starts. They override `environment`.
    pub environment_files: Vec<EnvironmentFile>,
    /// Variables passed on from the supervisor.
    pub pass_environment: Vec<String>,
    /// Variables removed last: a name, or a name with its value.
    pub unset_environment: Vec<String>,
    /// Working directory.
    pub directory: WorkingDirectory,
    /// User by name or number; `None` is the supervisor's user.
    pub user: Option<String>,
    /// Group by name or number; `None` is the user's primary group.
    pub group: Option<String>,
    /// Supplementary groups.
    pub supplementary_groups: Vec<String>,
    /// File mode creation mask; `None` is 0o022.
    pub umask: Option<u32>,
    /// Whether the process starts with `SIGPIPE` ignored.
    pub ignore_sigpipe: bool,
    /// Nice level, from -20 (highest priority) to 19.
    pub nice: Option<i32>,
    /// OOM score adjustment, from -1000 to 1000. The kernel kills processes with a high value
    /// first.
    pub oom_score_adjust: Option<i32>,
    /// Kernel limits of each process.
    pub limits: Rlimits,
    /// Standard output.
    pub output: ExecOutput,
    /// Standard error; `None` is the same as standard output.
    pub error: Option<ExecOutput>,
    /// Directories in which a program without a path is searched; empty means the usual ones.
    pub search_path: Vec<String>,
    /// Directories that are created for the unit.
    pub directories: ExecDirectories,
    /// Credentials; of two with the same name, a file takes precedence over a text.
    pub credentials: Vec<Credential>,
    /// Scheduling of the processes.
    pub scheduling: Scheduling,
    /// Restrictions on the processes.
    pub sandbox: Sandbox,
}

/// A file with environment variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentFile {
    /// Absolute path.
    pub path: String,
    /// Whether a file that cannot be read is skipped.
    pub optional: bool,
}

/// Working directory of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkingDirectory {
    /// The directory.
    pub path: DirectoryPath,
    /// Whether `/` is used if the directory cannot be entered.
    pub optional: bool,
}

/// Path of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DirectoryPath {
    /// The root directory.
    #[default]
    Root,
    /// The user's home directory.
    Home,
    /// This absolute path.
    At(String),
}

/// Destination of a standard stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ExecOutput {
    /// The unit's log.
    #[default]
    Log,
    /// `/dev/null`.
    Null,
    /// The stream of the supervisor.
    Inherit,
    /// This file, written from its beginning without truncation.
    File(String),
    /// The end of this file.
    Append(String),
    /// This file, truncated first.
    Truncate(String),
}

/// Soft and hard limits of `setrlimit`. The keys are the kernel's names in lower case, such as
/// `nofile`. `None` means no limit.
pub type Rlimits = BTreeMap<&'static str, (Option<u64>, Option<u64>)>;

/// Limits on all processes of a unit together. They need cgroup v2 and its controllers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Maximum memory in bytes; beyond it processes are killed.
    pub memory_max: Option<Amount>,
    /// Memory in bytes beyond which processes are throttled.
    pub memory_high: Option<Amount>,
    /// Maximum number of processes and threads.
    pub tasks_max: Option<Amount>,
    /// CPU weight under contention, from 1 to 10000; the usual value is 100.
    pub cpu_weight: Option<u64>,
    /// CPU quota, in hundredths of a percent of one processor.
    pub cpu_quota: Option<u64>,
    /// I/O weight under contention, from 1 to 10000; the usual value is 100.
    pub io_weight: Option<u64>,
}

/// An amount of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// This much.
    Absolute(u64),
    /// Ten-thousandths of the amount that the machine has.
    Share(u32),
}

impl ResourceLimits {
    /// Returns whether no limit is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
