//! The service manager that drives systemd.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::journal::JournalQuery;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName, UnitType};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::context::{ManagerContext, Session, io_error, unavailable};
use super::files::UnitFiles;
use super::journal::LineSelection;
use super::{SystemdConfig, connection, journal, load, operations, refresh};
use crate::clock::boot_id;
use crate::journal::{Journal, JournalReader};
use crate::lock::acquire;
use crate::{ChangeReceiver, Drift, ManagedUnit, ServiceError, ServiceManager, UnitDetails};

/// Runs units by systemd, over D-Bus.
///
/// When the manager is dropped or its daemon ends suddenly, the units keep running. The next
/// manager of the same directory recovers them. If the directory was removed, systemd's links to
/// its files show the units that may still run; they count as not requested. After a reboot no unit
/// is known.
///
/// # Files
///
/// A unit's file is stored byte for byte in the manager's directory, and systemd gets a link to it
/// that lasts until the next boot. Additions of the machine, for example a drop-in below
/// `/etc/systemd/system`, apply as for any other unit. A unit with an `[Install]` section is
/// enabled, also until the next boot. A unit is refused if the machine has its own unit of the same
/// name.
///
/// The file of a container is copied to a directory of podman's generator, which makes a service of
/// it whenever systemd reloads. The unit is then that service. The file is refused if the machine
/// has no generator, or if the generator refuses it.
///
/// [`reload`](ServiceManager::reload) makes systemd reload its files only if systemd would
/// otherwise use old ones.
///
/// # Types
///
/// Units of all types that systemd reads from files are accepted. Only the start of a unit shows
/// whether the machine can run it. For example, a swap needs the permission to swap, and an
/// automount needs a kernel with autofs. If the machine cannot run the unit, the start fails with
/// the reason.
///
/// # Connection
///
/// While systemd cannot be reached, every call returns [`ServiceError::Unavailable`]. During that
/// time the manager neither knows the state of the units nor changes them. The manager reconnects
/// by itself. Calls that already wait for a start or stop keep waiting.
///
/// Each start and stop is stored before it is requested from systemd. If its outcome is unknown,
/// because the daemon has ended or the connection was lost, the manager compares the unit's state
/// with the request when it connects again.
///
/// # Drift
///
/// If others than fleet stop a unit while this manager runs, the manager reports the drift. A later
/// manager of the directory cannot distinguish such a stop from the unit's own end. Units started
/// by others are not reported, because timers, sockets and other units legitimately start units.
///
/// # Output
///
/// A unit's journal is the output of its own processes, as read by the machine's `journalctl`.
pub struct SystemdManager {
    context: Arc<ManagerContext>,
    link: AbortHandle,
    /// Lock on the directory.
    _lock: File,
}

impl SystemdManager {
    /// Connects to systemd, and recovers the units of an earlier manager.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Unavailable`] if systemd cannot be reached or another manager uses the
    /// directory, and [`ServiceError::Io`] if the directory cannot be used.
    pub async fn open(config: SystemdConfig) -> Result<Arc<Self>, ServiceError> {
        let lock = acquire(&config.directory, &*config.clock).await?;
        let context = Arc::new(ManagerContext::new(config));
        recover(&context).map_err(io_error("read the records of units"))?;
        let mut session = context.session.subscribe();
        let link = tokio::spawn(connection::run(Arc::clone(&context))).abort_handle();
        let manager = Self { context, link, _lock: lock };
        // The sender is a field of the manager, so it is not dropped meanwhile.
        drop(session.wait_for(|session| !matches!(session, Session::New)).await);
        manager.context.bus()?;
        Ok(Arc::new(manager))
    }

    /// Returns the units that a manager with this configuration has loaded since boot and that are
    /// not inactive, for a program that uses another service manager now. If no manager has used
    /// the directory since boot, does not connect to systemd.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open): without systemd the states of the units are unknown.
    pub async fn running_units(config: SystemdConfig) -> Result<Vec<UnitName>, ServiceError> {
        let read = || -> std::io::Result<bool> {
            let files = UnitFiles::new(config.directory.clone());
            let is_used = files.is_of_boot(&boot_id()?)? && !files.read()?.is_empty();
            Ok(is_used || !files.read_lost(&config)?.is_empty())
        };
        if !read().map_err(io_error("read the records of units"))? {
            return Ok(Vec::new());
        }
        let units = Self::open(config).await?.list().await?;
        Ok(units.into_iter().filter(|unit| !unit.has_ended()).map(|unit| unit.unit).collect())
    }
}

