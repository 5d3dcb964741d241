//! The units that timers start, as the timer task sees them.

use std::sync::Arc;

use fleet_core::ActiveState;
use fleet_unitfile::UnitName;
use futures_util::future::{BoxFuture, FutureExt as _};

use super::client::{SupervisorClient, UnitRequest};
use super::timer::TimerTargets;
use crate::native::state::manager_context::ManagerContext;
use crate::{ChangeReceiver, ServiceError};

pub(crate) struct SupervisedTargets {
    context: Arc<ManagerContext>,
    client: Arc<SupervisorClient>,
}

impl SupervisedTargets {
    pub(crate) fn new(context: &Arc<ManagerContext>, client: &Arc<SupervisorClient>) -> Self {
        Self { context: Arc::clone(context), client: Arc::clone(client) }
    }
}

impl TimerTargets for SupervisedTargets {
    fn start(&self, unit: &UnitName, elapse: u64) -> BoxFuture<'static, bool> {
        let (client, unit) = (Arc::clone(&self.client), unit.clone());
        let directory = self.context.directory(unit.as_str());
        async move {
            let requested = client.request(&unit, UnitRequest::Trigger(elapse), directory).await;
            !matches!(requested, Err(ServiceError::NotLoaded { .. }))
        }
        .boxed()
    }

    fn is_active(&self, unit: &UnitName) -> Option<bool> {
        let active = self.client.status(unit)?.unit.state.active;
        Some(!matches!(active, ActiveState::Inactive | ActiveState::Failed))
    }

    fn changes(&self) -> ChangeReceiver {
        self.context.feed.subscribe()
    }
}
