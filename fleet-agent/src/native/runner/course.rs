//! One run of one unit: from its start until none of its processes is left.

use std::sync::Arc;

use fleet_core::graph::{Happening, Incarnation, Name, Order, Unit};
use tokio::sync::mpsc;

use crate::native::drive::Driver;
use crate::native::life::Memory;
use crate::native::record::Asked;

/// How many orders to one run wait. There are never more than a stop, a kill and a reload; what
/// else does not fit is told as lost.
pub(super) const WAITING_ORDERS: usize = 16;

/// What is to be done in a run.
#[derive(Debug)]
pub(super) enum Errand {
    /// What was decided.
    Order(Order),
    /// From now on it is run by this.
    Replace(Arc<Unit>),
    /// This was asked, and is done with what was decided.
    Asked(Asked),
}

/// How a run is, and what has happened in it.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) unit: Name,
    pub(super) incarnation: Incarnation,
    pub(super) happenings: Vec<Happening>,
    pub(super) memory: Memory,
    /// What last kept a process from being started.
    pub(super) problem: Option<String>,
}

/// The task of one run.
pub(super) struct Course {
    pub(super) driver: Driver,
    pub(super) unit: Name,
    pub(super) incarnation: Incarnation,
    pub(super) errands: mpsc::Receiver<Errand>,
    pub(super) reports: mpsc::Sender<Report>,
}

impl Course {
    /// Sees the run to its end, or until nobody leads any more: then its processes go on alone.
    pub(super) async fn run(mut self) {
        let mut told: Option<Memory> = None;
        loop {
            self.driver.act();
            let report = self.report();
            if !report.happenings.is_empty() || told.as_ref() != Some(&report.memory) {
                told = Some(report.memory.clone());
                if self.reports.send(report).await.is_err() {
                    return;
                }
            }
            if self.driver.service.is_at_rest() {
                return;
            }
            tokio::select! {
                errand = self.errands.recv() => match errand {
                    Some(errand) => self.on_errand(errand),
                    None => return,
                },
                () = self.driver.wait() => {}
            }
        }
    }

    fn report(&mut self) -> Report {
        Report {
            unit: self.unit.clone(),
            incarnation: self.incarnation,
            happenings: self.driver.service.take_happenings(),
            memory: self.driver.service.memory().clone(),
            problem: self.driver.problem().map(ToOwned::to_owned),
        }
    }

    fn on_errand(&mut self, errand: Errand) {
        let now = self.driver.now();
        match errand {
            Errand::Order(Order::Stop { reason, .. }) => self.driver.service.end(&reason, now),
            Errand::Order(Order::Kill) => self.driver.service.kill(now),
            Errand::Order(Order::Reload) => self.driver.service.obey_reload(now),
            // A run is begun once.
            Errand::Order(Order::Start) => {}
            Errand::Replace(spec) => self.driver.replace(spec),
            Errand::Asked(asked) => self.driver.asked(asked),
        }
    }
}
