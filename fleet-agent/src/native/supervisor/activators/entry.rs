//! One loaded activator.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use fleet_core::SystemdState;
use fleet_core::graph::ExecEnvironment;
use fleet_core::graph::systemd::{
    Activator, ActivatorMachine, ActivatorPhase, ActivatorSource, ListenerKind, Socket,
};
use fleet_core::unit::LoadState;
use fleet_unitfile::{UnitHash, UnitName};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::super::managed_units::{PublishedStatus, known};
use super::WatchResult;
use super::path_watch::{self, Existing};
use super::poller::{SocketPoller, Token};
use crate::ManagedUnit;
use crate::native::linux::identity::{UnknownAccount, look_up};
use crate::native::linux::sockets::{PathOwner, create_parents, flush, open_listener};
use crate::native::log::Log;
use crate::native::run::descriptors::{DescriptorTable, NamedDescriptor};
use crate::native::state::activator_record::ActivatorRecord;
use crate::native::state::unit_directory::{RequestedState, RunRecord, UnitDirectory};

/// State of the started unit as the activator sees it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UnitView {
    /// Whether the unit is neither inactive nor failed.
    pub(super) active: bool,
    pub(super) hit_start_limit: bool,
}

/// Why paths are watched, which decides whether their present state counts as an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchReason {
    /// The path unit was started.
    Start,
    /// The started unit has ended.
    UnitEnded,
}

/// A loaded activator.
pub(super) struct ActivatorEntry {
    pub(super) definition: Arc<Activator>,
    pub(super) machine: ActivatorMachine,
    pub(super) hash: UnitHash,
    pub(super) requested: RequestedState,
    /// ID of the start of the unit that is in progress.
    pub(super) starting: Option<u64>,
    /// Whether the activator failed because its unit was not loaded.
    pub(super) has_missed_unit: bool,
    /// Open sockets, each with its kind. They are empty if the activator is inactive, or if they
    /// were lost with an earlier daemon.
    sockets: Vec<(ListenerKind, Arc<OwnedFd>)>,
    /// Paths to remove when the socket stops.
    removed_on_stop: Vec<String>,
    polled: Option<Token>,
    watch: Option<Watch>,
    /// Number of watches so far.
    watches: u64,
    watch_reason: WatchReason,
    /// Which of the watched paths existed at the last look.
    existing: Existing,
    directory: UnitDirectory,
    /// Log without lines, which ends the journals that follow it when the unit is unloaded.
    log: Arc<Log>,
    /// Requested state and record as they were last stored.
    stored: Option<(RequestedState, ActivatorRecord)>,
}

