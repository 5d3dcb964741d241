//! The public handle of a supervisor.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;

use fleet_core::graph::{Graph, InitState, Name, Observation, Settings, Target};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use super::config::{LANGUAGE, SupervisorConfig};
use super::desired_targets::TargetSelection;
use super::error::{SupervisorError, io_error};
use super::event_loop::{Logs, Request, Supervisor, lock};
use super::host_capabilities::host_capabilities;
use super::recovery::Recovery;
use super::snapshot::InitSnapshot;
use crate::native::linux::tracking::Tracking;
use crate::native::log::journal;
use crate::native::state::manager_context::{ManagerContext, TARGETS};
use crate::{Journal, JournalQuery};

/// Maximum number of queued requests; further callers wait for a free slot.
pub(super) const REQUEST_CAPACITY: usize = 64;

/// Maximum number of queued run reports; further runs wait for a free slot.
pub(super) const REPORT_CAPACITY: usize = 1024;

/// Supervises the units of a graph. It starts the units that the goal needs, in dependency order,
/// and keeps them in the state that the graph prescribes.
///
/// Dropping the supervisor leaves the units running, as a crash does. The next supervisor of the
/// same directory adopts the units without a restart, and continues with the last desired targets.
/// After a reboot, the next supervisor starts with an empty state instead.
pub struct InitSupervisor {
    context: Arc<ManagerContext>,
    requests: mpsc::Sender<Request>,
    logs: Logs,
    changes: watch::Receiver<u64>,
    supervisor: AbortHandle,
    log_task: AbortHandle,
}

impl InitSupervisor {
    /// Starts to supervise the units of a graph, and adopts the units that an earlier supervisor
    /// left running.
    ///
    /// The goal and the masks are those of the settings, unless an operator has overridden them
    /// since the machine booted. If the graph no longer provides the targets of an override, the
    /// settings apply.
    ///
    /// # Errors
    ///
    /// - [`SupervisorError::Service`] if the directory is in use or cannot be used.
    /// - [`SupervisorError::InvalidTargets`] if the graph does not provide the goal of the
    ///   settings.
    pub async fn start(
        config: SupervisorConfig,
        graph: Graph,
        settings: &Settings,
    ) -> Result<Self, SupervisorError> {
        let config = config.with_language(std::env::var(LANGUAGE).ok());
        let context = config.open().await?;
        let targets_file = context.runtime_file(TARGETS);
        let recovery =
            Recovery::read(&context, &graph).map_err(io_error("read the stored state"))?;
        let stored =
            TargetSelection::read(&targets_file).map_err(io_error("read the desired targets"))?;
        let Recovery { observation, units, runs, unrecoverable } = recovery;
        let is_written = stored.is_some();
        let (planner, selection) = restore_state(graph, settings, observation, stored)?;
        let (report_sender, reports) = mpsc::channel(REPORT_CAPACITY);
        let (changed, changes) = watch::channel(0);
        let logs = units.iter().map(|(unit, entry)| (unit.clone(), Arc::clone(&entry.log)));
        let logs: Logs = Arc::new(std::sync::Mutex::new(logs.collect()));
        let mut supervisor = Supervisor {
            context: Arc::clone(&context),
            planner,
            selection,
            units,
            logs: Arc::clone(&logs),
            targets_file,
            changes: changed,
            shutting_down: false,
            idle_waiters: Vec::new(),
            failed_spawns: VecDeque::new(),
            reports,
            report_sender,
            unrecoverable,
            managed: None,
            host: host_capabilities(BTreeSet::new(), context.controllers()),
            touched: BTreeSet::new(),
            unrecorded: BTreeSet::new(),
        };
        if is_written {
            // Stores the new configured targets, which later overrides are compared with.
            supervisor.write_targets()?;
        }
        for (unit, incarnation, driver) in runs {
            supervisor.spawn_run_task(&unit, incarnation, driver);
        }
        supervisor.take_over_definitions();
        let (requests, inbox) = mpsc::channel(REQUEST_CAPACITY);
        Ok(Self {
            log_task: tokio::spawn(Arc::clone(&context).limit_logs()).abort_handle(),
            supervisor: tokio::spawn(supervisor.run(inbox)).abort_handle(),
            context,
            requests,
            logs,
            changes,
        })
    }

