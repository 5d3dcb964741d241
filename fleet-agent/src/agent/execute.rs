//! Carries tasks out on a service manager, and chooses nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{Epoch, Task, Unit};
use fleet_unitfile::UnitName;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::assignment::is_fenced;
use super::gate::{Shut, Standing};
use crate::{Clock, ServiceError, ServiceManager};

/// Runs each unit's tasks in order, and different units beside each other.
///
/// A unit whose tasks are under way is *busy* and gets no others until they have ended, so there is
/// at most one chain of tasks for each unit, and a unit that hangs in its stop delays nobody else.
pub(crate) struct Executor {
    manager: Arc<dyn ServiceManager>,
    chains: JoinSet<Outcome>,
    busy: BTreeSet<UnitName>,
    reload: Reload,
    permit: Permit,
}

/// Says, at the last moment, whether units with `OnPartition=stop` may be started.
#[derive(Clone)]
pub(crate) struct Permit {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) standing: watch::Receiver<Option<Standing>>,
}

impl Permit {
    /// Lets a unit pass that may be started. What it asks is not waited for, so the fence cannot
    /// pass between the answer and the start.
    fn check(&self, unit: &Unit) -> Result<(), ServiceError> {
        let now = self.clock.now();
        let stands = self.standing.borrow().is_some_and(|standing| now < standing.until);
        if stands || !is_fenced(unit) {
            return Ok(());
        }
        Err(ServiceError::Unavailable(Shut::CutOff.to_string()))
    }
}

/// Whether the service manager has to read its files again, and by when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reload {
    /// It has read them all.
    Done,
    /// Before the next start: whether the daemon before this one had them read, nobody knows.
    BeforeStart,
    /// With the next batch, be it empty: files were taken away, or could not be read.
    Owed,
}

/// How the tasks of one unit ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) unit: UnitName,
    pub(crate) result: Result<(), ServiceError>,
}

impl Executor {
    pub(crate) fn new(manager: Arc<dyn ServiceManager>, permit: Permit) -> Self {
        let (chains, busy, reload) = (JoinSet::new(), BTreeSet::new(), Reload::BeforeStart);
        Self { manager, chains, busy, reload, permit }
    }

    /// Whether tasks of `unit` are under way.
    pub(crate) fn is_busy(&self, unit: &UnitName) -> bool {
        self.busy.contains(unit)
    }

