//! Task for one run of one unit, from its start until no process of the run is left.

use std::sync::Arc;

use fleet_core::graph::{ActionKind, EventKind, Incarnation, Name};
use tokio::sync::mpsc::{self, error::TrySendError};

use super::run_channel::{RunReceiver, RunUpdate};
use crate::native::run::driver::RunDriver;
use crate::native::run::machine::state::RunState;

/// State of a run, and the events since the last report.
#[derive(Debug)]
pub(super) struct RunReport {
    pub(super) unit: Name,
    pub(super) incarnation: Incarnation,
    pub(super) events: Vec<EventKind>,
    pub(super) run_state: Arc<RunState>,
    /// Latest reason why a process could not be started.
    pub(super) problem: Option<String>,
}

/// Task of one run.
pub(super) struct RunTask {
    pub(super) driver: RunDriver,
    pub(super) unit: Name,
    pub(super) incarnation: Incarnation,
    pub(super) receiver: RunReceiver,
    pub(super) reports: mpsc::Sender<RunReport>,
}

impl RunTask {
    /// Drives the run until it is over. If the supervisor ends first, returns and leaves the
    /// processes of the run running.
    ///
    /// `self` is boxed to save memory, because the future of an async function reserves space twice
    /// for a value moved into it.
    pub(super) async fn run(mut self: Box<Self>) {
        let mut reported: Option<Arc<RunState>> = None;
        loop {
            self.driver.act();
            let service = &self.driver.service;
            if service.has_events() || reported.as_deref() != Some(service.run_state()) {
                let Some(permit) = reserve_report_slot(self.reports.clone()).await else { return };
                let report = self.report();
                reported = Some(Arc::clone(&report.run_state));
                permit.send(report);
            }
            if self.driver.service.is_idle() {
                return;
            }
            tokio::select! {
                update = self.receiver.next() => {
                    let Some((update, action)) = update else { return };
                    self.on_update(update);
                    action.iter().for_each(|action| self.on_action(action));
                }
                () = self.driver.wait() => {}
            }
        }
    }

    fn report(&mut self) -> RunReport {
        RunReport {
            unit: self.unit.clone(),
            incarnation: self.incarnation,
            events: self.driver.service.take_events(),
            run_state: Arc::new(self.driver.service.run_state().clone()),
            problem: self.driver.problem().map(ToOwned::to_owned),
        }
    }

    fn on_action(&mut self, action: &ActionKind) {
        let now = self.driver.now();
        match action {
            ActionKind::Stop { reason, .. } => self.driver.service.stop(reason, now),
            ActionKind::Kill => self.driver.service.kill(now),
            ActionKind::Reload => self.driver.service.reload_or_report(now),
            // A run starts once.
            ActionKind::Start => {}
        }
    }

    fn on_update(&mut self, RunUpdate { spec, requested, kill }: RunUpdate) {
        if kill {
            self.driver.kill_all();
        }
        if let Some(spec) = spec {
            self.driver.set_definition(spec);
        }
        if let Some(requested) = requested {
            self.driver.set_requested(requested);
        }
    }
}

/// Reserves a slot for a report; `None` once the supervisor is gone.
async fn reserve_report_slot(
    reports: mpsc::Sender<RunReport>,
) -> Option<mpsc::OwnedPermit<RunReport>> {
    match reports.try_reserve_owned() {
        // Boxed: otherwise each running unit would hold the space of this rare wait.
        Err(TrySendError::Full(reports)) => Box::pin(reports.reserve_owned()).await.ok(),
        permit => permit.ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_task_is_small() {
        fn size<F: Future>(_: fn(Box<RunTask>) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(RunTask::run) <= 128, "a task of {} bytes", size(RunTask::run));
        assert!(size_of::<RunTask>() <= 1024, "a run of {} bytes", size_of::<RunTask>());
    }
}