    /// Sets the goal and the extra targets. They stay in effect until the machine boots again, even
    /// if another supervisor takes over the directory.
    ///
    /// # Errors
    ///
    /// In all these cases nothing changes:
    ///
    /// - [`SupervisorError::InvalidTargets`] if no unit provides one of the targets, or if the goal
    ///   is masked.
    /// - [`SupervisorError::ShuttingDown`] once a [`shutdown`](Self::shutdown) has begun.
    /// - [`SupervisorError::Service`] if the choice cannot be stored.
    pub async fn set_goal(
        &self,
        goal: Option<Target>,
        extra_targets: BTreeSet<Target>,
    ) -> Result<(), SupervisorError> {
        self.call(move |supervisor| {
            if supervisor.shutting_down {
                return Err(SupervisorError::ShuttingDown);
            }
            supervisor
                .planner
                .check_goal(goal.as_ref(), &extra_targets)
                .map_err(SupervisorError::InvalidTargets)?;
            let mut selection = supervisor.selection.clone();
            (selection.desired.goal, selection.desired.extra_targets) =
                (goal.clone(), extra_targets.clone());
            // A choice that cannot be stored is not carried out.
            supervisor.store_selection(selection)?;
            let names: Vec<&str> = extra_targets.iter().map(Target::as_str).collect();
            let goal_name = goal.as_ref().map_or("none", Target::as_str);
            tracing::info!(goal = goal_name, extra_targets = names.join(", "), "the goal was set");
            let now = supervisor.context.now();
            let done = supervisor.planner.set_goal(goal, extra_targets, now);
            done.map_err(SupervisorError::InvalidTargets)
        })
        .await?
    }

    /// Sets the maximum number of units that may be starting at the same time. `None` sets no
    /// limit. The value stays in effect until the next [`reload`](Self::reload).
    ///
    /// # Errors
    ///
    /// Only [`SupervisorError::Crashed`].
    pub async fn set_max_starting(&self, most: Option<NonZeroU32>) -> Result<(), SupervisorError> {
        self.call(move |supervisor| supervisor.planner.set_max_starting(most)).await
    }

    /// Replaces the graph and the settings in one step.
    ///
    /// - Units with a change that needs a restart are restarted, removed units are stopped, and all
    ///   other units keep running. Other changes apply to their current run.
    /// - The goal and the masks become those of the settings, except where an operator has
    ///   overridden them.
    /// - Units of an earlier supervisor that could not be recovered are tried again.
    /// - Once a [`shutdown`](Self::shutdown) has begun, a reload starts no unit.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::InvalidTargets`] if the graph does not provide the goal. In that case
    /// nothing changes.
    pub async fn reload(&self, graph: Graph, settings: &Settings) -> Result<(), SupervisorError> {
        let settings = settings.clone();
        self.call(move |supervisor| {
            supervisor.retry_unrecoverable(settings.max_starting);
            let selection = supervisor.selection.rebase(&settings);
            let earlier = supervisor.selection.clone();
            if selection != earlier {
                supervisor.store_selection(selection.clone())?;
            }
            let (settings, now) = (selection.desired.apply_to(&settings), supervisor.context.now());
            if let Err(error) = supervisor.planner.reload_with(graph, &settings, now) {
                if selection != earlier {
                    supervisor.store_selection(earlier)?;
                }
                return Err(SupervisorError::InvalidTargets(error));
            }
            tracing::info!("the units were reloaded");
            supervisor.take_over_definitions();
            if supervisor.shutting_down {
                // The reload must not start units again during a shutdown.
                supervisor.clear_goal();
            }
            Ok(())
        })
        .await?
    }

    /// Clears the failed or completed state of the unit that provides a target. If the unit is
    /// needed, it then starts at once. Returns whether there was a state to clear.
    ///
    /// For a unit of an earlier supervisor that could not be recovered, this call also declares
    /// that its processes have ended. If that unit is no longer in the graph, `target` has to be
    /// the name of the unit.
    ///
    /// # Errors
    ///
    /// Only [`SupervisorError::Crashed`].
    pub async fn reset_failed(&self, target: &Target) -> Result<bool, SupervisorError> {
        let target = target.clone();
        self.call(move |supervisor| supervisor.reset_failed(&target)).await
    }

    /// Restarts the unit that provides a target, if the unit is starting or active. Otherwise does
    /// nothing and returns `false`.
    ///
    /// # Errors
    ///
    /// Only [`SupervisorError::Crashed`].
    pub async fn restart(&self, target: &Target) -> Result<bool, SupervisorError> {
        let target = target.clone();
        self.call(move |supervisor| supervisor.planner.restart(&target)).await
    }

    /// Requests a reload of the unit that provides a target. Does not wait for the reload; a later
    /// snapshot shows its result.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::NotReloadable`] with the reason, for example that the unit is not active.
    pub async fn reload_unit(&self, target: &Target) -> Result<(), SupervisorError> {
        let requested = target.clone();
        let done =
            self.call(move |supervisor| supervisor.planner.request_reload(&requested)).await?;
        done.map_err(|why| SupervisorError::NotReloadable { target: target.clone(), why })
    }

    /// Returns the current status of all units.
    ///
    /// # Errors
    ///
    /// Only [`SupervisorError::Crashed`].
    pub async fn snapshot(&self) -> Result<InitSnapshot, SupervisorError> {
        self.call(|supervisor| supervisor.snapshot()).await
    }

    /// Returns a counter that increases whenever a snapshot may have changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Returns the output of a unit.
    ///
    /// # Errors
    ///
    /// - [`SupervisorError::NoLog`] if the unit has never run.
    /// - [`SupervisorError::Service`] if the log of the unit cannot be read.
    pub fn journal(&self, unit: &Name, query: JournalQuery) -> Result<Journal, SupervisorError> {
        let log = lock(&self.logs).get(unit).cloned();
        let log = log.ok_or_else(|| SupervisorError::NoLog { unit: unit.clone() })?;
        Ok(journal::read(&log, query).map_err(io_error("read a log"))?)
    }

