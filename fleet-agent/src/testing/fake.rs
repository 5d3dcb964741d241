//! A service manager that runs nothing.

mod unit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::unit::ExitStatus;
use fleet_core::{ActiveState, Epoch, Generation, SystemdState, TargetState};
use fleet_unitfile::{UnitFile, UnitHash, UnitName};
use tokio::sync::Notify;

use crate::journal::{Journal, JournalReader};
use crate::{ChangeReceiver, ChangeSender, Drift, ManagedUnit, ServiceError, ServiceManager};
use fleet_core::journal::JournalQuery;
use unit::{FakeUnit, ended, started};

/// A scripted service manager without processes, files or a clock. A line of output has the
/// [`wall_time`](crate::wall_time) at which it was scripted.
///
/// The fake represents the machine rather than a daemon. To simulate a restart of fleet, pass the
/// same instance to the next daemon. To simulate a reboot of the machine, call
/// [`reboot`](Self::reboot).
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use fleet_agent::ServiceManager;
/// use fleet_agent::testing::FakeManager;
/// use fleet_core::{Epoch, Generation};
/// use fleet_unitfile::UnitFile;
///
/// let machine = FakeManager::new();
/// let web = "web.service".parse()?;
/// machine.fail_start(&web, "no such program");
/// machine.load(&web, &UnitFile::parse("[Service]\nExecStart=/web\n")?, Epoch(1)).await?;
/// let error = machine.start(&web, Generation(1)).await.unwrap_err();
/// assert_eq!(error.to_string(), "web.service did not start: no such program");
/// assert_eq!(machine.calls().len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct FakeManager {
    state: Mutex<State>,
    feed: ChangeSender,
    /// Notified when a hanging stop is released, and when a unit begins to stop.
    released: Notify,
}

#[derive(Debug, Default)]
struct State {
    units: BTreeMap<UnitName, FakeUnit>,
    behaviour: BTreeMap<UnitName, Behaviour>,
    bad_loads: BTreeMap<UnitName, String>,
    bad_starts: BTreeMap<UnitName, String>,
    hanging: BTreeSet<UnitName>,
    /// Stop timeouts that the machine applies.
    time_outs: BTreeMap<UnitName, Duration>,
    /// Units that other units start.
    triggers: BTreeMap<UnitName, UnitName>,
    calls: Vec<Call>,
    /// Number of the last simulated process.
    pid: u32,
}

impl FakeManager {
    /// Creates a machine without units.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns all calls so far that request a change, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    /// Sets how the unit behaves once it is started.
    pub fn set_behaviour(&self, unit: &UnitName, behaviour: Behaviour) {
        self.lock().behaviour.insert(unit.clone(), behaviour);
    }

    /// Makes later loads of the unit fail, as if its first line were invalid.
    pub fn fail_load(&self, unit: &UnitName, problem: &str) {
        self.lock().bad_loads.insert(unit.clone(), problem.to_owned());
    }

    /// Makes later starts of the unit fail.
    pub fn fail_start(&self, unit: &UnitName, problem: &str) {
        self.lock().bad_starts.insert(unit.clone(), problem.to_owned());
    }

    /// Lets the unit be loaded and started again.
    pub fn clear_failures(&self, unit: &UnitName) {
        let mut state = self.lock();
        state.bad_loads.remove(unit);
        state.bad_starts.remove(unit);
    }

    /// Sets the unit's stop timeout on this machine, whatever its file says.
    pub fn set_stop_timeout(&self, unit: &UnitName, time_out: Duration) {
        self.lock().time_outs.insert(unit.clone(), time_out);
    }

    /// Makes `unit` a trigger of `other`, like a timer. From then on, `unit` can only be started
    /// while `other` is loaded.
    pub fn trigger(&self, unit: &UnitName, other: &UnitName) {
        self.lock().triggers.insert(unit.clone(), other.clone());
    }

    /// Makes stops of the unit hang until [`release`](Self::release).
    pub fn hang_stop(&self, unit: &UnitName) {
        self.lock().hanging.insert(unit.clone());
    }

    /// Lets a hanging stop of the unit finish.
    pub fn release(&self, unit: &UnitName) {
        self.lock().hanging.remove(unit);
        self.released.notify_waiters();
    }

    /// Kills the unit's process with SIGKILL. Does nothing if there is no process.
    pub fn crash(&self, unit: &UnitName) {
        self.end(unit, ExitStatus::Signal(9));
    }

    /// Makes the unit's process exit. Does nothing if there is no process.
    pub fn exit(&self, unit: &UnitName, code: i32) {
        self.end(unit, ExitStatus::Code(code));
    }

    /// Applies a drift to the unit, as if an administrator of the machine had changed it. Does
    /// nothing if the unit is not known.
    pub fn interfere(&self, unit: &UnitName, drift: Drift) {
        let mut state = self.lock();
        state.pid += 1;
        let pid = state.pid;
        drop(state);
        let done = self.change(unit, |unit| {
            unit.drift = Some(drift);
            match drift {
                Drift::Stopped => unit.state = ended(&unit.state, ExitStatus::Code(0)),
                Drift::Started => unit.state = started(Behaviour::Runs, None, pid).0,
                Drift::Changed => {}
            }
        });
        drop(done);
    }

