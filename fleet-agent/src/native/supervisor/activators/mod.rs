//! The activators of a supervisor: loaded sockets and paths, which start another unit.
//!
//! ```text
//! event loop ── requests, changed units, events ──> Activators ── ActivatorMachine  (pure)
//!                                                    │ │ └─────── SocketPoller      traffic
//!                                                    │ └───────── path_watch        tasks
//!                                                    └─ DescriptorTable ──> processes of services
//! ```
//!
//! A socket is bound when it starts, and stays bound until it stops. It is polled only while its
//! service is inactive. As a timer does, an activator starts its unit by a request, so that the
//! start is stored and runs after earlier requests for the unit.
//!
//! The sockets themselves are lost when the daemon ends. The next daemon binds them again, as soon
//! as no running service uses them.

mod entry;
mod path_watch;
mod poller;
mod recovery;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use fleet_core::graph::systemd::{Activator, ActivatorFailure, ActivatorPhase, ActivatorSource};
use fleet_unitfile::{UnitHash, UnitName};
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc;

use super::command::CallResult;
use super::managed_units::Statuses;
use super::requests::{Requests, UnitRequest};
use crate::native::run::conditions::check_conditions;
use crate::native::state::manager_context::ManagerContext;
use crate::native::state::unit_directory::RequestedState;
use crate::{ServiceError, UnitDetails};
use entry::{ActivatorEntry, UnitView};
use poller::{SocketPoller, Token};

/// Result of starting the unit of an activator: the activator, the ID of the start, and whether the
/// unit was loaded.
type StartResult = (UnitName, u64, bool);

/// Result of a path watch: the path unit, the number of the watch, and whether watching failed.
type WatchResult = (UnitName, u64, io::Result<()>);

/// Maximum number of results of path watches that wait for the event loop.
const WATCH_CAPACITY: usize = 64;

/// Event that the activators wait for.
pub(super) enum ActivatorEvent {
    /// Traffic has arrived.
    Traffic(io::Result<Vec<Token>>),
    /// A path has changed, or cannot be watched.
    Path(WatchResult),
    /// The start of a unit has a result.
    Started(StartResult),
}

/// All loaded activators.
pub(super) struct Activators {
    context: Arc<ManagerContext>,
    requests: Arc<Requests>,
    statuses: Statuses,
    entries: BTreeMap<UnitName, ActivatorEntry>,
    /// Activators that start each unit.
    by_unit: BTreeMap<UnitName, BTreeSet<UnitName>>,
    /// Activators whose unit has changed since the last check.
    unchecked: BTreeSet<UnitName>,
    poller: SocketPoller,
    watches: (mpsc::Sender<WatchResult>, mpsc::Receiver<WatchResult>),
    /// Starts in progress.
    starts: FuturesUnordered<BoxFuture<'static, StartResult>>,
}

