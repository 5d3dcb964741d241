//! What is told to one run, from outside. A channel of a library takes room for dozens of orders
//! before there is the first, and hundreds of units run that are told nothing.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use fleet_core::graph::{Order, Unit};

use super::lead::lock;
use crate::native::record::Asked;

/// How many orders to one run wait. There are never more than a stop, a kill and a reload.
const WAITING_ORDERS: usize = 16;

/// What a run is to know. The latest counts, so however much there is of it takes no order's place.
#[derive(Debug, Default)]
pub(super) struct News {
    /// From now on it is run by this.
    pub(super) spec: Option<Arc<Unit>>,
    /// This was asked, and is done with what was decided.
    pub(super) asked: Option<Asked>,
    /// All of its processes are to be killed.
    pub(super) kill: bool,
}

/// Where a run finds what it is told.
pub(super) struct Inbox(Arc<Mutex<Waiting>>);

/// Where a run is told what to do, and what it is to know. Once it is dropped nobody leads the run.
pub(super) struct Outside(Arc<Mutex<Waiting>>);

/// That so many orders wait already, so that this one is lost.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

#[derive(Default)]
struct Waiting {
    news: Option<News>,
    orders: VecDeque<Order>,
    is_left: bool,
    /// Who waits for more.
    reader: Option<Waker>,
}

/// Both ends of what is told to one run.
pub(super) fn inbox() -> (Outside, Inbox) {
    let shared = Arc::<Mutex<Waiting>>::default();
    (Outside(Arc::clone(&shared)), Inbox(shared))
}

impl Inbox {
    /// Waits for an order or for news: the next order, if there is one, and all news that there are
    /// by then; or nothing, when all is read and nobody leads the run any more. Nothing is lost by
    /// not waiting to the end.
    pub(super) async fn next(&mut self) -> Option<(News, Option<Order>)> {
        poll_fn(|cx| lock(&self.0).poll(cx)).await
    }
}

impl Outside {
    /// Gives an order. One that is given to a run that is over is passed over.
    ///
    /// # Errors
    ///
    /// When too many wait.
    pub(super) fn order(&self, order: Order) -> Result<(), Full> {
        self.change(|waiting| {
            if waiting.orders.len() == WAITING_ORDERS {
                return Err(Full);
            }
            waiting.orders.push_back(order);
            Ok(())
        })
    }

    /// Adds to what the run is to know.
    pub(super) fn tell(&self, add: impl FnOnce(&mut News)) {
        self.change(|waiting| add(waiting.news.get_or_insert_default()));
    }

    /// What a run that is over was still told to be done, and nobody has read.
    pub(super) fn unread(&self) -> Option<Asked> {
        self.change(|waiting| waiting.news.take()?.asked)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        let mut waiting = lock(&self.0);
        let changed = change(&mut waiting);
        let reader = waiting.reader.take();
        drop(waiting);
        reader.into_iter().for_each(Waker::wake);
        changed
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.change(|waiting| waiting.is_left = true);
    }
}

impl Waiting {
    /// What waits, as [`take`](Self::take) has it; until then, who asks is woken by what comes.
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<(News, Option<Order>)>> {
        let found = self.take();
        if found.is_none() {
            self.reader = Some(cx.waker().clone());
        }
        found.map_or(Poll::Pending, Poll::Ready)
    }

    /// What waits, if anything does; or that nothing will any more.
    fn take(&mut self) -> Option<Option<(News, Option<Order>)>> {
        let (news, order) = (self.news.take(), self.orders.pop_front());
        if news.is_none() && order.is_none() {
            return self.is_left.then_some(None);
        }
        Some(Some((news.unwrap_or_default(), order)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    /// What waits, without waiting: nothing; that it was the last; or how it is.
    fn now(inbox: &mut Inbox) -> Option<Option<(News, Option<Order>)>> {
        inbox.next().now_or_never()
    }

    #[test]
    fn much_that_is_asked_takes_no_order_its_place() {
        let (outside, mut inbox) = inbox();
        for generation in 0..1000 {
            outside.tell(|news| news.asked = Some(Asked { generation, ..Asked::default() }));
        }
        outside.order(Order::Kill).expect("there is room");
        let (news, order) = now(&mut inbox).flatten().expect("it waits");
        assert_eq!(order, Some(Order::Kill));
        assert_eq!(news.asked.map(|asked| asked.generation), Some(999), "the latest counts");
        assert!(now(&mut inbox).is_none(), "all of it is read");
    }

    #[test]
    fn orders_are_read_in_turn_and_too_many_are_refused() {
        let (outside, mut inbox) = inbox();
        outside.order(Order::Reload).expect("there is room");
        (1..WAITING_ORDERS).for_each(|_| outside.order(Order::Kill).expect("there is room"));
        assert_eq!(outside.order(Order::Kill), Err(Full));
        assert_eq!(now(&mut inbox).flatten().and_then(|it| it.1), Some(Order::Reload));
        assert_eq!(outside.order(Order::Kill), Ok(()), "there is room again");
        let rest = std::iter::from_fn(|| now(&mut inbox).flatten().and_then(|it| it.1));
        assert_eq!(rest.collect::<Vec<_>>(), vec![Order::Kill; WAITING_ORDERS]);
    }

    #[test]
    fn what_waits_is_read_after_nobody_leads_any_more() {
        let (outside, mut inbox) = inbox();
        outside.tell(|news| news.kill = true);
        drop(outside);
        assert!(now(&mut inbox).flatten().expect("it waits").0.kill);
        assert!(matches!(now(&mut inbox), Some(None)), "then there is nothing any more");
    }

    #[tokio::test]
    async fn who_waits_hears_of_an_order_also_after_it_had_stopped_waiting() {
        let (outside, mut inbox) = inbox();
        assert!(now(&mut inbox).is_none());
        let waiting = tokio::spawn(async move { inbox.next().await });
        tokio::task::yield_now().await;
        outside.order(Order::Reload).expect("there is room");
        let (_, order) = waiting.await.expect("it ends").expect("somebody leads");
        assert_eq!(order, Some(Order::Reload));
    }

    #[tokio::test]
    async fn who_waits_hears_of_news_and_that_nobody_leads_any_more() {
        let (outside, mut inbox) = inbox();
        let waiting = tokio::spawn(async move {
            let news = inbox.next().await;
            (news.is_some_and(|(news, _)| news.kill), inbox.next().await.is_none())
        });
        tokio::task::yield_now().await;
        outside.tell(|news| news.kill = true);
        tokio::task::yield_now().await;
        drop(outside);
        assert_eq!(waiting.await.expect("it ends"), (true, true));
    }
}
