//! The [`ServiceManager`] implementation of the fake.

use std::time::Duration;

use async_trait::async_trait;
use fleet_core::{ActiveState, Epoch, Generation, TargetState};
use fleet_unitfile::{UnitFile, UnitName};

use super::FakeManager;
use super::unit::FakeUnit;
use crate::testing::{Behaviour, Call};
use crate::{
    ChangeReceiver, Drift, Journal, JournalQuery, ManagedUnit, ServiceError, ServiceManager,
};

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

    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError> {
        let mut state = self.lock();
        let found = state.units.get_mut(unit);
        let found = found.ok_or_else(|| ServiceError::NotLoaded { unit: unit.clone() })?;
        let lines = found.lines.iter().map(|(at, line)| (*at, line));
        let (more, journal) = Journal::from_lines(lines, query);
        found.followers.extend(more);
        Ok(journal)
    }
}