impl Activators {
    pub(super) fn new(
        context: &Arc<ManagerContext>,
        requests: &Arc<Requests>,
        statuses: &Statuses,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            requests: Arc::clone(requests),
            statuses: statuses.clone(),
            entries: BTreeMap::new(),
            by_unit: BTreeMap::new(),
            unchecked: BTreeSet::new(),
            poller: SocketPoller::default(),
            watches: mpsc::channel(WATCH_CAPACITY),
            starts: FuturesUnordered::new(),
        }
    }

    /// Returns whether an activator is loaded.
    pub(super) fn is_loaded(&self, unit: &UnitName) -> bool {
        self.entries.contains_key(unit)
    }

    /// Adds an activator, or replaces the file of one that is loaded already. Open sockets stay as
    /// they are until the next start.
    pub(super) fn load(
        &mut self,
        unit: &UnitName,
        hash: UnitHash,
        requested: RequestedState,
        definition: &Activator,
    ) -> CallResult {
        if !self.is_loaded(unit) {
            let entry = self.entry(unit, hash, requested, definition.clone());
            let entry = entry.map_err(|source| ServiceError::Io {
                action: format!("start to supervise {unit}"),
                source,
            })?;
            self.insert(unit, entry);
            self.change(unit, |_, _| ());
            return Ok(());
        }
        self.remove_from_index(unit);
        let definition = Arc::new(definition.clone());
        self.change(unit, |entry, _| {
            (entry.hash, entry.requested) = (hash, requested);
            entry.replace(definition);
        });
        self.add_to_index(unit);
        self.check_unit(unit);
        Ok(())
    }

    /// Sets the requested state of an activator whose file has not changed.
    pub(super) fn set_requested(&mut self, unit: &UnitName, requested: RequestedState) {
        self.change(unit, |entry, _| entry.requested = requested);
    }

    /// Returns an error if the unit of an activator is not loaded.
    pub(super) fn check_start(&self, unit: &UnitName) -> CallResult {
        let not_loaded = || ServiceError::NotLoaded { unit: unit.clone() };
        let entry = self.entries.get(unit).ok_or_else(not_loaded)?;
        let started = &entry.definition.unit;
        match self.statuses.get(started) {
            Some(_) => Ok(()),
            None => Err(ServiceError::NothingToTrigger {
                unit: unit.clone(),
                missing: started.to_string(),
            }),
        }
    }

    /// Carries out a request, and sets the requested state after it.
    pub(super) fn carry_out(
        &mut self,
        unit: &UnitName,
        request: UnitRequest,
        requested: RequestedState,
    ) -> CallResult {
        let stops = matches!(request, UnitRequest::Stop | UnitRequest::Unload);
        if !stops {
            self.context.shutdown.refuse_start(unit)?;
        }
        if let Some(entry) = self.entries.get_mut(unit) {
            entry.requested = requested;
        }
        if stops {
            self.change(unit, |entry, _| entry.stop());
            return Ok(());
        }
        if matches!(request, UnitRequest::Restart(_))
            && let Some(entry) = self.entries.get_mut(unit)
        {
            // Stored together with the start, since the next daemon would take a stop for the final
            // state.
            entry.stop();
            entry.settle_sources(unit, &mut self.poller, &self.context.descriptors);
        }
        self.start(unit)
    }

    /// Stops all activators, as part of a shutdown.
    pub(super) fn stop_all(&mut self) {
        let all: Vec<UnitName> = self.entries.keys().cloned().collect();
        for unit in &all {
            self.change(unit, |entry, _| {
                entry.requested = entry.requested.stopped();
                entry.stop();
            });
        }
    }

    /// Removes an activator after its stored state was removed. Returns whether it was loaded.
    pub(super) fn forget(&mut self, unit: &UnitName) -> bool {
        self.remove_from_index(unit);
        let Some(mut entry) = self.entries.remove(unit) else { return false };
        entry.stop();
        entry.settle_sources(unit, &mut self.poller, &self.context.descriptors);
        true
    }

    /// Returns the details of an activator; `None` if it is not loaded.
    pub(super) fn details(&self, unit: &UnitName) -> Option<UnitDetails> {
        self.is_loaded(unit).then(UnitDetails::default)
    }

    /// Notes that the status of a unit has changed.
    pub(super) fn on_unit_changed(&mut self, unit: &UnitName) {
        self.unchecked.extend(self.by_unit.get(unit).into_iter().flatten().cloned());
    }

    /// Passes the states of the units that have changed to their activators.
    pub(super) fn check_changed_units(&mut self) {
        for activator in std::mem::take(&mut self.unchecked) {
            self.check_unit(&activator);
        }
    }

    /// Binds the sockets of a service that is about to start, if their descriptors are lost. This
    /// is the case if the service ran while the daemon was replaced.
    pub(super) fn prepare_service(&mut self, unit: &str) {
        let named = self.context.descriptors.named_sockets(unit);
        let lost = |(name, entry): &(&UnitName, &ActivatorEntry)| {
            let own = &entry.definition.unit;
            // While another service runs with the socket, its address is in use.
            let is_used = own.as_str() == unit || named.contains(*name) && !self.view(own).active;
            is_used && entry.has_lost_sockets()
        };
        let lost: Vec<UnitName> =
            self.entries.iter().filter(lost).map(|(name, _)| name.clone()).collect();
        for socket in &lost {
            // A failure is logged, and the state shows it.
            drop(self.open(socket));
            self.change(socket, |_, _| ());
        }
    }

    /// Waits for an event. Cancel-safe.
    pub(super) async fn next_event(&mut self) -> ActivatorEvent {
        tokio::select! {
            Some(started) = self.starts.next(), if !self.starts.is_empty() => {
                ActivatorEvent::Started(started)
            }
            Some(changed) = self.watches.1.recv() => ActivatorEvent::Path(changed),
            traffic = self.poller.next() => ActivatorEvent::Traffic(traffic),
        }
    }

    /// Handles an event.
    pub(super) fn on_event(&mut self, event: ActivatorEvent) {
        match event {
            ActivatorEvent::Started(started) => self.on_started(&started),
            ActivatorEvent::Path((unit, watch, result)) => {
                let is_current = |entry: &&ActivatorEntry| entry.is_current_watch(watch);
                if self.entries.get(&unit).filter(is_current).is_none() {
                    return;
                }
                match result {
                    Ok(()) => self.trigger(&unit),
                    Err(error) => {
                        tracing::error!(%unit, %error, "cannot watch the paths of a unit");
                        self.fail(&unit);
                    }
                }
            }
            ActivatorEvent::Traffic(Ok(tokens)) => {
                for token in tokens {
                    if let Some(socket) = self.poller.socket(token).cloned() {
                        self.trigger(&socket);
                    }
                }
            }
            ActivatorEvent::Traffic(Err(error)) => {
                tracing::error!(%error, "cannot poll sockets: traffic starts no service");
                self.poller.give_up();
            }
        }
    }

    /// Starts an activator, unless it is active.
    fn start(&mut self, unit: &UnitName) -> CallResult {
        let Some(entry) = self.entries.get(unit) else { return Ok(()) };
        if entry.machine.phase().is_active() {
            self.change(unit, |_, _| ());
            return Ok(());
        }
        let definition = Arc::clone(&entry.definition);
        let failed = |problem| ServiceError::StartFailed { unit: unit.clone(), problem };
        let environment = &self.context.environment;
        if let Err((problem, is_failure)) =
            check_conditions(&definition.conditions, false, environment)
        {
            self.change(unit, |entry, _| entry.stop());
            tracing::info!(%unit, problem, "a socket or path is not started");
            return if is_failure { Err(failed(problem)) } else { Ok(()) };
        }
        let is_active = self.view(&definition.unit).active;
        if matches!(definition.source, ActivatorSource::Socket(_)) && is_active {
            let service = &definition.unit;
            self.change(unit, |_, _| ());
            return Err(failed(format!(
                "{service} is active without its sockets: stop {service}, and start {unit} first"
            )));
        }
        if let Err(problem) = self.open(unit) {
            self.change(unit, |_, _| ());
            return Err(failed(problem));
        }
        self.change(unit, ActivatorEntry::begin);
        Ok(())
    }

    /// Binds the sockets of an activator, or creates the directories of its paths. On failure the
    /// activator fails.
    fn open(&mut self, unit: &UnitName) -> Result<(), String> {
        let Some(entry) = self.entries.get_mut(unit) else { return Ok(()) };
        let opened = entry.open(unit, &self.context.descriptors);
        if let Err(problem) = &opened {
            tracing::error!(%unit, problem, "cannot open a socket");
            entry.machine.set_phase(ActivatorPhase::Failed(ActivatorFailure::Resources));
        }
        opened
    }

    fn fail(&mut self, unit: &UnitName) {
        self.change(unit, |entry, _| {
            entry.machine.set_phase(ActivatorPhase::Failed(ActivatorFailure::Resources));
        });
    }

    /// Starts the unit of an activator for which something has happened.
    fn trigger(&mut self, unit: &UnitName) {
        if self.context.shutdown.has_begun() {
            // The shutdown stops the activator.
            let entry = self.entries.get_mut(unit);
            return entry.into_iter().for_each(|entry| entry.disarm(&mut self.poller));
        }
        let now = self.context.now();
        let starts = self.change(unit, |entry, _| {
            let starts = entry.machine.on_event(now);
            if starts {
                // Stored together with the phase, so that the next daemon starts the unit if this
                // one does not.
                entry.starting = Some(random_number().wrapping_add(now.as_millis()));
            }
            starts
        });
        match starts {
            Some(true) => self.start_unit(unit),
            Some(false) => {
                tracing::warn!(%unit, "a socket or path fails: it started its unit too often");
            }
            None => {}
        }
    }

    /// Starts the unit of an activator. The start does not count as a launch of the unit by fleet.
    /// A second start for the same event only waits for the first.
    fn start_unit(&mut self, activator: &UnitName) {
        let Some(entry) = self.entries.get(activator) else { return };
        let Some(start) = entry.starting else { return };
        let (requests, unit) = (Arc::clone(&self.requests), entry.definition.unit.clone());
        let activator = activator.clone();
        let work = async move {
            let done = requests.request(&unit, UnitRequest::Trigger(start)).await;
            (activator, start, !matches!(done, Err(ServiceError::NotLoaded { .. })))
        };
        self.starts.push(work.boxed());
    }

    fn on_started(&mut self, (activator, start, is_known): &StartResult) {
        let entry = self.entries.get_mut(activator);
        let Some(entry) = entry.filter(|entry| entry.starting == Some(*start)) else { return };
        entry.starting = None;
        if !*is_known && entry.machine.phase() == ActivatorPhase::Running {
            self.fail(activator);
            let entry = self.entries.get_mut(activator);
            entry.into_iter().for_each(|entry| entry.has_missed_unit = true);
        }
        // The unit may be loaded again meanwhile.
        self.check_unit(activator);
    }

    /// Passes the state of its unit to an activator.
    fn check_unit(&mut self, activator: &UnitName) {
        if self.should_restart(activator) {
            if let Err(error) = self.start(activator) {
                let error = &error as &dyn std::error::Error;
                tracing::error!(unit = %activator, error, "cannot start a socket or path again");
            }
            return;
        }
        let waits = self.change(activator, |entry, view| {
            if entry.starting.is_none() {
                entry.on_unit(view);
            }
            entry.machine.phase() == ActivatorPhase::Waiting && entry.has_lost_sockets()
        });
        if waits == Some(true) {
            drop(self.open(activator));
            self.change(activator, |_, _| ());
        }
    }

    /// Returns whether an activator has to be started again. This is the case if it failed because
    /// its unit was not loaded, and the unit is loaded now. (Replacing a unit's file unloads the
    /// unit for a short time.)
    fn should_restart(&self, activator: &UnitName) -> bool {
        self.entries.get(activator).is_some_and(|entry| {
            entry.has_missed_unit
                && entry.requested.should_run()
                && self.statuses.get(&entry.definition.unit).is_some()
        })
    }

    /// Returns the state of a unit as its activators see it.
    fn view(&self, unit: &UnitName) -> UnitView {
        let Some(status) = self.statuses.get(unit) else { return UnitView::default() };
        let has_ended = status.unit.has_ended();
        let result = status.unit.state.result.as_deref();
        UnitView {
            active: !has_ended,
            hit_start_limit: has_ended && result == Some("start-limit-hit"),
        }
    }

    /// Changes an activator, and then updates what it waits for, the stored state and the published
    /// status.
    fn change<R>(
        &mut self,
        activator: &UnitName,
        act: impl FnOnce(&mut ActivatorEntry, UnitView) -> R,
    ) -> Option<R> {
        let view = self.view(&self.entries.get(activator)?.definition.unit);
        let entry = self.entries.get_mut(activator)?;
        let result = act(entry, view);
        entry.settle_sources(activator, &mut self.poller, &self.context.descriptors);
        entry.watch_paths(activator, &self.watches.0);
        if let Err(error) = entry.write() {
            tracing::error!(
                unit = %activator,
                %error,
                "cannot save the state of a socket or path: after this program restarts, an older \
                 state applies"
            );
        }
        if self.statuses.publish(entry.status(activator)) {
            self.context.feed.report(activator);
        }
        Some(result)
    }

    fn entry(
        &self,
        unit: &UnitName,
        hash: UnitHash,
        requested: RequestedState,
        definition: Activator,
    ) -> io::Result<ActivatorEntry> {
        let directory = self.context.directory(unit.as_str());
        let log = self.context.open_log(directory.log())?;
        Ok(ActivatorEntry::new(Arc::new(definition), hash, requested, directory, log))
    }

    fn insert(&mut self, unit: &UnitName, entry: ActivatorEntry) {
        self.entries.insert(unit.clone(), entry);
        self.add_to_index(unit);
    }

    fn add_to_index(&mut self, activator: &UnitName) {
        if let Some(entry) = self.entries.get(activator) {
            let unit = entry.definition.unit.clone();
            self.by_unit.entry(unit).or_default().insert(activator.clone());
        }
    }

    fn remove_from_index(&mut self, activator: &UnitName) {
        let Some(entry) = self.entries.get(activator) else { return };
        let unit = &entry.definition.unit;
        if let Some(all) = self.by_unit.get_mut(unit) {
            all.remove(activator);
            if all.is_empty() {
                self.by_unit.remove(unit);
            }
        }
    }
}

fn random_number() -> u64 {
    // Zero, a valid value, if the kernel gives no random number.
    getrandom::u64().unwrap_or(0)
}
