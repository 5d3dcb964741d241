//! The calls to a native service manager: each unit's in their order, and written down before they
//! take effect.
//!
//! Who calls may go away at any time. What was begun by then is done to its end, so that the
//! records say what has taken effect.

use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::io;
use std::sync::{Arc, Mutex};

use fleet_core::graph::systemd::{self, Relation};
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};
use futures_util::future::{join, join_all};
use tokio::sync::{OwnedMutexGuard, Semaphore, mpsc, oneshot};

use super::machine::Machine;
use super::record::{Asked, UnitDirectory};
use super::runner::Snapshot;
use super::runner::lead::{Lead, Request, lock};
use super::runner::services::{Done, Entry, Is, Reply, Seen, Showcase, Wanted};
use crate::{ManagedUnit, Particulars, ServiceError};

/// How many calls about services write at a time. Each takes a thread to do so, and all write to
/// one disk.
const WRITERS: usize = 8;

/// What may be asked of a unit that is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Start(Generation),
    Restart(Generation),
    Stop,
    /// A start because a timer has elapsed, by the number of that elapse. It leaves it open whether
    /// fleet wants the unit to run.
    Trigger(u64),
}

/// What a call about a unit waits for, so that it has its turn.
type Gates = Mutex<BTreeMap<UnitName, Arc<tokio::sync::Mutex<()>>>>;

/// The way to what leads the units.
pub(super) struct Calls {
    machine: Arc<Machine>,
    requests: mpsc::Sender<Request>,
    showcase: Showcase,
    /// Of units that are called about at the moment.
    gates: Gates,
    writers: Semaphore,
}

impl Ask {
    /// What is asked of a unit from then on.
    fn after(self, before: Asked) -> Asked {
        match self {
            Self::Start(generation) => Asked { generation: generation.0, launched: true, ..before },
            Self::Restart(Generation(generation)) => {
                Asked { generation, launched: true, renewed: generation, ..before }
            }
            Self::Stop => before.stopped(),
            // One that was told of before may have come to its end, or to a stop.
            Self::Trigger(trigger) if trigger == before.trigger => before,
            Self::Trigger(trigger) => Asked { triggered: true, trigger, ..before },
        }
    }

    fn is_start(self) -> bool {
        self != Self::Stop
    }

    fn tell(self, lead: &mut Lead, unit: &UnitName, asked: Asked, reply: Reply) {
        match self {
            Self::Start(_) => lead.start(unit, asked, reply),
            Self::Restart(_) => lead.restart(unit, asked, reply),
            Self::Stop => lead.stop(unit, asked, reply),
            Self::Trigger(_) => lead.trigger(unit, asked, reply),
        }
    }
}

impl Calls {
    pub(super) fn new(
        machine: &Arc<Machine>,
        requests: mpsc::Sender<Request>,
        showcase: Showcase,
    ) -> Self {
        let (gates, writers) = (Gates::default(), Semaphore::new(WRITERS));
        Self { machine: Arc::clone(machine), requests, showcase, gates, writers }
    }

    /// What is seen of a unit; nothing if it is not loaded.
    pub(super) fn seen(&self, unit: &UnitName) -> Option<Arc<Seen>> {
        lock(&self.showcase).get(unit).cloned()
    }

    /// All units that are loaded, as they are.
    pub(super) fn list(&self) -> Vec<ManagedUnit> {
        lock(&self.showcase).values().map(|seen| seen.unit.clone()).collect()
    }

    /// Whether somebody leads the units.
    pub(super) fn check(&self) -> Done {
        if self.requests.is_closed() { Err(ended()) } else { Ok(()) }
    }

    /// How all units of the graph are.
    pub(super) async fn snapshot(&self) -> Result<Snapshot, ServiceError> {
        self.lead(|lead| lead.snapshot()).await
    }

    /// What there is to tell of a unit beyond its state.
    pub(super) async fn particulars(&self, unit: &UnitName) -> Result<Particulars, ServiceError> {
        let unit = unit.clone();
        self.lead(move |lead| lead.particulars(&unit)).await?
    }

