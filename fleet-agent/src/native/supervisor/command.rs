//! The commands of a supervisor, the handle by which a frontend sends them, its configuration and
//! its errors.
//!
//! A frontend sends commands, for loaded units through [`Requests`]. Each command has an answer; a
//! snapshot is one too. A frontend also reads logs, and the published states: the [`Statuses`] of
//! loaded units, the `feed` of their changes, and `changes`, a counter. It never touches a process
//! or the planner.
//!
//! [`Statuses`]: super::managed_units::Statuses

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use fleet_core::graph::{Graph, GraphError, Name, NotReloadable, Settings, Target};
use fleet_unitfile::UnitName;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use super::Supervisor;
use super::core::Core;
use super::managed_units::{LoadedUnit, ManagedUnits, PulledStarter};
use super::requests::{Requests, UnitRequest};
use super::snapshot::{InitDryRun, InitDryRunResult, InitSnapshot, dry_run, snapshot};
use super::units::Logs;
use crate::lock::{acquire, lock};
use crate::native::executor::Executor;
use crate::native::linux::cgroup::{Groups, leave_units};
use crate::native::log::Log;
use crate::native::state::manager_context::{ManagerContext, forget_old_boot};
use crate::native::state::runtime_directory::Directories;
use crate::native::state::unit_directory::RequestedState;
use crate::{Clock, ServiceError, SystemClock, UnitDetails};

/// Maximum number of queued commands; further callers wait for a free slot.
pub(super) const COMMAND_CAPACITY: usize = 64;

/// Channel for the answer to a command.
pub(in crate::native) type Reply<T> = oneshot::Sender<T>;

/// Result of a call for a loaded unit.
pub(in crate::native) type CallResult = Result<(), ServiceError>;

/// The result of a request, which is sent once the unit is as requested, or cannot be.
pub(in crate::native) type PendingResult = oneshot::Receiver<CallResult>;

/// Command of a frontend. The event loop carries out one after the other.
pub(in crate::native) enum Command {
    /// Sets the goal and the extra targets.
    SetGoal {
        goal: Option<Target>,
        extra_targets: BTreeSet<Target>,
        reply: Reply<Result<(), SupervisorError>>,
    },
    /// Limits the number of units that may be starting at the same time.
    SetMaxStarting { most: Option<NonZeroU32>, reply: Reply<()> },
    /// Replaces the units of files and their settings.
    ReplaceGraph { graph: Graph, settings: Settings, reply: Reply<Result<(), SupervisorError>> },
    /// Loads a unit, or another file for it.
    Load { unit: Box<LoadedUnit>, reply: Reply<CallResult> },
    /// For the unit that provides a target.
    Target { target: Target, command: TargetCommand },
    /// For a loaded unit.
    Unit { unit: UnitName, command: UnitCommand },
    /// Stops all units. From then on no unit starts. The answer comes once all have stopped except
    /// stuck ones, of which each loaded one has an error.
    Shutdown { reply: Reply<Vec<ServiceError>> },
    /// Kills all processes of all runs.
    KillAll { reply: Reply<()> },
    /// Reads the status of all units.
    Snapshot { reply: Reply<InitSnapshot> },
    /// Applies a change to a copy of the planner.
    DryRun { request: InitDryRun, reply: Reply<Result<InitDryRunResult, SupervisorError>> },
    /// Runs a function in the event loop, for the supervisor's own tests.
    #[cfg(test)]
    Inspect(Box<dyn FnOnce(&mut Supervisor) + Send>),
}

/// Command for the unit that provides a target.
pub(in crate::native) enum TargetCommand {
    Mask(Reply<Result<bool, SupervisorError>>),
    Unmask(Reply<Result<bool, SupervisorError>>),
    ResetFailed(Reply<bool>),
    Restart(Reply<bool>),
    Reload(Reply<Result<(), NotReloadable>>),
}

