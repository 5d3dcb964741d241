//! One task for each unit: drives the state machine with real processes, files and time.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet_core::graph::Unit;
use fleet_core::{Epoch, Generation, KnownUnit, TargetState};
use fleet_unitfile::{UnitFile, UnitHash, UnitName};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::adopt::resume;
use super::drive::Driver;
use super::life::Phase;
use super::log::Log;
use super::machine::Machine;
use super::outcome::Outcome;
use super::record::{Asked, UnitDirectory};
use super::words::{state_of, why_not_reloaded, why_not_started};
use crate::{ManagedUnit, ServiceError};

/// How many requests about one unit wait for their turn; the next caller waits to hand its own in.
const WAITING_REQUESTS: usize = 16;

/// Where the answer to a request goes.
pub(crate) type Reply = oneshot::Sender<Result<(), ServiceError>>;

/// What a person or the agent asks about one unit.
#[derive(Debug)]
pub(crate) enum Request {
    Load { file: UnitFile, spec: Arc<Unit>, epoch: Epoch, reply: Reply },
    Start { generation: Generation, reply: Reply },
    Restart { generation: Generation, reply: Reply },
    Stop { reply: Reply },
    Reload { reply: Reply },
    Unload { reply: Reply },
}

/// What everybody may see of a unit.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) unit: UnitName,
    /// `None` while the unit is not known.
    pub(crate) state: Mutex<Option<ManagedUnit>>,
    /// `None` while the unit is not known.
    pub(crate) log: Mutex<Option<Arc<Log>>>,
    /// What the unit last said of itself.
    pub(crate) status: Mutex<Option<String>>,
}

/// A task that sees to one unit, from outside.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    pub(crate) requests: mpsc::Sender<Request>,
    pub(crate) shown: Arc<Shown>,
    pub(crate) task: AbortHandle,
}

/// The tasks of all units.
pub(crate) type Handles = Arc<Mutex<BTreeMap<UnitName, Handle>>>;

/// A unit that is known.
pub(crate) struct Loaded {
    pub(crate) driver: Driver,
    pub(crate) hash: UnitHash,
    pub(crate) asked: Asked,
}

/// The task of one unit. It ends when the unit is not known any more.
pub(crate) struct Supervisor {
    machine: Arc<Machine>,
    handles: Handles,
    shown: Arc<Shown>,
    directory: UnitDirectory,
    loaded: Option<Loaded>,
    loads: Vec<(Reply, Result<(), ServiceError>)>,
    starters: Vec<Reply>,
    stoppers: Vec<Reply>,
    reloaders: Vec<Reply>,
    unloaders: Vec<Reply>,
    /// The run that the stoppers want to see the end of.
    run_to_stop: u64,
}

/// Takes the lock; what it guards is whole even if a holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task of a unit; it is started where there is none.
///
/// Looking and entering happen under one lock, so there is never a second task for one unit.
pub(crate) fn task_of(
    machine: &Arc<Machine>,
    handles: &Handles,
    unit: &UnitName,
    loaded: Option<Loaded>,
) -> Handle {
    let mut all = lock(handles);
    if let Some(handle) = all.get(unit) {
        return handle.clone();
    }
    let shown = Arc::new(Shown {
        unit: unit.clone(),
        state: Mutex::default(),
        log: Mutex::default(),
        status: Mutex::default(),
    });
    let (requests, inbox) = mpsc::channel(WAITING_REQUESTS);
    let mut supervisor = Supervisor {
        machine: Arc::clone(machine),
        handles: Arc::clone(handles),
        shown: Arc::clone(&shown),
        directory: machine.directory(unit.as_str()),
        loaded,
        loads: Vec::new(),
        starters: Vec::new(),
        stoppers: Vec::new(),
        reloaders: Vec::new(),
        unloaders: Vec::new(),
        run_to_stop: 0,
    };
    // What is known at once can be seen at once.
    supervisor.publish();
    let task = tokio::spawn(supervisor.run(inbox)).abort_handle();
    let handle = Handle { requests, shown, task };
    all.insert(unit.clone(), handle.clone());
    handle
}

impl Supervisor {
    async fn run(mut self, mut inbox: mpsc::Receiver<Request>) {
        self.settle().await;
        while self.loaded.is_some() || !inbox.is_closed() {
            // While a unit is on its way out, what is asked next waits for its end.
            let leaving = !self.unloaders.is_empty();
            tokio::select! {
                request = inbox.recv(), if !leaving => match request {
                    Some(request) => self.on_request(request).await,
                    None => return,
                },
                () = wait(self.loaded.as_mut()) => {}
            }
            self.settle().await;
            if self.loaded.is_none() {
                break;
            }
        }
        self.leave();
    }

    /// Makes room for a later task of the same unit, then answers those who wanted that.
    fn leave(&mut self) {
        let mut all = lock(&self.handles);
        if all.get(&self.shown.unit).is_some_and(|own| Arc::ptr_eq(&own.shown, &self.shown)) {
            all.remove(&self.shown.unit);
        }
        drop(all);
        answer_all(&mut self.unloaders, || Ok(()));
    }

