//! What people and programs ask of a runner.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;

use fleet_core::graph::{Graph, Name, Observation, Settings, System, Target};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use super::config::{LANGUAGE, RunnerConfig};
use super::error::{RunnerError, io_error};
use super::lead::{Lead, Logs, Request, lock};
use super::recall::Recalled;
use super::snapshot::Snapshot;
use super::wanted::Choice;
use crate::native::identity::host;
use crate::native::journal;
use crate::native::machine::{Machine, WANTED};
use crate::native::tracking::Tracking;
use crate::{Journal, JournalQuery};

/// How many requests wait for their turn; the next caller waits to hand its own in.
pub(super) const WAITING_REQUESTS: usize = 64;

/// How many reports of runs wait; the next run waits to hand its own in.
pub(super) const WAITING_REPORTS: usize = 1024;

/// Runs the units of a graph: starts what the goal needs, in order, and keeps it as the graph says.
///
/// Dropping it leaves the units running, as its sudden end does. The next runner of the same
/// directory takes them back without a restart, and goes on with what was wanted last. After the
/// machine was booted it begins with nothing.
pub struct Runner {
    machine: Arc<Machine>,
    requests: mpsc::Sender<Request>,
    logs: Logs,
    changes: watch::Receiver<u64>,
    lead: AbortHandle,
    log_keeper: AbortHandle,
}

impl Runner {
    /// Begins to run the units of a graph, and takes back what an earlier runner left running.
    ///
    /// The goal and the masks are those of the settings, unless others were chosen since the
    /// machine was booted; these hold as long as the graph provides them.
    ///
    /// # Errors
    ///
    /// [`RunnerError::Service`] when the directory is in use or cannot be used, and
    /// [`RunnerError::Wanted`] when the graph does not provide the goal of the settings.
    pub async fn start(
        config: RunnerConfig,
        graph: Graph,
        settings: &Settings,
    ) -> Result<Self, RunnerError> {
        let config = config.speaking(std::env::var(LANGUAGE).ok());
        let machine = config.open().await?;
        let record = config.directory.join(WANTED);
        let recalled = Recalled::read(&machine, &graph).map_err(io_error("read the records"))?;
        let written = Choice::read(&record).map_err(io_error("read what was wanted"))?;
        let Recalled { seen, members, runs, lost } = recalled;
        let is_written = written.is_some();
        let (system, choice) = restored(graph, settings, seen, written)?;
        let (outbox, reports) = mpsc::channel(WAITING_REPORTS);
        let (changed, changes) = watch::channel(0);
        let logs = members.iter().map(|(unit, member)| (unit.clone(), Arc::clone(&member.log)));
        let logs: Logs = Arc::new(std::sync::Mutex::new(logs.collect()));
        let mut lead = Lead {
            machine: Arc::clone(&machine),
            system,
            choice,
            members,
            logs: Arc::clone(&logs),
            record,
            changes: changed,
            ends: false,
            until_rest: Vec::new(),
            unbegun: VecDeque::new(),
            reports,
            outbox,
            lost,
            services: None,
            host: host(BTreeSet::new(), machine.controllers()),
            touched: BTreeSet::new(),
        };
        if is_written {
            // What the settings say now is what the next choice differs from.
            lead.write_wanted()?;
        }
        for (unit, incarnation, driver) in runs {
            lead.follow(&unit, incarnation, driver);
        }
        let (requests, inbox) = mpsc::channel(WAITING_REQUESTS);
        Ok(Self {
            log_keeper: tokio::spawn(Arc::clone(&machine).keep_logs_small()).abort_handle(),
            lead: tokio::spawn(lead.run(inbox)).abort_handle(),
            machine,
            requests,
            logs,
            changes,
        })
    }