/// Command for a loaded unit.
pub(in crate::native) enum UnitCommand {
    /// Returns the timers and activators to start before the unit, or why the unit cannot be
    /// started.
    PrepareStart(Reply<Result<Vec<PulledStarter>, ServiceError>>),
    /// Carries out a request. `requested` is the requested state after it, which is stored already.
    /// The answer comes once the published status includes it.
    Request { request: UnitRequest, requested: RequestedState, reply: Reply<PendingResult> },
    /// Sets the requested state of a unit whose file has not changed.
    SetRequested { requested: RequestedState, reply: Reply<()> },
    /// Reloads the configuration of the unit.
    Reload(Reply<PendingResult>),
    /// Removes the unit, whose stored state was removed.
    Forget(Reply<()>),
    /// Reads the details of the unit.
    Details(Reply<Result<UnitDetails, ServiceError>>),
}

/// Sends commands to a supervisor.
#[derive(Clone)]
pub(in crate::native) struct CommandSender(mpsc::Sender<Command>);

impl CommandSender {
    /// Creates a channel of commands.
    pub(super) fn channel() -> (Self, mpsc::Receiver<Command>) {
        let (sender, inbox) = mpsc::channel(COMMAND_CAPACITY);
        (Self(sender), inbox)
    }

    /// Sends a command, and returns the answer to it.
    pub(in crate::native) async fn call<T>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, Crashed> {
        let (reply, answer) = oneshot::channel();
        self.0.send(command(reply)).await.map_err(|_| Crashed)?;
        answer.await.map_err(|_| Crashed)
    }

    /// Sends a command for the unit that provides a target.
    pub(in crate::native) async fn target<T>(
        &self,
        target: &Target,
        command: impl FnOnce(Reply<T>) -> TargetCommand,
    ) -> Result<T, Crashed> {
        let target = target.clone();
        self.call(|reply| Command::Target { target, command: command(reply) }).await
    }

    /// Sends a command for a loaded unit.
    pub(in crate::native) async fn unit<T>(
        &self,
        unit: &UnitName,
        command: impl FnOnce(Reply<T>) -> UnitCommand,
    ) -> Result<T, Crashed> {
        let unit = unit.clone();
        self.call(|reply| Command::Unit { unit, command: command(reply) }).await
    }

    /// Returns an error once the event loop is gone.
    pub(in crate::native) fn check_alive(&self) -> Result<(), Crashed> {
        if self.0.is_closed() { Err(Crashed) } else { Ok(()) }
    }
}

/// Handle of a frontend to its supervisor. Dropping it ends the supervisor, and leaves the units
/// running.
pub(in crate::native) struct SupervisorHandle {
    context: Arc<ManagerContext>,
    requests: Arc<Requests>,
    logs: Logs,
    changes: watch::Receiver<u64>,
    event_loop: AbortHandle,
    log_task: AbortHandle,
}

impl SupervisorHandle {
    /// Returns the state that is independent of single units.
    pub(in crate::native) fn context(&self) -> &Arc<ManagerContext> {
        &self.context
    }

    /// Returns the sender of commands.
    pub(in crate::native) fn commands(&self) -> &CommandSender {
        self.requests.commands()
    }

    /// Returns the requests for loaded units.
    pub(in crate::native) fn requests(&self) -> &Arc<Requests> {
        &self.requests
    }

    /// Returns the log of a unit; `None` if the unit has never run.
    pub(in crate::native) fn log(&self, unit: &Name) -> Option<Arc<Log>> {
        lock(&self.logs).get(unit).cloned()
    }

    /// Returns a counter that increases whenever a snapshot may have changed.
    pub(in crate::native) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Returns the task of the event loop.
    #[cfg(test)]
    pub(in crate::native) fn event_loop(&self) -> &AbortHandle {
        &self.event_loop
    }
}

impl Drop for SupervisorHandle {
    fn drop(&mut self) {
        self.log_task.abort();
        self.event_loop.abort();
    }
}

impl Supervisor {
    /// Starts the event loop.
    pub(super) fn spawn(self) -> SupervisorHandle {
        let context = Arc::clone(&self.core.context);
        SupervisorHandle {
            log_task: tokio::spawn(Arc::clone(&context).limit_logs()).abort_handle(),
            context,
            requests: Arc::clone(&self.requests),
            logs: Arc::clone(self.core.units.logs()),
            changes: self.changes.subscribe(),
            event_loop: tokio::spawn(self.run()).abort_handle(),
        }
    }

