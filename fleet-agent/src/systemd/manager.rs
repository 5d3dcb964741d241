//! The service manager that drives systemd.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::config::{SystemdConfig, SystemdScope};
use super::context::{ManagerContext, Session, io_error, unavailable};
use super::journal::LineSelection;
use super::nudge::Nudges;
use super::{connection, journal, load, operations, refresh, reload};
use crate::lock::acquire;
use crate::native::boot_id;
use crate::{
    ChangeReceiver, Drift, Journal, JournalQuery, ManagedUnit, ServiceError, ServiceManager,
};

/// Runs units by the context's systemd, over D-Bus.
///
/// Dropping it leaves the units running, as the sudden end of a daemon does. The next manager of
/// the same directory knows them again. A context that was booted since knows no unit.
///
/// # Files
///
/// A unit's file is kept byte for byte in the manager's directory, and systemd is given a link to
/// it that lasts until the context is booted again. What the context adds to a unit, such as a
/// drop-in below `/etc/systemd/system`, counts as it does for any other. A unit with an `[Install]`
/// section is enabled, also until the next boot. A name that the context has a unit for by itself
/// is refused.
///
/// systemd reads its files again only where it would go by old ones; see
/// [`reload`](ServiceManager::reload).
///
/// # Types
///
/// Units of all types that systemd reads from files are taken. Whether the context can run one is
/// systemd's to say at its start: swaps need the right to swap, automounts a kernel with autofs,
/// and a device is there when the kernel has it. Where it cannot, the start fails and says so.
///
/// # Connection
///
/// While systemd cannot be reached every call gives [`ServiceError::Unavailable`]; nothing is
/// known of the units then, and nothing happens to them. The manager connects again by itself.
/// Who waits for a start or stop meanwhile goes on waiting.
///
/// # Drift
///
/// A unit that somebody stopped is told from one that ended by itself as long as the manager saw
/// it happen; the next manager of the directory no longer knows. Units that others start are not
/// told of, since timers, sockets and other units do that rightly.
///
/// # Output
///
/// A unit's journal is what its own processes write, as the context's `journalctl` tells it.
pub struct SystemdManager {
    context: Arc<ManagerContext>,
    link: AbortHandle,
    nudges: Nudges,
    /// Held as long as this manager uses the directory.
    _lock: File,
}

impl SystemdManager {
    /// Connects to systemd, and finds what an earlier manager has loaded.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Unavailable`] when systemd cannot be reached or another manager uses the
    /// directory, and [`ServiceError::Io`] when the directory cannot be used.
    pub async fn open(config: SystemdConfig) -> Result<Arc<Self>, ServiceError> {
        let lock = acquire(&config.directory, &*config.clock).await?;
        let context = Arc::new(ManagerContext::new(config));
        recover(&context).map_err(io_error("read the records of units"))?;
        let mut session = context.session.subscribe();
        let link = tokio::spawn(connection::keep(Arc::clone(&context))).abort_handle();
        let manager = Self { context, link, nudges: Nudges::default(), _lock: lock };
        // Its sender is here, so it is not dropped meanwhile.
        drop(session.wait_for(|session| !matches!(session, Session::New)).await);
        manager.context.bus()?;
        Ok(Arc::new(manager))
    }
}

/// Reads what an earlier manager has written down.
fn recover(context: &ManagerContext) -> std::io::Result<()> {
    context.files.forget_old_boot(&boot_id()?)?;
    for (unit, record) in context.files.read()? {
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
        reload::reload(&self.context, &bus).await.map_err(unavailable)
    }

    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError> {
        load::unload(&self.context, unit).await
    }

    async fn start(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        operations::launch(&self.context, unit, "StartUnit", generation).await
    }

    async fn restart(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        operations::launch(&self.context, unit, "RestartUnit", generation).await
    }

    async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError> {
        operations::stop(&self.context, unit).await
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

    fn changes(&self) -> ChangeReceiver {
        self.context.feed.subscribe()
    }

    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError> {
        self.read_journal(unit, LineSelection::new(query))
    }

    async fn journal_from(
        &self,
        unit: &UnitName,
        cursor: &str,
        follow: bool,
    ) -> Result<Journal, ServiceError> {
        self.read_journal(unit, LineSelection::after(cursor, follow))
    }
}

impl SystemdManager {
    fn read_journal(
        &self,
        unit: &UnitName,
        wanted: LineSelection,
    ) -> Result<Journal, ServiceError> {
        self.context.record(unit)?;
        let SystemdConfig { scope, clock, .. } = &self.context.config;
        // The journals of users are not for others to touch.
        let is_nudged = wanted.follow && matches!(scope, SystemdScope::System);
        let following = is_nudged.then(|| self.nudges.follow(clock));
        let alive = self.context.units.alive(unit).filter(|_| wanted.follow);
        journal::read(*scope, unit, wanted, following, clock.clone(), until_it_ends(alive))
    }
}

/// Waits until a unit is not known any more.
async fn until_it_ends(alive: Option<watch::Receiver<()>>) {
    let Some(mut alive) = alive else { return std::future::pending().await };
    while alive.changed().await.is_ok() {}
}
