//! Calls to a native service manager. The calls for one unit run in order, and each requested state
//! is stored on disk before it takes effect.
//!
//! A caller may stop waiting for its result at any time. A call that has started runs to completion
//! nevertheless, so the stored state always matches the state in effect.

use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::io;
use std::sync::{Arc, Mutex};

use fleet_core::graph::systemd::{self, Relation};
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};
use futures_util::future::{join, join_all};
use tokio::sync::{OwnedMutexGuard, Semaphore, mpsc, oneshot};

use crate::native::state::manager_context::ManagerContext;
use crate::native::state::unit_directory::{RequestedState, UnitDirectory};
use crate::native::supervisor::InitSnapshot;
use crate::native::supervisor::event_loop::{Request, Supervisor, lock};
use crate::native::supervisor::managed_units::{
    CallResult, Definition, LoadedUnit, PublishedStatus, PulledTimer, Reply, StatusMap,
};
use crate::{ManagedUnit, ServiceError, UnitDetails};

/// Maximum number of concurrent writes by calls for services. The number is limited because each
/// write occupies a thread, and all writes share one disk.
const MAX_WRITERS: usize = 8;

/// Request for a loaded unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitRequest {
    Start(Generation),
    Restart(Generation),
    Stop,
    /// Start by a timer that has elapsed. The value is the ID of this elapse, by which a repeated
    /// request is recognized. Unlike `Start`, this request does not mark the unit as launched by
    /// fleet.
    Trigger(u64),
}

/// A lock per unit that serializes its calls.
type UnitLocks = Mutex<BTreeMap<UnitName, Arc<tokio::sync::Mutex<()>>>>;

/// Client of the supervisor of managed units.
pub(crate) struct SupervisorClient {
    context: Arc<ManagerContext>,
    requests: mpsc::Sender<Request>,
    statuses: StatusMap,
    /// Locks of the units with a call in progress.
    locks: UnitLocks,
    writers: Semaphore,
}

impl UnitRequest {
    /// Returns the requested state after this request.
    fn apply_to(self, before: RequestedState) -> RequestedState {
        match self {
            Self::Start(generation) => {
                RequestedState { generation: generation.0, launched: true, ..before }
            }
            Self::Restart(Generation(generation)) => RequestedState {
                generation,
                launched: true,
                restart_generation: generation,
                ..before
            },
            Self::Stop => before.stopped(),
            // Known already: its run may be over by now, or the unit stopped.
            Self::Trigger(trigger) if trigger == before.trigger => before,
            Self::Trigger(trigger) => RequestedState { triggered: true, trigger, ..before },
        }
    }

    fn is_start(self) -> bool {
        self != Self::Stop
    }

    fn dispatch(
        self,
        supervisor: &mut Supervisor,
        unit: &UnitName,
        requested: RequestedState,
        reply: Reply,
    ) {
        match self {
            Self::Start(_) => supervisor.start(unit, requested, reply),
            Self::Restart(_) => supervisor.restart(unit, requested, reply),
            Self::Stop => supervisor.stop(unit, requested, reply),
            Self::Trigger(_) => supervisor.trigger(unit, requested, reply),
        }
    }
}

impl SupervisorClient {
    pub(crate) fn new(
        context: &Arc<ManagerContext>,
        requests: mpsc::Sender<Request>,
        statuses: StatusMap,
    ) -> Self {
        let (locks, writers) = (UnitLocks::default(), Semaphore::new(MAX_WRITERS));
        Self { context: Arc::clone(context), requests, statuses, locks, writers }
    }

    /// Returns the published status of a unit; `None` if it is not loaded.
    pub(crate) fn status(&self, unit: &UnitName) -> Option<Arc<PublishedStatus>> {
        lock(&self.statuses).get(unit).cloned()
    }

    /// Returns the status of all loaded units.
    pub(crate) fn list(&self) -> Vec<ManagedUnit> {
        lock(&self.statuses).values().map(|status| status.unit.clone()).collect()
    }

    /// Returns an error once the supervisor task is gone.
    pub(crate) fn check_alive(&self) -> CallResult {
        if self.requests.is_closed() { Err(crashed()) } else { Ok(()) }
    }

    /// Returns the status of all units of the graph.
    pub(crate) async fn snapshot(&self) -> Result<InitSnapshot, ServiceError> {
        self.call(|supervisor| supervisor.snapshot()).await
    }

    /// Returns details of a loaded unit.
    pub(crate) async fn details(&self, unit: &UnitName) -> Result<UnitDetails, ServiceError> {
        let unit = unit.clone();
        self.call(move |supervisor| supervisor.details(&unit)).await?
    }

