//! Makes systemd reload its unit files, but only if it would otherwise use old ones.
//!
//! systemd reads a unit from its file when the unit is needed and not in memory. So a new unit
//! needs no reload. A reload is needed in three cases:
//!
//! - systemd has an older definition of a unit in memory.
//! - systemd has not noticed the file of a unit.
//! - systemd has a unit in memory (for example a target), and another unit was then enabled as a
//!   dependency of it (`WantedBy=`).

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fleet_unitfile::UnitName;

use super::bus::{Bus, CallError, UNIT};
use super::context::ManagerContext;

/// Whether files have to be reloaded.
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
    /// Records that systemd has an outdated definition in memory.
    pub(crate) fn require(&self) {
        self.lock().required = true;
    }

    /// Records units of which systemd may have read an older definition.
    pub(crate) fn mark_unverified(&self, units: impl IntoIterator<Item = UnitName>) {
        self.lock().unverified.extend(units);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reloads if needed; when this returns, systemd uses the current files.
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

/// Whether systemd uses an old definition of one of the units.
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
