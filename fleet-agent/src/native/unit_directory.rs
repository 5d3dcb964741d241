//! What is kept of a unit on disk, so that the next daemon finds it as it is.
//!
//! Each unit that was loaded has a directory of its own. A supervisor's units have none: what runs of
//! them and what they were started from is in one file for all, [`Records`], and each has a log.
//!
//! | file of a directory | holds |
//! |---|---|
//! | `unit` | the unit file, byte for byte |
//! | `asked.json` | what was asked: epoch, generation, loaded or launched |
//! | `run.json` | what runs: phase, processes, identity of the run, and what of the asked is done |
//! | `stanza` | where no unit file is the source: what an earlier supervisor started the unit from |
//! | `log` | what the unit writes |
//! | `timer.json` | for a timer, in place of the last three: its state |
//!
//! The first two are replaced as a whole by renaming. That all units are to end is one file for
//! all, [`End`](super::shutdown_marker::End). `run.json` is written before and after each start of a process,
//! and whenever the phase changes. None of it means anything after the machine was booted again, so
//! that nothing of it is synced: the daemon's death loses no write that the kernel has taken.
//!
//! Each of its lines is a record, and the last whole line counts. To add a line costs a fraction of
//! a new file, for which file systems look for room. A daemon that is killed while it writes leaves
//! a part of a line, as if it had not written. Each line begins on a new one, so that a part is
//! never taken into the next; once there are many the file is replaced by the last.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::cgroup::Group;
use super::log::Log;
use super::process::append;
use super::run_journal::RunJournal;
use super::run_state::{ProcessId, RunState};
use crate::atomic_file::write_atomic;

/// How many bytes of records of runs are kept before they are replaced by the last.
const MAX_RUN_FILE: u64 = 64 * 1024;

/// What was asked of the service manager about a unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestedState {
    pub(crate) epoch: u64,
    pub(crate) generation: u64,
    pub(crate) launched: bool,
    /// Whether a timer has started it since it was last stopped; of a timer, whether a unit has.
    #[serde(default)]
    pub(crate) triggered: bool,
    /// The last elapse of a timer that was to start it, by a number that no other has.
    #[serde(default)]
    pub(crate) trigger: u64,
    /// The generation of the last start that was to end before what was up.
    #[serde(default)]
    pub(crate) renewed: u64,
}

impl RequestedState {
    /// Whether the unit is to run: fleet wants it to, or a timer did.
    pub(crate) fn should_run(self) -> bool {
        self.launched || self.triggered
    }

    /// The same for a unit that is not to run any more.
    pub(crate) fn stopped(self) -> Self {
        Self { launched: false, triggered: false, ..self }
    }

    /// What a daemon left to do that wrote down `before` as done.
    pub(crate) fn pending_since(self, before: Self) -> PendingRequest {
        let is_same = (self.launched, self.generation) == (before.launched, before.generation);
        match (self.launched, self.triggered) {
            (true, _) if self.renewed != before.renewed => PendingRequest::Restart,
            (true, _) if !is_same => PendingRequest::Start,
            (false, false) if before.should_run() => PendingRequest::Stop,
            (_, true) if self.trigger != before.trigger => PendingRequest::Elapse,
            _ => PendingRequest::Nothing,
        }
    }
}

/// What of the asked was written down, and not done before the daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingRequest {
    Nothing,
    /// A start: what is up already is not started anew.
    Start,
    /// A start that ends before what is up.
    Restart,
    Stop,
    /// A start because a timer has elapsed.
    Elapse,
}

/// What runs of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    /// What had been asked, and was acted upon, when this was written. A daemon that ends between
    /// writing down what is asked and doing it leaves the rest to the next.
    #[serde(default)]
    pub(crate) requested: RequestedState,
    /// The identity of the run, which all its processes carry; empty before the first.
    pub(crate) invocation: String,
    /// The leaders of process groups that the run has begun and that were not seen to end.
    pub(crate) leaders: Vec<ProcessId>,
    /// Where the log ended when the run began, in bytes.
    #[serde(default)]
    pub(crate) log_from: u64,
    /// The control group of the run, if it has one.
    #[serde(default)]
    pub(crate) group: Option<Group>,
    pub(crate) run_state: RunState,
}

/// What is found of a unit: its source, what was asked, and what runs, if that was ever written.
pub(crate) type StoredUnit = (Vec<u8>, RequestedState, Option<RunRecord>);