    async fn on_request(&mut self, request: Request) {
        match request {
            Request::Load { file, spec, epoch, reply } => {
                let loaded = self.load(&file, spec, epoch).await;
                self.loads.push((reply, loaded));
            }
            Request::Start { generation, reply } => {
                self.ask(Some(generation), reply, Ask::Start).await;
            }
            Request::Restart { generation, reply } => {
                self.ask(Some(generation), reply, Ask::Restart).await;
            }
            Request::Stop { reply } => self.ask(None, reply, Ask::Stop).await,
            Request::Reload { reply } => self.reload(reply),
            Request::Unload { reply } => match &mut self.loaded {
                Some(loaded) => {
                    loaded.driver.service.stop(self.machine.now());
                    self.refuse_starters();
                    self.unloaders.push(reply);
                }
                None => answer(reply, Ok(())),
            },
        }
    }

    async fn load(
        &mut self,
        file: &UnitFile,
        spec: Arc<Unit>,
        epoch: Epoch,
    ) -> Result<(), ServiceError> {
        let before = self.loaded.as_ref().map_or_else(Asked::default, |loaded| loaded.asked);
        let asked = Asked { epoch: epoch.0, ..before };
        if let Some(loaded) = self.loaded.as_mut().filter(|loaded| loaded.hash == file.hash()) {
            write(&self.directory, "record a unit", move |at| at.write_asked(asked)).await?;
            loaded.asked = asked;
            return Ok(());
        }
        let source = file.source().to_vec();
        write(&self.directory, "keep a unit file", move |at| at.write_unit(&source, asked)).await?;
        if let Some(loaded) = &mut self.loaded {
            loaded.driver.replace(spec);
            (loaded.hash, loaded.asked) = (file.hash(), asked);
            return Ok(());
        }
        let driver = self.driver(spec, asked).map_err(|source| ServiceError::Io {
            action: format!("begin to see to {}", self.shown.unit),
            source,
        })?;
        self.loaded = Some(Loaded { driver, hash: file.hash(), asked });
        Ok(())
    }

    /// Begins with a unit that was not known. It may run all the same, if its other records could
    /// not be read when this daemon began; then that run is ended first.
    fn driver(&self, spec: Arc<Unit>, asked: Asked) -> io::Result<Driver> {
        let (machine, unit, directory) = (&self.machine, &self.shown.unit, &self.directory);
        let log = machine.open_log(directory.log())?;
        if let Some(run) = directory.read_run()? {
            return resume(machine, unit.as_str(), directory, log, spec, asked, run);
        }
        Ok(Driver::new(machine, unit.as_str(), directory, log, spec))
    }

    /// Records what is asked, and only then tells the state machine.
    async fn ask(&mut self, generation: Option<Generation>, reply: Reply, ask: Ask) {
        let Some(loaded) = &mut self.loaded else {
            return answer(reply, Err(ServiceError::NotLoaded { unit: self.shown.unit.clone() }));
        };
        let asked = Asked {
            generation: generation.map_or(loaded.asked.generation, |generation| generation.0),
            launched: ask != Ask::Stop,
            ..loaded.asked
        };
        if asked != loaded.asked {
            let action = "record what is asked of a unit";
            let written = write(&self.directory, action, move |at| at.write_asked(asked)).await;
            match written {
                Err(error) if ask != Ask::Stop => return answer(reply, Err(error)),
                // A disk that fails must not keep anything running.
                Err(error) => {
                    tracing::error!(unit = %self.shown.unit, %error, "stopping all the same");
                }
                Ok(()) => {}
            }
            loaded.asked = asked;
        }
        loaded.driver.asked(asked);
        let (service, now) = (&mut loaded.driver.service, self.machine.now());
        match ask {
            Ask::Start => service.start(now),
            Ask::Restart => service.restart(now),
            Ask::Stop => service.stop(now),
        }
        if ask == Ask::Stop {
            self.refuse_starters();
            self.run_to_stop = loaded_run(self.loaded.as_ref());
            self.stoppers.push(reply);
        } else {
            self.starters.push(reply);
        }
    }

    fn reload(&mut self, reply: Reply) {
        let unit = self.shown.unit.clone();
        let Some(loaded) = &mut self.loaded else {
            return answer(reply, Err(ServiceError::NotLoaded { unit }));
        };
        match loaded.driver.service.reload(self.machine.now()) {
            Ok(()) => self.reloaders.push(reply),
            Err(problem) => {
                let problem = problem.to_owned();
                answer(reply, Err(ServiceError::ReloadFailed { unit, problem }));
            }
        }
    }

    fn refuse_starters(&mut self) {
        let unit = self.shown.unit.clone();
        let problem = "it was stopped before its start was over";
        answer_all(&mut self.starters, || {
            Err(ServiceError::StartFailed { unit: unit.clone(), problem: problem.to_owned() })
        });
    }