    /// Loads a unit, or another file for it.
    pub(crate) async fn load(
        self: &Arc<Self>,
        unit: &UnitName,
        file: &UnitFile,
        compiled: Box<systemd::CompiledUnit>,
        epoch: Epoch,
        directory: UnitDirectory,
    ) -> CallResult {
        let (name, hash, source) = (unit.clone(), file.hash(), file.source().to_vec());
        self.with_unit_lock(unit, async move |client| {
            let before = client.status(&name);
            let requested =
                before.as_ref().map_or_else(RequestedState::default, |status| status.requested);
            let requested = RequestedState { epoch: epoch.0, ..requested };
            if before.as_ref().is_some_and(|status| status.unit.known.hash == hash) {
                let record = move |at: &UnitDirectory| at.write_requested(requested);
                client.write(&directory, "store the requested state of a unit", record).await?;
                return client
                    .call(move |supervisor| supervisor.set_requested(&name, requested))
                    .await;
            }
            let is_new = before.is_none();
            let keep = move |at: &UnitDirectory| {
                if is_new {
                    at.create()?;
                }
                at.write_unit(&source, requested)
            };
            client.write(&directory, "store a unit file", keep).await?;
            let entry = LoadedUnit::new(name, hash, requested, Definition::Valid(compiled));
            client.call(move |supervisor| supervisor.load(entry)).await?
        })
        .await
    }

    /// Applies a request to a loaded unit, and waits for the result.
    pub(crate) async fn request(
        self: &Arc<Self>,
        unit: &UnitName,
        request: UnitRequest,
        directory: UnitDirectory,
    ) -> CallResult {
        self.request_after(ready(Ok(())), unit, request, directory).await
    }

    /// Runs `first`. If `first` succeeds, applies the request like [`request`](Self::request). The
    /// lock of the unit is held during both, so that no later call overtakes this one.
    pub(crate) async fn request_after(
        self: &Arc<Self>,
        first: impl Future<Output = CallResult> + Send + 'static,
        unit: &UnitName,
        request: UnitRequest,
        directory: UnitDirectory,
    ) -> CallResult {
        let (name, unknown) = (unit.clone(), ServiceError::NotLoaded { unit: unit.clone() });
        let begun = self.with_unit_lock(unit, async move |client| {
            if request.is_start() {
                client.context.shutdown.refuse_start(&name)?;
            }
            first.await?;
            let Some(status) = client.status(&name) else { return Ok(None) };
            let requested = request.apply_to(status.requested);
            match client.record_request(&directory, &status, requested).await {
                Err(error) if request == UnitRequest::Stop => log_unstored_stop(&name, &error),
                stored => stored?,
            }
            let (reply, answer) = oneshot::channel();
            client
                .call(move |supervisor| request.dispatch(supervisor, &name, requested, reply))
                .await?;
            Ok(Some(answer))
        });
        match begun.await? {
            Some(answer) => answer.await.unwrap_or_else(|_| Err(crashed())),
            None => self.check_alive().and(Err(unknown)),
        }
    }

    /// Stores the requested state of a unit if it changes.
    async fn record_request(
        &self,
        directory: &UnitDirectory,
        status: &PublishedStatus,
        requested: RequestedState,
    ) -> CallResult {
        if requested == status.requested {
            return Ok(());
        }
        let action = "store the requested state of a unit";
        self.write(directory, action, move |at| at.write_requested(requested)).await
    }

    /// Stops all units at once, and waits until they have stopped. The units stay loaded, and none
    /// of them starts again. Returns the result of each stop, and whether the stop of every unit
    /// was stored on disk.
    pub(crate) async fn stop_all(
        self: &Arc<Self>,
    ) -> Result<(Vec<CallResult>, bool), ServiceError> {
        let units: Vec<UnitName> = lock(&self.statuses).keys().cloned().collect();
        let answers = self.call(|supervisor| supervisor.stop_all(RequestedState::stopped)).await?;
        let end = async |answer: oneshot::Receiver<CallResult>| {
            answer.await.unwrap_or_else(|_| Err(crashed()))
        };
        let written = units.iter().map(|unit| self.write_stopped(unit));
        let (crashed, written) =
            join(join_all(answers.into_iter().map(end)), join_all(written)).await;
        Ok((crashed, written.into_iter().all(|is_written| is_written)))
    }