    /// Writes a line of output. A follower with a full buffer loses it.
    pub fn write(&self, unit: &UnitName, line: &str) {
        if let Some(unit) = self.lock().units.get_mut(unit) {
            unit.write(line);
        }
    }

    /// Reboots the machine: it knows no unit, and keeps its scripted behaviour.
    pub fn reboot(&self) {
        let gone = std::mem::take(&mut self.lock().units);
        for unit in gone.keys() {
            self.feed.report(unit);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, unit: &UnitName, exit: ExitStatus) {
        let mut state = self.lock();
        let running = state.units.get_mut(unit).filter(|unit| unit.state.main_pid.is_some());
        if let Some(running) = running {
            running.state = ended(&running.state, exit);
            drop(state);
            self.feed.report(unit);
        }
    }

    /// Changes a known unit, and notifies the subscribers.
    fn change<T>(
        &self,
        unit: &UnitName,
        change: impl FnOnce(&mut FakeUnit) -> T,
    ) -> Result<T, ServiceError> {
        let mut state = self.lock();
        let known = state.units.get_mut(unit);
        let known = known.ok_or_else(|| ServiceError::NotLoaded { unit: unit.clone() })?;
        let result = change(known);
        drop(state);
        self.feed.report(unit);
        Ok(result)
    }

    fn run(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        let mut state = self.lock();
        let missing = state.triggers.get(unit).filter(|other| !state.units.contains_key(*other));
        if let Some(missing) = missing.map(ToString::to_string) {
            return Err(ServiceError::NothingToTrigger { unit: unit.clone(), missing });
        }
        state.pid += 1;
        let pid = state.pid;
        let problem = state.bad_starts.get(unit).cloned();
        let behaviour = state.behaviour.get(unit).copied().unwrap_or_default();
        drop(state);
        let failure = self.change(unit, |unit| {
            unit.known.requested = TargetState::Launched;
            (unit.known.generation, unit.drift) = (generation, None);
            if matches!(unit.state.active, ActiveState::Active | ActiveState::Activating) {
                return None;
            }
            if let (Behaviour::Writes(lines), None) = (behaviour, &problem) {
                lines.iter().for_each(|line| unit.write(line));
            }
            let (state, problem) = started(behaviour, problem, pid);
            unit.state = state;
            problem
        })?;
        let failed = |problem| ServiceError::StartFailed { unit: unit.clone(), problem };
        failure.map_or(Ok(()), |problem| Err(failed(problem)))
    }

    /// Starts a unit, and waits until the start has ended.
    async fn start_and_wait(
        &self,
        unit: &UnitName,
        generation: Generation,
    ) -> Result<(), ServiceError> {
        self.run(unit, generation)?;
        loop {
            let stopped = self.released.notified();
            tokio::pin!(stopped);
            stopped.as_mut().enable();
            let active = self.lock().units.get(unit).map(|unit| unit.state.active);
            match active {
                Some(ActiveState::Activating) => stopped.await,
                Some(ActiveState::Deactivating) | None => {
                    let problem = "it was stopped during its start".to_owned();
                    return Err(ServiceError::StartFailed { unit: unit.clone(), problem });
                }
                Some(_) => return Ok(()),
            }
        }
    }

    /// Ends a unit's process; one that hangs blocks the caller.
    async fn halt(&self, unit: &UnitName) {
        let running = |unit: &mut FakeUnit| unit.state.main_pid.is_some();
        if !self.lock().units.get_mut(unit).is_some_and(running) {
            return;
        }
        let stopping = |unit: &mut FakeUnit| {
            unit.state.active = ActiveState::Deactivating;
            unit.state.sub = "stop".to_owned();
        };
        // Fails if the unit was unloaded meanwhile, which leaves nothing to stop.
        drop(self.change(unit, stopping));
        self.released.notify_waiters();
        loop {
            let released = self.released.notified();
            tokio::pin!(released);
            released.as_mut().enable();
            if !self.lock().hanging.contains(unit) {
                break;
            }
            released.await;
        }
        let stopped = |unit: &mut FakeUnit| {
            unit.state = SystemdState {
                result: Some("success".to_owned()),
                exit: Some(ExitStatus::Signal(15)),
                ..SystemdState::loaded()
            };
        };
        drop(self.change(unit, stopped));
    }
}

#[async_trait]
impl ServiceManager for FakeManager {
    async fn load(
        &self,
        unit: &UnitName,
        file: &UnitFile,
        epoch: Epoch,
    ) -> Result<(), ServiceError> {
        let mut state = self.lock();
        let hash = file.hash();
        state.calls.push(Call::Load { unit: unit.clone(), hash, epoch });
        if let Some(problem) = state.bad_loads.get(unit).cloned() {
            return Err(ServiceError::BadSetting { unit: unit.clone(), line: 1, problem });
        }
        let known = state.units.entry(unit.clone());
        let entry = known.or_insert_with(|| FakeUnit::new(hash, epoch));
        (entry.known.hash, entry.known.epoch, entry.drift) = (hash, epoch, None);
        drop(state);
        self.feed.report(unit);
        Ok(())
    }

