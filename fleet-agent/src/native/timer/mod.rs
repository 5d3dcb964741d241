//! Timers: one task sees to all of a manager's.
//!
//! ```text
//! Timers ── requests ──> keeper ── TimerLife    when it elapses, in which state it is (pure)
//!                          │ ├──── Queue        which is due next (pure)
//!                          │ ├──── Calendar     its time_index, also when it is set
//!                          │ └──── Written      what is kept on disk
//!                          └── Units            starts their units, and tells of them
//! ```
//!
//! What runs the units is known here by [`Units`] alone.

mod alarm;
mod entry;
mod queue;
mod storage;
mod timer_task;
mod zones;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use fleet_core::graph::systemd::Timer;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName, UnitType};
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use self::timer_task::TimerTask;
pub(crate) use self::zones::is_zone;
use super::identity::HostCapabilities;
use super::manager_context::ManagerContext;
use crate::{ChangeReceiver, Journal, ManagedUnit, ServiceError};

/// How many requests wait for their turn; the next caller waits to hand its own in.
const REQUEST_CAPACITY: usize = 16;

/// Who runs the units that timers start.
pub(crate) trait TimerTargets: Send + Sync + 'static {
    /// Starts a unit because of one elapse of a timer, and returns when its start is over: whether
    /// it is known at all. What was asked of it stays as it was. Told once more of the same elapse
    /// it starts nothing, and waits for the end of that start.
    fn start(&self, unit: &UnitName, elapse: u64) -> BoxFuture<'static, bool>;

    /// Whether a unit is neither inactive nor failed; nothing if it is not known.
    fn is_active(&self, unit: &UnitName) -> Option<bool>;

    /// Reports which units change from now on.
    fn changes(&self) -> ChangeReceiver;
}

/// What is asked of one timer.
#[derive(Debug)]
enum TimerRequest {
    Load {
        file: UnitFile,
        timer: Arc<Timer>,
        epoch: Epoch,
    },
    Start(Generation),
    Restart(Generation),
    /// A start because of another unit that wants it.
    Pull,
    Stop,
    Unload,
}

/// Where the answer to a request goes.
type Reply = oneshot::Sender<Result<(), ServiceError>>;

type QueuedRequest = (UnitName, TimerRequest, Reply);

/// What everybody may see of all timers.
type TimerStatusMap = Arc<Mutex<BTreeMap<UnitName, PublishedTimer>>>;

/// What everybody may see of one.
#[derive(Debug)]
struct PublishedTimer {
    unit: ManagedUnit,
    /// Ends with the timer, so that those who follow it end too.
    alive: watch::Sender<()>,
}

/// The timers of one manager, from outside.
pub(crate) struct Timers {
    requests: mpsc::Sender<QueuedRequest>,
    statuses: TimerStatusMap,
    task: AbortHandle,
}

/// Whether a unit is a timer.
pub(crate) fn is_timer(unit: &UnitName) -> bool {
    unit.unit_type() == UnitType::Timer
}

impl Timers {
    /// Takes back what an earlier manager of that directory knew of timers, unless the machine was
    /// booted since.
    pub(crate) fn open(
        context: &Arc<ManagerContext>,
        units: Arc<dyn TimerTargets>,
        host: &HostCapabilities,
        directory: &Path,
    ) -> io::Result<Self> {
        let statuses = TimerStatusMap::default();
        // Before the first look at a unit, so that nothing it does after that is missed.
        let changes = units.changes();
        let mut task = TimerTask::open(context, units, directory, &statuses)?;
        task.recover(host)?;
        let (requests, inbox) = mpsc::channel(REQUEST_CAPACITY);
        let task = tokio::spawn(task.run(inbox, changes)).abort_handle();
        Ok(Self { requests, statuses, task })
    }

    pub(crate) async fn load(
        &self,
        unit: &UnitName,
        file: &UnitFile,
        timer: Timer,
        epoch: Epoch,
    ) -> Result<(), ServiceError> {
        self.request(unit, TimerRequest::Load { file: file.clone(), timer: Arc::new(timer), epoch })
            .await
    }

    pub(crate) async fn start(&self, unit: &UnitName, at: Generation) -> Result<(), ServiceError> {
        self.request(unit, TimerRequest::Start(at)).await
    }

    pub(crate) async fn restart(
        &self,
        unit: &UnitName,
        at: Generation,
    ) -> Result<(), ServiceError> {
        self.request(unit, TimerRequest::Restart(at)).await
    }

    /// Starts a timer because another unit wants it. What was asked of it stays as it was.
    pub(crate) async fn pull(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.request(unit, TimerRequest::Pull).await
    }

    pub(crate) async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.request(unit, TimerRequest::Stop).await
    }

    pub(crate) async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.request(unit, TimerRequest::Unload).await
    }

    pub(crate) fn get(&self, unit: &UnitName) -> Option<ManagedUnit> {
        let statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        statuses.get(unit).map(|seen| seen.unit.clone())
    }

    /// What a timer writes, which is nothing: one that is followed ends with the timer or with its
    /// reader. Nothing if it is not known.
    pub(crate) fn journal(&self, unit: &UnitName, follow: bool) -> Option<Journal> {
        let statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        let mut alive = statuses.get(unit)?.alive.subscribe();
        let (sender, journal) = Journal::channel();
        if follow {
            tokio::spawn(async move {
                tokio::select! {
                    () = sender.closed() => {}
                    // It says nothing but that there is no such timer any more.
                    _ = alive.changed() => {}
                }
            });
        }
        Some(journal)
    }

    /// All of them, in the order of their names.
    pub(crate) fn list(&self) -> Vec<ManagedUnit> {
        let statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        statuses.values().map(|seen| seen.unit.clone()).collect()
    }

    async fn request(&self, unit: &UnitName, ask: TimerRequest) -> Result<(), ServiceError> {
        let ended = || {
            let what = "what sees to timers has ended: restart the daemon";
            ServiceError::Unavailable(what.to_owned())
        };
        let (reply, answer) = oneshot::channel();
        self.requests.send((unit.clone(), ask, reply)).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        self.task.abort();
    }
}
