//! Carries tasks out on a service manager, and chooses nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::{Epoch, Task, Unit};
use fleet_unitfile::UnitName;
use futures_util::future::join_all;
use tokio::task::JoinSet;

use crate::{ServiceError, ServiceManager};

/// Runs each unit's tasks in order, and different units beside each other.
///
/// A unit whose tasks are under way is *busy* and gets no others until they have ended, so there is
/// at most one chain of tasks for each unit, and a unit that hangs in its stop delays nobody else.
pub(crate) struct Executor {
    manager: Arc<dyn ServiceManager>,
    chains: JoinSet<Outcome>,
    busy: BTreeSet<UnitName>,
    reload_owed: bool,
}

/// How the tasks of one unit ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) unit: UnitName,
    pub(crate) result: Result<(), ServiceError>,
}

impl Executor {
    pub(crate) fn new(manager: Arc<dyn ServiceManager>) -> Self {
        Self { manager, chains: JoinSet::new(), busy: BTreeSet::new(), reload_owed: false }
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
        ended.retain(|outcome| outcome.result.is_err() || !chains.contains_key(&outcome.unit));
        for failed in ended.iter().filter(|outcome| outcome.result.is_err()) {
            chains.remove(&failed.unit);
        }
        for (unit, chain) in chains {
            self.busy.insert(unit.clone());
            self.chains.spawn(run_chain(self.manager.clone(), unit, chain));
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
        self.reload_owed = true;
    }

    /// Hands over all files of a batch, then has them read.
    async fn load(&mut self, loads: Vec<(Arc<Unit>, Epoch)>) -> Vec<Outcome> {
        let manager = &*self.manager;
        let all = loads.iter().map(async |(unit, epoch)| Outcome {
            unit: unit.name.clone(),
            result: manager.load(&unit.name, &unit.file, *epoch).await,
        });
        let mut ended = join_all(all).await;
        let loaded = ended.iter().any(|outcome| outcome.result.is_ok());
        if !loaded && !self.reload_owed {
            return ended;
        }
        match self.manager.reload().await {
            Ok(()) => self.reload_owed = false,
            Err(error) => {
                // Nothing of this batch may start before its files are read.
                self.reload_owed = true;
                let problem = format!("cannot read unit files again: {error}");
                for outcome in ended.iter_mut().filter(|outcome| outcome.result.is_ok()) {
                    outcome.result = Err(ServiceError::Unavailable(problem.clone()));
                }
            }
        }
        ended
    }
}

/// Runs the tasks of one unit until one fails.
async fn run_chain(manager: Arc<dyn ServiceManager>, unit: UnitName, chain: Vec<Task>) -> Outcome {
    let mut result = Ok(());
    for task in chain {
        tracing::info!(%task, "task");
        result = run(&*manager, task).await;
        if result.is_err() {
            break;
        }
    }
    Outcome { unit, result }
}

async fn run(manager: &dyn ServiceManager, task: Task) -> Result<(), ServiceError> {
    match task {
        Task::Unload { unit, .. } => manager.unload(&unit).await,
        Task::Stop { unit, .. } => manager.stop(&unit).await,
        Task::Start { unit, .. } => manager.start(&unit.name, unit.generation).await,
        Task::Restart { unit, .. } => manager.restart(&unit.name, unit.generation).await,
        Task::Load { .. } | Task::Reload => Ok(()), // done before the chain began
    }
}
