//! A service manager of your own. Where this one has tokio tasks, yours has containers, virtual
//! machines or whatever else can be started and stopped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use fleet_agent::{
    Journal, JournalLine, JournalQuery, ManagedUnit, ServiceError, ServiceManager, ChangeReceiver,
    ChangeSender, wall_time,
};
use fleet_core::{
    ActiveState, Epoch, ExitStatus, Generation, KnownUnit, LoadState, SystemdState, TargetState,
    Timestamp,
};
use fleet_unitfile::{UnitFile, UnitName};
use tokio::sync::{OwnedMutexGuard, mpsc, watch};

use crate::program::Program;

/// How many lines of a unit's output are kept; older ones are forgotten.
const KEPT_LINES: usize = 100;

/// A machine that runs units as tasks.
///
/// It stands for the machine, not for the daemon on it: agents come and go, and the units run on.
/// They end with [`power_off`](Self::power_off).
#[derive(Default)]
pub(crate) struct TaskMachine {
    units: Mutex<BTreeMap<UnitName, TaskUnit>>,
    /// Whoever wants to know which units change.
    feed: ChangeSender,
    /// Calls about one unit take turns, in the order in which they came. Only those units are in
    /// here that a call is about at the moment.
    turns: Mutex<BTreeMap<UnitName, Arc<tokio::sync::Mutex<()>>>>,
    /// What tells one run of a unit from the next, in place of a process ID.
    runs: AtomicU32,
}

struct TaskUnit {
    program: Program,
    known: KnownUnit,
    state: SystemdState,
    /// Tells the task to stop, while there is one. It is closed when the task has ended.
    stop: Option<Stop>,
    /// With the moments at which they were written.
    lines: VecDeque<(Timestamp, String)>,
    followers: Vec<mpsc::Sender<JournalLine>>,
}

type Stop = Arc<watch::Sender<bool>>;

impl TaskMachine {
    /// A machine that knows no unit.
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Pulls the plug: all units end at once, and nobody is told.
    pub(crate) fn power_off(&self) {
        // A task that nobody can tell to stop any more ends.
        lock(&self.units).clear();
    }

    /// Waits until it is this call's turn.
    async fn turn(&self, unit: &UnitName) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = lock(&self.turns);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(unit.clone()).or_default().clone()
        };
        turn.lock_owned().await
    }

    /// Changes a known unit, and tells everybody.
    fn change<T>(
        &self,
        unit: &UnitName,
        change: impl FnOnce(&mut TaskUnit) -> T,
    ) -> Result<T, ServiceError> {
        let result = match lock(&self.units).get_mut(unit) {
            Some(known) => change(known),
            None => return Err(ServiceError::NotLoaded { unit: unit.clone() }),
        };
        self.feed.report(unit);
        Ok(result)
    }

    /// Starts a unit's task unless it runs, and remembers that it was asked to.
    async fn run(
        self: &Arc<Self>,
        unit: &UnitName,
        generation: Generation,
    ) -> Result<(), ServiceError> {
        let program = self.change(unit, |unit| {
            (unit.known.requested, unit.known.generation) = (TargetState::Launched, generation);
            unit.stop.is_none().then(|| unit.program.clone())
        })?;
        let Some(program) = program else {
            return Ok(()); // it runs already
        };
        let is_task = program.is_task();
        let stop = self.spawn(unit, program)?;
        if !is_task {
            return Ok(());
        }
        stop.closed().await;
        match lock(&self.units).get(unit).and_then(|unit| unit.state.exit) {
            None | Some(ExitStatus::Code(0)) => Ok(()),
            Some(exit) => {
                let (unit, problem) = (unit.clone(), format!("it {exit}"));
                Err(ServiceError::StartFailed { unit, problem })
            }
        }
    }

    fn spawn(self: &Arc<Self>, unit: &UnitName, program: Program) -> Result<Stop, ServiceError> {
        let (stop, mut told) = watch::channel(false);
        let stop = Arc::new(stop);
        let number = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        self.change(unit, |unit| unit.on_started(number, stop.clone()))?;
        let (machine, unit) = (Arc::clone(self), unit.clone());
        tokio::spawn(async move {
            let status = program.run(|line| machine.write(&unit, line), &mut told).await;
            // After a power cut the unit is not known any more, and there is nothing to note.
            drop(machine.change(&unit, |unit| unit.on_ended(status)));
            drop(told); // who waits for the end of the task goes on
        });
        Ok(stop)
    }

    /// Notes a line of output, which is no change of the unit's state.
    fn write(&self, unit: &UnitName, line: &str) {
        if let Some(unit) = lock(&self.units).get_mut(unit) {
            unit.write(line);
        }
    }

    /// Stops a unit's task if it runs, and waits for its end.
    async fn halt(&self, unit: &UnitName) -> Result<(), ServiceError> {
        let stop = self.change(unit, |unit| {
            let stop = unit.stop.clone()?;
            unit.state.active = ActiveState::Deactivating;
            unit.state.sub = "stop".to_owned();
            Some(stop)
        })?;
        if let Some(stop) = stop {
            stop.send_replace(true);
            stop.closed().await;
        }
        Ok(())
    }
}