    /// Hands in what a unit is run by.
    pub(super) async fn load(
        self: &Arc<Self>,
        unit: &UnitName,
        file: &UnitFile,
        compiled: Box<systemd::Compiled>,
        epoch: Epoch,
        directory: UnitDirectory,
    ) -> Done {
        let (name, hash, source) = (unit.clone(), file.hash(), file.source().to_vec());
        self.in_turn(unit, async move |calls| {
            let before = calls.seen(&name);
            let asked = before.as_ref().map_or_else(Asked::default, |seen| seen.asked);
            let asked = Asked { epoch: epoch.0, ..asked };
            if before.as_ref().is_some_and(|seen| seen.unit.known.hash == hash) {
                let record = move |at: &UnitDirectory| at.write_asked(asked);
                calls.write(&directory, "record a unit", record).await?;
                return calls.lead(move |lead| lead.note_epoch(&name, asked)).await;
            }
            let is_new = before.is_none();
            let keep = move |at: &UnitDirectory| {
                if is_new {
                    at.begin_runs()?;
                }
                at.write_unit(&source, asked)
            };
            calls.write(&directory, "keep a unit file", keep).await?;
            let entry = Entry::new(name, hash, asked, Is::Fit(compiled));
            calls.lead(move |lead| lead.load(entry)).await?
        })
        .await
    }

    /// Asks something of a unit that is loaded, and waits for what comes of it.
    pub(super) async fn ask(
        self: &Arc<Self>,
        unit: &UnitName,
        ask: Ask,
        directory: UnitDirectory,
    ) -> Done {
        self.ask_after(ready(Ok(())), unit, ask, directory).await
    }

    /// The same once something else is done, if that is. It has the turn of the call as well, so
    /// that what is called later does not overtake it.
    pub(super) async fn ask_after(
        self: &Arc<Self>,
        first: impl Future<Output = Done> + Send + 'static,
        unit: &UnitName,
        ask: Ask,
        directory: UnitDirectory,
    ) -> Done {
        let (name, unknown) = (unit.clone(), ServiceError::NotLoaded { unit: unit.clone() });
        let begun = self.in_turn(unit, async move |calls| {
            if ask.is_start() {
                calls.machine.end.refuse_start(&name)?;
            }
            first.await?;
            let Some(seen) = calls.seen(&name) else { return Ok(None) };
            let asked = ask.after(seen.asked);
            if asked != seen.asked {
                let action = "record what is asked of a unit";
                let record = move |at: &UnitDirectory| at.write_asked(asked);
                match calls.write(&directory, action, record).await {
                    // A disk that fails must not keep anything running.
                    Err(error) if ask == Ask::Stop => {
                        tracing::error!(unit = %name, %error, "stopping all the same");
                    }
                    written => written?,
                }
            }
            let (reply, answer) = oneshot::channel();
            calls.lead(move |lead| ask.tell(lead, &name, asked, reply)).await?;
            Ok(Some(answer))
        });
        match begun.await? {
            Some(answer) => answer.await.unwrap_or_else(|_| Err(ended())),
            None => self.check().and(Err(unknown)),
        }
    }

    /// Stops all units at once, and waits for their end. They stay loaded, and none is started any
    /// more. Tells whether each unit's own record says so by then.
    pub(super) async fn stop_all(self: &Arc<Self>) -> Result<(Vec<Done>, bool), ServiceError> {
        let units: Vec<UnitName> = lock(&self.showcase).keys().cloned().collect();
        let answers = self.lead(|lead| lead.stop_all(Asked::stopped)).await?;
        let end =
            async |answer: oneshot::Receiver<Done>| answer.await.unwrap_or_else(|_| Err(ended()));
        let written = units.iter().map(|unit| self.write_end(unit));
        let (ended, written) =
            join(join_all(answers.into_iter().map(end)), join_all(written)).await;
        Ok((ended, written.into_iter().all(|is_written| is_written)))
    }