    /// Carries out a command.
    pub(super) fn on_command(&mut self, command: Command) {
        let core = &mut self.core;
        match command {
            Command::SetGoal { goal, extra_targets, reply } => {
                answer(reply, core.set_goal(goal, extra_targets));
            }
            Command::SetMaxStarting { most, reply } => {
                core.planner.set_max_starting(most);
                answer(reply, ());
            }
            Command::ReplaceGraph { graph, settings, reply } => {
                answer(reply, core.replace_graph(graph, &settings));
            }
            Command::Load { unit, reply } => answer(reply, self.managed.load(core, *unit)),
            Command::Target { target, command } => on_target_command(core, &target, command),
            Command::Unit { unit, command } => {
                on_unit_command(&mut self.managed, core, &unit, command);
            }
            Command::Shutdown { reply } => self.shut_down(reply),
            Command::KillAll { reply } => {
                core.units.kill_all();
                answer(reply, ());
            }
            Command::Snapshot { reply } => answer(reply, snapshot(core)),
            Command::DryRun { request, reply } => answer(reply, dry_run(core, request)),
            #[cfg(test)]
            Command::Inspect(inspect) => inspect(self),
        }
    }
}

fn on_target_command(core: &mut Core, target: &Target, command: TargetCommand) {
    match command {
        TargetCommand::Mask(reply) => answer(reply, core.mask(target)),
        TargetCommand::Unmask(reply) => answer(reply, core.unmask(target)),
        TargetCommand::ResetFailed(reply) => answer(reply, core.reset_failed(target)),
        TargetCommand::Restart(reply) => answer(reply, core.planner.restart(target)),
        TargetCommand::Reload(reply) => answer(reply, core.planner.request_reload(target)),
    }
}

fn on_unit_command(
    managed: &mut ManagedUnits,
    core: &mut Core,
    unit: &UnitName,
    command: UnitCommand,
) {
    match command {
        UnitCommand::PrepareStart(reply) => answer(reply, managed.prepare_start(core, unit)),
        UnitCommand::Request { request, requested, reply } => {
            let (result, pending) = oneshot::channel();
            managed.carry_out(core, unit, request, requested, result);
            answer(reply, pending);
        }
        UnitCommand::SetRequested { requested, reply } => {
            managed.set_requested(core, unit, requested);
            answer(reply, ());
        }
        UnitCommand::Reload(reply) => {
            let (result, pending) = oneshot::channel();
            managed.reload(core, unit, result);
            answer(reply, pending);
        }
        UnitCommand::Forget(reply) => {
            managed.forget(core, unit);
            answer(reply, ());
        }
        UnitCommand::Details(reply) => answer(reply, managed.details(core, unit)),
    }
}

/// Answers a command. The caller may be gone.
pub(super) fn answer<T>(reply: Reply<T>, value: T) {
    drop(reply.send(value));
}

/// Error returned by an [`InitSupervisor`](crate::native::InitSupervisor).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SupervisorError {
    /// The graph cannot provide the desired targets.
    #[error("invalid goal or targets")]
    InvalidTargets(#[source] GraphError),
    /// A shutdown has begun.
    #[error("all units are shutting down: set the goal after fleet-init has started again")]
    ShuttingDown,
    /// The unit cannot be reloaded.
    #[error("{target} cannot be reloaded")]
    NotReloadable {
        /// Target of the unit.
        target: Target,
        /// Reason.
        #[source]
        why: NotReloadable,
    },
    /// The settings mask the target, so a request cannot unmask it.
    #[error("{target} is masked in init.conf: remove it from `mask` there, then reload")]
    MaskedBySettings {
        /// The masked target.
        target: Target,
    },
    /// The unit does not exist, or it never ran.
    #[error("there is no log of {unit}: the unit does not exist, or has never run")]
    NoLog {
        /// Name of the unit.
        unit: Name,
    },
    /// The directory is in use, or cannot be read or written.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The supervisor task has panicked. The units keep running; start a supervisor again.
    #[error("the supervisor has crashed; its units keep running: restart fleet-init or fleetd")]
    Crashed,
}

/// The task of the supervisor is gone, because it has panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::native) struct Crashed;

impl From<Crashed> for SupervisorError {
    fn from(_: Crashed) -> Self {
        Self::Crashed
    }
}

