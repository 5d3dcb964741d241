//! Wire format of calls to a service manager, and of their responses.

use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::journal::{JournalLine, JournalQuery, Since};
use fleet_unitfile::{ParseError, UnitFile};
use serde::{Deserialize, Serialize};

use crate::{Drift, UnitDetails, wall_time};

/// Distinguishes calls to a service manager from other requests on the socket.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServiceManagerRequest {
    pub(crate) units: Request,
}

/// A call of [`ServiceManager`](crate::ServiceManager).
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    Load {
        unit: String,
        file: FileWire,
        epoch: u64,
    },
    Reload,
    /// Answered at once, without items.
    Ping,
    Unload {
        unit: String,
    },
    Start {
        unit: String,
        generation: u64,
    },
    Restart {
        unit: String,
        generation: u64,
    },
    Stop {
        unit: String,
    },
    ReloadUnit {
        unit: String,
    },
    /// Answered with one item, which is null if the unit is not known.
    Get {
        unit: String,
    },
    /// Answered with lists of units.
    List,
    Drift {
        unit: String,
    },
    StopTimeout {
        unit: String,
    },
    Details {
        unit: String,
    },
    /// Answered with [`ChangedUnits`] without end: first all units, then those that change.
    Watch,
    /// Answered with lists of lines, the first of which may be empty.
    Journal {
        unit: String,
        query: QueryWire,
        /// Whether the client understands lines with times and cursors. Earlier versions of the
        /// client do not set this field, and understand only the texts of lines.
        #[serde(default)]
        with_cursors: bool,
    },
    /// Like `Journal`, from a cursor on.
    JournalFrom {
        unit: String,
        cursor: String,
        follow: bool,
    },
}

/// Units that exist or have changed, and units that are gone.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ChangedUnits {
    pub(crate) here: Vec<String>,
    pub(crate) gone: Vec<String>,
}

/// Source of a unit file: text, or numbers if it is not UTF-8.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum FileWire {
    Text(String),
    Bytes(Vec<u8>),
}

impl FileWire {
    pub(crate) fn new(file: &UnitFile) -> Self {
        match file.source_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(file.source().to_vec()),
        }
    }

    pub(crate) fn read(&self) -> Result<UnitFile, ParseError> {
        match self {
            Self::Text(text) => UnitFile::parse(text),
            Self::Bytes(bytes) => UnitFile::parse(bytes),
        }
    }
}

/// Selection of lines of a unit's output.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct QueryWire {
    lines: Option<usize>,
    /// In milliseconds.
    since: Option<u64>,
    follow: bool,
}

impl From<JournalQuery> for QueryWire {
    fn from(query: JournalQuery) -> Self {
        let JournalQuery { lines, since, follow, .. } = query;
        Self { lines, since: since.map(|since| since.at(wall_time()).as_millis()), follow }
    }
}

impl From<QueryWire> for JournalQuery {
    fn from(query: QueryWire) -> Self {
        let QueryWire { lines, since, follow } = query;
        let since = since.map(|millis| Since::Time(Timestamp::from_millis(millis)));
        Self::default().with_lines(lines).with_since(since).with_follow(follow)
    }
}

