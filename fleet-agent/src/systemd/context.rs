//! State shared by all parts of one manager, with a lock for each unit.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet_core::{KnownUnit, TargetState};
use fleet_unitfile::UnitName;
use tokio::sync::{Notify, OwnedMutexGuard, watch};
use zbus::message::Sequence;

use super::SystemdConfig;
use super::bus::{Bus, CallError, States};
use super::files::UnitFiles;
use super::jobs::Jobs;
use super::load::Reload;
use super::quadlet::QuadletTurn;
use super::record::{PendingOrder, Record};
use super::refresh::QueryBatcher;
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
    pub(crate) quadlets: QuadletTurn,
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
            quadlets: QuadletTurn::default(),
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
        self.follow(unit, record);
        Ok(())
    }

    /// Stores the record of a unit after systemd has received a request. The record applies even if
    /// it cannot be stored. Otherwise the next request would be compared with an outdated one.
    pub(crate) fn remember_received(
        &self,
        unit: &UnitName,
        record: Record,
    ) -> Result<(), ServiceError> {
        let written = self.files.write_record(unit, &record);
        self.follow(unit, record);
        written.map_err(io_error(format!("store the record of {unit}")))
    }

    /// Stores that a unit is about to be stopped.
    ///
    /// A full disk must not keep a unit running that has to stop. If the pending stop cannot be
    /// stored, the old record is removed instead, which needs no space. A unit without a record
    /// counts as not requested.
    pub(crate) fn remember_stop(&self, unit: &UnitName, record: &Record) {
        let record = record.clone().pending(PendingOrder::Stop);
        if let Err(error) = self.files.write_record(unit, &record)
            && self.files.remove_record(unit).is_err()
        {
            tracing::error!(
                %unit,
                error = &error as &dyn std::error::Error,
                "cannot save that a unit is being stopped: if this program ends before it can, \
                 restart the unit to run it again"
            );
        }
        self.follow(unit, record);
    }

    /// Forgets the requests for a stopped unit whose links are about to be removed. If the unit is
    /// wanted again before it is unloaded, it is loaded again, which restores the links.
    pub(crate) fn forget_requests(
        &self,
        unit: &UnitName,
        record: Record,
    ) -> Result<(), ServiceError> {
        let removed = self.files.remove_record(unit);
        let known = KnownUnit { requested: TargetState::Inactive, ..record.known };
        self.follow(unit, Record { known, order: None });
        removed.map_err(io_error(format!("remove the record of {unit}")))
    }

    fn follow(&self, unit: &UnitName, record: Record) {
        self.units.follow(unit, Some(record));
        self.feed.report(unit);
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

type Lock = Arc<tokio::sync::Mutex<()>>;

/// A lock for each unit with calls in progress. Units with the same name in systemd share a lock.
#[derive(Debug, Default)]
pub(crate) struct UnitLocks {
    locks: Mutex<BTreeMap<UnitName, Lock>>,
}

/// The lock that a call holds on a unit. Once it is dropped, the next call for the unit proceeds.
#[derive(Debug)]
pub(crate) struct UnitLock<'a> {
    locks: &'a UnitLocks,
    unit: UnitName,
    held: Option<OwnedMutexGuard<()>>,
}

impl UnitLocks {
    /// Waits until all earlier calls for the unit are done.
    pub(crate) async fn lock_unit(&self, unit: &UnitName) -> UnitLock<'_> {
        let unit = unit.systemd_name();
        let lock = Arc::clone(self.lock().entry(unit.clone()).or_default());
        let mut turn = UnitLock { locks: self, unit, held: None };
        turn.held = Some(lock.lock_owned().await);
        turn
    }

    /// Locks the unit if no call for it is in progress.
    pub(crate) fn try_lock_unit(&self, unit: &UnitName) -> Option<UnitLock<'_>> {
        let unit = unit.systemd_name();
        let lock = Arc::clone(self.lock().entry(unit.clone()).or_default());
        let held = lock.try_lock_owned().ok();
        let turn = UnitLock { locks: self, unit, held };
        turn.held.is_some().then_some(turn)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<UnitName, Lock>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnitLock<'_> {
    fn drop(&mut self) {
        self.held = None;
        let mut locks = self.locks.lock();
        // Each further reference is a waiting call.
        if locks.get(&self.unit).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.unit);
        }
    }
}
