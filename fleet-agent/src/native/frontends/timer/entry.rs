//! One loaded timer.

use std::io;
use std::sync::Arc;

use fleet_core::graph::systemd::{
    Timer, TimerContext, TimerMachine, TimerPhase, TriggeredUnitState,
};
use fleet_core::{Epoch, Generation, KnownUnit, LoadState, SystemdState, TargetState, Timestamp};
use fleet_unitfile::{UnitFile, UnitHash, UnitName};

use super::storage::StoredTimer;
use crate::ManagedUnit;
use crate::atomic_file::write_atomic;
use crate::native::state::unit_directory::{RequestedState, UnitDirectory};
use crate::native::supervisor::compile::compile;
use crate::native::supervisor::host_capabilities::HostCapabilities;

/// A loaded timer.
pub(crate) struct TimerEntry {
    pub(crate) machine: TimerMachine,
    pub(crate) hash: UnitHash,
    pub(crate) requested: RequestedState,
    pub(crate) directory: UnitDirectory,
    /// Latest observed state of the timer's unit.
    pub(crate) unit_state: TriggeredUnitState,
    /// ID of the elapse that is starting the unit.
    pub(crate) starting: Option<u64>,
    stored: Option<StoredTimer>,
}

impl TimerEntry {
    /// Creates the entry of a timer that is being loaded.
    pub(crate) fn new(
        timer: Arc<Timer>,
        hash: UnitHash,
        requested: RequestedState,
        directory: UnitDirectory,
        startup: Timestamp,
    ) -> Self {
        Self {
            machine: TimerMachine::new(timer, startup),
            hash,
            requested,
            directory,
            unit_state: TriggeredUnitState::default(),
            starting: None,
            stored: None,
        }
    }

    /// Reads a stored timer; `None` if it was never loaded completely.
    pub(crate) fn read(
        unit: &UnitName,
        directory: UnitDirectory,
        host: &HostCapabilities,
        startup: Timestamp,
    ) -> io::Result<Option<Self>> {
        let Some((source, requested, _)) = directory.read()? else {
            return Ok(None);
        };
        let (file, _) = UnitFile::parse_collecting(&source);
        let timer = match compile(unit, &file, host) {
            Ok(compiled) => compiled.unit.timer,
            Err(bad) => {
                let (line, problem) = (bad.line, bad.problem);
                let text = "cannot start a timer: the saved unit file is invalid";
                tracing::warn!(%unit, line, problem, "{text}");
                None
            }
        };
        let timer = Arc::new(timer.unwrap_or_else(|| stop_only_definition(unit)));
        let mut entry = Self::new(timer, file.hash(), requested, directory, startup);
        entry.stored = match std::fs::read(entry.directory.timer()) {
            Ok(text) => Some(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Some(entry))
    }

    /// Continues with the state that an earlier daemon has stored. If a stop was requested but not
    /// applied, applies it now. Returns whether the caller has to start the timer.
    pub(crate) fn resume(&mut self, timer: Arc<Timer>, cx: TimerContext<'_>) -> bool {
        let Some(stored) = &self.stored else {
            return self.requested.should_run();
        };
        self.starting = stored.starting;
        let memory = stored.state();
        self.unit_state.started = memory.last.unit_active;
        self.unit_state.stopped = memory.last.unit_inactive;
        self.machine = TimerMachine::restore(timer, memory, cx);
        let requested =
            (self.requested.launched, self.requested.triggered, self.requested.generation);
        let is_done = (stored.launched, stored.triggered, stored.generation) == requested;
        if !self.requested.should_run() || !is_done {
            self.machine.on_stop();
        }
        self.requested.should_run() && !is_done
    }

    /// Cancels the stored start of the timer's unit, for a manager that is opened after a shutdown
    /// of all units.
    pub(crate) fn clear_pending_start(&mut self) {
        if let Some(stored) = &mut self.stored {
            stored.starting = None;
        }
    }

    /// Records the state of the unit, with the time of each change.
    pub(crate) fn observe_unit(&mut self, active: bool, now: Timestamp) {
        match (self.unit_state.active, active) {
            (false, true) => self.unit_state.started = Some(now),
            (true, false) => self.unit_state.stopped = Some(now),
            _ => {}
        }
        self.unit_state.active = active;
    }

    /// Stores the state if it has changed.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        let now = StoredTimer::new(self.machine.state(), self.requested, self.starting);
        if self.stored.as_ref() == Some(&now) {
            return Ok(());
        }
        write_atomic(&self.directory.timer(), &serde_json::to_vec(&now)?, false)?;
        self.stored = Some(now);
        Ok(())
    }

    /// Returns the published status.
    pub(crate) fn managed_unit(&self, unit: &UnitName) -> ManagedUnit {
        let phase = self.machine.state().phase;
        let (active, sub) = phase.words();
        let result = if phase == TimerPhase::Failed { "resources" } else { "success" };
        let requested = self.requested;
        ManagedUnit {
            unit: unit.clone(),
            known: KnownUnit {
                hash: self.hash,
                requested: if requested.launched {
                    TargetState::Launched
                } else {
                    TargetState::Loaded
                },
                epoch: Epoch(requested.epoch),
                generation: Generation(requested.generation),
            },
            state: SystemdState {
                result: Some(result.to_owned()),
                ..SystemdState::new(LoadState::Loaded, active, sub)
            },
        }
    }
}

/// Returns a definition without triggers, which never elapses. It replaces the definition of a
/// timer whose unit file can no longer be run.
fn stop_only_definition(unit: &UnitName) -> Timer {
    Timer {
        unit: unit.clone(),
        triggers: Vec::new(),
        delay: fleet_core::graph::systemd::RandomizedDelay::Random(std::time::Duration::ZERO),
        persistent: false,
        remain_after_elapse: false,
    }
}