    /// Loads what is to be loaded, reloads once, and sends the rest on its way.
    ///
    /// Returns the units that failed already; the others come from [`next`](Self::next). No task
    /// may be about a busy unit.
    pub(crate) async fn execute(&mut self, tasks: Vec<Task>) -> Vec<Outcome> {
        let mut chains: BTreeMap<UnitName, Vec<Task>> = BTreeMap::new();
        let mut loads = Vec::new();
        for task in tasks {
            match (task.unit().cloned(), task) {
                (_, Task::Load { unit, epoch, .. }) => loads.push((unit, epoch)),
                (Some(unit), task) => chains.entry(unit).or_default().push(task),
                (None, _) => {} // a reload is made whenever one is owed
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
        for (unit, chain) in chains {
            self.busy.insert(unit.clone());
            let run = run_chain(self.manager.clone(), self.permit.clone(), unit, chain);
            self.chains.spawn(run);
        }
        ended
    }

    /// Waits for a unit's tasks to end; for ever if none are under way.
    pub(crate) async fn next(&mut self) -> Outcome {
        loop {
            match self.chains.join_next().await {
                Some(Ok(outcome)) => {
                    self.busy.remove(&outcome.unit);
                    return outcome;
                }
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => std::future::pending::<()>().await,
            }
        }
    }

    /// Notes that files were taken away, so that the next batch begins with a reload.
    pub(crate) fn owe_reload(&mut self) {
        self.reload = Reload::Owed;
    }

    /// Whether a batch should be executed soon, even if there is nothing to do in it.
    pub(crate) fn owes_reload(&self) -> bool {
        self.reload == Reload::Owed
    }

    /// Hands over all files of a batch.
    async fn load(&mut self, loads: Vec<(Arc<Unit>, Epoch)>) -> Vec<Outcome> {
        let manager = &*self.manager;
        let all = loads.iter().map(async |(unit, epoch)| Outcome {
            unit: unit.name.clone(),
            result: manager.load(&unit.name, &unit.file, *epoch).await,
        });
        join_all(all).await
    }

    /// Has the files read, if that is owed to what was loaded or to what is to be started.
    async fn read_files(
        &mut self,
        loads: &[Outcome],
        chains: &BTreeMap<UnitName, Vec<Task>>,
    ) -> Result<(), ServiceError> {
        if loads.iter().any(|outcome| outcome.result.is_ok()) {
            self.reload = Reload::Owed;
        }
        let due = match self.reload {
            Reload::Done => false,
            Reload::BeforeStart => chains.values().any(|chain| starts(chain)),
            Reload::Owed => true,
        };
        if due {
            self.manager.reload().await?;
            self.reload = Reload::Done;
        }
        Ok(())
    }
}

/// Whether tasks of a unit start it.
fn starts(chain: &[Task]) -> bool {
    chain.iter().any(|task| matches!(task, Task::Start { .. } | Task::Restart { .. }))
}

/// Keeps from starting what must not start before the files are read, which has failed.
fn hold_back(
    error: &ServiceError,
    ended: &mut Vec<Outcome>,
    chains: &mut BTreeMap<UnitName, Vec<Task>>,
) {
    let problem = format!("cannot read unit files again: {error}");
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

/// Runs the tasks of one unit until one fails.
async fn run_chain(
    manager: Arc<dyn ServiceManager>,
    permit: Permit,
    unit: UnitName,
    chain: Vec<Task>,
) -> Outcome {
    let mut result = Ok(());
    for task in chain {
        tracing::info!(%task, "task");
        result = run(&*manager, &permit, task).await;
        if result.is_err() {
            break;
        }
    }
    Outcome { unit, result }
}

/// Lets no unit with `OnPartition=stop` start whose stop can take longer here than its file says:
/// that is how long the cluster waits when this machine is lost before it starts it elsewhere.
async fn refuse_slow_stop(manager: &dyn ServiceManager, unit: &Unit) -> Result<(), ServiceError> {
    let Some(promised) = unit.longest_stop().filter(|_| is_fenced(unit)) else { return Ok(()) };
    let Some(time_out) = manager.stop_time_out(&unit.name).await? else { return Ok(()) };
    let time_out = Some(time_out).filter(|time_out| *time_out < Duration::MAX);
    let here = unit.longest_stop_with(time_out);
    if here.is_some_and(|here| here <= promised) {
        return Ok(());
    }
    let here = here.map_or("without end".to_owned(), |here| format!("{here:?}"));
    let problem = format!(
        "OnPartition=stop needs an end of its stop within {promised:?}, as its file says or \
         leaves out, and this machine allows {here}: write TimeoutStopSec= in the unit's file, or \
         look for a drop-in or DefaultTimeoutStopSec= on the machine"
    );
    Err(ServiceError::BadSetting { unit: unit.name.clone(), line: 0, problem })
}

async fn run(
    manager: &dyn ServiceManager,
    permit: &Permit,
    task: Task,
) -> Result<(), ServiceError> {
    if let Task::Start { unit, .. } | Task::Restart { unit, .. } = &task {
        refuse_slow_stop(manager, unit).await?;
        permit.check(unit)?; // with nothing to wait for between this and the start
    }
    match task {
        Task::Unload { unit, .. } => manager.unload(&unit).await,
        Task::Stop { unit, .. } => manager.stop(&unit).await,
        Task::Start { unit, .. } => manager.start(&unit.name, unit.generation).await,
        Task::Restart { unit, .. } => manager.restart(&unit.name, unit.generation).await,
        Task::Load { .. } | Task::Reload => Ok(()), // done before the chain began
    }
}
