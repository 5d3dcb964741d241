//! Requests to a `fleet-init`, and their errors.

use fleet_core::Timestamp;
use fleet_core::graph::format::{FileRole, InitFile};
use fleet_core::journal::{JournalLine, JournalQuery, Since};
use fleet_unitfile::{ParseError, UnitFile, UnitName};
use serde::{Deserialize, Serialize};

use crate::{ServiceError, wall_time};

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// A call of a [`ServiceManager`](crate::ServiceManager).
    Manager(ManagerRequest),
    /// A command to an init that runs the units of files.
    Init(InitRequest),
}

impl From<ManagerRequest> for Request {
    fn from(request: ManagerRequest) -> Self {
        Self::Manager(request)
    }
}

impl From<InitRequest> for Request {
    fn from(request: InitRequest) -> Self {
        Self::Init(request)
    }
}

/// A call of a [`ServiceManager`](crate::ServiceManager). Its result is that of the method with
/// this name.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the fields are parameters of the methods")]
pub enum ManagerRequest {
    Load {
        unit: UnitName,
        file: FileWire,
        epoch: u64,
    },
    Reload,
    Unload {
        unit: UnitName,
    },
    Start {
        unit: UnitName,
        generation: u64,
    },
    Restart {
        unit: UnitName,
        generation: u64,
    },
    Stop {
        unit: UnitName,
    },
    ReloadUnit {
        unit: UnitName,
    },
    Get {
        unit: UnitName,
    },
    List,
    Drift {
        unit: UnitName,
    },
    StopTimeout {
        unit: UnitName,
    },
    Details {
        unit: UnitName,
    },
    /// An endless stream of changed units. Its first item has all units.
    Watch,
    /// A stream of lists of lines, the first of which may be empty. An init that runs the units of
    /// files also accepts it, with the name of a unit or of a target.
    Journal {
        unit: String,
        query: QueryWire,
    },
}

/// A command to an init that runs the units of files.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InitRequest {
    /// Returns the state of all units. An init that runs the units of fleetd accepts this command
    /// only.
    Status,
    /// Chooses the goal and the extra targets.
    SetTarget {
        /// The goal.
        goal: String,
        /// The extra targets.
        extra_targets: Vec<String>,
    },
    /// Reads the unit files again.
    Reload,
    /// Returns a plan. With files, the plan is for running these files. Without files but with a
    /// goal, it is for choosing that goal. Otherwise it is for a reload.
    Plan {
        /// The files. The client sends their contents, because the server may not have permission
        /// to read them.
        files: Option<Vec<InitFileWire>>,
        /// The goal.
        goal: Option<String>,
        /// The extra targets.
        extra_targets: Vec<String>,
    },
    /// Makes a unit reload its configuration.
    ReloadUnit {
        /// The unit, or a target of it.
        unit: String,
    },
    /// Restarts a unit. Returns whether it was starting or active.
    Restart {
        /// The unit, or a target of it.
        unit: String,
    },
    /// Forgets the failure of a unit. Returns whether there was anything to reset.
    ResetFailed {
        /// The unit, or a target of it.
        unit: String,
    },
    /// Masks a unit. Returns whether it was not masked before.
    Mask {
        /// The unit, or a target of it.
        unit: String,
    },
    /// Unmasks a unit. Returns whether it was masked before.
    Unmask {
        /// The unit, or a target of it.
        unit: String,
    },
}

/// Reason why a request has no result.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RequestError {
    /// The service manager returned an error.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The command needs a goal, but the init runs the units of fleetd.
    #[error("this fleet-init runs the units of fleetd and has no goal")]
    RunsForFleet,
    /// An argument of the request is invalid, for example the name of a unit.
    #[error("{0}")]
    InvalidArgument(String),
    /// A command failed.
    #[error("{problem}")]
    Problem {
        /// The problem.
        problem: String,
        /// Remedies.
        help: Vec<String>,
    },
    /// The request was not handled, for this reason.
    #[error("fleet-init did not complete the request: {0}")]
    Refused(String),
    /// The connection was lost, so the outcome of the request is unknown.
    #[error("lost the connection to fleet-init: {0}")]
    Lost(String),
}