/// A task that watches paths. Dropping it ends the task.
struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ActivatorEntry {
    /// Creates the entry of an activator.
    pub(super) fn new(
        definition: Arc<Activator>,
        hash: UnitHash,
        requested: RequestedState,
        directory: UnitDirectory,
        log: Arc<Log>,
    ) -> Self {
        Self {
            machine: ActivatorMachine::new(definition.limit),
            definition,
            hash,
            requested,
            starting: None,
            has_missed_unit: false,
            sockets: Vec::new(),
            removed_on_stop: Vec::new(),
            polled: None,
            watch: None,
            watches: 0,
            watch_reason: WatchReason::Start,
            existing: Arc::new(Mutex::new(Vec::new())),
            directory,
            log,
            stored: None,
        }
    }

    /// Sets what an earlier daemon has stored.
    pub(super) fn with_record(mut self, run: Option<&RunRecord>) -> Self {
        self.stored = run.and_then(|run| Some((run.requested, *run.activator.as_deref()?)));
        self
    }

    /// Continues with the state that an earlier daemon has stored. If a stop was requested but not
    /// applied, applies it now. Returns whether the caller has to start the activator.
    pub(super) fn resume(&mut self, was_shutting_down: bool, view: UnitView) -> bool {
        let Some((applied, stored)) = self.stored else { return self.requested.should_run() };
        // A shutdown cancels the pending start of the unit.
        self.starting = stored.starting.filter(|_| !was_shutting_down);
        let key = |it: &RequestedState| (it.launched, it.triggered, it.generation);
        let is_done = key(&applied) == key(&self.requested);
        if !self.requested.should_run() || !is_done {
            return self.requested.should_run();
        }
        let phase = stored.phase();
        if phase.is_active() && !view.active && self.starting.is_none() {
            // Starts again, with sockets of its own.
            return true;
        }
        self.machine.set_phase(if phase.is_active() { ActivatorPhase::Running } else { phase });
        false
    }

    /// Replaces the definition. Sockets that are open stay as they are.
    pub(super) fn replace(&mut self, definition: Arc<Activator>) {
        self.machine.set_limit(definition.limit);
        self.definition = definition;
        self.watch = None;
        self.watch_reason = WatchReason::Start;
    }

    /// Opens the sockets, or creates the directories of paths. Returns the problem on failure.
    pub(super) fn open(&mut self, unit: &UnitName, table: &DescriptorTable) -> Result<(), String> {
        match &self.definition.source {
            ActivatorSource::Socket(socket) => {
                self.sockets = open_sockets(unit, socket)?;
                self.removed_on_stop = match socket.remove_on_stop {
                    true => paths(socket).map(ToOwned::to_owned).collect(),
                    false => Vec::new(),
                };
                let named = |(_, descriptor): &(ListenerKind, Arc<OwnedFd>)| {
                    NamedDescriptor::of_socket(&socket.name, Arc::clone(descriptor))
                };
                let all = self.sockets.iter().map(named).collect();
                table.open_socket(unit, &self.definition.unit, all);
            }
            ActivatorSource::Path(path) => path_watch::create_directories(unit, path),
        }
        Ok(())
    }

    /// Makes an inactive activator active. Its sockets are open.
    pub(super) fn begin(&mut self, view: UnitView) {
        self.watch_reason = WatchReason::Start;
        self.has_missed_unit = false;
        let phase = if view.active { ActivatorPhase::Running } else { ActivatorPhase::Waiting };
        self.machine.set_phase(phase);
    }

    /// Makes the activator inactive.
    pub(super) fn stop(&mut self) {
        self.machine.set_phase(ActivatorPhase::Dead);
        self.has_missed_unit = false;
        self.starting = None;
    }

    /// Handles the state of the unit.
    pub(super) fn on_unit(&mut self, view: UnitView) {
        let before = self.machine.phase();
        self.machine.on_unit(view.active, view.hit_start_limit);
        if (before, self.machine.phase()) == (ActivatorPhase::Running, ActivatorPhase::Waiting) {
            self.watch_reason = WatchReason::UnitEnded;
            if let ActivatorSource::Socket(socket) = &self.definition.source
                && socket.flush_pending
            {
                self.sockets.iter().for_each(|(kind, it)| flush(it.as_fd(), *kind));
            }
        }
    }

    /// Returns whether the activator is an active socket without descriptors.
    pub(super) fn has_lost_sockets(&self) -> bool {
        let is_socket = matches!(self.definition.source, ActivatorSource::Socket(_));
        is_socket && self.sockets.is_empty() && self.machine.phase().is_active()
    }

    /// Returns whether this is the number of the current watch.
    pub(super) fn is_current_watch(&self, watch: u64) -> bool {
        self.watch.is_some() && self.watches == watch
    }

    /// Polls open sockets while the activator waits, and closes them once it is inactive.
    pub(super) fn settle_sources(
        &mut self,
        unit: &UnitName,
        poller: &mut SocketPoller,
        table: &DescriptorTable,
    ) {
        match self.machine.phase() {
            ActivatorPhase::Waiting => self.poll(unit, poller),
            ActivatorPhase::Running => self.disarm(poller),
            ActivatorPhase::Dead | ActivatorPhase::Failed(_) => {
                self.disarm(poller);
                self.close(unit, table);
            }
        }
    }

    fn poll(&mut self, unit: &UnitName, poller: &mut SocketPoller) {
        if self.polled.is_some() || self.sockets.is_empty() {
            return;
        }
        match poller.add(unit, borrowed(&self.sockets)) {
            Ok(token) => self.polled = Some(token),
            Err(error) => {
                tracing::error!(%unit, %error, "cannot poll a socket: traffic starts no service");
            }
        }
    }

    /// Stops waiting for events.
    pub(super) fn disarm(&mut self, poller: &mut SocketPoller) {
        if let Some(token) = self.polled.take() {
            poller.remove(token, borrowed(&self.sockets));
        }
        self.watch = None;
    }

    fn close(&mut self, unit: &UnitName, table: &DescriptorTable) {
        table.close_socket(unit);
        self.sockets.clear();
        for path in self.removed_on_stop.drain(..) {
            if let Err(error) = std::fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(%unit, %error, path, "cannot remove the path of a socket");
            }
        }
    }

    /// Watches the paths while the activator waits.
    pub(super) fn watch_paths(&mut self, unit: &UnitName, results: &mpsc::Sender<WatchResult>) {
        let ActivatorSource::Path(path) = &self.definition.source else { return };
        if self.machine.phase() != ActivatorPhase::Waiting || self.watch.is_some() {
            return;
        }
        self.watches += 1;
        let (unit, number, results) = (unit.clone(), self.watches, results.clone());
        let (path, existing) = (path.clone(), Arc::clone(&self.existing));
        let reason = self.watch_reason;
        let task = tokio::spawn(async move {
            let result = path_watch::wait_for_event(&path, &existing, reason).await;
            // The supervisor may be gone.
            drop(results.send((unit, number, result)).await);
        });
        self.watch = Some(Watch(task.abort_handle()));
    }

    /// Stores the state if it has changed.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let record = ActivatorRecord::new(self.machine.phase(), self.starting);
        let now = (self.requested, record);
        if self.stored == Some(now) {
            return Ok(());
        }
        let (requested, activator) = (now.0, Some(Box::new(now.1)));
        self.directory.write_run(&RunRecord { requested, activator, ..RunRecord::default() })?;
        self.stored = Some(now);
        Ok(())
    }

    /// Returns the status to publish.
    pub(super) fn status(&self, unit: &UnitName) -> PublishedStatus {
        let is_socket = matches!(self.definition.source, ActivatorSource::Socket(_));
        let phase = self.machine.phase();
        let (active, sub) = phase.words(is_socket);
        let state = SystemdState {
            result: Some(phase.result(is_socket).to_owned()),
            ..SystemdState::new(LoadState::Loaded, active, sub)
        };
        PublishedStatus {
            unit: ManagedUnit {
                unit: unit.clone(),
                known: known(self.hash, self.requested),
                state,
                waits_for: None,
            },
            requested: self.requested,
            log: Arc::clone(&self.log),
            text: None,
        }
    }
}

