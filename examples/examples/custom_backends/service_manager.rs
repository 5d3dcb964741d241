//! A custom service manager. This one runs tokio tasks. Yours could run containers, virtual
//! machines or anything else that can be started and stopped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use fleet_agent::journal::{Journal, JournalReader};
use fleet_agent::{
    ChangeReceiver, ChangeSender, ManagedUnit, ServiceError, ServiceManager, wall_time,
};
use fleet_core::journal::{JournalLine, JournalQuery};
use fleet_core::unit::{ExitStatus, LoadState};
use fleet_core::{ActiveState, Epoch, Generation, KnownUnit, SystemdState, TargetState, Timestamp};
use fleet_unitfile::{UnitFile, UnitName};
use tokio::sync::{OwnedMutexGuard, mpsc, watch};

use crate::program::Program;

/// Number of output lines kept per unit; older ones are dropped.
const KEPT_LINES: usize = 100;

/// A machine that runs units as tasks.
///
/// It represents the machine, not the daemon on it. Therefore, units keep running while daemons
/// stop and start. Only [`power_off`](Self::power_off) ends them all.
#[derive(Default)]
pub(crate) struct TaskMachine {
    units: Mutex<BTreeMap<UnitName, TaskUnit>>,
    /// Subscribers to unit changes.
    feed: ChangeSender,
    /// Locks that serialize the calls for each unit, in order of arrival. Only units with a call in
    /// progress need an entry; other entries are removed by the next call.
    turns: Mutex<BTreeMap<UnitName, Arc<tokio::sync::Mutex<()>>>>,
    /// Distinguishes the runs of a unit, in place of a process ID.
    runs: AtomicU32,
}

struct TaskUnit {
    program: Program,
    known: KnownUnit,
    state: SystemdState,
    /// Signal that stops the unit's task; `None` if no task runs. When the task has ended, the
    /// channel is closed.
    stop: Option<Stop>,
    /// Output lines with their timestamps.
    lines: VecDeque<(Timestamp, String)>,
    followers: Vec<mpsc::Sender<JournalLine>>,
}

type Stop = Arc<watch::Sender<bool>>;

impl TaskMachine {
    /// Makes a machine without units.
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Simulates a power failure: all units end at once, without notifications.
    pub(crate) fn power_off(&self) {
        // Dropping the sender ends the task.
        lock(&self.units).clear();
    }

    /// Waits for the lock of the unit.
    async fn turn(&self, unit: &UnitName) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = lock(&self.turns);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(unit.clone()).or_default().clone()
        };
        turn.lock_owned().await
    }

    /// Changes a known unit, and notifies all subscribers.
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

    /// Starts a unit's task unless it runs, and records the request.
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
            return Ok(()); // already running
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
        let (stop, mut stop_signal) = watch::channel(false);
        let stop = Arc::new(stop);
        let number = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        self.change(unit, |unit| unit.on_started(number, stop.clone()))?;
        let (machine, unit) = (Arc::clone(self), unit.clone());
        tokio::spawn(async move {
            let status = program.run(|line| machine.write(&unit, line), &mut stop_signal).await;
            // After a power failure the unit is unknown, and there is nothing to record.
            drop(machine.change(&unit, |unit| unit.on_ended(status)));
            drop(stop_signal); // callers that wait for the end of the task continue
        });
        Ok(stop)
    }

    /// Appends a line of output, which does not change the unit's state.
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
        // A follower that is gone or too slow is dropped: output never blocks.
        self.followers
            .retain(|follower| follower.try_send(JournalLine::new(line).with_time(now)).is_ok());
    }

    fn managed(&self, unit: &UnitName) -> ManagedUnit {
        ManagedUnit::new(unit.clone(), self.known, self.state.clone())
    }
}

/// An agent's handle to the machine. Dropping the handle changes nothing on the machine.
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
        let (requested, generation) = (TargetState::Loaded, Generation::ZERO);
        let new = || TaskUnit {
            program: program.clone(),
            known: KnownUnit { hash, requested, epoch, generation },
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

    /// Does nothing, because `load` has already read the unit files.
    async fn reload(&self) -> Result<(), ServiceError> {
        Ok(())
    }

    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError> {
        let _turn = self.machine.turn(unit).await;
        if self.machine.halt(unit).await.is_ok() {
            lock(&self.machine.units).remove(unit);
            self.machine.feed.report(unit);
        }
        Ok(()) // an unknown unit needs no removal
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
}

#[async_trait]
impl JournalReader for TaskManager {
    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError> {
        let mut units = lock(&self.machine.units);
        let found = units.get_mut(unit);
        let found = found.ok_or_else(|| ServiceError::NotLoaded { unit: unit.clone() })?;
        let lines = found.lines.iter().map(|(at, line)| (*at, line));
        let (more, journal) = Journal::from_lines(lines, &query);
        found.followers.extend(more);
        Ok(journal)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
