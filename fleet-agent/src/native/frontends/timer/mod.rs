//! The timers of a manager. One task runs all of them.
//!
//! ```text
//! Timers ── requests ──> TimerTask ── TimerMachine     next elapse and state (pure)
//!                           │ ├────── TimerQueue       order of the next elapses (pure)
//!                           │ ├────── CalendarAlarm    wall-clock times, and changes of the clock
//!                           │ └────── StoredTimer      stored state
//!                           └── TimerTargets           starts the units, and reports their changes
//! ```
//!
//! The task accesses the units that the timers start only through [`TimerTargets`].

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

use fleet_core::graph::systemd::{DualTimestamp, NextElapse, Timer};
use fleet_core::{Epoch, Generation, Timestamp};
use fleet_unitfile::{UnitFile, UnitName, UnitType};
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use self::timer_task::TimerTask;
use crate::native::state::manager_context::ManagerContext;
use crate::native::supervisor::host_capabilities::HostCapabilities;
use crate::{ChangeReceiver, Journal, ManagedUnit, ServiceError, UnitDetails};

/// Maximum number of queued requests; further callers wait for a free slot.
const REQUEST_CAPACITY: usize = 16;

/// Units that timers start.
pub(crate) trait TimerTargets: Send + Sync + 'static {
    /// Starts a unit for one elapse of a timer, and waits until the start has succeeded or failed.
    /// Returns whether the unit is loaded.
    ///
    /// `elapse` identifies the elapse. A second call with the same value starts nothing, and only
    /// waits for the first start. The start does not count as a launch of the unit by fleet.
    fn start(&self, unit: &UnitName, elapse: u64) -> BoxFuture<'static, bool>;

    /// Returns whether a unit is active or in transition: in any state except inactive and failed.
    /// Returns `None` if the unit is not loaded.
    fn is_active(&self, unit: &UnitName) -> Option<bool>;

    /// Returns a receiver of the units that change from now on.
    fn changes(&self) -> ChangeReceiver;
}

/// Request for one timer.
#[derive(Debug)]
enum TimerRequest {
    Load {
        file: UnitFile,
        timer: Arc<Timer>,
        epoch: Epoch,
    },
    Start(Generation),
    Restart(Generation),
    /// Start because of another unit that wants the timer.
    Pull,
    Stop,
    Unload,
}

/// Channel for the result of a request.
type Reply = oneshot::Sender<Result<(), ServiceError>>;

type QueuedRequest = (UnitName, TimerRequest, Reply);

/// Published status of all timers.
type TimerStatusMap = Arc<Mutex<BTreeMap<UnitName, PublishedTimer>>>;

/// Published status of a timer.
#[derive(Debug)]
struct PublishedTimer {
    unit: ManagedUnit,
    next: NextElapse,
    /// Time of the last elapse by the wall clock.
    last: Option<Timestamp>,
    /// Dropped with the timer, which ends the journals that follow it.
    alive: watch::Sender<()>,
}

/// Handle to the timers of a manager.
pub(crate) struct Timers {
    requests: mpsc::Sender<QueuedRequest>,
    statuses: TimerStatusMap,
    task: AbortHandle,
}

/// Returns whether a unit is a timer.
pub(crate) fn is_timer(unit: &UnitName) -> bool {
    unit.unit_type() == UnitType::Timer
}

impl Timers {
    /// Recovers the timers that an earlier daemon has stored since boot. After a reboot, only the
    /// last elapses of persistent timers are left. They are kept in `directory`.
    pub(crate) fn open(
        context: &Arc<ManagerContext>,
        units: Arc<dyn TimerTargets>,
        host: &HostCapabilities,
        directory: &Path,
    ) -> io::Result<Self> {
        let statuses = TimerStatusMap::default();
        // Subscribed before the first check of a unit, so that no change is missed.
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

    /// Starts a timer because another unit wants it. The start does not count as a launch of the
    /// timer by fleet.
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

    /// Returns when a timer elapses next, and when it last elapsed. Both are times of the wall
    /// clock. Returns `None` if the timer is not loaded.
    pub(crate) fn details(&self, unit: &UnitName, now: DualTimestamp) -> Option<UnitDetails> {
        let statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        let timer = statuses.get(unit)?;
        Some(UnitDetails {
            next_elapse: timer.next.to_wall(now),
            last_elapse: timer.last,
            ..UnitDetails::default()
        })
    }

    /// Returns the journal of a timer, which is always empty. A followed journal ends when the
    /// timer is unloaded or the reader is dropped. Returns `None` if the timer is not loaded.
    pub(crate) fn journal(&self, unit: &UnitName, follow: bool) -> Option<Journal> {
        let statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        let mut alive = statuses.get(unit)?.alive.subscribe();
        let (sender, journal) = Journal::channel();
        if follow {
            tokio::spawn(async move {
                tokio::select! {
                    () = sender.closed() => {}
                    // The channel closes when the timer is unloaded; it carries no values.
                    _ = alive.changed() => {}
                }
            });
        }
        Some(journal)
    }

    /// Returns all timers, ordered by name.
    pub(crate) fn list(&self) -> Vec<ManagedUnit> {
        let statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        statuses.values().map(|seen| seen.unit.clone()).collect()
    }

    async fn request(&self, unit: &UnitName, ask: TimerRequest) -> Result<(), ServiceError> {
        let ended = || {
            let what = "the timer task has crashed: restart the daemon";
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
