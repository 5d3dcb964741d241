//! Has systemd read its unit files again where, and only where, it would go by old ones.
//!
//! A unit that systemd does not have in memory is read when it is needed, so a new unit needs no
//! reload. One is needed where systemd has an older definition in memory, or has not seen that
//! there is one, or has read what a unit wants before another was enabled for it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fleet_unitfile::UnitName;

use super::bus::{Bus, CallError, UNIT};
use super::context::ManagerContext;

/// Whether files have to be read again.
#[derive(Debug, Default)]
pub(crate) struct Reload {
    state: Mutex<State>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    required: bool,
    unverified: BTreeSet<UnitName>,
}

impl Reload {
    /// systemd has something in memory that is no longer so.
    pub(crate) fn require(&self) {
        self.lock().required = true;
    }

    /// Nobody knows whether systemd has read what is there of these units by now.
    pub(crate) fn mark_unverified(&self, units: impl IntoIterator<Item = UnitName>) {
        self.lock().unverified.extend(units);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the files read if that is needed; when it returns, systemd goes by what is there.
pub(crate) async fn reload(context: &ManagerContext, bus: &Bus) -> Result<(), CallError> {
    let _turn = context.reload.turn.lock().await;
    let State { required, unverified } = std::mem::take(&mut *context.reload.lock());
    let result = match required || is_behind(bus, &unverified).await.unwrap_or(true) {
        true => bus.manager("Reload", &()).await,
        false => Ok(()),
    };
    if result.is_err() {
        context.reload.require();
    }
    result
}

/// Whether systemd goes by an old definition of one of the units.
async fn is_behind(bus: &Bus, units: &BTreeSet<UnitName>) -> Result<bool, CallError> {
    for unit in units {
        let Some(path) = bus.loaded_path(unit.as_str()).await? else { continue };
        let load = bus.property::<String>(&path, UNIT, "LoadState").await?;
        if load == "not-found" || bus.property(&path, UNIT, "NeedDaemonReload").await? {
            return Ok(true);
        }
    }
    Ok(false)
}