    /// Stores that a unit should not run, and returns whether that succeeded. First waits for all
    /// earlier calls for the unit, because such a call may store another state. An example is a
    /// start that came just before the shutdown.
    async fn write_stopped(self: &Arc<Self>, unit: &UnitName) -> bool {
        let directory = self.context.directory(unit.as_str());
        let action = "store that a unit is stopped";
        let written = self.with_unit_lock(unit, async move |client| {
            client.write(&directory, action, UnitDirectory::write_stopped).await
        });
        match written.await {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(
                    %unit,
                    error = &error as &dyn std::error::Error,
                    "cannot save that the shutdown has stopped a unit: trying again at the next \
                     start of this program"
                );
                false
            }
        }
    }

    /// Kills all processes of all units, regardless of their stop settings.
    pub(crate) async fn kill_all(&self) -> CallResult {
        self.call(Supervisor::kill_all).await
    }

    /// Adds a loaded timer, with the relations that its file declares.
    pub(crate) async fn add_timer(&self, timer: &UnitName, relations: Vec<Relation>) -> CallResult {
        let timer = timer.clone();
        self.call(move |supervisor| supervisor.add_timer(&timer, &relations)).await
    }

    /// Removes a timer that is unloaded.
    pub(crate) async fn remove_timer(&self, timer: &UnitName) -> CallResult {
        let timer = timer.clone();
        self.call(move |supervisor| supervisor.remove_timer(&timer)).await
    }

    /// Returns the timers to start with a unit.
    pub(crate) async fn timers_of(
        &self,
        unit: &UnitName,
    ) -> Result<Vec<PulledTimer>, ServiceError> {
        let unit = unit.clone();
        self.call(move |supervisor| supervisor.timers_of(&unit)).await
    }

    /// Reloads the configuration of a unit.
    pub(crate) async fn reload_unit(self: &Arc<Self>, unit: &UnitName) -> CallResult {
        let name = unit.clone();
        let begun = self.with_unit_lock(unit, async move |client| {
            let (reply, answer) = oneshot::channel();
            client.call(move |supervisor| supervisor.reload_managed(&name, reply)).await?;
            Ok(answer)
        });
        begun.await?.await.unwrap_or_else(|_| Err(crashed()))
    }

    /// Stops and unloads a unit. Later calls for the unit wait until this is done.
    pub(crate) async fn unload(
        self: &Arc<Self>,
        unit: &UnitName,
        directory: UnitDirectory,
    ) -> CallResult {
        let name = unit.clone();
        self.with_unit_lock(unit, async move |client| {
            let Some(status) = client.status(&name) else { return client.check_alive() };
            let requested = UnitRequest::Stop.apply_to(status.requested);
            if let Err(error) = client.record_request(&directory, &status, requested).await {
                log_unstored_stop(&name, &error);
            }
            let (reply, answer) = oneshot::channel();
            let unloading = name.clone();
            client
                .call(move |supervisor| supervisor.begin_unload(&unloading, requested, reply))
                .await?;
            answer.await.unwrap_or_else(|_| Err(crashed()))?;
            let removed = client.write(&directory, "remove a unit", UnitDirectory::remove).await;
            removed.map_err(|error| ServiceError::Unavailable(error.to_string()))?;
            client.call(move |supervisor| supervisor.forget(&name)).await
        })
        .await
    }

    /// Runs `work` once all earlier calls for the unit have taken effect. `work` runs to completion
    /// even if the caller stops waiting.
    async fn with_unit_lock<T, F>(
        self: &Arc<Self>,
        unit: &UnitName,
        work: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) -> Result<T, ServiceError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ServiceError>> + Send,
    {
        let mutex = Arc::clone(lock(&self.locks).entry(unit.clone()).or_default());
        let guard = mutex.lock_owned().await;
        let unit_lock =
            UnitLock { client: Arc::clone(self), unit: unit.clone(), guard: Some(guard) };
        let client = Arc::clone(self);
        let done = tokio::spawn(async move {
            let done = work(client).await;
            drop(unit_lock);
            done
        });
        done.await.unwrap_or_else(|_| Err(crashed()))
    }

    /// Runs `work` on the directory of a unit. At most [`MAX_WRITERS`] of these run at once.
    async fn write(
        &self,
        directory: &UnitDirectory,
        action: &str,
        work: impl FnOnce(&UnitDirectory) -> io::Result<()> + Send + 'static,
    ) -> CallResult {
        let _turn = self.writers.acquire().await;
        write(directory, action, work).await
    }

    /// Calls a function on the supervisor task, and returns its result.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Supervisor) -> T + Send + 'static,
    ) -> Result<T, ServiceError> {
        let (reply, answer) = oneshot::channel();
        // The caller may be gone.
        let request: Request = Box::new(move |supervisor| drop(reply.send(what(supervisor))));
        self.requests.send(request).await.map_err(|_| crashed())?;
        answer.await.map_err(|_| crashed())
    }
}

/// Lock on a unit, held by one call. When the call drops it, the lock also leaves the table of
/// locks if no other call waits for the unit.
struct UnitLock {
    client: Arc<SupervisorClient>,
    unit: UnitName,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for UnitLock {
    fn drop(&mut self) {
        self.guard = None;
        let mut locks = lock(&self.client.locks);
        if locks.get(&self.unit).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            locks.remove(&self.unit);
        }
    }
}

/// Runs `work` on the directory of a unit in a blocking thread, because a slow disk must not delay
/// the async runtime.
pub(crate) async fn write(
    directory: &UnitDirectory,
    action: &str,
    work: impl FnOnce(&UnitDirectory) -> io::Result<()> + Send + 'static,
) -> CallResult {
    let directory = directory.clone();
    let done = tokio::task::spawn_blocking(move || work(&directory)).await;
    done.map_err(io::Error::other)
        .flatten()
        .map_err(|source| ServiceError::Io { action: action.to_owned(), source })
}

/// Logs that a stop could not be stored. The unit is stopped nevertheless, because a failing disk
/// must not keep units running.
fn log_unstored_stop(unit: &UnitName, error: &ServiceError) {
    tracing::error!(
        %unit,
        error = error as &dyn std::error::Error,
        "cannot save that a unit was stopped by request: after this program restarts, the unit \
         starts again"
    );
}

fn crashed() -> ServiceError {
    let problem = "its supervisor task has crashed: restart the daemon";
    ServiceError::Unavailable(problem.to_owned())
}
