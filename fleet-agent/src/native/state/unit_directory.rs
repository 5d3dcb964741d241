//! Storage of one unit, from which the next daemon continues.
//!
//! Each unit that fleet has loaded has a directory. The units of an `InitSupervisor` have none:
//! their runs and definitions share one file, the [`RunJournal`], and each unit has a log.
//!
//! | file of a directory | holds |
//! |---|---|
//! | `unit` | the unit file, byte for byte |
//! | `requested.json` | the requested state: epoch, generation, loaded or launched |
//! | `run.json` | the run: phase, processes, invocation ID, and the applied requested state |
//! | `stanza` | for a unit without a unit file: the definition from which it was started |
//! | `log` | output of the unit |
//!
//! A timer, socket or path has no processes. Its `run.json` holds its state, and its log stays
//! empty.
//!
//! The log is on disk. All other files are in the [runtime directory](super::runtime_directory), if
//! the daemon has one, so that a full disk keeps no unit from starting.
//!
//! The files `unit` and `requested.json` are replaced atomically by renaming. A shutdown is marked
//! by one file for all units, the [`ShutdownMarker`](super::manager_context::ShutdownMarker).
//! `run.json` is written before and after each spawn, and at each change of the phase. No file is
//! synced: a crash of the daemon loses no write that the kernel has accepted, and after a reboot
//! the files are meaningless.
//!
//! `run.json` is append-only, because appending is much cheaper than creating a new file. Each line
//! is a record, and the last complete line is the current one. A daemon that is killed during a
//! write leaves a partial line, which is ignored. Each record starts with a line break, so that it
//! never continues a partial line. Once the file is too large, the next record replaces it.

use std::fmt::Display;
use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::activator_record::ActivatorRecord;
use super::run_journal::RunJournal;
use super::timer_record::TimerRecord;
use crate::files::{create_private_dir, write_atomic};
use crate::native::linux::cgroup::Group;
use crate::native::linux::dynamic_user::DynamicIds;
use crate::native::linux::process_info::ProcessId;
use crate::native::log::Log;
use crate::native::log::append;
use crate::native::run::machine::state::RunState;

/// Maximum size of `run.json` in bytes. If the file is larger, the next record replaces it.
const MAX_RUN_FILE: u64 = 16 * 1024;

/// State of a unit that the service manager was requested to reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestedState {
    pub(crate) epoch: u64,
    pub(crate) generation: u64,
    pub(crate) launched: bool,
    /// Whether a timer, socket or path has started this unit since the unit's last stop. For a
    /// timer, socket or path: whether another unit has started it since its last stop.
    pub(crate) triggered: bool,
    /// ID of the last elapse or event that started the unit.
    pub(crate) trigger: u64,
    /// Generation of the last restart.
    pub(crate) restart_generation: u64,
}

impl RequestedState {
    /// Whether the unit should run: launched by fleet, or started by another unit.
    pub(crate) fn should_run(self) -> bool {
        self.launched || self.triggered
    }

    /// Returns the state after a stop.
    pub(crate) fn stopped(self) -> Self {
        Self { launched: false, triggered: false, ..self }
    }

    /// Returns the request that is pending if `before` was the last applied state.
    pub(crate) fn pending_since(self, before: Self) -> PendingRequest {
        let is_same = (self.launched, self.generation) == (before.launched, before.generation);
        match (self.launched, self.triggered) {
            (true, _) if self.restart_generation != before.restart_generation => {
                PendingRequest::Restart
            }
            (true, _) if !is_same => PendingRequest::Start,
            (false, false) if before.should_run() => PendingRequest::Stop,
            (_, true) if self.trigger != before.trigger => PendingRequest::Elapse,
            _ => PendingRequest::Nothing,
        }
    }
}

/// Request that was stored, but not applied before the daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingRequest {
    Nothing,
    /// Start; an active unit stays as it is.
    Start,
    /// Restart.
    Restart,
    Stop,
    /// Start because a timer has elapsed, or by a socket or path.
    Elapse,
}

