//! Runs tasks on a service manager, without deciding anything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{Epoch, Task, Unit};
use fleet_unitfile::{UnitName, UnitType};
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::desired_state::is_fenced;
use super::exclusivity::{BlockReason, PresenceWindow};
use crate::{Clock, ServiceError, ServiceManager};

/// Runs the tasks of one unit in order, and the tasks of different units concurrently.
///
/// A unit with tasks in progress is *busy* and gets no new tasks until the current tasks have
/// ended. So each unit has at most one chain of tasks, and a stop that hangs delays only its own
/// unit. A start may take very long, or never end. So the caller can
/// [abandon](Self::abandon_start) it if the cluster no longer wants it.
pub(crate) struct Executor {
    manager: Arc<dyn ServiceManager>,
    chains: JoinSet<Outcome>,
    busy: BTreeMap<UnitName, Chain>,
    reload: Reload,
    permit: StartPermit,
}

/// The chain of tasks of a busy unit.
struct Chain {
    abort: AbortHandle,
    starts: bool,
}

/// Checks, immediately before a start, whether units with `OnPartition=stop` may be started.
#[derive(Clone)]
pub(crate) struct StartPermit {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) window: watch::Receiver<Option<PresenceWindow>>,
}

impl StartPermit {
    /// Refuses to start a unit with `OnPartition=stop` if this machine is not certainly present in
    /// the cluster at this time. The caller must not await between this check and the start,
    /// because the presence could end in between.
    fn check(&self, unit: &Unit) -> Result<(), ServiceError> {
        let now = self.clock.now();
        let stands = self.window.borrow().is_some_and(|window| now < window.until);
        if stands || !is_fenced(unit) {
            return Ok(());
        }
        Err(ServiceError::Unavailable(BlockReason::CutOff.to_string()))
    }
}

/// State of the service manager's reload, in which it re-reads its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reload {
    /// No reload is needed: the service manager has read all files.
    Done,
    /// A reload is needed before the next start. This is the initial state, because the previous
    /// daemon may have ended between a load and the reload.
    BeforeStart,
    /// A reload is needed with the next batch of tasks, even an empty one, because files were
    /// loaded or removed or a reload has failed.
    Required,
}

/// Result of the tasks of one unit.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) unit: UnitName,
    pub(crate) result: Result<(), ServiceError>,
}

impl Executor {
    pub(crate) fn new(manager: Arc<dyn ServiceManager>, permit: StartPermit) -> Self {
        let (chains, busy, reload) = (JoinSet::new(), BTreeMap::new(), Reload::BeforeStart);
        Self { manager, chains, busy, reload, permit }
    }

    /// Whether tasks of `unit` are in progress.
    pub(crate) fn is_busy(&self, unit: &UnitName) -> bool {
        self.busy.contains_key(unit)
    }

    /// Stops waiting for the start or restart of a busy unit, so that the unit is no longer busy.
    /// The service manager is not notified: the caller has to stop, restart or unload the unit, or
    /// leave the start to the service manager.
    ///
    /// Returns `false` and does nothing if the unit is not busy with a start or restart.
    pub(crate) fn abandon_start(&mut self, unit: &UnitName) -> bool {
        if !self.busy.get(unit).is_some_and(|chain| chain.starts) {
            return false;
        }
        if let Some(chain) = self.busy.remove(unit) {
            chain.abort.abort();
        }
        true
    }