impl RequestError {
    /// Creates the error for data that this program cannot decode.
    pub(crate) fn undecodable(data: &str, error: &serde_json::Error) -> Self {
        let help = "use the same release of both programs".to_owned();
        Self::Problem { problem: format!("cannot decode the {data}: {error}"), help: vec![help] }
    }
}

impl From<RequestError> for ServiceError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Service(error) => error,
            RequestError::Problem { problem, help } => {
                Self::Unavailable([problem].into_iter().chain(help).collect::<Vec<_>>().join("; "))
            }
            RequestError::Lost(why) => Self::Unavailable(format!(
                "the connection was lost before a response arrived: {why}"
            )),
            RequestError::Refused(why) | RequestError::InvalidArgument(why) => {
                Self::Unavailable(why)
            }
            RequestError::RunsForFleet => Self::Unavailable(error.to_string()),
        }
    }
}

/// Units that exist or have changed, and units that are gone. It is an item of
/// [`ManagerRequest::Watch`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ChangedUnits {
    /// Units that exist. The first item has all of them, a later one those that have changed.
    pub here: Vec<UnitName>,
    /// Units that no longer exist.
    pub gone: Vec<UnitName>,
}

/// Form of a [`UnitFile`]: its source as text, or as numbers if it is not UTF-8.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FileWire {
    #[doc(hidden)]
    Text(String),
    #[doc(hidden)]
    Bytes(Vec<u8>),
}

impl From<&UnitFile> for FileWire {
    fn from(file: &UnitFile) -> Self {
        match file.source_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(file.source().to_vec()),
        }
    }
}

impl TryFrom<&FileWire> for UnitFile {
    type Error = ParseError;

    fn try_from(file: &FileWire) -> Result<Self, ParseError> {
        match file {
            FileWire::Text(text) => Self::parse(text),
            FileWire::Bytes(bytes) => Self::parse(bytes),
        }
    }
}

/// Form of a [`JournalQuery`].
#[derive(Debug, Serialize, Deserialize)]
pub struct QueryWire {
    after: Option<String>,
    lines: Option<usize>,
    /// In milliseconds since 1970.
    since: Option<u64>,
    follow: bool,
}

impl From<JournalQuery> for QueryWire {
    fn from(query: JournalQuery) -> Self {
        let JournalQuery { after, lines, since, follow, .. } = query;
        let since = since.map(|since| since.at(wall_time()).as_millis());
        Self { after, lines, since, follow }
    }
}

impl From<QueryWire> for JournalQuery {
    fn from(query: QueryWire) -> Self {
        let since = query.since.map(|millis| Since::Time(Timestamp::from_millis(millis)));
        let selected = Self::default().with_after(query.after).with_lines(query.lines);
        selected.with_since(since).with_follow(query.follow)
    }
}

/// Form of a [`JournalLine`].
#[derive(Debug, Serialize, Deserialize)]
pub struct LineWire {
    text: String,
    /// In milliseconds since 1970.
    at: Option<u64>,
    cursor: Option<String>,
}

impl From<JournalLine> for LineWire {
    fn from(line: JournalLine) -> Self {
        let JournalLine { at, text, cursor, .. } = line;
        Self { text, at: at.map(Timestamp::as_millis), cursor }
    }
}

impl From<LineWire> for JournalLine {
    fn from(line: LineWire) -> Self {
        let LineWire { text, at, cursor } = line;
        Self::new(text).with_time(at.map(Timestamp::from_millis)).with_cursor(cursor)
    }
}

/// A unit file of an init, with its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitFileWire {
    /// Its name.
    pub name: String,
    /// Whether the file contains the central settings (`init.conf`).
    pub is_central: bool,
    /// Its content.
    pub text: String,
}

impl From<&InitFile> for InitFileWire {
    fn from(file: &InitFile) -> Self {
        Self {
            name: file.name.clone(),
            is_central: file.role == FileRole::Central,
            text: String::from_utf8_lossy(&file.source).into_owned(),
        }
    }
}

impl From<InitFileWire> for InitFile {
    fn from(file: InitFileWire) -> Self {
        let role = if file.is_central { FileRole::Central } else { FileRole::Units };
        Self { name: file.name, role, source: file.text.into_bytes() }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};
    use std::time::Duration;

    use fleet_core::unit::{ExitStatus, LoadState};
    use fleet_core::{
        ActiveState, Epoch, Generation, KnownUnit, SystemdState, TargetState, Timestamp,
    };
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::{ManagedUnit, UnitDetails};