/// Stored state of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    /// Requested state that was last applied. It differs from the stored request if a daemon ended
    /// between storing and applying the request. In that case the next daemon applies the request.
    pub(crate) requested: RequestedState,
    /// Invocation ID that all processes of the run carry. It is empty before the first run.
    pub(crate) invocation: String,
    /// Leaders of the process groups that the run has created and that may still have members.
    pub(crate) leaders: Vec<ProcessId>,
    /// Size of the log in bytes when the run began.
    pub(crate) log_from: u64,
    /// Control group of the run.
    pub(crate) group: Option<Group>,
    pub(crate) run_state: RunState,
    /// User of the run, if it is a dynamic one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dynamic: Option<Box<DynamicIds>>,
    /// State of a timer, which has no processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timer: Option<Box<TimerRecord>>,
    /// State of a socket or path, which has no processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) activator: Option<Box<ActivatorRecord>>,
}

/// Stored unit: its unit file, its requested state, and its run if a run was stored.
pub(crate) type StoredUnit = (Vec<u8>, RequestedState, Option<RunRecord>);

/// Storage of one unit: its directory, or a shared journal. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct UnitDirectory {
    paths: Arc<UnitPaths>,
    shared: Option<Arc<SharedStorage>>,
}

#[derive(Debug)]
struct UnitPaths {
    directory: PathBuf,
    /// Path of the log, unless the unit has shared storage.
    log: PathBuf,
}

/// Storage of a unit without a directory.
#[derive(Debug)]
pub(crate) struct SharedStorage {
    pub(crate) journal: Arc<RunJournal>,
    pub(crate) unit: String,
    pub(crate) log: PathBuf,
}

impl UnitDirectory {
    /// Returns the directory at a path, which need not exist, with the directory of the log.
    pub(crate) fn new(path: PathBuf, log: &Path) -> Self {
        let paths = UnitPaths { directory: path, log: log.join("log") };
        Self { paths: Arc::new(paths), shared: None }
    }

    /// Returns this storage if its directory exists, and the shared storage otherwise.
    pub(crate) fn or_shared(self, shared: SharedStorage) -> Self {
        let shared = (!self.paths.directory.is_dir()).then(|| Arc::new(shared));
        Self { shared, ..self }
    }

    /// Returns the name of the directory for log lines: the name of the unit, with escapes.
    pub(crate) fn label(&self) -> impl Display {
        self.paths.directory.file_name().unwrap_or_default().display()
    }

    /// Returns the path of the log.
    pub(crate) fn log(&self) -> PathBuf {
        self.shared.as_ref().map_or_else(|| self.paths.log.clone(), |shared| shared.log.clone())
    }

    /// Creates the directory of a unit that is loaded for the first time, and stores an empty run
    /// in it. A run that is already stored there is kept, because its processes may still run.
    pub(crate) fn create(&self) -> io::Result<()> {
        create_private_dir(&self.paths.directory)?;
        // The directory of all logs; opening the log creates the one of this unit.
        let logs = self.paths.log.parent().and_then(Path::parent);
        logs.map_or(Ok(()), create_private_dir)?;
        match self.read_run()? {
            None => self.write_run(&RunRecord::default()),
            // Processes of it may still run.
            Some(_) => Ok(()),
        }
    }

    /// Writes a loaded unit. The requested state is written last, because a directory without a
    /// requested state does not count as a unit.
    pub(crate) fn write_unit(&self, source: &[u8], requested: RequestedState) -> io::Result<()> {
        create_private_dir(&self.paths.directory)?;
        write_atomic(&self.paths.directory.join("unit"), source, false)?;
        self.write_requested(requested)
    }

    /// Returns whether the unit was loaded from a unit file and not from a stanza.
    pub(crate) fn has_unit_file(&self) -> bool {
        self.paths.directory.join("unit").exists()
    }

    /// Writes the definition that the unit is started from, as a stanza.
    pub(crate) fn write_definition(&self, stanza: &str) -> io::Result<()> {
        match &self.shared {
            Some(shared) => shared.journal.write_stanza(&shared.unit, stanza),
            None => write_atomic(&self.paths.directory.join("stanza"), stanza.as_bytes(), false),
        }
    }

    /// Reads the definition from which the unit was started. Returns `None` if no definition is
    /// stored.
    pub(crate) fn read_definition(&self) -> io::Result<Option<String>> {
        if let Some(shared) = &self.shared {
            return shared.journal.read_stanza(&shared.unit);
        }
        match std::fs::read_to_string(self.paths.directory.join("stanza")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            stanza => stanza.map(Some),
        }
    }