    async fn reload(&self) -> Result<(), ServiceError> {
        self.lock().calls.push(Call::Reload);
        Ok(())
    }

    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.lock().calls.push(Call::Unload(unit.clone()));
        self.halt(unit).await;
        self.lock().units.remove(unit);
        self.feed.report(unit);
        Ok(())
    }

    async fn start(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        self.lock().calls.push(Call::Start(unit.clone(), generation));
        self.start_and_wait(unit, generation).await
    }

    async fn restart(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        self.lock().calls.push(Call::Restart(unit.clone(), generation));
        self.change(unit, |unit| unit.known.requested = TargetState::Launched)?;
        self.halt(unit).await;
        // A stop requested meanwhile wins.
        let wanted = |unit: &FakeUnit| unit.known.requested == TargetState::Launched;
        if self.lock().units.get(unit).is_none_or(wanted) {
            return self.start_and_wait(unit, generation).await;
        }
        Ok(())
    }

    async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.lock().calls.push(Call::Stop(unit.clone()));
        self.change(unit, |unit| (unit.known.requested, unit.drift) = (TargetState::Loaded, None))?;
        self.halt(unit).await;
        Ok(())
    }

    async fn reload_unit(&self, unit: &UnitName) -> Result<(), ServiceError> {
        let mut state = self.lock();
        state.calls.push(Call::ReloadUnit(unit.clone()));
        let can_reload = state.behaviour.get(unit) == Some(&Behaviour::Reloads);
        let found = state.units.get_mut(unit);
        let found = found.ok_or_else(|| ServiceError::NotLoaded { unit: unit.clone() })?;
        let problem = match found.state.active {
            ActiveState::Active if can_reload => {
                found.write("reloaded");
                return Ok(());
            }
            ActiveState::Active => "it cannot reload",
            _ => "it is not active",
        };
        Err(ServiceError::ReloadFailed { unit: unit.clone(), problem: problem.to_owned() })
    }

    async fn get(&self, unit: &UnitName) -> Result<Option<ManagedUnit>, ServiceError> {
        Ok(self.lock().units.get(unit).map(|found| found.managed(unit)))
    }

    async fn list(&self) -> Result<Vec<ManagedUnit>, ServiceError> {
        Ok(self.lock().units.iter().map(|(name, unit)| unit.managed(name)).collect())
    }

    async fn drift(&self, unit: &UnitName) -> Result<Option<Drift>, ServiceError> {
        Ok(self.lock().units.get(unit).and_then(|unit| unit.drift))
    }

    async fn stop_timeout(&self, unit: &UnitName) -> Result<Option<Duration>, ServiceError> {
        Ok(self.lock().time_outs.get(unit).copied())
    }

    fn changes(&self) -> ChangeReceiver {
        self.feed.subscribe()
    }
}

#[async_trait]
impl JournalReader for FakeManager {
    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError> {
        let mut state = self.lock();
        let found = state.units.get_mut(unit);
        let found = found.ok_or_else(|| ServiceError::NotLoaded { unit: unit.clone() })?;
        let lines = found.lines.iter().map(|(at, line)| (*at, line));
        let (more, journal) = Journal::from_lines(lines, &query);
        found.followers.extend(more);
        Ok(journal)
    }
}

/// Behaviour of a unit once it is started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// It runs until it is stopped.
    #[default]
    Runs,
    /// It writes these lines, and runs until it is stopped.
    Writes(&'static [&'static str]),
    /// It starts, and exits at once with this code.
    Exits(i32),
    /// The unit is a oneshot unit, whose start is over when its process exits with this code.
    Task(i32),
    /// It runs until it is stopped, and writes a line on each reload.
    Reloads,
    /// Its start never ends by itself: it stays `activating` until it is stopped.
    NeverReady,
}

/// A call to a fake service manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// [`load`](crate::ServiceManager::load)
    Load {
        /// The unit.
        unit: UnitName,
        /// The hash of its file.
        hash: UnitHash,
        /// The epoch of its placement.
        epoch: Epoch,
    },
    /// [`reload`](crate::ServiceManager::reload)
    Reload,
    /// [`unload`](crate::ServiceManager::unload)
    Unload(UnitName),
    /// [`start`](crate::ServiceManager::start)
    Start(UnitName, Generation),
    /// [`restart`](crate::ServiceManager::restart)
    Restart(UnitName, Generation),
    /// [`stop`](crate::ServiceManager::stop)
    Stop(UnitName),
    /// [`reload_unit`](crate::ServiceManager::reload_unit)
    ReloadUnit(UnitName),
}
