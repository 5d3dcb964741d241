//! A service manager that runs nothing.

mod manager;
mod unit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fleet_core::{ActiveState, ExitStatus, Generation, SystemdState, TargetState};
use fleet_unitfile::UnitName;
use tokio::sync::Notify;

use self::unit::{FakeUnit, ended, started};
use super::script::{Behaviour, Call};
use crate::{Drift, ServiceError, StateFeed};

/// A service manager without processes, files and time of its own, which does as it is told. A line
/// of output has the [`wall_time`](crate::wall_time) at which it was told to write it.
///
/// It stands for the machine rather than for a daemon: hand the same one to the next daemon to
/// play a restart of fleet, and call [`reboot`](Self::reboot) to play one of the machine.
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
    feed: StateFeed,
    released: Notify,
}

#[derive(Debug, Default)]
struct State {
    units: BTreeMap<UnitName, FakeUnit>,
    behaviour: BTreeMap<UnitName, Behaviour>,
    bad_loads: BTreeMap<UnitName, String>,
    bad_starts: BTreeMap<UnitName, String>,
    hanging: BTreeSet<UnitName>,
    /// What the machine says of the time-outs of stops.
    time_outs: BTreeMap<UnitName, Duration>,
    /// What units are to start.
    triggers: BTreeMap<UnitName, UnitName>,
    calls: Vec<Call>,
    /// The number of the last process that never was.
    pid: u32,
}

impl FakeManager {
    /// A machine that knows no unit.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// All calls so far that ask for a change, in the order in which they came.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    /// From now on the unit behaves so when it is started.
    pub fn behave(&self, unit: &UnitName, behaviour: Behaviour) {
        self.lock().behaviour.insert(unit.clone(), behaviour);
    }

    /// From now on the unit is refused when it is loaded, as if its first line were bad.
    pub fn fail_load(&self, unit: &UnitName, problem: &str) {
        self.lock().bad_loads.insert(unit.clone(), problem.to_owned());
    }

    /// From now on the unit fails when it is started.
    pub fn fail_start(&self, unit: &UnitName, problem: &str) {
        self.lock().bad_starts.insert(unit.clone(), problem.to_owned());
    }

    /// From now on the unit can be loaded and started again.
    pub fn mend(&self, unit: &UnitName) {
        let mut state = self.lock();
        state.bad_loads.remove(unit);
        state.bad_starts.remove(unit);
    }

    /// From now on the machine allows the unit that long for a stop, whatever its file says.
    pub fn allow_stop(&self, unit: &UnitName, time_out: Duration) {
        self.lock().time_outs.insert(unit.clone(), time_out);
    }

    /// From now on the unit is one that is to start the other, and cannot be started without it.
    pub fn trigger(&self, unit: &UnitName, other: &UnitName) {
        self.lock().triggers.insert(unit.clone(), other.clone());
    }

    /// From now on the unit, once it is asked to stop, goes on until [`release`](Self::release).
    pub fn hang_stop(&self, unit: &UnitName) {
        self.lock().hanging.insert(unit.clone());
    }

    /// Lets a unit that hangs in its stop come to its end.
    pub fn release(&self, unit: &UnitName) {
        self.lock().hanging.remove(unit);
        self.released.notify_waiters();
    }

    /// The unit's process is ended by SIGKILL, from nowhere. Without a process nothing happens.
    pub fn crash(&self, unit: &UnitName) {
        self.end(unit, ExitStatus::Signal(9));
    }

    /// The unit's process exits by itself. Without a process nothing happens.
    pub fn exit(&self, unit: &UnitName, code: i32) {
        self.end(unit, ExitStatus::Code(code));
    }

    /// Somebody other than fleet does that to the unit. Nothing happens if it is not known.
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

    /// The unit writes a line of output. A follower that is too slow to take it loses it.
    pub fn write(&self, unit: &UnitName, line: &str) {
        if let Some(unit) = self.lock().units.get_mut(unit) {
            unit.write(line);
        }
    }

    /// The machine is booted again: it knows no unit, and has the same scripts as before.
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

    /// Changes a known unit, and tells everybody.
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
            unit.known.asked = TargetState::Launched;
            (unit.known.generation, unit.drift) = (generation, None);
            if unit.state.active == ActiveState::Active {
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

    /// Ends a unit's process; one that hangs keeps the caller waiting.
    async fn halt(&self, unit: &UnitName) {
        let running = |unit: &mut FakeUnit| unit.state.main_pid.is_some();
        if !self.lock().units.get_mut(unit).is_some_and(running) {
            return;
        }
        let stopping = |unit: &mut FakeUnit| {
            unit.state.active = ActiveState::Deactivating;
            unit.state.sub = "stop".to_owned();
        };
        // Nothing more to stop if it was forgotten meanwhile.
        drop(self.change(unit, stopping));
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
