//! Requests for loaded units. The requests for one unit run in order, and each requested state is
//! stored on disk before it takes effect.
//!
//! A caller may stop waiting for its result at any time. A request that has begun runs to
//! completion nevertheless, so the stored state always matches the state in effect.

use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::io;
use std::sync::{Arc, Mutex};

use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};
use futures_util::future::{BoxFuture, FutureExt as _, join, join_all};
use tokio::sync::{OwnedMutexGuard, Semaphore};

use super::command::{CallResult, Command, CommandSender, Crashed, PendingResult, UnitCommand};
use super::compile::{HostCapabilities, compile, ignored_options};
use super::managed_units::{Definition, LoadedUnit, PublishedStatus, Statuses};
use crate::lock::lock;
use crate::native::state::manager_context::ManagerContext;
use crate::native::state::unit_directory::{RequestedState, UnitDirectory};
use crate::{ManagedUnit, ServiceError, UnitDetails};

/// Maximum number of concurrent writes. The number is limited because each write occupies a thread,
/// and all writes share one disk.
const MAX_WRITERS: usize = 8;

/// Action name of an error.
const STORE: &str = "store the requested state of a unit";

/// Request for a loaded unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::native) enum UnitRequest {
    Start(Generation),
    Restart(Generation),
    Stop,
    /// Stop, after which the unit is removed.
    Unload,
    /// Start by a timer that has elapsed, or by a socket or path. The value is the ID of this
    /// event, by which a repeated request is recognized. Unlike `Start`, this request does not mark
    /// the unit as launched by fleet.
    Trigger(u64),
    /// Start of a timer, socket or path because another unit wants it. It does not count as a
    /// launch by fleet.
    Pull,
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
            Self::Stop | Self::Unload => before.stopped(),
            // Known already: its run may be over, or the unit stopped.
            Self::Trigger(trigger) if trigger == before.trigger => before,
            Self::Trigger(trigger) => RequestedState { triggered: true, trigger, ..before },
            Self::Pull => RequestedState { triggered: true, ..before },
        }
    }

    fn is_start(self) -> bool {
        !matches!(self, Self::Stop | Self::Unload)
    }
}

/// A lock per unit that serializes its requests.
type UnitLocks = Mutex<BTreeMap<UnitName, Arc<tokio::sync::Mutex<()>>>>;

/// Requests for the loaded units of a supervisor.
pub(in crate::native) struct Requests {
    context: Arc<ManagerContext>,
    host: HostCapabilities,
    commands: CommandSender,
    statuses: Statuses,
    /// Locks of the units with a request in progress.
    locks: UnitLocks,
    writers: Semaphore,
}