    fn sent<T: Serialize + DeserializeOwned>(value: &T) -> T {
        serde_json::from_value(serde_json::to_value(value).unwrap()).unwrap()
    }

    #[test]
    fn unit_file_round_trips_with_its_hash() {
        for source in [&b"# \xff\r\n[Service]\nExecStart=/a\n"[..], "[Unit]\n# ä\n".as_bytes()] {
            let file = UnitFile::parse(source).unwrap();
            let read = UnitFile::try_from(&sent(&FileWire::from(&file))).unwrap();
            assert_eq!((read.source(), read.hash()), (source, file.hash()));
        }
    }

    #[test]
    fn details_lines_and_queries_round_trip() {
        let details = UnitDetails {
            status_text: Some("serving".to_owned()),
            retry_in: Some(Duration::MAX),
            degraded_by: vec!["a.service".to_owned()],
            ignored_options: vec!["PrivateTmp= (line 7)".to_owned()],
            ignored_sandboxing: vec!["PrivateTmp= (line 7)".to_owned()],
            tracking: Some("by pidfd".to_owned()),
            next_elapse: Some(Timestamp::from_millis(1_764_203_711_000)),
            last_elapse: None,
        };
        assert_eq!(sent(&details), details);
        let at = Timestamp::from_millis(7);
        let line = JournalLine::gap().with_time(at).with_cursor("p".to_owned());
        assert_eq!(JournalLine::from(sent(&LineWire::from(line.clone()))), line);
        let query = JournalQuery::default().with_after("p".to_owned()).with_lines(3);
        let query = query.with_since(Since::Time(at)).with_follow(true);
        assert_eq!(JournalQuery::from(sent(&QueryWire::from(query.clone()))), query);
    }

    #[test]
    fn unit_states_round_trip() {
        let hash = UnitFile::parse("[Service]\n").unwrap().hash();
        let exits = [ExitStatus::Code(3), ExitStatus::Signal(9), ExitStatus::Unknown];
        let exits: Vec<_> = exits.into_iter().map(Some).chain([None]).collect();
        for (index, &active) in ActiveState::ALL.iter().enumerate() {
            for &load in LoadState::ALL {
                let exit = exits[index % exits.len()];
                let state = SystemdState {
                    since: exit.map(|_| Timestamp::from_millis(1_764_203_711_000)),
                    result: exit.map(|_| "exit-code".to_owned()),
                    main_pid: exit.is_none().then_some(42),
                    exit,
                    restarts: 5,
                    ..SystemdState::new(load, active, "running")
                };
                let requested = TargetState::ALL[index % TargetState::ALL.len()];
                let (epoch, generation) = (Epoch(7), Generation(3));
                let known = KnownUnit { hash, requested, epoch, generation };
                let unit = "a@\\x2d.service".parse().unwrap();
                let waits_for = Some("waits for a.service".to_owned());
                let managed = ManagedUnit { unit, known, state, waits_for };
                assert_eq!(sent(&managed), managed);
                let size = serde_json::to_vec(&managed).unwrap().len();
                assert!(size <= 350, "a list has 16 MiB, and this unit {size} bytes");
            }
        }
    }

    #[test]
    fn errors_round_trip() {
        let (unit, problem) = (|| "a.timer".parse().unwrap(), || "no such program".to_owned());
        let io = |source| ServiceError::Io { action: "read it".to_owned(), source };
        let errors = [
            ServiceError::NotLoaded { unit: unit() },
            ServiceError::StartFailed { unit: unit(), problem: problem() },
            ServiceError::ReloadFailed { unit: unit(), problem: problem() },
            ServiceError::BadSetting { unit: unit(), line: 7, problem: problem() },
            ServiceError::NothingToTrigger { unit: unit(), missing: "a.service".to_owned() },
            ServiceError::StopFailed { unit: unit(), problem: problem() },
            io(Error::from_raw_os_error(28)),
            io(Error::new(ErrorKind::InvalidData, "half a line")),
            io(Error::other("no more")),
            ServiceError::Unavailable("it ended".to_owned()),
        ];
        for error in errors.map(RequestError::Service) {
            assert_eq!(format!("{:?}", sent(&error)), format!("{error:?}"));
        }
    }
}