/// Reads the records of an earlier manager. Also finds its units whose records were removed, so
/// that they do not run unnoticed.
fn recover(context: &ManagerContext) -> std::io::Result<()> {
    context.files.forget_old_boot(&boot_id()?)?;
    let lost = context.files.read_lost(&context.config)?;
    for (unit, _) in &lost {
        tracing::warn!(
            %unit,
            directory = %context.config.directory.display(),
            "the file of a unit was removed from this directory: the unit is loaded again if it \
             belongs on this machine, and stopped otherwise"
        );
    }
    for (unit, record) in context.files.read()?.into_iter().chain(lost) {
        context.reload.mark_unverified([unit.clone()]);
        context.units.follow(&unit, Some(record));
    }
    Ok(())
}

impl Drop for SystemdManager {
    fn drop(&mut self) {
        self.link.abort();
    }
}

#[async_trait]
impl ServiceManager for SystemdManager {
    async fn load(
        &self,
        unit: &UnitName,
        file: &UnitFile,
        epoch: Epoch,
    ) -> Result<(), ServiceError> {
        load::load(&self.context, unit, file, epoch).await
    }

    async fn reload(&self) -> Result<(), ServiceError> {
        let bus = self.context.bus()?;
        load::reload(&self.context, &bus).await.map_err(unavailable)
    }

    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.resolve_after(unit, load::unload(&self.context, unit)).await
    }

    async fn start(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        let start = operations::launch(&self.context, unit, "StartUnit", generation);
        self.resolve_after(unit, start).await
    }

    async fn restart(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        let restart = operations::launch(&self.context, unit, "RestartUnit", generation);
        self.resolve_after(unit, restart).await
    }

    async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.resolve_after(unit, operations::stop(&self.context, unit)).await
    }

    async fn reload_unit(&self, unit: &UnitName) -> Result<(), ServiceError> {
        operations::reload_unit(&self.context, unit).await
    }

    async fn get(&self, unit: &UnitName) -> Result<Option<ManagedUnit>, ServiceError> {
        self.context.bus()?;
        Ok(self.context.units.managed(unit))
    }

    async fn list(&self) -> Result<Vec<ManagedUnit>, ServiceError> {
        self.context.bus()?;
        Ok(self.context.units.all_managed())
    }

    async fn drift(&self, unit: &UnitName) -> Result<Option<Drift>, ServiceError> {
        Ok(self.context.units.drift(unit))
    }

    async fn stop_timeout(&self, unit: &UnitName) -> Result<Option<Duration>, ServiceError> {
        self.context.record(unit)?;
        let bus = self.context.bus()?;
        refresh::stop_timeout(&bus, unit).await.map_err(unavailable)
    }

    async fn details(&self, unit: &UnitName) -> Result<UnitDetails, ServiceError> {
        self.context.record(unit)?;
        match unit.unit_type() {
            UnitType::Timer => {
                let bus = self.context.bus()?;
                refresh::timer_details(&bus, unit).await.map_err(unavailable)
            }
            UnitType::Service | UnitType::Container => {
                let bus = self.context.bus()?;
                let text = refresh::status_text(&bus, unit).await.map_err(unavailable)?;
                Ok(UnitDetails::default().with_status_text(text))
            }
            _ => Ok(UnitDetails::default()),
        }
    }

    fn changes(&self) -> ChangeReceiver {
        self.context.feed.subscribe()
    }
}

#[async_trait]
impl JournalReader for SystemdManager {
    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError> {
        self.context.record(unit)?;
        let wanted = LineSelection::new(query);
        let SystemdConfig { scope, clock, .. } = &self.context.config;
        let alive = self.context.units.alive(unit).filter(|_| wanted.follow);
        journal::read(*scope, unit, wanted, clock.clone(), wait_until_unknown(alive))
    }
}

impl SystemdManager {
    /// Awaits a call. If the call fails and its outcome is unknown, requests a refresh, which
    /// resolves the pending request.
    async fn resolve_after(
        &self,
        unit: &UnitName,
        call: impl Future<Output = Result<(), ServiceError>>,
    ) -> Result<(), ServiceError> {
        let result = call.await;
        if result.is_err() && self.context.units.is_pending(unit) {
            self.context.refresh_requested.notify_one();
        }
        result
    }
}

/// Waits until a unit is no longer known.
async fn wait_until_unknown(alive: Option<watch::Receiver<()>>) {
    let Some(mut alive) = alive else { return std::future::pending().await };
    while alive.changed().await.is_ok() {}
}
