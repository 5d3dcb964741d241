//! Stored state of timers.
//!
//! | file | holds | removed |
//! |---|---|---|
//! | `units/NAME/run.json` | state of the timer, and its last triggers | at boot |
//! | `timers/NAME` | wall-clock time of the last elapse, for a persistent timer | never |
//! | `timers.json` | start time of the first daemon of this boot | at boot |

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fleet_core::Timestamp;
use fleet_core::graph::systemd::{DualTimestamp, LastTriggers, TimerPhase, TimerState};
use fleet_unitfile::UnitName;
use serde::{Deserialize, Serialize};

use super::manager_context::file_name;
use crate::files::{create_private_dir, write_atomic};
use crate::lock::lock;

/// Maximum number of stamps of persistent timers that are kept.
const MAX_STAMPS: usize = 4096;

/// Stored state of a timer, part of its run record; all times are in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimerRecord {
    phase: StoredPhase,
    startup: u64,
    since: u64,
    since_wall: u64,
    waiting_since: u64,
    last: Option<u64>,
    last_wall: Option<u64>,
    unit_active: Option<u64>,
    unit_inactive: Option<u64>,
    /// ID of the elapse that is starting the unit.
    pub(crate) starting: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredPhase {
    #[default]
    Dead,
    Waiting,
    Running,
    Elapsed,
    Failed,
}

impl TimerRecord {
    pub(crate) fn new(state: &TimerState, starting: Option<u64>) -> Self {
        let triggers = &state.last;
        let millis = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
        Self {
            phase: match state.phase {
                TimerPhase::Dead => StoredPhase::Dead,
                TimerPhase::Waiting => StoredPhase::Waiting,
                TimerPhase::Running => StoredPhase::Running,
                TimerPhase::Elapsed => StoredPhase::Elapsed,
                TimerPhase::Failed => StoredPhase::Failed,
            },
            startup: triggers.startup.as_millis(),
            since: triggers.since.clock.as_millis(),
            since_wall: triggers.since.wall.as_millis(),
            waiting_since: triggers.waiting_since.as_millis(),
            last: millis(triggers.last),
            last_wall: millis(triggers.last_wall),
            unit_active: millis(triggers.unit_active),
            unit_inactive: millis(triggers.unit_inactive),
            starting,
        }
    }

    pub(crate) fn state(&self) -> TimerState {
        let at = Timestamp::from_millis;
        TimerState {
            phase: match self.phase {
                StoredPhase::Dead => TimerPhase::Dead,
                StoredPhase::Waiting => TimerPhase::Waiting,
                StoredPhase::Running => TimerPhase::Running,
                StoredPhase::Elapsed => TimerPhase::Elapsed,
                StoredPhase::Failed => TimerPhase::Failed,
            },
            last: LastTriggers {
                startup: at(self.startup),
                since: DualTimestamp { clock: at(self.since), wall: at(self.since_wall) },
                waiting_since: at(self.waiting_since),
                last: self.last.map(at),
                last_wall: self.last_wall.map(at),
                unit_active: self.unit_active.map(at),
                unit_inactive: self.unit_inactive.map(at),
            },
        }
    }
}

/// Times at which persistent timers last elapsed.
#[derive(Debug, Clone)]
pub(crate) struct PersistentStamps {
    directory: PathBuf,
    /// Stamps that are set but not yet on disk, since a write may take long or fail. Reads prefer
    /// the stamps in this map.
    unwritten: Arc<Mutex<BTreeMap<String, Timestamp>>>,
    /// Lock that is held during a write, so that an older stamp never overwrites a newer one.
    writing: Arc<Mutex<()>>,
}

