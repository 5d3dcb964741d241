//! One run of one unit: from its start until none of its processes is left.

use std::sync::Arc;

use fleet_core::graph::{Happening, Incarnation, Name, Order, Unit};
use tokio::sync::{mpsc, watch};

use crate::native::drive::Driver;
use crate::native::life::Memory;
use crate::native::record::Asked;

/// How many orders to one run wait. There are never more than a stop, a kill and a reload.
const WAITING_ORDERS: usize = 16;

/// What a run is to know. The latest counts, so however much there is of it takes no order's place.
#[derive(Debug, Clone, Default)]
pub(super) struct News {
    /// From now on it is run by this.
    pub(super) spec: Option<Arc<Unit>>,
    /// This was asked, and is done with what was decided.
    pub(super) asked: Option<Asked>,
    /// So often all of its processes were to be killed.
    pub(super) kills: u32,
}

/// What is told to a run.
pub(super) struct Told {
    pub(super) orders: mpsc::Receiver<Order>,
    news: watch::Receiver<News>,
    kills: u32,
}

/// Where a run is told what to do, and what it is to know.
pub(super) fn channel() -> (mpsc::Sender<Order>, watch::Sender<News>, Told) {
    let (order, orders) = mpsc::channel(WAITING_ORDERS);
    let (tell, news) = watch::channel(News::default());
    (order, tell, Told { orders, news, kills: 0 })
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
    pub(super) told: Told,
    pub(super) reports: mpsc::Sender<Report>,
}

impl Course {
    /// Sees the run to its end, or until nobody leads any more: then its processes go on alone.
    ///
    /// What is kept on the way is in one place of its own: a task has room for all that is moved
    /// into it twice.
    pub(super) async fn run(mut self: Box<Self>) {
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
                order = self.told.orders.recv() => match order {
                    Some(order) => {
                        // What was told before the order counts for it.
                        self.on_news();
                        self.on_order(&order);
                    }
                    None => return,
                },
                Ok(()) = self.told.news.changed() => self.on_news(),
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

    fn on_news(&mut self) {
        let News { spec, asked, kills } = self.told.news.borrow_and_update().clone();
        if std::mem::replace(&mut self.told.kills, kills) != kills {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_unit_that_runs_takes_little_room() {
        fn size<F: Future>(_: fn(Box<Course>) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(Course::run) <= 1536, "a task of {} bytes", size(Course::run));
        assert!(size_of::<Course>() <= 1536, "a run of {} bytes", size_of::<Course>());
    }

    #[test]
    fn much_that_is_asked_takes_no_order_its_place() {
        let (orders, news, mut told) = channel();
        for generation in 0..1000 {
            let asked = Asked { generation, ..Asked::default() };
            news.send_modify(|news| news.asked = Some(asked));
        }
        orders.try_send(Order::Kill).expect("there is room");
        assert_eq!(told.orders.try_recv(), Ok(Order::Kill));
        let asked = told.news.borrow_and_update().asked;
        assert_eq!(asked.map(|asked| asked.generation), Some(999), "the latest counts");
    }
}