    /// Loads units, reloads the service manager once if needed, and starts the remaining tasks in
    /// the background. No task may concern a busy unit.
    ///
    /// Returns the outcomes of units without remaining tasks. The outcomes of all other units come
    /// from [`next`](Self::next).
    pub(crate) async fn execute(&mut self, tasks: Vec<Task>) -> Vec<Outcome> {
        let mut chains: BTreeMap<UnitName, Vec<Task>> = BTreeMap::new();
        let mut loads = Vec::new();
        for task in tasks {
            match (task.unit().cloned(), task) {
                (_, Task::Load { unit, epoch, .. }) => loads.push((unit, epoch)),
                (Some(unit), task) => chains.entry(unit).or_default().push(task),
                (None, _) => {} // a reload is made whenever one is required
            }
        }
        let mut ended = self.load(loads).await;
        let failed = |outcome: &&Outcome| outcome.result.is_err();
        for failed in ended.iter().filter(failed) {
            chains.remove(&failed.unit);
        }
        if let Err(error) = self.read_files(&ended, &chains).await {
            hold_back(&error, &mut ended, &mut chains);
        }
        ended.retain(|outcome| outcome.result.is_err() || !chains.contains_key(&outcome.unit));
        let mut order = SocketsFirst::new(&chains);
        for (unit, chain) in chains {
            let starts = starts(&chain);
            let running = order.running.remove(&unit);
            let sockets =
                order.ends.remove(&unit.systemd_name()).filter(|_| starts).unwrap_or_default();
            let run = run_chain(self.manager.clone(), self.permit.clone(), unit.clone(), chain);
            let abort = self.chains.spawn(async move {
                wait_for_chains(sockets).await;
                let outcome = run.await;
                drop(running);
                outcome
            });
            self.busy.insert(unit, Chain { abort, starts });
        }
        ended
    }

    /// Waits for a unit's tasks to end; forever if none are in progress.
    pub(crate) async fn next(&mut self) -> Outcome {
        loop {
            match self.chains.join_next_with_id().await {
                Some(Ok((id, outcome))) => {
                    // An abandoned chain may have ended before it could be aborted.
                    if self.busy.get(&outcome.unit).is_some_and(|chain| chain.abort.id() == id) {
                        self.busy.remove(&outcome.unit);
                        return outcome;
                    }
                }
                Some(Err(error)) if error.is_cancelled() => {}
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => std::future::pending::<()>().await,
            }
        }
    }

    /// Records that files were removed, so that the next batch begins with a reload.
    pub(crate) fn require_reload(&mut self) {
        self.reload = Reload::Required;
    }

    /// Returns whether [`execute`](Self::execute) should be called soon even without tasks, because
    /// a reload is needed.
    pub(crate) fn needs_reload(&self) -> bool {
        self.reload == Reload::Required
    }

    /// Loads all files of a batch.
    async fn load(&mut self, loads: Vec<(Arc<Unit>, Epoch)>) -> Vec<Outcome> {
        let manager = &*self.manager;
        let all = loads.iter().map(async |(unit, epoch)| Outcome {
            unit: unit.name.clone(),
            result: manager.load(&unit.name, &unit.file, *epoch).await,
        });
        join_all(all).await
    }

    /// Reloads the service manager, if a loaded unit or a start requires it.
    async fn read_files(
        &mut self,
        loads: &[Outcome],
        chains: &BTreeMap<UnitName, Vec<Task>>,
    ) -> Result<(), ServiceError> {
        if loads.iter().any(|outcome| outcome.result.is_ok()) {
            self.reload = Reload::Required;
        }
        let due = match self.reload {
            Reload::Done => false,
            Reload::BeforeStart => chains.values().any(|chain| starts(chain)),
            Reload::Required => true,
        };
        if due {
            self.manager.reload().await?;
            self.reload = Reload::Done;
        }
        Ok(())
    }
}

/// Order between the sockets and the services of one batch: a service starts after its sockets.
/// Otherwise it could start without them, and then the sockets could not start.
#[derive(Default)]
struct SocketsFirst {
    /// For each socket, the sender to drop at the end of its chain.
    running: BTreeMap<UnitName, watch::Sender<()>>,
    /// For each service, the receivers that report the end of the chains of its sockets.
    ends: BTreeMap<UnitName, Vec<watch::Receiver<()>>>,
}

impl SocketsFirst {
    fn new(chains: &BTreeMap<UnitName, Vec<Task>>) -> Self {
        let mut order = Self::default();
        for task in chains.values().filter_map(|chain| chain.last()) {
            let (Task::Start { unit, .. } | Task::Restart { unit, .. }) = task else { continue };
            if let Some(service) = service_of(unit) {
                let (sender, end) = watch::channel(());
                order.running.insert(unit.name.clone(), sender);
                order.ends.entry(service).or_default().push(end);
            }
        }
        order
    }
}