    /// Returns the method by which processes are tracked.
    #[must_use]
    pub fn tracking(&self) -> Tracking {
        self.context.tracking()
    }

    /// Stops all units in dependency order, and returns once they have stopped. It does not wait
    /// for stuck units, whose processes survive SIGKILL. Once this call has begun, the supervisor
    /// starts no unit.
    ///
    /// The shutdown does not change the stored targets, so the next supervisor starts the same
    /// units again.
    ///
    /// # Errors
    ///
    /// Only [`SupervisorError::Crashed`].
    pub async fn shutdown(&self) -> Result<(), SupervisorError> {
        let (done, idle) = oneshot::channel();
        self.call(move |supervisor| {
            supervisor.shutting_down = true;
            supervisor.clear_goal();
            supervisor.idle_waiters.push(done);
        })
        .await?;
        idle.await.map_err(|_| SupervisorError::Crashed)
    }

    /// Kills all processes that can be found, of all units. The stop settings of the units do not
    /// matter. Does not wait for the processes to exit. Their exits are handled like any other
    /// exit.
    ///
    /// # Errors
    ///
    /// Only [`SupervisorError::Crashed`].
    pub async fn kill_all(&self) -> Result<(), SupervisorError> {
        self.call(Supervisor::kill_all).await
    }

    pub(super) async fn call<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Supervisor) -> T + Send + 'static,
    ) -> Result<T, SupervisorError> {
        let (reply, answer) = oneshot::channel();
        // The caller may be gone.
        let request: Request = Box::new(move |supervisor| drop(reply.send(what(supervisor))));
        self.requests.send(request).await.map_err(|_| SupervisorError::Crashed)?;
        answer.await.map_err(|_| SupervisorError::Crashed)
    }
}

impl Supervisor {
    pub(super) fn write_targets(&self) -> Result<(), SupervisorError> {
        let stored = self.selection.write(&self.targets_file);
        Ok(stored.map_err(io_error("store the desired targets"))?)
    }

    /// Stores other desired targets. If that fails, the earlier ones stay.
    pub(super) fn store_selection(
        &mut self,
        selection: TargetSelection,
    ) -> Result<(), SupervisorError> {
        let stored = selection.write(&self.targets_file);
        stored.map_err(io_error("store the desired targets, so nothing is changed"))?;
        self.selection = selection;
        Ok(())
    }

    /// Passes definitions that a reload has changed to the runs of their units.
    fn take_over_definitions(&mut self) {
        let units: Vec<Name> = self.units.keys().cloned().collect();
        units.iter().for_each(|unit| self.take_over_definition(unit));
    }

    fn clear_goal(&mut self) {
        // An empty goal is always valid.
        drop(self.planner.set_goal(None, BTreeSet::new(), self.context.now()));
    }

    pub(super) fn reset_failed(&mut self, target: &Target) -> bool {
        let graph = self.planner.graph();
        let is_meant = |unit: &&Name| unit.as_str() == target.as_str();
        let mut removed = self.unrecoverable.keys().filter(|unit| graph.unit(unit).is_none());
        // No unit in the graph provides a target of a removed unit.
        if let Some(unit) = removed.find(is_meant).cloned() {
            self.forget_unrecoverable(&unit);
            return true;
        }
        let unit = graph.provider(target).map(|unit| unit.name.clone());
        if let Some(unit) = unit {
            self.forget_unrecoverable(&unit);
            self.units.get_mut(&unit).into_iter().for_each(|entry| entry.is_auto_restart = false);
        }
        self.planner.reset_failed(target, self.context.now())
    }
}

impl Drop for InitSupervisor {
    fn drop(&mut self) {
        self.log_task.abort();
        self.supervisor.abort();
    }
}

/// Restores the planner with the stored targets. If there are none, or the graph does not provide
/// them, uses the configured targets.
fn restore_state(
    graph: Graph,
    settings: &Settings,
    observation: Observation,
    stored: Option<TargetSelection>,
) -> Result<(InitState, TargetSelection), SupervisorError> {
    if let Some(selection) = stored.map(|stored| stored.rebase(settings)) {
        let observation = Observation {
            extra_targets: selection.desired.extra_targets.clone(),
            ..observation.clone()
        };
        match InitState::restore(graph.clone(), &selection.desired.apply_to(settings), observation)
        {
            Ok(planner) => return Ok((planner, selection)),
            Err(error) => {
                tracing::warn!(
                    %error,
                    "cannot restore the goal and masks set at run time: using the configured ones"
                );
            }
        }
    }
    let planner = InitState::restore(graph, settings, observation)
        .map_err(SupervisorError::InvalidTargets)?;
    Ok((planner, TargetSelection::from_settings(settings)))
}