fn borrowed(sockets: &[(ListenerKind, Arc<OwnedFd>)]) -> impl Iterator<Item = BorrowedFd<'_>> {
    sockets.iter().map(|(_, descriptor)| descriptor.as_fd())
}

/// Returns the paths that a socket creates.
fn paths(socket: &Socket) -> impl Iterator<Item = &str> {
    let own = socket.listeners.iter().filter_map(|listener| listener.path());
    own.chain(socket.symlinks.iter().map(String::as_str))
}

/// Opens all listeners of a socket, and creates its symlinks.
fn open_sockets(
    unit: &UnitName,
    socket: &Socket,
) -> Result<Vec<(ListenerKind, Arc<OwnedFd>)>, String> {
    let owner = owner(socket)?;
    let mut warn = |option: &'static str, error: io::Error| {
        tracing::warn!(%unit, option, %error, "the kernel refuses an option of a socket");
    };
    let mut opened = Vec::new();
    for listener in &socket.listeners {
        let descriptor = open_listener(listener, socket, owner, &mut warn)
            .map_err(|error| format!("cannot listen at {}: {error}", listener.address))?;
        opened.push((listener.kind, Arc::new(descriptor)));
    }
    for symlink in &socket.symlinks {
        link(socket, symlink).map_err(|error| format!("cannot create {symlink}: {error}"))?;
    }
    Ok(opened)
}

/// Returns the owner of the paths of a socket.
fn owner(socket: &Socket) -> Result<PathOwner, String> {
    let (user, group) = (socket.user.clone(), socket.group.clone());
    let named = ExecEnvironment { user, group, ..ExecEnvironment::default() };
    let identity = look_up(&named, None).map_err(|why| match why {
        UnknownAccount::User(message) | UnknownAccount::Group(message) => message,
    })?;
    Ok(PathOwner { uid: identity.uid, gid: identity.gid })
}

/// Links to the only path of a socket. An earlier symlink is replaced.
fn link(socket: &Socket, symlink: &str) -> io::Result<()> {
    let Some(path) = socket.listeners.iter().find_map(|listener| listener.path()) else {
        return Ok(());
    };
    let symlink = std::path::Path::new(symlink);
    create_parents(symlink, socket.directory_mode)?;
    if std::fs::symlink_metadata(symlink).is_ok_and(|metadata| metadata.is_symlink()) {
        std::fs::remove_file(symlink)?;
    }
    std::os::unix::fs::symlink(path, symlink)
}
