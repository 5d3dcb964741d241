//! Implementation of [`ServiceManager`] for the native manager.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName, UnitType};

use super::NativeManager;
use crate::native::log::Log;
use crate::native::log::journal;
use crate::native::supervisor::requests::UnitRequest;
use crate::{
    ChangeReceiver, Journal, JournalQuery, ManagedUnit, ServiceError, ServiceManager, UnitDetails,
};

#[async_trait]
impl ServiceManager for NativeManager {
    async fn load(
        &self,
        unit: &UnitName,
        file: &UnitFile,
        epoch: Epoch,
    ) -> Result<(), ServiceError> {
        self.0.requests().load(unit, file, epoch).await
    }

    async fn reload(&self) -> Result<(), ServiceError> {
        // Each load has read its file already.
        Ok(())
    }

    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.0.requests().unload(unit).await
    }

    async fn start(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        self.0.requests().request(unit, UnitRequest::Start(generation)).await
    }

    async fn restart(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        self.0.requests().request(unit, UnitRequest::Restart(generation)).await
    }

    async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.0.requests().request(unit, UnitRequest::Stop).await
    }

    async fn reload_unit(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.0.requests().reload_unit(unit).await
    }

    async fn get(&self, unit: &UnitName) -> Result<Option<ManagedUnit>, ServiceError> {
        self.0.requests().get(unit)
    }

    async fn list(&self) -> Result<Vec<ManagedUnit>, ServiceError> {
        self.0.requests().list()
    }

    async fn details(&self, unit: &UnitName) -> Result<UnitDetails, ServiceError> {
        self.0.requests().details(unit).await
    }

    fn changes(&self) -> ChangeReceiver {
        self.0.context().feed.subscribe()
    }

    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError> {
        self.read_log(unit, |log| journal::read(log, query))
    }

    async fn journal_from(
        &self,
        unit: &UnitName,
        position: &str,
        follow: bool,
    ) -> Result<Journal, ServiceError> {
        if unit.unit_type() == UnitType::Timer {
            // A timer writes nothing, so no line of it can be missing.
            return self.journal(unit, JournalQuery { follow, ..JournalQuery::default() }).await;
        }
        self.read_log(unit, |log| journal::read_after(log, position, follow))
    }
}

impl NativeManager {
    fn read_log(
        &self,
        unit: &UnitName,
        read: impl FnOnce(&Arc<Log>) -> io::Result<Journal>,
    ) -> Result<Journal, ServiceError> {
        let status = self.0.requests().status(unit);
        let status = status.ok_or_else(|| ServiceError::NotLoaded { unit: unit.clone() })?;
        let action = || format!("read the log of {unit}");
        read(&status.log).map_err(|source| ServiceError::Io { action: action(), source })
    }
}
