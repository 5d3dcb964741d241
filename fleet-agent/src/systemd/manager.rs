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
use super::journal::Wanted;
use super::machine::{Machine, Session, io_error, unavailable};
use super::nudge::Nudges;
use super::{journal, link, load, look, order, reload};
use crate::lock::acquire;
use crate::native::boot_id;
use crate::{
    Drift, Journal, JournalQuery, ManagedUnit, ServiceError, ServiceManager, StateChanges,
};

/// Runs units by the machine's systemd, over D-Bus.
///
/// Dropping it leaves the units running, as the sudden end of a daemon does. The next manager of
/// the same directory knows them again. A machine that was booted since knows no unit.
///
/// # Files
///
/// A unit's file is kept byte for byte in the manager's directory, and systemd is given a link to
/// it that lasts until the machine is booted again. What the machine adds to a unit, such as a
/// drop-in below `/etc/systemd/system`, counts as it does for any other. A unit with an `[Install]`
/// section is enabled, also until the next boot. A name that the machine has a unit for by itself
/// is refused.
///
/// systemd reads its files again only where it would go by old ones; see
/// [`reload`](ServiceManager::reload).
///
/// # Types
///
/// Units of all types that systemd reads from files are taken. Whether the machine can run one is
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
/// A unit's journal is what its own processes write, as the machine's `journalctl` tells it.
pub struct SystemdManager {
    machine: Arc<Machine>,
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
        let machine = Arc::new(Machine::new(config));
        take_back(&machine).map_err(io_error("read the records of units"))?;
        let mut session = machine.session.subscribe();
        let link = tokio::spawn(link::keep(Arc::clone(&machine))).abort_handle();
        let manager = Self { machine, link, nudges: Nudges::default(), _lock: lock };
        // Its sender is here, so it is not dropped meanwhile.
        drop(session.wait_for(|session| !matches!(session, Session::New)).await);
        manager.machine.bus()?;
        Ok(Arc::new(manager))
    }
}

/// Reads what an earlier manager has written down.
fn take_back(machine: &Machine) -> std::io::Result<()> {
    machine.files.forget_old_boot(&boot_id()?)?;
    for (unit, record) in machine.files.read()? {
        machine.reload.doubt([unit.clone()]);
        machine.units.follow(&unit, Some(record));
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
        load::load(&self.machine, unit, file, epoch).await
    }

    async fn reload(&self) -> Result<(), ServiceError> {
        let bus = self.machine.bus()?;
        reload::reload(&self.machine, &bus).await.map_err(unavailable)
    }

    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError> {
        load::unload(&self.machine, unit).await
    }

    async fn start(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        order::launch(&self.machine, unit, "StartUnit", generation).await
    }

    async fn restart(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        order::launch(&self.machine, unit, "RestartUnit", generation).await
    }

    async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError> {
        order::stop(&self.machine, unit).await
    }

    async fn reload_unit(&self, unit: &UnitName) -> Result<(), ServiceError> {
        order::reload_unit(&self.machine, unit).await
    }

    async fn get(&self, unit: &UnitName) -> Result<Option<ManagedUnit>, ServiceError> {
        self.machine.bus()?;
        Ok(self.machine.units.managed(unit))
    }

    async fn list(&self) -> Result<Vec<ManagedUnit>, ServiceError> {
        self.machine.bus()?;
        Ok(self.machine.units.all_managed())
    }

    async fn drift(&self, unit: &UnitName) -> Result<Option<Drift>, ServiceError> {
        Ok(self.machine.units.drift(unit))
    }

    async fn stop_time_out(&self, unit: &UnitName) -> Result<Option<Duration>, ServiceError> {
        self.machine.record(unit)?;
        let bus = self.machine.bus()?;
        look::stop_time_out(&bus, unit).await.map_err(unavailable)
    }

    fn changes(&self) -> StateChanges {
        self.machine.feed.subscribe()
    }

    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError> {
        self.read_journal(unit, Wanted::new(query))
    }

    async fn journal_after(
        &self,
        unit: &UnitName,
        position: &str,
        follow: bool,
    ) -> Result<Journal, ServiceError> {
        self.read_journal(unit, Wanted::after(position, follow))
    }
}

impl SystemdManager {
    fn read_journal(&self, unit: &UnitName, wanted: Wanted) -> Result<Journal, ServiceError> {
        self.machine.record(unit)?;
        let SystemdConfig { scope, clock, .. } = &self.machine.config;
        // The journals of users are not for others to touch.
        let is_nudged = wanted.follow && matches!(scope, SystemdScope::System);
        let following = is_nudged.then(|| self.nudges.follow(clock));
        let alive = self.machine.units.alive(unit).filter(|_| wanted.follow);
        journal::read(*scope, unit, wanted, following, clock.clone(), until_it_ends(alive))
    }
}

/// Waits until a unit is not known any more.
async fn until_it_ends(alive: Option<watch::Receiver<()>>) {
    let Some(mut alive) = alive else { return std::future::pending().await };
    while alive.changed().await.is_ok() {}
}