    /// Chooses the goal, and what is wanted beside it for the time being. It holds for the next
    /// runner of the directory, too, until the machine is booted.
    ///
    /// # Errors
    ///
    /// [`RunnerError::Wanted`] when no unit provides one of the targets, or the goal is masked, and
    /// [`RunnerError::ShuttingDown`] once a [`shutdown`](Self::shutdown) has begun; then nothing is
    /// changed.
    pub async fn set_goal(
        &self,
        goal: Option<Target>,
        beside: BTreeSet<Target>,
    ) -> Result<(), RunnerError> {
        self.ask(move |lead| {
            if lead.ends {
                return Err(RunnerError::ShuttingDown);
            }
            let now = lead.machine.now();
            lead.system.set_goal(goal.clone(), beside.clone(), now).map_err(RunnerError::Wanted)?;
            (lead.choice.wanted.goal, lead.choice.wanted.beside) = (goal, beside);
            lead.write_wanted()
        })
        .await?
    }

    /// Chooses which targets are masked; it holds as long as a goal does.
    ///
    /// # Errors
    ///
    /// [`RunnerError::Wanted`] when the goal is.
    pub async fn set_mask(&self, mask: BTreeSet<Target>) -> Result<(), RunnerError> {
        self.ask(move |lead| {
            let now = lead.machine.now();
            lead.system.set_mask(mask.clone(), now).map_err(RunnerError::Wanted)?;
            lead.choice.wanted.mask = mask;
            lead.write_wanted()
        })
        .await?
    }

    /// Chooses how many units may be starting at once; nothing is as many as there are. It holds
    /// until the settings are taken anew.
    ///
    /// # Errors
    ///
    /// [`RunnerError::Ended`] alone.
    pub async fn set_max_starting(&self, most: Option<NonZeroU32>) -> Result<(), RunnerError> {
        self.ask(move |lead| lead.system.set_max_starting(most)).await
    }

    /// Takes another graph and other settings, all at once: units that would be run otherwise are
    /// started anew, units that are gone are stopped, and all else stays as it is. The goal and the
    /// masks become those of the settings, unless others were chosen than the settings said before.
    /// Units that could not be taken back from an earlier runner are tried once more.
    /// Once a [`shutdown`](Self::shutdown) has begun, nothing is started by that.
    ///
    /// # Errors
    ///
    /// [`RunnerError::Wanted`] when the graph does not provide the goal; then nothing has changed.
    pub async fn reload(&self, graph: Graph, settings: &Settings) -> Result<(), RunnerError> {
        let settings = settings.clone();
        self.ask(move |lead| {
            lead.take_lost_back(settings.max_starting);
            let choice = lead.choice.under(&settings);
            let (settings, now) = (choice.wanted.within(&settings), lead.machine.now());
            lead.system.reload_with(graph, &settings, now).map_err(RunnerError::Wanted)?;
            lead.choice = choice;
            if lead.ends {
                // What ends is not begun again.
                lead.want_nothing();
            }
            lead.write_wanted()
        })
        .await?
    }

    /// Forgets that the unit of a target failed or ended, so that it starts at once if it is
    /// needed. One that an earlier runner left, and that could not be taken back, is taken for one
    /// of which nothing runs; if it is not in the graph any more it is found by its name. Tells
    /// whether there was something to forget.
    ///
    /// # Errors
    ///
    /// [`RunnerError::Ended`] alone.
    pub async fn reset(&self, target: &Target) -> Result<bool, RunnerError> {
        let target = target.clone();
        self.ask(move |lead| lead.reset(&target)).await
    }

    /// Has the unit of a target started anew, if it is starting or up. Tells whether it is.
    ///
    /// # Errors
    ///
    /// [`RunnerError::Ended`] alone.
    pub async fn renew(&self, target: &Target) -> Result<bool, RunnerError> {
        let target = target.clone();
        self.ask(move |lead| lead.system.renew(&target)).await
    }

    /// Has the unit of a target read its own configuration again. What comes of it is shown.
    ///
    /// # Errors
    ///
    /// [`RunnerError::NotReloadable`], with the reason.
    pub async fn reload_unit(&self, target: &Target) -> Result<(), RunnerError> {
        let asked = target.clone();
        let done = self.ask(move |lead| lead.system.request_reload(&asked)).await?;
        done.map_err(|why| RunnerError::NotReloadable { target: target.clone(), why })
    }