impl Requests {
    pub(super) fn new(
        context: &Arc<ManagerContext>,
        host: &HostCapabilities,
        commands: CommandSender,
        statuses: &Statuses,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            host: host.clone(),
            commands,
            statuses: statuses.clone(),
            locks: UnitLocks::default(),
            writers: Semaphore::new(MAX_WRITERS),
        }
    }

    pub(super) fn commands(&self) -> &CommandSender {
        &self.commands
    }

    /// Returns the published status of a unit; `None` if it is not loaded.
    pub(in crate::native) fn status(&self, unit: &UnitName) -> Option<Arc<PublishedStatus>> {
        self.statuses.get(unit)
    }

    /// Returns the published status of a unit, or an error once the supervisor is gone.
    pub(in crate::native) fn get(
        &self,
        unit: &UnitName,
    ) -> Result<Option<ManagedUnit>, ServiceError> {
        self.commands.check_alive()?;
        Ok(self.status(unit).map(|status| status.unit.clone()))
    }

    /// Returns the status of all loaded units, or an error once the supervisor is gone.
    pub(in crate::native) fn list(&self) -> Result<Vec<ManagedUnit>, ServiceError> {
        self.commands.check_alive()?;
        Ok(self.statuses.all().iter().map(|status| status.unit.clone()).collect())
    }

    /// Returns details of a loaded unit.
    pub(in crate::native) async fn details(
        &self,
        unit: &UnitName,
    ) -> Result<UnitDetails, ServiceError> {
        self.commands.unit(unit, UnitCommand::Details).await?
    }

    /// Loads a unit, or another file for it.
    pub(in crate::native) async fn load(
        self: &Arc<Self>,
        unit: &UnitName,
        file: &UnitFile,
        epoch: Epoch,
    ) -> CallResult {
        let known = self.get(unit)?;
        let is_new = known.is_none_or(|it| it.known.hash != file.hash());
        let definition = self.compile_and_warn(unit, file, is_new)?;
        let (name, hash, source) = (unit.clone(), file.hash(), file.source().to_vec());
        self.with_unit_lock(unit, async move |requests| {
            let before = requests.status(&name);
            let requested =
                before.as_ref().map_or_else(RequestedState::default, |status| status.requested);
            let requested = RequestedState { epoch: epoch.0, ..requested };
            if before.as_ref().is_some_and(|status| status.unit.known.hash == hash) {
                requests.write(&name, STORE, move |at| at.write_requested(requested)).await?;
                let command = |reply| UnitCommand::SetRequested { requested, reply };
                return Ok(requests.commands.unit(&name, command).await?);
            }
            let is_new = before.is_none();
            let keep = move |at: &UnitDirectory| {
                if is_new {
                    at.create()?;
                }
                at.write_unit(&source, requested)
            };
            requests.write(&name, "store a unit file", keep).await?;
            let unit = Box::new(LoadedUnit::new(name, hash, requested, definition));
            requests.commands.call(|reply| Command::Load { unit, reply }).await?
        })
        .await
    }

    /// Compiles a unit file, and logs the ignored options if the unit is new.
    fn compile_and_warn(
        &self,
        unit: &UnitName,
        file: &UnitFile,
        is_new: bool,
    ) -> Result<Definition, ServiceError> {
        let compiled = compile(unit, file, &self.host).map_err(|bad| ServiceError::BadSetting {
            unit: unit.clone(),
            line: bad.line,
            problem: bad.problem,
        })?;
        for remark in compiled.remarks.iter().filter(|_| is_new) {
            tracing::info!(%unit, %remark, "an option works differently than under systemd");
        }
        if is_new && !compiled.remarks.is_empty() {
            let options = ignored_options(&compiled).join(", ");
            tracing::warn!(%unit, options, "some options are not honoured, or only in part");
        }
        Ok(Definition::Valid(Box::new(compiled)))
    }

    /// Applies a request to a loaded unit, and waits for the result. A start first starts the
    /// timers, sockets and paths that the unit wants or requires. No later request for the unit
    /// overtakes this one.
    pub(in crate::native) async fn request(
        self: &Arc<Self>,
        unit: &UnitName,
        request: UnitRequest,
    ) -> CallResult {
        let (name, unknown) = (unit.clone(), ServiceError::NotLoaded { unit: unit.clone() });
        let begun = self.with_unit_lock(unit, async move |requests| {
            if request.is_start() {
                requests.context.shutdown.refuse_start(&name)?;
            }
            requests.prepare(&name, request).await?;
            let Some(status) = requests.status(&name) else { return Ok(None) };
            requests.begin(&name, request, &status).await.map(Some)
        });
        match begun.await? {
            Some(pending) => pending.await.unwrap_or_else(|_| Err(Crashed.into())),
            None => self.commands.check_alive().map_err(Into::into).and(Err(unknown)),
        }
    }

    /// Checks whether a unit can be started, and starts the timers, sockets and paths that it
    /// wants or requires. A start by one of these starts no others.
    ///
    /// The future is boxed, because it contains those of the other starts.
    fn prepare(
        self: &Arc<Self>,
        unit: &UnitName,
        request: UnitRequest,
    ) -> BoxFuture<'static, CallResult> {
        use UnitRequest::{Pull, Restart, Start};
        if !matches!(request, Start(_) | Restart(_) | Pull) {
            return ready(Ok(())).boxed();
        }
        let (requests, unit) = (Arc::clone(self), unit.clone());
        async move {
            let starters = requests.commands.unit(&unit, UnitCommand::PrepareStart).await??;
            for (starter, is_required) in starters {
                match requests.request(&starter, Pull).await {
                    Err(error) if is_required => return Err(error),
                    Err(error) => tracing::warn!(
                        %unit,
                        %starter,
                        error = &error as &dyn std::error::Error,
                        "cannot start a timer, socket or path that a unit wants: starting the unit \
                         without it"
                    ),
                    Ok(()) => {}
                }
            }
            Ok(())
        }
        .boxed()
    }

    /// Stores the requested state after a request, and has the supervisor carry the request out.
    async fn begin(
        &self,
        unit: &UnitName,
        request: UnitRequest,
        status: &PublishedStatus,
    ) -> Result<PendingResult, ServiceError> {
        let requested = request.apply_to(status.requested);
        if requested != status.requested {
            match self.write(unit, STORE, move |at| at.write_requested(requested)).await {
                Err(error) if !request.is_start() => log_unstored_stop(unit, &error),
                stored => stored?,
            }
        }
        let command = |reply| UnitCommand::Request { request, requested, reply };
        Ok(self.commands.unit(unit, command).await?)
    }

    /// Stops all units at once, and waits until they have stopped. The units stay loaded, and none
    /// of them starts again. Returns an error for each unit that has not stopped, and whether the
    /// stop of every unit was stored on disk.
    pub(in crate::native) async fn shut_down(
        self: &Arc<Self>,
    ) -> Result<(Vec<ServiceError>, bool), ServiceError> {
        let units: Vec<UnitName> =
            self.statuses.all().iter().map(|status| status.unit.unit.clone()).collect();
        let stopped = self.commands.call(|reply| Command::Shutdown { reply });
        let written = join_all(units.iter().map(|unit| self.write_stopped(unit)));
        let (errors, written) = join(stopped, written).await;
        Ok((errors?, written.into_iter().all(|is_written| is_written)))
    }

    /// Stores that a unit should not run, and returns whether that succeeded. First waits for all
    /// earlier requests for the unit, because such a request may store another state. An example is
    /// a start that came just before the shutdown.
    async fn write_stopped(self: &Arc<Self>, unit: &UnitName) -> bool {
        let name = unit.clone();
        let written = self.with_unit_lock(unit, async move |requests| {
            let action = "store that a unit is stopped";
            requests.write(&name, action, UnitDirectory::write_stopped).await
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

    /// Reloads the configuration of a unit.
    pub(in crate::native) async fn reload_unit(self: &Arc<Self>, unit: &UnitName) -> CallResult {
        let name = unit.clone();
        let begun = self.with_unit_lock(unit, async move |requests| {
            Ok(requests.commands.unit(&name, UnitCommand::Reload).await?)
        });
        begun.await?.await.unwrap_or_else(|_| Err(Crashed.into()))
    }

    /// Stops and unloads a unit. Later requests for the unit wait until this is done.
    pub(in crate::native) async fn unload(self: &Arc<Self>, unit: &UnitName) -> CallResult {
        let name = unit.clone();
        self.with_unit_lock(unit, async move |requests| {
            requests.commands.check_alive()?;
            let Some(status) = requests.status(&name) else { return Ok(()) };
            let pending = requests.begin(&name, UnitRequest::Unload, &status).await?;
            pending.await.unwrap_or_else(|_| Err(Crashed.into()))?;
            let removed = requests.write(&name, "remove a unit", UnitDirectory::remove).await;
            removed.map_err(|error| ServiceError::Unavailable(error.to_string()))?;
            Ok(requests.commands.unit(&name, UnitCommand::Forget).await?)
        })
        .await
    }

    /// Runs `work` once all earlier requests for the unit have taken effect. `work` runs to
    /// completion even if the caller stops waiting.
    async fn with_unit_lock<T, F>(
        self: &Arc<Self>,
        unit: &UnitName,
        work: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) -> Result<T, ServiceError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ServiceError>> + Send,
    {
        let mut unit_lock = UnitLock::new(self, unit);
        unit_lock.acquire().await;
        let requests = Arc::clone(self);
        let done = tokio::spawn(async move {
            let done = work(requests).await;
            drop(unit_lock);
            done
        });
        done.await.unwrap_or_else(|_| Err(Crashed.into()))
    }

    /// Runs `work` on the directory of a unit in a blocking thread, because a slow disk must not
    /// delay the async runtime. At most [`MAX_WRITERS`] of these run at once.
    async fn write(
        &self,
        unit: &UnitName,
        action: &str,
        work: impl FnOnce(&UnitDirectory) -> io::Result<()> + Send + 'static,
    ) -> CallResult {
        let _turn = self.writers.acquire().await;
        let directory = self.context.directory(unit.as_str());
        let done = tokio::task::spawn_blocking(move || work(&directory)).await;
        done.map_err(io::Error::other)
            .flatten()
            .map_err(|source| ServiceError::Io { action: action.to_owned(), source })
    }
}

/// Lock on a unit, for which one request waits or which it holds. Dropping it also removes the lock
/// from the table of locks, unless another request waits for the unit.
struct UnitLock {
    requests: Arc<Requests>,
    unit: UnitName,
    /// Set until the drop.
    mutex: Option<Arc<tokio::sync::Mutex<()>>>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl UnitLock {
    fn new(requests: &Arc<Requests>, unit: &UnitName) -> Self {
        let mutex = Arc::clone(lock(&requests.locks).entry(unit.clone()).or_default());
        Self { requests: Arc::clone(requests), unit: unit.clone(), mutex: Some(mutex), guard: None }
    }

    async fn acquire(&mut self) {
        if let Some(mutex) = &self.mutex {
            self.guard = Some(Arc::clone(mutex).lock_owned().await);
        }
    }
}

impl Drop for UnitLock {
    fn drop(&mut self) {
        self.guard = None;
        let mut locks = lock(&self.requests.locks);
        // Under the lock of the table: of several drops at once, the last one finds only the
        // table's own reference.
        self.mutex = None;
        if locks.get(&self.unit).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            locks.remove(&self.unit);
        }
    }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::poll;
    use tokio::sync::oneshot;

    use super::*;
    use crate::native::supervisor::managed_units::status::tests::open;

    /// Regression: the lock stayed in the table if its last waiter was dropped after the holder.
    #[tokio::test]
    async fn cancelled_request_leaves_no_lock() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let handle = open(home.path()).await;
        let requests = handle.requests();
        let unit: UnitName = "a.service".parse().expect("it is a name");
        let (release, held) = oneshot::channel::<()>();
        let work = async move |_| {
            held.await.expect("it is released");
            Ok(())
        };
        let mut holder = Box::pin(requests.with_unit_lock(&unit, work));
        assert!(poll!(&mut holder).is_pending(), "it holds the lock");
        let mut waiter = Box::pin(requests.with_unit_lock(&unit, async |_| Ok(())));
        assert!(poll!(&mut waiter).is_pending(), "it waits");
        release.send(()).expect("the holder waits");
        holder.await.expect("it succeeds");
        assert_eq!(lock(&requests.locks).len(), 1, "the waiter's turn has come");
        drop(waiter);
        assert!(lock(&requests.locks).is_empty());
    }

    /// Regression: each of two locks counted the reference of the other one, so neither removed the
    /// entry.
    #[tokio::test]
    async fn locks_dropped_at_once_leave_no_lock() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let handle = open(home.path()).await;
        let requests = handle.requests();
        let unit: UnitName = "a.service".parse().expect("it is a name");
        // A barrier that wakes both threads at the same time, unlike one that sleeps.
        let arrived = AtomicUsize::new(0);
        let meet = || {
            let all = arrived.fetch_add(1, Ordering::SeqCst) / 2 * 2 + 2;
            while arrived.load(Ordering::SeqCst) < all {
                std::thread::yield_now();
            }
        };
        let count_left = || {
            (0..50_000).filter(|_| {
                let unit_lock = UnitLock::new(requests, &unit);
                meet();
                drop(unit_lock);
                meet();
                let is_left = !lock(&requests.locks).is_empty();
                meet();
                is_left
            })
        };
        let left = std::thread::scope(|scope| {
            let other = scope.spawn(|| count_left().count());
            count_left().count().max(other.join().expect("it ends"))
        });
        assert_eq!(left, 0, "entries left");
    }
}