    /// Returns the error for an invalid stored definition.
    pub(crate) fn invalid_definition(&self, why: String) -> io::Error {
        let why = io::Error::new(io::ErrorKind::InvalidData, why);
        match &self.shared {
            Some(shared) => shared.journal.invalid_record(why),
            None => invalid_record(&self.paths.directory.join("stanza"), why, ""),
        }
    }

    /// Writes the requested state.
    pub(crate) fn write_requested(&self, requested: RequestedState) -> io::Result<()> {
        write_atomic(
            &self.paths.directory.join("requested.json"),
            &serde_json::to_vec(&requested)?,
            false,
        )
    }

    /// Changes the stored requested state to stopped, as part of a shutdown. A requested state that
    /// cannot be parsed stays as it is, because the next daemon does not recover such a unit.
    pub(crate) fn write_stopped(&self) -> io::Result<()> {
        use io::ErrorKind::{InvalidData, NotADirectory, UnexpectedEof};
        let path = self.paths.directory.join("requested.json");
        match read_json::<RequestedState>(&path) {
            Ok(Some(requested)) if requested.should_run() => {
                write_atomic(&path, &serde_json::to_vec(&requested.stopped())?, false)
            }
            Err(error) if matches!(error.kind(), InvalidData | NotADirectory | UnexpectedEof) => {
                Ok(())
            }
            read => read.map(drop),
        }
    }

    /// Writes the state of the run.
    pub(crate) fn write_run(&self, run: &RunRecord) -> io::Result<()> {
        if let Some(shared) = &self.shared {
            return shared.journal.write_run(&shared.unit, run);
        }
        let path = self.paths.directory.join("run.json");
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, run)?;
        line.push(b'\n');
        let mut file = append(&path)?;
        if file.metadata()?.len() > MAX_RUN_FILE {
            return write_atomic(&path, &line, false);
        }
        file.write_all(&line)
    }

    /// Reads the stored unit; `None` if it was never loaded completely.
    pub(crate) fn read(&self) -> io::Result<Option<StoredUnit>> {
        let Some(requested) = read_json(&self.paths.directory.join("requested.json"))? else {
            return Ok(None);
        };
        let source = std::fs::read(self.paths.directory.join("unit"))?;
        Ok(Some((source, requested, self.read_run()?)))
    }

    /// Reads the state of the run; `None` if there is none.
    pub(crate) fn read_run(&self) -> io::Result<Option<RunRecord>> {
        if let Some(shared) = &self.shared {
            return shared.journal.read_run(&shared.unit);
        }
        let path = self.paths.directory.join("run.json");
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let complete = text.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
        let last = text[..complete].split(|&byte| byte == b'\n').rfind(|line| !line.is_empty());
        let run = last.map(serde_json::from_slice).transpose();
        let or = "; or remove the file, if no process of the unit is left";
        run.map_err(|why| invalid_record(&path, why, or))
    }

    /// Removes all files of the unit. The requested state is removed first, because a directory
    /// without a requested state does not count as a unit.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let ignore_missing = |result: io::Result<()>| match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        if let Some(shared) = &self.shared {
            shared.journal.forget(&shared.unit)?;
            return Log::remove(&shared.log);
        }
        ignore_missing(std::fs::remove_file(self.paths.directory.join("requested.json")))?;
        ignore_missing(std::fs::remove_dir_all(&self.paths.directory))?;
        let log = self.paths.log.parent().filter(|log| *log != self.paths.directory);
        log.map_or(Ok(()), |log| ignore_missing(std::fs::remove_dir_all(log)))
    }
}