    /// How all units are now.
    ///
    /// # Errors
    ///
    /// [`RunnerError::Ended`] alone.
    pub async fn snapshot(&self) -> Result<Snapshot, RunnerError> {
        self.ask(|lead| lead.snapshot()).await
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
    /// [`RunnerError::NoLog`] of one that never ran, and [`RunnerError::Service`] when its log
    /// cannot be read.
    pub fn journal(&self, unit: &Name, query: JournalQuery) -> Result<Journal, RunnerError> {
        let log = lock(&self.logs).get(unit).cloned();
        let log = log.ok_or_else(|| RunnerError::NoLog { unit: unit.clone() })?;
        Ok(journal::read(&log, query).map_err(io_error("read a log"))?)
    }

    /// How the processes of units are found here.
    #[must_use]
    pub fn tracking(&self) -> Tracking {
        self.machine.tracking()
    }

    /// Stops all units in order, and returns when none runs but those that nothing can end. From
    /// then on this runner starts nothing any more. That nothing is wanted is not written down: the
    /// next runner begins with what was.
    ///
    /// # Errors
    ///
    /// [`RunnerError::Ended`] alone.
    pub async fn shutdown(&self) -> Result<(), RunnerError> {
        let (waiter, rest) = oneshot::channel();
        self.ask(move |lead| {
            lead.ends = true;
            lead.want_nothing();
            lead.until_rest.push(waiter);
        })
        .await?;
        rest.await.map_err(|_| RunnerError::Ended)
    }

    /// Kills all processes of all units as far as they can be found, whatever their definitions say
    /// of how they are to end. Their ends are seen as any others; nothing is waited for.
    ///
    /// # Errors
    ///
    /// [`RunnerError::Ended`] alone.
    pub async fn kill_all(&self) -> Result<(), RunnerError> {
        self.ask(Lead::kill_all).await
    }

    pub(super) async fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Lead) -> T + Send + 'static,
    ) -> Result<T, RunnerError> {
        let (reply, answer) = oneshot::channel();
        // Whoever asked may have gone away, which changes nothing.
        let request: Request = Box::new(move |lead| drop(reply.send(what(lead))));
        self.requests.send(request).await.map_err(|_| RunnerError::Ended)?;
        answer.await.map_err(|_| RunnerError::Ended)
    }
}

impl Lead {
    pub(super) fn write_wanted(&self) -> Result<(), RunnerError> {
        let written = self.choice.write(&self.record);
        Ok(written.map_err(io_error("write down what is wanted"))?)
    }

    fn want_nothing(&mut self) {
        // Nothing can be wrong with that.
        drop(self.system.set_goal(None, BTreeSet::new(), self.machine.now()));
    }

    pub(super) fn reset(&mut self, target: &Target) -> bool {
        let graph = self.system.graph();
        let is_meant = |unit: &&Name| unit.as_str() == target.as_str();
        let mut orphans = self.lost.keys().filter(|unit| graph.unit(unit).is_none());
        // Nobody provides a target of one that is in no file any more.
        if let Some(unit) = orphans.find(is_meant).cloned() {
            self.give_up_lost(&unit);
            return true;
        }
        let unit = graph.provider(target).map(|unit| unit.name.clone());
        if let Some(unit) = unit {
            self.give_up_lost(&unit);
            self.members.get_mut(&unit).into_iter().for_each(|member| member.retries = false);
        }
        self.system.reset(target, self.machine.now())
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.log_keeper.abort();
        self.lead.abort();
    }
}

/// What decides, as it was, or as the settings say where that cannot be any more.
fn restored(
    graph: Graph,
    settings: &Settings,
    seen: Observation,
    written: Option<Choice>,
) -> Result<(System, Choice), RunnerError> {
    if let Some(choice) = written.map(|written| written.under(settings)) {
        let seen = Observation { beside: choice.wanted.beside.clone(), ..seen.clone() };
        match System::restore(graph.clone(), &choice.wanted.within(settings), seen) {
            Ok(system) => return Ok((system, choice)),
            Err(flaw) => tracing::warn!(%flaw, "what was wanted cannot be any more"),
        }
    }
    let system = System::restore(graph, settings, seen).map_err(RunnerError::Wanted)?;
    Ok((system, Choice::of(settings)))
}