/// Waits for the end of these chains.
async fn wait_for_chains(ends: Vec<watch::Receiver<()>>) {
    for mut end in ends {
        while end.changed().await.is_ok() {}
    }
}

/// Returns the service that a socket starts; `None` for other units.
fn service_of(unit: &Unit) -> Option<UnitName> {
    if unit.name.unit_type() != UnitType::Socket {
        return None;
    }
    let options = unit.file.options();
    let mut named = options.filter(|it| (it.section(), it.name()) == ("Socket", "Service"));
    let usual = || format!("{}.service", unit.name.stem());
    let named = named.rfind(|it| !it.value().is_empty());
    named.map_or_else(usual, |named| named.value().to_owned()).parse().ok()
}

/// Whether tasks of a unit start it.
fn starts(chain: &[Task]) -> bool {
    chain.iter().any(|task| matches!(task, Task::Start { .. } | Task::Restart { .. }))
}

/// Fails the loads and starts of a batch whose reload has failed.
fn hold_back(
    error: &ServiceError,
    ended: &mut Vec<Outcome>,
    chains: &mut BTreeMap<UnitName, Vec<Task>>,
) {
    let problem = format!("cannot reload unit files: {error}");
    let failure = || Err(ServiceError::Unavailable(problem.clone()));
    for loaded in ended.iter_mut().filter(|outcome| outcome.result.is_ok()) {
        loaded.result = failure();
        chains.remove(&loaded.unit);
    }
    let held: Vec<UnitName> =
        chains.iter().filter(|(_, chain)| starts(chain)).map(|(unit, _)| unit.clone()).collect();
    for unit in held {
        chains.remove(&unit);
        ended.push(Outcome { unit, result: failure() });
    }
}

/// Runs the tasks of one unit up to the first failure.
async fn run_chain(
    manager: Arc<dyn ServiceManager>,
    permit: StartPermit,
    unit: UnitName,
    chain: Vec<Task>,
) -> Outcome {
    let mut result = Ok(());
    for task in chain {
        tracing::info!(%task, "running a task");
        result = run(&*manager, &permit, task).await;
        if result.is_err() {
            break;
        }
    }
    Outcome { unit, result }
}

/// Refuses to start a unit with `OnPartition=stop` if its stop may take longer on this machine than
/// its file allows, for example because of a drop-in. Otherwise the cluster could start the unit
/// elsewhere while it still stops here, because the cluster only knows the time in the file.
async fn refuse_slow_stop(manager: &dyn ServiceManager, unit: &Unit) -> Result<(), ServiceError> {
    let Some(promised) = unit.max_stop_duration().filter(|_| is_fenced(unit)) else {
        return Ok(());
    };
    let Some(time_out) = manager.stop_timeout(&unit.name).await? else { return Ok(()) };
    let time_out = Some(time_out).filter(|time_out| *time_out < Duration::MAX);
    let here = unit.max_stop_duration_with(time_out);
    if here.is_some_and(|here| here <= promised) {
        return Ok(());
    }
    let here = here.map_or("an unlimited time".to_owned(), |here| format!("{here:?}"));
    let problem = format!(
        "OnPartition=stop requires a stop within {promised:?}, the limit by its file or by \
         default, and this machine allows {here}: set TimeoutStopSec= in the unit's file, or \
         check the machine for a drop-in or DefaultTimeoutStopSec="
    );
    Err(ServiceError::BadSetting { unit: unit.name.clone(), line: 0, problem })
}

async fn run(
    manager: &dyn ServiceManager,
    permit: &StartPermit,
    task: Task,
) -> Result<(), ServiceError> {
    if let Task::Start { unit, .. } | Task::Restart { unit, .. } = &task {
        refuse_slow_stop(manager, unit).await?;
        permit.check(unit)?; // without an await between this and the start
    }
    match task {
        Task::Unload { unit, .. } => manager.unload(&unit).await,
        Task::Stop { unit, .. } => manager.stop(&unit).await,
        Task::Start { unit, .. } => manager.start(&unit.name, unit.generation).await,
        Task::Restart { unit, .. } => manager.restart(&unit.name, unit.generation).await,
        Task::Load { .. } | Task::Reload => Ok(()), // done before the chain began
    }
}
