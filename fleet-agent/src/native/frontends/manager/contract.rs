//! Implementation of [`ServiceManager`] for the native manager. Calls for services go to the
//! supervisor, and calls for timers go to the timer task.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_core::graph::systemd::{self, DualTimestamp};
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};

use super::NativeManager;
use crate::native::frontends::client::{SupervisorClient, UnitRequest};
use crate::native::frontends::timer::{Timers, is_timer};
use crate::native::log::Log;
use crate::native::log::journal;
use crate::native::supervisor::compile::compile;
use crate::native::supervisor::managed_units::CallResult;
use crate::{
    ChangeReceiver, Journal, JournalQuery, ManagedUnit, ServiceError, ServiceManager, UnitDetails,
    wall_time,
};

#[async_trait]
impl ServiceManager for NativeManager {
    async fn load(
        &self,
        unit: &UnitName,
        file: &UnitFile,
        epoch: Epoch,
    ) -> Result<(), ServiceError> {
        let known = self.get(unit).await?;
        let is_new = known.is_none_or(|it| it.known.hash != file.hash());
        let compiled = self.compile_and_warn(unit, file, is_new)?;
        if let Some(timer) = compiled.timer {
            self.timers.load(unit, file, timer, epoch).await?;
            return self.client.add_timer(unit, compiled.relations).await;
        }
        let directory = self.context.directory(unit.as_str());
        self.client.load(unit, file, compiled, epoch, directory).await
    }

    async fn reload(&self) -> Result<(), ServiceError> {
        // Each load has read its file already.
        Ok(())
    }

    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError> {
        if is_timer(unit) {
            self.client.remove_timer(unit).await?;
            return self.timers.unload(unit).await;
        }
        self.client.unload(unit, self.context.directory(unit.as_str())).await
    }

    async fn start(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        if is_timer(unit) {
            return self.timers.start(unit, generation).await;
        }
        self.start_with_timers(unit, UnitRequest::Start(generation)).await
    }

    async fn restart(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        if is_timer(unit) {
            return self.timers.restart(unit, generation).await;
        }
        self.start_with_timers(unit, UnitRequest::Restart(generation)).await
    }

    async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError> {
        if is_timer(unit) {
            return self.timers.stop(unit).await;
        }
        self.client.request(unit, UnitRequest::Stop, self.context.directory(unit.as_str())).await
    }

    async fn reload_unit(&self, unit: &UnitName) -> Result<(), ServiceError> {
        if self.timers.get(unit).is_some() {
            let problem = "a timer has no configuration of its own: load its file again".to_owned();
            return Err(ServiceError::ReloadFailed { unit: unit.clone(), problem });
        }
        self.client.reload_unit(unit).await
    }

    async fn get(&self, unit: &UnitName) -> Result<Option<ManagedUnit>, ServiceError> {
        self.client.check_alive()?;
        match is_timer(unit) {
            true => Ok(self.timers.get(unit)),
            false => Ok(self.client.status(unit).map(|status| status.unit.clone())),
        }
    }

    async fn list(&self) -> Result<Vec<ManagedUnit>, ServiceError> {
        self.client.check_alive()?;
        let mut all = self.client.list();
        all.extend(self.timers.list());
        all.sort_by(|one, other| one.unit.cmp(&other.unit));
        Ok(all)
    }

    async fn details(&self, unit: &UnitName) -> Result<UnitDetails, ServiceError> {
        let now = DualTimestamp { clock: self.context.now(), wall: wall_time() };
        match self.timers.details(unit, now) {
            Some(details) => Ok(details),
            None => self.client.details(unit).await,
        }
    }

    fn changes(&self) -> ChangeReceiver {
        self.context.feed.subscribe()
    }

    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError> {
        match self.timers.journal(unit, query.follow) {
            Some(journal) => Ok(journal),
            None => self.read_log(unit, |log| journal::read(log, query)),
        }
    }

    async fn journal_from(
        &self,
        unit: &UnitName,
        position: &str,
        follow: bool,
    ) -> Result<Journal, ServiceError> {
        match self.timers.journal(unit, follow) {
            Some(journal) => Ok(journal),
            None => self.read_log(unit, |log| journal::read_after(log, position, follow)),
        }
    }
}

impl NativeManager {
    /// Compiles a unit file, and logs the remarks about the file if the unit is new.
    ///
    /// The result is boxed to save memory. Hundreds of units are loaded at once, and the futures of
    /// each load would contain the space for an unboxed result several times.
    fn compile_and_warn(
        &self,
        unit: &UnitName,
        file: &UnitFile,
        is_new: bool,
    ) -> Result<Box<systemd::CompiledUnit>, ServiceError> {
        let compiled = compile(unit, file, &self.host).map_err(|bad| ServiceError::BadSetting {
            unit: unit.clone(),
            line: bad.line,
            problem: bad.problem,
        })?;
        for remark in compiled.remarks.iter().filter(|_| is_new) {
            tracing::warn!(%unit, remark, "an option works differently than under systemd");
        }
        Ok(Box::new(compiled.unit))
    }

    /// Starts a unit, after the timers that it wants or requires.
    async fn start_with_timers(
        &self,
        unit: &UnitName,
        request: UnitRequest,
    ) -> Result<(), ServiceError> {
        let (client, timers) = (Arc::clone(&self.client), Arc::clone(&self.timers));
        // Boxed, so that its space is released once it is done: the future waiting for the unit
        // would hold it until then, more than once.
        let first = Box::pin(start_timers_of(client, timers, unit.clone()));
        self.client.request_after(first, unit, request, self.context.directory(unit.as_str())).await
    }

    fn read_log(
        &self,
        unit: &UnitName,
        read: impl FnOnce(&Arc<Log>) -> io::Result<Journal>,
    ) -> Result<Journal, ServiceError> {
        let status = self.client.status(unit);
        let status = status.ok_or_else(|| ServiceError::NotLoaded { unit: unit.clone() })?;
        let action = || format!("read the log of {unit}");
        read(&status.log).map_err(|source| ServiceError::Io { action: action(), source })
    }
}

/// Starts the timers that a unit wants or requires, before the unit itself starts.
async fn start_timers_of(
    client: Arc<SupervisorClient>,
    timers: Arc<Timers>,
    unit: UnitName,
) -> CallResult {
    for (timer, is_required) in client.timers_of(&unit).await? {
        match timers.pull(&timer).await {
            Err(error) if is_required => return Err(error),
            Err(error) => tracing::warn!(
                %unit,
                %timer,
                error = &error as &dyn std::error::Error,
                "cannot start a timer that a unit wants: starting the unit without it"
            ),
            Ok(()) => {}
        }
    }
    Ok(())
}