    /// Writes down that a unit is not to run any more, once what was called about it before is
    /// written: also that of a start which came too late.
    async fn write_end(self: &Arc<Self>, unit: &UnitName) -> bool {
        let directory = self.machine.directory(unit.as_str());
        let action = "record that a unit is not to run any more";
        let written = self.in_turn(unit, async move |calls| {
            calls.write(&directory, action, UnitDirectory::write_end).await
        });
        match written.await {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%unit, %error, "leaves it to the next daemon");
                false
            }
        }
    }

    /// Has all processes of all units killed, whatever their files say of how they are to end.
    pub(super) async fn kill_all(&self) -> Done {
        self.lead(Lead::kill_all).await
    }

    /// A timer is loaded, with all that its file says of other units.
    pub(super) async fn know_timer(&self, timer: &UnitName, relations: Vec<Relation>) -> Done {
        let timer = timer.clone();
        self.lead(move |lead| lead.know_timer(&timer, &relations)).await
    }

    /// A timer is not loaded any more.
    pub(super) async fn forget_timer(&self, timer: &UnitName) -> Done {
        let timer = timer.clone();
        self.lead(move |lead| lead.forget_timer(&timer)).await
    }

    /// The timers that are to be started with a unit.
    pub(super) async fn timers_of(&self, unit: &UnitName) -> Result<Vec<Wanted>, ServiceError> {
        let unit = unit.clone();
        self.lead(move |lead| lead.timers_of(&unit)).await
    }

    /// Has a unit read its configuration again.
    pub(super) async fn reload_unit(self: &Arc<Self>, unit: &UnitName) -> Done {
        let name = unit.clone();
        let begun = self.in_turn(unit, async move |calls| {
            let (reply, answer) = oneshot::channel();
            calls.lead(move |lead| lead.reload_service(&name, reply)).await?;
            Ok(answer)
        });
        begun.await?.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Has a unit end, and forgets it. What is asked next waits for that.
    pub(super) async fn unload(
        self: &Arc<Self>,
        unit: &UnitName,
        directory: UnitDirectory,
    ) -> Done {
        let name = unit.clone();
        self.in_turn(unit, async move |calls| {
            if calls.seen(&name).is_none() {
                return calls.check();
            }
            let (reply, answer) = oneshot::channel();
            let leaving = name.clone();
            calls.lead(move |lead| lead.begin_unload(&leaving, reply)).await?;
            answer.await.unwrap_or_else(|_| Err(ended()))?;
            let removed = calls.write(&directory, "remove a unit", UnitDirectory::remove).await;
            removed.map_err(|error| ServiceError::Unavailable(error.to_string()))?;
            calls.lead(move |lead| lead.forget(&name)).await
        })
        .await
    }

    /// Does something about a unit when all that was called about it before has taken effect.
    async fn in_turn<T, F>(
        self: &Arc<Self>,
        unit: &UnitName,
        work: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) -> Result<T, ServiceError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ServiceError>> + Send,
    {
        let gate = Arc::clone(lock(&self.gates).entry(unit.clone()).or_default());
        let guard = gate.lock_owned().await;
        let turn = Turn { calls: Arc::clone(self), unit: unit.clone(), guard: Some(guard) };
        let calls = Arc::clone(self);
        let done = tokio::spawn(async move {
            let done = work(calls).await;
            drop(turn);
            done
        });
        done.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Works on the directory of a unit when it is its turn among all that write.
    async fn write(
        &self,
        directory: &UnitDirectory,
        action: &str,
        work: impl FnOnce(&UnitDirectory) -> io::Result<()> + Send + 'static,
    ) -> Done {
        let _turn = self.writers.acquire().await;
        write(directory, action, work).await
    }

    /// Has the lead do something, and waits until it has.
    pub(super) async fn lead<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Lead) -> T + Send + 'static,
    ) -> Result<T, ServiceError> {
        let (reply, answer) = oneshot::channel();
        // Whoever asked may have gone away, which changes nothing.
        let request: Request = Box::new(move |lead| drop(reply.send(what(lead))));
        self.requests.send(request).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())
    }
}

/// The turn of one call. Its end is that of the gate, too, if nobody else waits.
struct Turn {
    calls: Arc<Calls>,
    unit: UnitName,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.guard = None;
        let mut gates = lock(&self.calls.gates);
        if gates.get(&self.unit).is_some_and(|gate| Arc::strong_count(gate) == 1) {
            gates.remove(&self.unit);
        }
    }
}

/// Works on the directory of a unit, away from the runtime: the disk may take its time.
pub(super) async fn write(
    directory: &UnitDirectory,
    action: &str,
    work: impl FnOnce(&UnitDirectory) -> io::Result<()> + Send + 'static,
) -> Done {
    let directory = directory.clone();
    let done = tokio::task::spawn_blocking(move || work(&directory)).await;
    done.map_err(io::Error::other)
        .flatten()
        .map_err(|source| ServiceError::Io { action: action.to_owned(), source })
}

fn ended() -> ServiceError {
    let problem = "what leads the units has ended by a defect: restart the daemon";
    ServiceError::Unavailable(problem.to_owned())
}
