//! What people and programs ask of a supervisor.

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
use super::recovery::Recovery;
use super::snapshot::InitSnapshot;
use crate::native::identity::host_capabilities;
use crate::native::journal;
use crate::native::manager_context::{ManagerContext, TARGETS};
use crate::native::tracking::Tracking;
use crate::{Journal, JournalQuery};

/// How many requests wait for their turn; the next caller waits to hand its own in.
pub(super) const REQUEST_CAPACITY: usize = 64;

/// How many reports of runs wait; the next run waits to hand its own in.
pub(super) const REPORT_CAPACITY: usize = 1024;

/// Runs the units of a graph: starts what the goal needs, in order, and keeps it as the graph says.
///
/// Dropping it leaves the units running, as its sudden end does. The next supervisor of the same
/// directory takes them back without a restart, and goes on with what was wanted last. After the
/// machine was booted it begins with nothing.
pub struct InitSupervisor {
    context: Arc<ManagerContext>,
    requests: mpsc::Sender<Request>,
    logs: Logs,
    changes: watch::Receiver<u64>,
    supervisor: AbortHandle,
    log_task: AbortHandle,
}

impl InitSupervisor {
    /// Begins to run the units of a graph, and takes back what an earlier supervisor left running.
    ///
    /// The goal and the masks are those of the settings, unless others were chosen since the
    /// machine was booted; these hold as long as the graph provides them.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::Service`] when the directory is in use or cannot be used, and
    /// [`SupervisorError::InvalidTargets`] when the graph does not provide the goal of the settings.
    pub async fn start(
        config: SupervisorConfig,
        graph: Graph,
        settings: &Settings,
    ) -> Result<Self, SupervisorError> {
        let config = config.with_language(std::env::var(LANGUAGE).ok());
        let context = config.open().await?;
        let targets_file = config.directory.join(TARGETS);
        let recovery = Recovery::read(&context, &graph).map_err(io_error("read the records"))?;
        let stored =
            TargetSelection::read(&targets_file).map_err(io_error("read what was wanted"))?;
        let Recovery { observation, units, runs, unrecoverable } = recovery;
        let is_written = stored.is_some();
        let (system, selection) = restore_state(graph, settings, observation, stored)?;
        let (report_sender, reports) = mpsc::channel(REPORT_CAPACITY);
        let (changed, changes) = watch::channel(0);
        let logs = units.iter().map(|(unit, entry)| (unit.clone(), Arc::clone(&entry.log)));
        let logs: Logs = Arc::new(std::sync::Mutex::new(logs.collect()));
        let mut supervisor = Supervisor {
            context: Arc::clone(&context),
            system,
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
        };
        if is_written {
            // What the settings say now is what the next choice differs from.
            supervisor.write_targets()?;
        }
        for (unit, incarnation, driver) in runs {
            supervisor.spawn_run_task(&unit, incarnation, driver);
        }
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

    /// Chooses the goal, and what is wanted beside it for the time being. It holds for the next
    /// supervisor of the directory, too, until the machine is booted.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::InvalidTargets`] when no unit provides one of the targets, or the goal is masked, and
    /// [`SupervisorError::ShuttingDown`] once a [`shutdown`](Self::shutdown) has begun; then nothing is
    /// changed.
    pub async fn set_goal(
        &self,
        goal: Option<Target>,
        extra_targets: BTreeSet<Target>,
    ) -> Result<(), SupervisorError> {
        self.call(move |supervisor| {
            if supervisor.shutting_down {
                return Err(SupervisorError::ShuttingDown);
            }
            let now = supervisor.context.now();
            supervisor
                .system
                .set_goal(goal.clone(), extra_targets.clone(), now)
                .map_err(SupervisorError::InvalidTargets)?;
            (supervisor.selection.desired.goal, supervisor.selection.desired.extra_targets) =
                (goal, extra_targets);
            supervisor.write_targets()
        })
        .await?
    }

    /// Chooses which targets are masked; it holds as long as a goal does.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::InvalidTargets`] when the goal is.
    pub async fn set_mask(&self, mask: BTreeSet<Target>) -> Result<(), SupervisorError> {
        self.call(move |supervisor| {
            let now = supervisor.context.now();
            supervisor
                .system
                .set_mask(mask.clone(), now)
                .map_err(SupervisorError::InvalidTargets)?;
            supervisor.selection.desired.mask = mask;
            supervisor.write_targets()
        })
        .await?
    }

    /// Chooses how many units may be starting at once; nothing is as many as there are. It holds
    /// until the settings are taken anew.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::Crashed`] alone.
    pub async fn set_max_starting(&self, most: Option<NonZeroU32>) -> Result<(), SupervisorError> {
        self.call(move |supervisor| supervisor.system.set_max_starting(most)).await
    }

    /// Takes another graph and other settings, all at once: units that would be run otherwise are
    /// started anew, units that are gone are stopped, and all else stays as it is. The goal and the
    /// masks become those of the settings, unless others were chosen than the settings said before.
    /// Units that could not be taken back from an earlier supervisor are tried once more.
    /// Once a [`shutdown`](Self::shutdown) has begun, nothing is started by that.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::InvalidTargets`] when the graph does not provide the goal; then nothing has changed.
    pub async fn reload(&self, graph: Graph, settings: &Settings) -> Result<(), SupervisorError> {
        let settings = settings.clone();
        self.call(move |supervisor| {
            supervisor.retry_unrecoverable(settings.max_starting);
            let selection = supervisor.selection.rebase(&settings);
            let (settings, now) = (selection.desired.apply_to(&settings), supervisor.context.now());
            supervisor
                .system
                .reload_with(graph, &settings, now)
                .map_err(SupervisorError::InvalidTargets)?;
            supervisor.selection = selection;
            if supervisor.shutting_down {
                // What ends is not begun again.
                supervisor.clear_goal();
            }
            supervisor.write_targets()
        })
        .await?
    }

    /// Forgets that the unit of a target failed or ended, so that it starts at once if it is
    /// needed. One that an earlier supervisor left, and that could not be taken back, is taken for one
    /// of which nothing runs; if it is not in the graph any more it is found by its name. Tells
    /// whether there was something to forget.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::Crashed`] alone.
    pub async fn reset_failed(&self, target: &Target) -> Result<bool, SupervisorError> {
        let target = target.clone();
        self.call(move |supervisor| supervisor.reset_failed(&target)).await
    }

    /// Has the unit of a target started anew, if it is starting or up. Tells whether it is.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::Crashed`] alone.
    pub async fn restart(&self, target: &Target) -> Result<bool, SupervisorError> {
        let target = target.clone();
        self.call(move |supervisor| supervisor.system.restart(&target)).await
    }

    /// Has the unit of a target read its own configuration again. What comes of it is shown.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::NotReloadable`], with the reason.
    pub async fn reload_unit(&self, target: &Target) -> Result<(), SupervisorError> {
        let requested = target.clone();
        let done =
            self.call(move |supervisor| supervisor.system.request_reload(&requested)).await?;
        done.map_err(|why| SupervisorError::NotReloadable { target: target.clone(), why })
    }

    /// How all units are now.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::Crashed`] alone.
    pub async fn snapshot(&self) -> Result<InitSnapshot, SupervisorError> {
        self.call(|supervisor| supervisor.snapshot()).await
    }

    /// Counts on whenever something may be shown otherwise than before.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// What a unit wrote.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::NoLog`] of one that never ran, and [`SupervisorError::Service`] when its log
    /// cannot be read.
    pub fn journal(&self, unit: &Name, query: JournalQuery) -> Result<Journal, SupervisorError> {
        let log = lock(&self.logs).get(unit).cloned();
        let log = log.ok_or_else(|| SupervisorError::NoLog { unit: unit.clone() })?;
        Ok(journal::read(&log, query).map_err(io_error("read a log"))?)
    }

    /// How the processes of units are found here.
    #[must_use]
    pub fn tracking(&self) -> Tracking {
        self.context.tracking()
    }

    /// Stops all units in order, and returns when none runs but those that nothing can end. From
    /// then on this supervisor starts nothing any more. That nothing is wanted is not written down: the
    /// next supervisor begins with what was.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::Crashed`] alone.
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

    /// Kills all processes of all units as far as they can be found, whatever their definitions say
    /// of how they are to end. Their ends are seen as any others; nothing is waited for.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::Crashed`] alone.
    pub async fn kill_all(&self) -> Result<(), SupervisorError> {
        self.call(Supervisor::kill_all).await
    }

    pub(super) async fn call<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Supervisor) -> T + Send + 'static,
    ) -> Result<T, SupervisorError> {
        let (reply, answer) = oneshot::channel();
        // Whoever asked may have gone away, which changes nothing.
        let request: Request = Box::new(move |supervisor| drop(reply.send(what(supervisor))));
        self.requests.send(request).await.map_err(|_| SupervisorError::Crashed)?;
        answer.await.map_err(|_| SupervisorError::Crashed)
    }
}

