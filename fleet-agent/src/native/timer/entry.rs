//! One timer as it is known.

use std::io;
use std::sync::Arc;

use fleet_core::graph::systemd::{Look, Sight, Timer, TimerLife, TimerPhase};
use fleet_core::{Epoch, Generation, KnownUnit, LoadState, SystemdState, TargetState, Timestamp};
use fleet_unitfile::{UnitFile, UnitHash, UnitName};

use super::record::Written;
use crate::ManagedUnit;
use crate::native::compile::compile;
use crate::native::identity::Host;
use crate::native::record::{Asked, UnitDirectory};
use crate::whole::write_whole;

/// A timer that is known.
pub(super) struct Entry {
    pub(super) life: TimerLife,
    pub(super) hash: UnitHash,
    pub(super) asked: Asked,
    pub(super) directory: UnitDirectory,
    /// What was last seen of its unit.
    pub(super) sight: Sight,
    /// The elapse whose start of the unit is under way.
    pub(super) starting: Option<u64>,
    written: Option<Written>,
}

impl Entry {
    /// One that was not known.
    pub(super) fn new(
        timer: Arc<Timer>,
        hash: UnitHash,
        asked: Asked,
        directory: UnitDirectory,
        startup: Timestamp,
    ) -> Self {
        Self {
            life: TimerLife::new(timer, startup),
            hash,
            asked,
            directory,
            sight: Sight::default(),
            starting: None,
            written: None,
        }
    }

    /// Reads one back; `None` when it was never loaded whole.
    pub(super) fn read(
        unit: &UnitName,
        directory: UnitDirectory,
        host: &Host,
        startup: Timestamp,
    ) -> io::Result<Option<Self>> {
        let Some((source, asked, _)) = directory.read()? else {
            return Ok(None);
        };
        let (file, _) = UnitFile::parse_collecting(&source);
        let timer = match compile(unit, &file, host) {
            Ok(compiled) => compiled.unit.timer,
            Err(bad) => {
                let (line, problem) = (bad.line, bad.problem);
                tracing::warn!(%unit, line, problem, "cannot run it again");
                None
            }
        };
        let timer = Arc::new(timer.unwrap_or_else(|| only_to_stop(unit)));
        let mut entry = Self::new(timer, file.hash(), asked, directory, startup);
        entry.written = match std::fs::read(entry.directory.timer()) {
            Ok(text) => Some(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Some(entry))
    }

    /// Goes on where the earlier daemon ended, and does what was asked of it that it did not live
    /// to do. Tells whether that is to start the timer.
    pub(super) fn resume(&mut self, timer: Arc<Timer>, look: Look<'_>) -> bool {
        let Some(written) = &self.written else {
            return self.asked.is_wanted();
        };
        self.starting = written.starting;
        let memory = written.memory();
        self.sight.started = memory.past.unit_active;
        self.sight.rested = memory.past.unit_inactive;
        self.life = TimerLife::restore(timer, memory, look);
        let asked = (self.asked.launched, self.asked.triggered, self.asked.generation);
        let is_done = (written.launched, written.triggered, written.generation) == asked;
        if !self.asked.is_wanted() || !is_done {
            self.life.on_stop();
        }
        self.asked.is_wanted() && !is_done
    }

    /// What it has last elapsed for is over with the end of all units.
    pub(super) fn forget_elapse(&mut self) {
        if let Some(written) = &mut self.written {
            written.starting = None;
        }
    }

    /// What its unit does now: the moments at which it is first seen to do so are kept.
    pub(super) fn see(&mut self, active: bool, now: Timestamp) {
        match (self.sight.active, active) {
            (false, true) => self.sight.started = Some(now),
            (true, false) => self.sight.rested = Some(now),
            _ => {}
        }
        self.sight.active = active;
    }

    /// Writes down what has changed since it was last written.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let now = Written::new(self.life.memory(), self.asked, self.starting);
        if self.written.as_ref() == Some(&now) {
            return Ok(());
        }
        write_whole(&self.directory.timer(), &serde_json::to_vec(&now)?, false)?;
        self.written = Some(now);
        Ok(())
    }

    /// What everybody may see of it.
    pub(super) fn shown(&self, unit: &UnitName) -> ManagedUnit {
        let phase = self.life.memory().phase;
        let (active, sub) = phase.words();
        let result = if phase == TimerPhase::Failed { "resources" } else { "success" };
        let asked = self.asked;
        ManagedUnit {
            unit: unit.clone(),
            known: KnownUnit {
                hash: self.hash,
                asked: if asked.launched { TargetState::Launched } else { TargetState::Loaded },
                epoch: Epoch(asked.epoch),
                generation: Generation(asked.generation),
            },
            state: SystemdState {
                result: Some(result.to_owned()),
                ..SystemdState::new(LoadState::Loaded, active, sub)
            },
        }
    }
}

/// For a timer whose file cannot be obeyed any more: it never elapses.
fn only_to_stop(unit: &UnitName) -> Timer {
    Timer {
        unit: unit.clone(),
        triggers: Vec::new(),
        delay: fleet_core::graph::systemd::Delay::Random(std::time::Duration::ZERO),
        persistent: false,
        remains: false,
    }
}
