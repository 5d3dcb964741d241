//! What all parts of one manager share.

use std::io;
use std::sync::Arc;

use fleet_unitfile::UnitName;
use tokio::sync::{Notify, watch};
use zbus::message::Sequence;

use super::bus::{Bus, CallError, States};
use super::config::SystemdConfig;
use super::files::UnitFiles;
use super::gates::Gates;
use super::gather::Gather;
use super::jobs::Jobs;
use super::record::Record;
use super::reload::Reload;
use super::units::Units;
use crate::{ServiceError, StateFeed};

/// One systemd, and all that is known of fleet's units in it.
pub(crate) struct Machine {
    pub(crate) config: SystemdConfig,
    pub(crate) files: UnitFiles,
    pub(crate) units: Units,
    pub(crate) jobs: Jobs,
    pub(crate) gates: Gates,
    pub(crate) looks: Gather<Option<States>>,
    pub(crate) links: Gather<()>,
    pub(crate) reload: Reload,
    pub(crate) feed: StateFeed,
    pub(crate) session: watch::Sender<Session>,
    /// The place of the last message of this connection that was taken in.
    pub(crate) taken_in: watch::Sender<Option<Sequence>>,
    /// Everything has to be looked at once again.
    pub(crate) look_again: Notify,
}

/// Whether systemd can be reached.
#[derive(Clone)]
pub(crate) enum Session {
    /// Nobody has tried yet.
    New,
    /// It can, and all units have been looked at since.
    Up(Arc<Bus>),
    /// It cannot, for this reason.
    Down(String),
}

impl Machine {
    pub(crate) fn new(config: SystemdConfig) -> Self {
        Self {
            files: UnitFiles::new(config.directory.clone()),
            config,
            units: Units::default(),
            jobs: Jobs::default(),
            gates: Gates::default(),
            looks: Gather::default(),
            links: Gather::default(),
            reload: Reload::default(),
            feed: StateFeed::default(),
            session: watch::Sender::new(Session::New),
            taken_in: watch::Sender::new(None),
            look_again: Notify::new(),
        }
    }

    /// The connection, while there is one. Without it nothing is known of any unit.
    pub(crate) fn bus(&self) -> Result<Arc<Bus>, ServiceError> {
        match &*self.session.borrow() {
            Session::Up(bus) => Ok(Arc::clone(bus)),
            Session::New => Err(ServiceError::Unavailable("not connected yet".to_owned())),
            Session::Down(reason) => Err(ServiceError::Unavailable(reason.clone())),
        }
    }

    /// Waits until all signals are taken in that systemd has sent by now.
    pub(crate) async fn catch_up(&self, bus: &Bus) -> Result<(), CallError> {
        let present = bus.present().await?;
        let mut taken_in = self.taken_in.subscribe();
        // Its sender is here, so it is not dropped meanwhile.
        drop(taken_in.wait_for(|at| at.is_some_and(|at| at >= present)).await);
        Ok(())
    }

    /// What was asked of a unit.
    pub(crate) fn record(&self, unit: &UnitName) -> Result<Record, ServiceError> {
        self.units.record(unit).ok_or_else(|| ServiceError::NotLoaded { unit: unit.clone() })
    }

    /// Remembers what was asked of a unit, on disk first.
    pub(crate) fn remember(&self, unit: &UnitName, record: Record) -> Result<(), ServiceError> {
        let written = self.files.write_record(unit, &record);
        written.map_err(io_error(format!("write down what was asked of {unit}")))?;
        self.units.follow(unit, Some(record));
        self.feed.report(unit);
        Ok(())
    }
}

/// An error of a call that concerns no unit's own doing.
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