impl From<Crashed> for ServiceError {
    fn from(_: Crashed) -> Self {
        let problem = "its supervisor task has crashed: restart the daemon";
        Self::Unavailable(problem.to_owned())
    }
}

/// Returns a function that describes an I/O error by the failed action.
pub(in crate::native) fn io_error(action: &str) -> impl FnOnce(std::io::Error) -> ServiceError {
    let action = action.to_owned();
    move |source| ServiceError::Io { action, source }
}

/// Environment variable for the language of programs.
pub(super) const LANGUAGE: &str = "LANG";

/// Configuration of an [`InitSupervisor`](crate::native::InitSupervisor).
#[derive(Clone)]
#[non_exhaustive]
pub struct SupervisorConfig {
    /// Directory for state and logs. At most one supervisor at a time may use the directory, and it
    /// must not be the directory of a [`NativeManager`](crate::NativeManager).
    pub directory: PathBuf,
    /// Directory in memory, such as `/run/fleet-init`. Records of runs and notification sockets are
    /// in a subdirectory of it, so that a full disk prevents no start, and units of other users and
    /// in other network namespaces can send notifications. `None`: records are in `directory`, and
    /// sockets have abstract addresses.
    pub runtime_directory: Option<PathBuf>,
    /// Environment variables that every process of every unit gets, besides `PATH`. An
    /// [`InitSupervisor`](crate::native::InitSupervisor) also passes on its own `LANG`, unless
    /// `LANG` is set here.
    pub environment: Vec<(String, String)>,
    /// Bytes of output kept per unit.
    pub log_limit: u64,
    /// Whether each run of a unit gets its own control group, on machines where fleet may create
    /// control groups.
    pub control_groups: bool,
    /// The program that confines the processes of units. Without it, options such as
    /// `ProtectSystem=` are not supported.
    pub executor: Option<Executor>,
    /// Clock for timeouts and restarts.
    pub clock: Arc<dyn Clock>,
}

impl SupervisorConfig {
    /// Returns the default configuration with this directory and the real clock.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            runtime_directory: None,
            environment: Vec::new(),
            log_limit: crate::NativeConfig::DEFAULT_LOG_LIMIT,
            control_groups: true,
            executor: None,
            clock: Arc::new(SystemClock::start()),
        }
    }

    /// Adds `LANG` with this value, unless the configuration sets it already.
    pub(super) fn with_language(mut self, language: Option<String>) -> Self {
        let is_named = self.environment.iter().any(|(name, _)| name == LANGUAGE);
        let found = language.filter(|_| !is_named).map(|language| (LANGUAGE.to_owned(), language));
        self.environment.extend(found);
        self
    }

    /// Locks and prepares the directory.
    pub(super) async fn open(&self) -> Result<Arc<ManagerContext>, ServiceError> {
        let lock = acquire(&self.directory, &*self.clock).await?;
        let base = self.runtime_directory.as_deref();
        let directories = Directories::prepare(self.directory.clone(), base)
            .map_err(io_error("use the directories of this boot"))?;
        let prepared = forget_old_boot(&directories);
        prepared.map_err(io_error("identify the current boot"))?;
        let groups = if self.control_groups {
            leave_units(&self.directory)
                .map_err(io_error("leave the control groups of its units"))?;
            Groups::find(&self.directory)
        } else {
            Err("control groups are disabled".to_owned())
        };
        let context = ManagerContext::new(
            Arc::clone(&self.clock),
            self.environment.clone(),
            directories,
            self.log_limit,
            groups,
            self.executor.clone(),
            lock,
        );
        Ok(Arc::new(context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_is_inherited_unless_configured() {
        let given = |own: &[&str], language: Option<&str>| {
            let mut config = SupervisorConfig::new("/nowhere");
            config.environment.extend(own.iter().map(|it| (LANGUAGE.into(), (*it).to_owned())));
            let config = config.with_language(language.map(ToOwned::to_owned));
            config.environment.into_iter().map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(given(&[], Some("C.UTF-8")), ["C.UTF-8"]);
        assert_eq!(given(&["de_DE.UTF-8"], Some("C.UTF-8")), ["de_DE.UTF-8"]);
        assert_eq!(given(&[], None), Vec::<String>::new());
    }
}