impl TaskUnit {
    fn on_started(&mut self, number: u32, stop: Stop) {
        self.stop = Some(stop);
        self.state = SystemdState {
            main_pid: Some(number),
            ..SystemdState::new(LoadState::Loaded, ActiveState::Active, "running")
        };
    }

    fn on_ended(&mut self, status: i32) {
        let (active, sub, result) = match status {
            0 => (ActiveState::Inactive, "dead", "success"),
            _ => (ActiveState::Failed, "failed", "exit-code"),
        };
        self.stop = None;
        self.state = SystemdState {
            result: Some(result.to_owned()),
            exit: Some(ExitStatus::Code(status)),
            ..SystemdState::new(LoadState::Loaded, active, sub)
        };
    }

    fn write(&mut self, line: &str) {
        let now = wall_time();
        self.lines.push_back((now, line.to_owned()));
        if self.lines.len() > KEPT_LINES {
            self.lines.pop_front();
        }
        // A follower that is gone, or too slow, is cut off: output waits for nobody.
        self.followers.retain(|follower| {
            follower.try_send(JournalLine { at: Some(now), ..line.to_owned().into() }).is_ok()
        });
    }

    fn managed(&self, unit: &UnitName) -> ManagedUnit {
        ManagedUnit { unit: unit.clone(), known: self.known, state: self.state.clone() }
    }
}

/// An agent's view of the machine. Dropping it changes nothing there.
pub(crate) struct TaskManager {
    machine: Arc<TaskMachine>,
}

impl TaskManager {
    pub(crate) fn new(machine: &Arc<TaskMachine>) -> Self {
        Self { machine: machine.clone() }
    }
}

#[async_trait]
impl ServiceManager for TaskManager {
    async fn load(
        &self,
        unit: &UnitName,
        file: &UnitFile,
        epoch: Epoch,
    ) -> Result<(), ServiceError> {
        let _turn = self.machine.turn(unit).await;
        let program = Program::read(unit, file)?;
        let hash = file.hash();
        let (asked, generation) = (TargetState::Loaded, Generation::ZERO);
        let new = || TaskUnit {
            program: program.clone(),
            known: KnownUnit { hash, requested: asked, epoch, generation },
            state: SystemdState::loaded(),
            stop: None,
            lines: VecDeque::new(),
            followers: Vec::new(),
        };
        lock(&self.machine.units).entry(unit.clone()).or_insert_with(new);
        self.machine.change(unit, |unit| {
            (unit.known.hash, unit.known.epoch, unit.program) = (hash, epoch, program);
        })
    }

    /// Nothing to do: a file is read when it is loaded.
    async fn reload(&self) -> Result<(), ServiceError> {
        Ok(())
    }

    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError> {
        let _turn = self.machine.turn(unit).await;
        if self.machine.halt(unit).await.is_ok() {
            lock(&self.machine.units).remove(unit);
            self.machine.feed.report(unit);
        }
        Ok(()) // what is not known need not be forgotten
    }

    async fn start(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        let _turn = self.machine.turn(unit).await;
        self.machine.run(unit, generation).await
    }

    async fn restart(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        let _turn = self.machine.turn(unit).await;
        self.machine.halt(unit).await?;
        self.machine.run(unit, generation).await
    }

    async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError> {
        let _turn = self.machine.turn(unit).await;
        self.machine.change(unit, |unit| unit.known.requested = TargetState::Loaded)?;
        self.machine.halt(unit).await
    }

    async fn get(&self, unit: &UnitName) -> Result<Option<ManagedUnit>, ServiceError> {
        Ok(lock(&self.machine.units).get(unit).map(|found| found.managed(unit)))
    }

    async fn list(&self) -> Result<Vec<ManagedUnit>, ServiceError> {
        let units = lock(&self.machine.units);
        Ok(units.iter().map(|(name, unit)| unit.managed(name)).collect())
    }

    fn changes(&self) -> ChangeReceiver {
        self.machine.feed.subscribe()
    }

    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError> {
        let mut units = lock(&self.machine.units);
        let found = units.get_mut(unit);
        let found = found.ok_or_else(|| ServiceError::NotLoaded { unit: unit.clone() })?;
        let lines = found.lines.iter().map(|(at, line)| (*at, line));
        let (more, journal) = Journal::from_lines(lines, query);
        found.followers.extend(more);
        Ok(journal)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