/// A line of a unit's output.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "LineFormat")]
pub(crate) struct LineWire {
    text: String,
    /// In milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// Formats of a line that a client accepts. A server of an earlier version, which may still run
/// after an upgrade of the client, sends only the text.
#[derive(Deserialize)]
#[serde(untagged)]
enum LineFormat {
    Text(String),
    Full { text: String, at: Option<u64>, cursor: Option<String> },
}

impl From<LineFormat> for LineWire {
    fn from(line: LineFormat) -> Self {
        match line {
            LineFormat::Text(text) => Self { text, at: None, cursor: None },
            LineFormat::Full { text, at, cursor } => Self { text, at, cursor },
        }
    }
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

/// Change of a unit that was not made by fleet.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DriftWire {
    Stopped,
    Started,
    Changed,
}

impl From<Drift> for DriftWire {
    fn from(drift: Drift) -> Self {
        match drift {
            Drift::Stopped => Self::Stopped,
            Drift::Started => Self::Started,
            Drift::Changed => Self::Changed,
        }
    }
}

impl From<DriftWire> for Drift {
    fn from(drift: DriftWire) -> Self {
        match drift {
            DriftWire::Stopped => Self::Stopped,
            DriftWire::Started => Self::Started,
            DriftWire::Changed => Self::Changed,
        }
    }
}

/// A duration in whole nanoseconds; one that does not fit counts as infinite.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimeWire(u64);

impl From<Duration> for TimeWire {
    fn from(time: Duration) -> Self {
        Self(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<TimeWire> for Duration {
    fn from(TimeWire(nanos): TimeWire) -> Self {
        if nanos == u64::MAX { Self::MAX } else { Self::from_nanos(nanos) }
    }
}

/// Details of a unit beyond its state.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnitDetailsWire {
    retry_in: Option<TimeWire>,
    degraded_by: Vec<String>,
    tracking: Option<String>,
    /// In milliseconds since 1970. Earlier versions send neither time.
    next_elapse: Option<u64>,
    last_elapse: Option<u64>,
}

impl From<UnitDetails> for UnitDetailsWire {
    fn from(details: UnitDetails) -> Self {
        let UnitDetails { retry_in, degraded_by, tracking, next_elapse, last_elapse } = details;
        Self {
            retry_in: retry_in.map(TimeWire::from),
            degraded_by,
            tracking,
            next_elapse: next_elapse.map(Timestamp::as_millis),
            last_elapse: last_elapse.map(Timestamp::as_millis),
        }
    }
}

impl From<UnitDetailsWire> for UnitDetails {
    fn from(details: UnitDetailsWire) -> Self {
        let UnitDetailsWire { retry_in, degraded_by, tracking, next_elapse, last_elapse } = details;
        Self {
            retry_in: retry_in.map(Duration::from),
            degraded_by,
            tracking,
            next_elapse: next_elapse.map(Timestamp::from_millis),
            last_elapse: last_elapse.map(Timestamp::from_millis),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_file_round_trips_with_its_hash() {
        for source in [&b"# \xff\r\n[Service]\nExecStart=/a\n"[..], "[Unit]\n# ä\n".as_bytes()] {
            let file = UnitFile::parse(source).unwrap();
            let sent = serde_json::to_string(&FileWire::new(&file)).unwrap();
            let read = serde_json::from_str::<FileWire>(&sent).unwrap().read().unwrap();
            assert_eq!((read.source(), read.hash()), (source, file.hash()));
        }
    }

    #[test]
    fn details_round_trip_and_miss_times_of_earlier_versions() {
        let details = UnitDetails {
            retry_in: Some(Duration::from_millis(3)),
            degraded_by: vec!["a.service".to_owned()],
            tracking: Some("by pidfd".to_owned()),
            next_elapse: Some(Timestamp::from_millis(1_764_203_711_000)),
            last_elapse: Some(Timestamp::from_millis(1_764_203_710_000)),
        };
        let sent = serde_json::to_string(&UnitDetailsWire::from(details.clone())).unwrap();
        let received: UnitDetailsWire = serde_json::from_str(&sent).unwrap();
        assert_eq!(UnitDetails::from(received), details);
        let earlier = r#"{"retry_in":null,"degraded_by":[],"tracking":null}"#;
        let received: UnitDetailsWire = serde_json::from_str(earlier).unwrap();
        assert_eq!(UnitDetails::from(received), UnitDetails::default());
    }

    #[test]
    fn lines_parse_in_both_formats() {
        let line = |text: &str| JournalLine::new(text);
        let at = Some(Timestamp::from_millis(7));
        let with_cursors = line("one").with_time(at).with_cursor("p".to_owned());
        let sent =
            serde_json::to_string(&[LineWire::from(with_cursors.clone()), line("two").into()]);
        let read: Vec<LineWire> = serde_json::from_str(&sent.unwrap()).unwrap();
        let read: Vec<JournalLine> = read.into_iter().map(JournalLine::from).collect();
        assert_eq!(read, [with_cursors, line("two")]);
        let read: Vec<LineWire> = serde_json::from_str(r#"["one"]"#).unwrap();
        assert_eq!(read, [LineWire::from(line("one"))]);
    }

    #[test]
    fn durations_round_trip() {
        for time in [Duration::ZERO, Duration::from_micros(1_500_001), Duration::MAX] {
            assert_eq!(Duration::from(TimeWire::from(time)), time);
        }
    }
}