impl Supervisor {
    pub(super) fn write_targets(&self) -> Result<(), SupervisorError> {
        let stored = self.selection.write(&self.targets_file);
        Ok(stored.map_err(io_error("write down what is wanted"))?)
    }

    fn clear_goal(&mut self) {
        // Nothing can be wrong with that.
        drop(self.system.set_goal(None, BTreeSet::new(), self.context.now()));
    }

    pub(super) fn reset_failed(&mut self, target: &Target) -> bool {
        let graph = self.system.graph();
        let is_meant = |unit: &&Name| unit.as_str() == target.as_str();
        let mut removed = self.unrecoverable.keys().filter(|unit| graph.unit(unit).is_none());
        // Nobody provides a target of one that is in no file any more.
        if let Some(unit) = removed.find(is_meant).cloned() {
            self.forget_unrecoverable(&unit);
            return true;
        }
        let unit = graph.provider(target).map(|unit| unit.name.clone());
        if let Some(unit) = unit {
            self.forget_unrecoverable(&unit);
            self.units.get_mut(&unit).into_iter().for_each(|entry| entry.is_auto_restart = false);
        }
        self.system.reset_failed(target, self.context.now())
    }
}

impl Drop for InitSupervisor {
    fn drop(&mut self) {
        self.log_task.abort();
        self.supervisor.abort();
    }
}

/// What decides, as it was, or as the settings say where that cannot be any more.
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
            Ok(system) => return Ok((system, selection)),
            Err(flaw) => tracing::warn!(%flaw, "what was wanted cannot be any more"),
        }
    }
    let system = InitState::restore(graph, settings, observation)
        .map_err(SupervisorError::InvalidTargets)?;
    Ok((system, TargetSelection::from_settings(settings)))
}