impl PersistentStamps {
    /// Returns the stamps in a directory, with one file per persistent timer.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, unwritten: Arc::default(), writing: Arc::default() }
    }

    /// Creates the directory. If there are more than [`MAX_STAMPS`] files, removes the oldest.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        create_private_dir(&self.directory)?;
        let mut all = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            all.push((entry.metadata()?.modified()?, entry.path()));
        }
        all.sort();
        let surplus = all.len().saturating_sub(MAX_STAMPS);
        all.iter().take(surplus).try_for_each(|(_, path)| std::fs::remove_file(path))
    }

    /// Returns the wall-clock time at which a timer last elapsed.
    pub(crate) fn read(&self, file: &str) -> io::Result<Option<Timestamp>> {
        if let Some(at) = lock(&self.unwritten).get(file) {
            return Ok(Some(*at));
        }
        match std::fs::read_to_string(self.directory.join(file)) {
            // An invalid file does not exist by us, and is ignored.
            Ok(text) => Ok(text.trim().parse().ok().map(Timestamp::from_millis)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the stamp of a timer, and writes it outside the async runtime.
    pub(crate) fn record(&self, timer: &UnitName, at: Timestamp) {
        let (stamps, unit, file) = (self.clone(), timer.clone(), file_name(timer.as_str()));
        stamps.set(&file, at);
        drop(tokio::task::spawn_blocking(move || {
            if let Err(error) = stamps.write(&file) {
                tracing::error!(
                    %unit,
                    %error,
                    "cannot save when a timer elapsed: after a reboot, the timer might start the \
                     unit again"
                );
            }
        }));
    }

    /// Sets the stamp of a timer in memory.
    fn set(&self, file: &str, at: Timestamp) {
        lock(&self.unwritten).insert(file.to_owned(), at);
    }

    /// Writes the stamp of a timer durably.
    fn write(&self, file: &str) -> io::Result<()> {
        let _turn = lock(&self.writing);
        let Some(at) = lock(&self.unwritten).get(file).copied() else { return Ok(()) };
        write_atomic(&self.directory.join(file), at.as_millis().to_string().as_bytes(), true)?;
        let mut unwritten = lock(&self.unwritten);
        if unwritten.get(file) == Some(&at) {
            unwritten.remove(file);
        }
        Ok(())
    }
}

/// Returns the stored start time of the first daemon of this boot. If none is stored, this is the
/// first daemon, so `now` is stored and returned.
pub(crate) fn startup(file: &Path, now: Timestamp) -> io::Result<Timestamp> {
    let known = match std::fs::read(file) {
        Ok(text) => serde_json::from_slice(&text).ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    // A clock with another origin, as in tests, makes the stored time meaningless.
    if let Some(known) = known.map(Timestamp::from_millis).filter(|known| *known <= now) {
        return Ok(known);
    }
    write_atomic(file, &serde_json::to_vec(&now.as_millis())?, false)?;
    Ok(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_state_round_trips() {
        let at = Timestamp::from_millis;
        let triggers = LastTriggers {
            startup: at(1),
            since: DualTimestamp { clock: at(2), wall: at(3) },
            waiting_since: at(4),
            last: Some(at(5)),
            last_wall: Some(at(6)),
            unit_active: Some(at(7)),
            unit_inactive: Some(at(8)),
        };
        for phase in [
            TimerPhase::Dead,
            TimerPhase::Waiting,
            TimerPhase::Running,
            TimerPhase::Elapsed,
            TimerPhase::Failed,
        ] {
            let stored = TimerRecord::new(&TimerState { phase, last: triggers }, Some(u64::MAX));
            let text = serde_json::to_vec(&stored).expect("it has a form");
            let read: TimerRecord = serde_json::from_slice(&text).expect("it reads back");
            assert_eq!(read.state(), TimerState { phase, last: triggers });
            assert_eq!(read.starting, Some(u64::MAX));
        }
    }

    #[test]
    fn stamps_are_durable_and_bounded() {
        let temporary = tempfile::tempdir().expect("a directory can be made");
        let stamps = PersistentStamps::new(temporary.path().join("timers"));
        stamps.prepare().expect("it can be created");
        assert_eq!(stamps.read("a.timer").expect("it can be read"), None);
        let at = Timestamp::from_millis(1_795_374_000_123);
        stamps.set("a.timer", at);
        assert_eq!(stamps.read("a.timer").expect("it can be read"), Some(at), "at once");
        stamps.write("a.timer").expect("it can be written");
        assert_eq!(*lock(&stamps.unwritten), BTreeMap::new());
        assert_eq!(stamps.read("a.timer").expect("it can be read"), Some(at));
        for number in 0..MAX_STAMPS + 5 {
            let path = temporary.path().join(format!("timers/{number}.timer"));
            std::fs::write(path, "1").expect("it can be written");
        }
        stamps.prepare().expect("it is there");
        let left = std::fs::read_dir(temporary.path().join("timers")).expect("it is there");
        assert_eq!(left.count(), MAX_STAMPS);
    }

    #[test]
    fn startup_time_is_that_of_the_first_daemon() {
        let temporary = tempfile::tempdir().expect("a directory can be made");
        let file = temporary.path().join("timers.json");
        let at = |millis| startup(&file, Timestamp::from_millis(millis)).map(Timestamp::as_millis);
        assert_eq!(at(7).expect("it is written"), 7);
        assert_eq!(at(9).expect("it is read"), 7);
        assert_eq!(at(3).expect("it is of another clock"), 3);
    }
}