/// The directory of one unit, or what stands for it. To clone it costs nothing.
#[derive(Debug, Clone)]
pub(crate) struct UnitDirectory {
    path: Arc<Path>,
    shared: Option<Arc<SharedStorage>>,
}

/// Where a unit without a directory is kept.
#[derive(Debug)]
pub(crate) struct SharedStorage {
    pub(crate) journal: Arc<RunJournal>,
    pub(crate) unit: String,
    pub(crate) log: PathBuf,
}

impl UnitDirectory {
    /// The directory at that path, which need not exist.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path: path.into(), shared: None }
    }

    /// What stands for the directory at that path, unless there is one.
    pub(crate) fn with_journal(path: PathBuf, shared: SharedStorage) -> Self {
        let shared = (!path.is_dir()).then(|| Arc::new(shared));
        Self { path: path.into(), shared }
    }

    /// Where the unit writes.
    pub(crate) fn log(&self) -> PathBuf {
        self.shared.as_ref().map_or_else(|| self.path.join("log"), |shared| shared.log.clone())
    }

    /// Where the state of a timer is.
    pub(crate) fn timer(&self) -> PathBuf {
        self.path.join("timer.json")
    }

    /// Makes a place for a unit that is about to be loaded for the first time. There is a record of
    /// what runs from then on, so that one without is known for one of an earlier daemon.
    pub(crate) fn create(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.path)?;
        match self.read_run()? {
            None => self.write_run(&RunRecord::default()),
            // What is left there may run.
            Some(_) => Ok(()),
        }
    }

    /// Writes a unit that was loaded. What was asked comes last: without it there is no unit.
    pub(crate) fn write_unit(&self, source: &[u8], requested: RequestedState) -> io::Result<()> {
        std::fs::create_dir_all(&self.path)?;
        write_atomic(&self.path.join("unit"), source, false)?;
        self.write_asked(requested)
    }

    /// Whether the unit was loaded as a unit file, and is no stanza.
    pub(crate) fn has_unit_file(&self) -> bool {
        self.path.join("unit").exists()
    }

    /// Writes what the unit runs, as a stanza.
    pub(crate) fn write_definition(&self, stanza: &str) -> io::Result<()> {
        match &self.shared {
            Some(shared) => shared.journal.write_stanza(&shared.unit, stanza),
            None => write_atomic(&self.path.join("stanza"), stanza.as_bytes(), false),
        }
    }

    /// Reads what the unit runs; `None` when it never did.
    pub(crate) fn read_definition(&self) -> io::Result<Option<String>> {
        if let Some(shared) = &self.shared {
            return shared.journal.read_stanza(&shared.unit);
        }
        match std::fs::read_to_string(self.path.join("stanza")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            stanza => stanza.map(Some),
        }
    }

    /// What is written of what the unit runs makes no sense, for this reason.
    pub(crate) fn invalid_definition(&self, why: String) -> io::Error {
        let why = io::Error::new(io::ErrorKind::InvalidData, why);
        match &self.shared {
            Some(shared) => shared.journal.invalid_record(why),
            None => invalid_record(&self.path.join("stanza"), why, ""),
        }
    }

    /// Writes what was asked.
    pub(crate) fn write_asked(&self, requested: RequestedState) -> io::Result<()> {
        write_atomic(&self.path.join("asked.json"), &serde_json::to_vec(&requested)?, false)
    }

    /// Writes that the unit is not to run any more, as the end of all says, if it was to. Where
    /// what was asked makes no sense, nobody takes the unit back either.
    pub(crate) fn write_stopped(&self) -> io::Result<()> {
        use io::ErrorKind::{InvalidData, NotADirectory, UnexpectedEof};
        let path = self.path.join("asked.json");
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

    /// Writes what runs.
    pub(crate) fn write_run(&self, run: &RunRecord) -> io::Result<()> {
        if let Some(shared) = &self.shared {
            return shared.journal.write_run(&shared.unit, run);
        }
        let path = self.path.join("run.json");
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, run)?;
        line.push(b'\n');
        let mut file = append(&path)?;
        if file.metadata()?.len() > MAX_RUN_FILE {
            return write_atomic(&path, &line, false);
        }
        file.write_all(&line)
    }

    /// Reads a unit back; `None` when it was never loaded whole.
    pub(crate) fn read(&self) -> io::Result<Option<StoredUnit>> {
        let Some(requested) = read_json(&self.path.join("asked.json"))? else {
            return Ok(None);
        };
        let source = std::fs::read(self.path.join("unit"))?;
        Ok(Some((source, requested, self.read_run()?)))
    }

    /// Reads what runs; `None` when nothing ever ran.
    pub(crate) fn read_run(&self) -> io::Result<Option<RunRecord>> {
        if let Some(shared) = &self.shared {
            return shared.journal.read_run(&shared.unit);
        }
        let path = self.path.join("run.json");
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        // A file without any line was written as a whole, by a daemon that did not add to it.
        let whole = text.iter().rposition(|&byte| byte == b'\n').unwrap_or(text.len());
        let last = text[..whole].split(|&byte| byte == b'\n').rfind(|line| !line.is_empty());
        let run = last.map(serde_json::from_slice).transpose();
        let or = "; or remove that file, if nothing of the unit runs any more";
        run.map_err(|why| invalid_record(&path, why, or))
    }

    /// Removes everything of the unit. What was asked goes first: without it there is no unit.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let ignore_missing = |result: io::Result<()>| match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        if let Some(shared) = &self.shared {
            shared.journal.forget(&shared.unit)?;
            return Log::remove(&shared.log);
        }
        ignore_missing(std::fs::remove_file(self.path.join("asked.json")))?;
        ignore_missing(std::fs::remove_dir_all(&self.path))
    }
}