    /// Does what is to be done, shows the result, and answers those who waited for it.
    async fn settle(&mut self) {
        if let Some(loaded) = &mut self.loaded {
            loaded.driver.act();
            // This task decides by itself.
            drop(loaded.driver.service.take_happenings());
        }
        if !self.unloaders.is_empty() && self.is_at_rest() {
            self.forget().await;
        }
        // Whoever is answered must find the unit as the answer says.
        self.publish();
        for (reply, loaded) in self.loads.drain(..) {
            answer(reply, loaded);
        }
        self.answer_starters();
        self.answer_stoppers();
        self.answer_reloaders();
    }

    fn is_at_rest(&self) -> bool {
        self.loaded.as_ref().is_none_or(|loaded| loaded.driver.service.is_at_rest())
    }

    fn answer_starters(&mut self) {
        let Some(loaded) = &self.loaded else { return };
        let memory = loaded.driver.service.memory();
        let good = memory.outcome == Some(Outcome::Success);
        match memory.phase {
            Phase::Running | Phase::Exited => answer_all(&mut self.starters, || Ok(())),
            phase if phase.is_reloading() => answer_all(&mut self.starters, || Ok(())),
            Phase::Dead if good => answer_all(&mut self.starters, || Ok(())),
            Phase::Dead | Phase::Failed | Phase::AutoRestart => {
                let unit = &self.shown.unit;
                let problem = why_not_started(memory, loaded.driver.problem());
                answer_all(&mut self.starters, || {
                    Err(ServiceError::StartFailed { unit: unit.clone(), problem: problem.clone() })
                });
            }
            _ => {}
        }
    }

    fn answer_reloaders(&mut self) {
        let Some(loaded) = &self.loaded else { return };
        let memory = loaded.driver.service.memory();
        if memory.phase.is_reloading() {
            return;
        }
        let is_up = matches!(memory.phase, Phase::Running | Phase::Exited);
        let good = is_up && memory.reloaded == Some(Outcome::Success);
        let unit = &self.shown.unit;
        let problem = || why_not_reloaded(memory);
        let failed = || ServiceError::ReloadFailed { unit: unit.clone(), problem: problem() };
        answer_all(&mut self.reloaders, || if good { Ok(()) } else { Err(failed()) });
    }

    /// A run that has ended was stopped, even if the next has begun since.
    fn answer_stoppers(&mut self) {
        if self.is_at_rest() || loaded_run(self.loaded.as_ref()) != self.run_to_stop {
            answer_all(&mut self.stoppers, || Ok(()));
        }
    }

    /// Removes the unit; if that is not possible it stays known, and those who asked are told.
    async fn forget(&mut self) {
        match write(&self.directory, "remove a unit", UnitDirectory::remove).await {
            Ok(()) => self.loaded = None,
            Err(error) => {
                let words = error.to_string();
                for reply in self.unloaders.drain(..) {
                    answer(reply, Err(ServiceError::Unavailable(words.clone())));
                }
            }
        }
    }

    /// Shows the unit as it is now, and tells everybody if that is new.
    fn publish(&mut self) {
        let known = self.loaded.as_ref().map(|loaded| ManagedUnit {
            unit: self.shown.unit.clone(),
            known: loaded.known(),
            state: state_of(loaded.driver.service.memory()),
        });
        *lock(&self.shown.log) = self.loaded.as_ref().map(|loaded| Arc::clone(loaded.driver.log()));
        *lock(&self.shown.status) =
            self.loaded.as_ref().and_then(|loaded| loaded.driver.service.memory().status.clone());
        let mut shown = lock(&self.shown.state);
        if *shown != known {
            *shown = known;
            drop(shown);
            self.machine.feed.report(&self.shown.unit);
        }
    }
}

impl Loaded {
    fn known(&self) -> KnownUnit {
        let launched = self.asked.launched;
        KnownUnit {
            hash: self.hash,
            asked: if launched { TargetState::Launched } else { TargetState::Loaded },
            epoch: Epoch(self.asked.epoch),
            generation: Generation(self.asked.generation),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Start,
    Restart,
    Stop,
}

fn loaded_run(loaded: Option<&Loaded>) -> u64 {
    loaded.map_or(0, |loaded| loaded.driver.run())
}

async fn wait(loaded: Option<&mut Loaded>) {
    match loaded {
        Some(loaded) => loaded.driver.wait().await,
        None => std::future::pending().await,
    }
}

/// Works on the directory of a unit, away from the runtime: the disk may take its time.
async fn write(
    directory: &UnitDirectory,
    action: &str,
    work: impl FnOnce(&UnitDirectory) -> io::Result<()> + Send + 'static,
) -> Result<(), ServiceError> {
    let directory = directory.clone();
    let done = tokio::task::spawn_blocking(move || work(&directory)).await;
    done.map_err(io::Error::other)
        .flatten()
        .map_err(|source| ServiceError::Io { action: action.to_owned(), source })
}

/// Answers a request; whoever asked may have gone away, which changes nothing.
fn answer(reply: Reply, result: Result<(), ServiceError>) {
    drop(reply.send(result));
}

fn answer_all(replies: &mut Vec<Reply>, result: impl Fn() -> Result<(), ServiceError>) {
    for reply in replies.drain(..) {
        answer(reply, result());
    }
}