/// Returns the error for an invalid stored run, for example one that a later version has written.
/// `or` is appended to the message as a further remedy.
pub(crate) fn invalid_record(path: &Path, why: impl Into<io::Error>, or: &str) -> io::Error {
    let (why, path) = (why.into(), path.display());
    let problem = format!(
        "cannot read the stored run in {path} ({why}): if another version of fleet wrote it, run \
         that version{or}"
    );
    io::Error::new(why.kind(), problem)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &Path) -> UnitDirectory {
        UnitDirectory::new(path.to_owned(), path)
    }

    #[test]
    fn pending_request_is_the_difference_to_the_applied_state() {
        let nothing = RequestedState::default();
        let launched = RequestedState { launched: true, generation: 1, ..nothing };
        let elapsed = |trigger| RequestedState { triggered: true, trigger, ..nothing };
        for (requested, done, pending) in [
            (nothing, nothing, PendingRequest::Nothing),
            (launched, launched, PendingRequest::Nothing),
            (launched, nothing, PendingRequest::Start),
            (RequestedState { generation: 2, ..launched }, launched, PendingRequest::Start),
            (
                RequestedState { generation: 2, restart_generation: 2, ..launched },
                launched,
                PendingRequest::Restart,
            ),
            (
                RequestedState { generation: 2, restart_generation: 2, ..launched },
                nothing,
                PendingRequest::Restart,
            ),
            // A later start does not cancel the restart, but a stop does.
            (
                RequestedState { generation: 3, restart_generation: 2, ..launched },
                launched,
                PendingRequest::Restart,
            ),
            (
                RequestedState { launched: false, restart_generation: 2, ..launched },
                launched,
                PendingRequest::Stop,
            ),
            (
                RequestedState { generation: 3, restart_generation: 2, ..launched },
                RequestedState { generation: 2, restart_generation: 2, ..launched },
                PendingRequest::Start,
            ),
            (RequestedState { launched: false, ..launched }, launched, PendingRequest::Stop),
            (RequestedState { triggered: false, ..elapsed(3) }, elapsed(3), PendingRequest::Stop),
            (RequestedState { epoch: 7, ..launched }, launched, PendingRequest::Nothing),
            (elapsed(3), elapsed(2), PendingRequest::Elapse),
            (elapsed(3), elapsed(3), PendingRequest::Nothing),
        ] {
            assert_eq!(requested.pending_since(done), pending, "{requested:?} after {done:?}");
        }
    }

    #[test]
    fn stored_state_round_trips() {
        let temporary = tempfile::tempdir().expect("a directory can be made");
        let directory = at(&temporary.path().join("a.service"));
        assert!(directory.read().expect("nothing is there").is_none());
        let requested =
            RequestedState { epoch: 7, generation: 2, launched: true, ..RequestedState::default() };
        directory.write_unit(b"[Service]\n\xff", requested).expect("it can be written");
        let run =
            RunRecord { leaders: vec![ProcessId { pid: 4, start: 1 }], ..RunRecord::default() };
        directory.write_run(&run).expect("it can be written");
        let read = directory.read().expect("it can be read").expect("it is there");
        assert_eq!(read, (b"[Service]\n\xff".to_vec(), requested, Some(run)));
        directory.remove().expect("it can be removed");
        directory.remove().expect("it may be gone already");
        assert!(directory.read().expect("nothing is there").is_none());
    }

    fn run(pid: u32) -> RunRecord {
        RunRecord { leaders: vec![ProcessId { pid, start: 1 }], ..RunRecord::default() }
    }

    #[test]
    fn partial_record_is_ignored() {
        let temporary = tempfile::tempdir().expect("a directory can be made");
        let directory = at(temporary.path());
        let path = temporary.path().join("run.json");
        directory.write_run(&run(1)).expect("it can be written");
        let one = std::fs::read(&path).expect("it is there");
        directory.write_run(&run(2)).expect("it can be written");
        let two = std::fs::read(&path).expect("it is there");
        for length in 0..=two.len() {
            std::fs::write(&path, &two[..length]).expect("it can be written");
            let expected = match length {
                _ if length == two.len() => Some(run(2)),
                _ if length >= one.len() => Some(run(1)),
                _ => None,
            };
            assert_eq!(directory.read_run().expect("it can be read"), expected, "{length} bytes");
            directory.write_run(&run(3)).expect("it can be written");
            assert_eq!(directory.read_run().expect("it can be read"), Some(run(3)), "{length}");
        }
    }

    #[test]
    fn run_file_is_bounded() {
        let temporary = tempfile::tempdir().expect("a directory can be made");
        let directory = at(temporary.path());
        for pid in 0..2000 {
            directory.write_run(&run(pid)).expect("it can be written");
            assert_eq!(directory.read_run().expect("it can be read"), Some(run(pid)));
        }
        let length = std::fs::metadata(temporary.path().join("run.json")).expect("it is there");
        assert!(length.len() < 2 * MAX_RUN_FILE);
    }
}
