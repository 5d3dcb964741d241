//! The units that timers start, as those who lead and show all units know them.

use std::sync::Arc;

use fleet_core::ActiveState;
use fleet_unitfile::UnitName;
use futures_util::future::{BoxFuture, FutureExt as _};

use super::calls::{Ask, Calls};
use super::machine::Machine;
use super::timer::Units;
use crate::{ServiceError, StateChanges};

pub(super) struct Triggered {
    machine: Arc<Machine>,
    calls: Arc<Calls>,
}

impl Triggered {
    pub(super) fn new(machine: &Arc<Machine>, calls: &Arc<Calls>) -> Self {
        Self { machine: Arc::clone(machine), calls: Arc::clone(calls) }
    }
}

impl Units for Triggered {
    fn start(&self, unit: &UnitName, elapse: u64) -> BoxFuture<'static, bool> {
        let (calls, unit) = (Arc::clone(&self.calls), unit.clone());
        let directory = self.machine.directory(unit.as_str());
        async move {
            let asked = calls.ask(&unit, Ask::Trigger(elapse), directory).await;
            !matches!(asked, Err(ServiceError::NotLoaded { .. }))
        }
        .boxed()
    }

    fn is_active(&self, unit: &UnitName) -> Option<bool> {
        let active = self.calls.seen(unit)?.unit.state.active;
        Some(!matches!(active, ActiveState::Inactive | ActiveState::Failed))
    }

    fn changes(&self) -> StateChanges {
        self.machine.feed.subscribe()
    }
}
