//! One run of one unit: from its start until none of its processes is left.

use std::sync::Arc;

use fleet_core::graph::{Happening, Incarnation, Name, Order};
use tokio::sync::mpsc::{self, error::TrySendError};

use super::inbox::{Inbox, News};
use crate::native::drive::Driver;
use crate::native::life::Memory;

/// How a run is, and what has happened in it.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) unit: Name,
    pub(super) incarnation: Incarnation,
    pub(super) happenings: Vec<Happening>,
    pub(super) memory: Arc<Memory>,
    /// What last kept a process from being started.
    pub(super) problem: Option<String>,
}

/// The task of one run.
pub(super) struct Course {
    pub(super) driver: Driver,
    pub(super) unit: Name,
    pub(super) incarnation: Incarnation,
    pub(super) inbox: Inbox,
    pub(super) reports: mpsc::Sender<Report>,
}

impl Course {
    /// Sees the run to its end, or until nobody leads any more: then its processes go on alone.
    ///
    /// What is kept on the way is in one place of its own: a task has room for all that is moved
    /// into it twice.
    pub(super) async fn run(mut self: Box<Self>) {
        let mut told: Option<Arc<Memory>> = None;
        loop {
            self.driver.act();
            let service = &self.driver.service;
            if service.has_happenings() || told.as_deref() != Some(service.memory()) {
                let Some(room) = room_for_one(self.reports.clone()).await else { return };
                let report = self.report();
                told = Some(Arc::clone(&report.memory));
                room.send(report);
            }
            if self.driver.service.is_at_rest() {
                return;
            }
            tokio::select! {
                told = self.inbox.next() => {
                    let Some((news, order)) = told else { return };
                    self.on_news(news);
                    order.iter().for_each(|order| self.on_order(order));
                }
                () = self.driver.wait() => {}
            }
        }
    }

    fn report(&mut self) -> Report {
        Report {
            unit: self.unit.clone(),
            incarnation: self.incarnation,
            happenings: self.driver.service.take_happenings(),
            memory: Arc::new(self.driver.service.memory().clone()),
            problem: self.driver.problem().map(ToOwned::to_owned),
        }
    }

    fn on_order(&mut self, order: &Order) {
        let now = self.driver.now();
        match order {
            Order::Stop { reason, .. } => self.driver.service.end(reason, now),
            Order::Kill => self.driver.service.kill(now),
            Order::Reload => self.driver.service.obey_reload(now),
            // A run is begun once.
            Order::Start => {}
        }
    }

    fn on_news(&mut self, News { spec, asked, kill }: News) {
        if kill {
            self.driver.kill_all();
        }
        if let Some(spec) = spec {
            self.driver.replace(spec);
        }
        if let Some(asked) = asked {
            self.driver.asked(asked);
        }
    }
}

/// Room for a report; nothing once nobody leads any more.
async fn room_for_one(reports: mpsc::Sender<Report>) -> Option<mpsc::OwnedPermit<Report>> {
    match reports.try_reserve_owned() {
        // In a place of its own: each unit that runs would have the room for what is seldom waited
        // for.
        Err(TrySendError::Full(reports)) => Box::pin(reports.reserve_owned()).await.ok(),
        room => room.ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_unit_that_runs_takes_little_room() {
        fn size<F: Future>(_: fn(Box<Course>) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(Course::run) <= 128, "a task of {} bytes", size(Course::run));
        assert!(size_of::<Course>() <= 1000, "a run of {} bytes", size_of::<Course>());
    }
}