/// What is written of a run makes no sense, as that of a later version may not. With what to do
/// about it beside the one thing that is always right.
pub(crate) fn invalid_record(path: &Path, why: impl Into<io::Error>, or: &str) -> io::Error {
    let (why, path) = (why.into(), path.display());
    let problem = format!(
        "what {path} says of what runs makes no sense to this version of fleet ({why}): run the \
         one that wrote it{or}"
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

    #[test]
    fn what_is_left_to_do_follows_from_what_was_done() {
        let nothing = RequestedState::default();
        let launched = RequestedState { launched: true, generation: 1, ..nothing };
        let elapsed = |trigger| RequestedState { triggered: true, trigger, ..nothing };
        for (requested, done, pending) in [
            (nothing, nothing, PendingRequest::Nothing),
            (launched, launched, PendingRequest::Nothing),
            (launched, nothing, PendingRequest::Start),
            (RequestedState { generation: 2, ..launched }, launched, PendingRequest::Start),
            (
                RequestedState { generation: 2, renewed: 2, ..launched },
                launched,
                PendingRequest::Restart,
            ),
            (
                RequestedState { generation: 2, renewed: 2, ..launched },
                nothing,
                PendingRequest::Restart,
            ),
            // A start that came after it does not undo it, and a stop does.
            (
                RequestedState { generation: 3, renewed: 2, ..launched },
                launched,
                PendingRequest::Restart,
            ),
            (
                RequestedState { launched: false, renewed: 2, ..launched },
                launched,
                PendingRequest::Stop,
            ),
            (
                RequestedState { generation: 3, renewed: 2, ..launched },
                RequestedState { generation: 2, renewed: 2, ..launched },
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
    fn what_is_written_is_read() {
        let temporary = tempfile::tempdir().expect("a directory can be made");
        let directory = UnitDirectory::new(temporary.path().join("a.service"));
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
    fn a_record_that_is_broken_off_anywhere_was_not_written() {
        let temporary = tempfile::tempdir().expect("a directory can be made");
        let directory = UnitDirectory::new(temporary.path().to_owned());
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
    fn a_record_that_an_earlier_daemon_wrote_as_a_whole_counts() {
        let temporary = tempfile::tempdir().expect("a directory can be made");
        let directory = UnitDirectory::new(temporary.path().to_owned());
        let whole = serde_json::to_vec(&run(1)).expect("it has a form");
        std::fs::write(temporary.path().join("run.json"), whole).expect("it can be written");
        assert_eq!(directory.read_run().expect("it can be read"), Some(run(1)));
        directory.write_run(&run(2)).expect("it can be written");
        assert_eq!(directory.read_run().expect("it can be read"), Some(run(2)));
    }

    #[test]
    fn records_do_not_pile_up() {
        let temporary = tempfile::tempdir().expect("a directory can be made");
        let directory = UnitDirectory::new(temporary.path().to_owned());
        for pid in 0..2000 {
            directory.write_run(&run(pid)).expect("it can be written");
            assert_eq!(directory.read_run().expect("it can be read"), Some(run(pid)));
        }
        let length = std::fs::metadata(temporary.path().join("run.json")).expect("it is there");
        assert!(length.len() < 2 * MAX_RUN_FILE);
    }
}
