//! Task for one run of one unit, from its start until no process of the run is left, and the
//! channel for its actions and updates.
//!
//! The channel allocates no space in advance, because most of the hundreds of running units never
//! receive a message. A channel of tokio would allocate space for dozens of messages.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use fleet_core::graph::{ActionKind, EventKind, Incarnation, InitUnit, Name};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::lock::lock;
use crate::native::run::driver::RunDriver;
use crate::native::run::machine::state::RunState;
use crate::native::state::unit_directory::RequestedState;

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

/// Maximum number of queued actions. In practice at most a stop, a kill and a reload are queued.
const ACTION_CAPACITY: usize = 16;

/// Pending update for a run. A new value overwrites the pending one, so that updates, unlike
/// actions, cannot fill a queue.
#[derive(Debug, Default)]
pub(super) struct RunUpdate {
    /// New definition of the unit.
    pub(super) spec: Option<Arc<InitUnit>>,
    /// Requested state that is applied by the current decision.
    pub(super) requested: Option<RequestedState>,
    /// Whether to kill all processes of the run.
    pub(super) kill: bool,
}

/// Receiving end, held by the run.
pub(super) struct RunReceiver(Arc<Mutex<Channel>>);

/// Sending end, held by the supervisor. Dropping it closes the channel.
pub(super) struct RunSender(Arc<Mutex<Channel>>);

/// Error for a full queue: the action is lost.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct QueueFull;

#[derive(Default)]
struct Channel {
    update: Option<RunUpdate>,
    actions: VecDeque<ActionKind>,
    is_closed: bool,
    /// Waker of the task that waits for more.
    waker: Option<Waker>,
}

/// Creates a channel to one run.
pub(super) fn run_channel() -> (RunSender, RunReceiver) {
    let shared = Arc::<Mutex<Channel>>::default();
    (RunSender(Arc::clone(&shared)), RunReceiver(shared))
}

impl RunReceiver {
    /// Waits for an update or an action. Returns all pending updates, together with at most one
    /// action. Returns `None` once the sender is dropped and everything has been received.
    /// Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<(RunUpdate, Option<ActionKind>)> {
        poll_fn(|cx| lock(&self.0).poll(cx)).await
    }
}

impl RunSender {
    /// Queues an action. If the run is over, the action has no effect.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] if the run has not yet received the last 16 actions.
    pub(super) fn send(&self, action: ActionKind) -> Result<(), QueueFull> {
        self.change(|channel| {
            if channel.actions.len() == ACTION_CAPACITY {
                return Err(QueueFull);
            }
            channel.actions.push_back(action);
            Ok(())
        })
    }

    /// Adds to the pending update.
    pub(super) fn update(&self, add: impl FnOnce(&mut RunUpdate)) {
        self.change(|channel| add(channel.update.get_or_insert_default()));
    }

    /// Takes the requested state that a finished run has not read.
    pub(super) fn take_unread_request(&self) -> Option<RequestedState> {
        self.change(|channel| channel.update.take()?.requested)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Channel) -> T) -> T {
        let mut channel = lock(&self.0);
        let changed = change(&mut channel);
        let waker = channel.waker.take();
        drop(channel);
        waker.into_iter().for_each(Waker::wake);
        changed
    }
}

impl Drop for RunSender {
    fn drop(&mut self) {
        self.change(|channel| channel.is_closed = true);
    }
}

impl Channel {
    /// Returns the next message, as [`take`](Self::take) does, or registers the waker.
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<(RunUpdate, Option<ActionKind>)>> {
        let found = self.take();
        if found.is_none() {
            self.waker = Some(cx.waker().clone());
        }
        found.map_or(Poll::Pending, Poll::Ready)
    }

    /// Takes the next message. Returns `None` if nothing is queued, and `Some(None)` if the channel
    /// is closed and empty.
    fn take(&mut self) -> Option<Option<(RunUpdate, Option<ActionKind>)>> {
        let (update, action) = (self.update.take(), self.actions.pop_front());
        if update.is_none() && action.is_none() {
            return self.is_closed.then_some(None);
        }
        Some(Some((update.unwrap_or_default(), action)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn run_task_is_small() {
        fn size<F: Future>(_: fn(Box<RunTask>) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(RunTask::run) <= 128, "a task of {} bytes", size(RunTask::run));
        assert!(size_of::<RunTask>() <= 1024, "a run of {} bytes", size_of::<RunTask>());
    }

    /// Polls the receiver once. Returns the next message, `None` if nothing is queued, or
    /// `Some(None)` once the channel is closed.
    fn now(receiver: &mut RunReceiver) -> Option<Option<(RunUpdate, Option<ActionKind>)>> {
        receiver.next().now_or_never()
    }

    #[test]
    fn updates_take_no_action_slot() {
        let (sender, mut receiver) = run_channel();
        for generation in 0..1000 {
            sender.update(|update| {
                update.requested = Some(RequestedState { generation, ..RequestedState::default() });
            });
        }
        sender.send(ActionKind::Kill).expect("there is room");
        let (update, action) = now(&mut receiver).flatten().expect("it waits");
        assert_eq!(action, Some(ActionKind::Kill));
        assert_eq!(
            update.requested.map(|requested| requested.generation),
            Some(999),
            "the latest counts"
        );
        assert!(now(&mut receiver).is_none(), "all of it is read");
    }

    #[test]
    fn actions_are_received_in_order_and_bounded() {
        let (sender, mut receiver) = run_channel();
        sender.send(ActionKind::Reload).expect("there is room");
        (1..ACTION_CAPACITY).for_each(|_| sender.send(ActionKind::Kill).expect("there is room"));
        assert_eq!(sender.send(ActionKind::Kill), Err(QueueFull));
        assert_eq!(now(&mut receiver).flatten().and_then(|it| it.1), Some(ActionKind::Reload));
        assert_eq!(sender.send(ActionKind::Kill), Ok(()), "there is room again");
        let rest = std::iter::from_fn(|| now(&mut receiver).flatten().and_then(|it| it.1));
        assert_eq!(rest.collect::<Vec<_>>(), vec![ActionKind::Kill; ACTION_CAPACITY]);
    }

    #[test]
    fn queued_messages_are_received_after_closing() {
        let (sender, mut receiver) = run_channel();
        sender.update(|update| update.kill = true);
        drop(sender);
        assert!(now(&mut receiver).flatten().expect("it waits").0.kill);
        assert!(matches!(now(&mut receiver), Some(None)), "then there is nothing any more");
    }

    #[tokio::test]
    async fn receiver_is_woken_after_a_cancelled_wait() {
        let (sender, mut receiver) = run_channel();
        assert!(now(&mut receiver).is_none());
        let channel = tokio::spawn(async move { receiver.next().await });
        tokio::task::yield_now().await;
        sender.send(ActionKind::Reload).expect("there is room");
        let (_, action) = channel.await.expect("it ends").expect("the supervisor runs");
        assert_eq!(action, Some(ActionKind::Reload));
    }

    #[tokio::test]
    async fn receiver_is_woken_by_updates_and_by_closing() {
        let (sender, mut receiver) = run_channel();
        let channel = tokio::spawn(async move {
            let update = receiver.next().await;
            (update.is_some_and(|(update, _)| update.kill), receiver.next().await.is_none())
        });
        tokio::task::yield_now().await;
        sender.update(|update| update.kill = true);
        tokio::task::yield_now().await;
        drop(sender);
        assert_eq!(channel.await.expect("it ends"), (true, true));
    }
}
