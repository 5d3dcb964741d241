//! State shared by all parts of one manager.

use std::io;
use std::sync::Arc;

use fleet_unitfile::UnitName;
use tokio::sync::{Notify, watch};
use zbus::message::Sequence;

use super::batch_query::QueryBatcher;
use super::bus::{Bus, CallError, States};
use super::config::SystemdConfig;
use super::files::UnitFiles;
use super::jobs::Jobs;
use super::record::Record;
use super::reload::Reload;
use super::unit_locks::UnitLocks;
use super::units::UnitTable;
use crate::{ChangeSender, ServiceError};

/// A systemd instance, and the known state of fleet's units in it.
pub(crate) struct ManagerContext {
    pub(crate) config: SystemdConfig,
    pub(crate) files: UnitFiles,
    pub(crate) units: UnitTable,
    pub(crate) jobs: Jobs,
    pub(crate) locks: UnitLocks,
    pub(crate) state_queries: QueryBatcher<Option<States>>,
    pub(crate) links: QueryBatcher<()>,
    pub(crate) reload: Reload,
    pub(crate) feed: ChangeSender,
    pub(crate) session: watch::Sender<Session>,
    /// Position of the last processed message of this connection.
    pub(crate) processed: watch::Sender<Option<Sequence>>,
    /// Requests a refresh of all units.
    pub(crate) refresh_requested: Notify,
}

/// Whether systemd can be reached.
#[derive(Clone)]
pub(crate) enum Session {
    /// No connection has been attempted yet.
    New,
    /// Connected, and all units have been read since.
    Up(Arc<Bus>),
    /// Not connected, for this reason.
    Down(String),
}

impl ManagerContext {
    pub(crate) fn new(config: SystemdConfig) -> Self {
        Self {
            files: UnitFiles::new(config.directory.clone()),
            config,
            units: UnitTable::default(),
            jobs: Jobs::default(),
            locks: UnitLocks::default(),
            state_queries: QueryBatcher::default(),
            links: QueryBatcher::default(),
            reload: Reload::default(),
            feed: ChangeSender::default(),
            session: watch::Sender::new(Session::New),
            processed: watch::Sender::new(None),
            refresh_requested: Notify::new(),
        }
    }

    /// Returns the connection. Without one, the state of units is unknown.
    pub(crate) fn bus(&self) -> Result<Arc<Bus>, ServiceError> {
        match &*self.session.borrow() {
            Session::Up(bus) => Ok(Arc::clone(bus)),
            Session::New => Err(ServiceError::Unavailable("not connected yet".to_owned())),
            Session::Down(reason) => Err(ServiceError::Unavailable(reason.clone())),
        }
    }

    /// Waits until all signals that systemd has sent so far are processed.
    pub(crate) async fn catch_up(&self, bus: &Bus) -> Result<(), CallError> {
        let present = bus.barrier().await?;
        let mut processed = self.processed.subscribe();
        // The sender is a field of this struct, so it is not dropped meanwhile.
        drop(processed.wait_for(|at| at.is_some_and(|at| at >= present)).await);
        Ok(())
    }

    /// Returns the record of a known unit.
    pub(crate) fn record(&self, unit: &UnitName) -> Result<Record, ServiceError> {
        self.units.record(unit).ok_or_else(|| ServiceError::NotLoaded { unit: unit.clone() })
    }

    /// Stores the record of a unit, on disk first.
    pub(crate) fn remember(&self, unit: &UnitName, record: Record) -> Result<(), ServiceError> {
        let written = self.files.write_record(unit, &record);
        written.map_err(io_error(format!("store the record of {unit}")))?;
        self.units.follow(unit, Some(record));
        self.feed.report(unit);
        Ok(())
    }
}

/// Converts an error of a call that does not concern a unit's file.
pub(crate) fn unavailable(error: CallError) -> ServiceError {
    match error {
        CallError::Lost(reason) => ServiceError::Unavailable(reason),
        CallError::Refused { message, .. } => {
            ServiceError::Unavailable(format!("systemd refuses: {message}"))
        }
    }
}

pub(crate) fn io_error(action: impl Into<String>) -> impl FnOnce(io::Error) -> ServiceError {
    move |source| ServiceError::Io { action: action.into(), source }
}
