//! What is asked of a service manager, and what is answered, as it is sent.

use std::time::Duration;

use fleet_core::Timestamp;
use fleet_unitfile::{ParseError, UnitFile};
use serde::{Deserialize, Serialize};

use crate::{Drift, JournalLine, JournalQuery, Particulars};

/// What tells an ask of a service manager from others on the same socket.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OfUnits {
    pub(super) units: Ask,
}

/// A call of [`ServiceManager`](crate::ServiceManager).
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ask {
    Load {
        unit: String,
        file: FileWire,
        epoch: u64,
    },
    Reload,
    /// Answered with nothing, and at once.
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
    /// Answered with one item, which is null for a unit that is not known.
    Get {
        unit: String,
    },
    /// Answered with lists of units, one after the other.
    List,
    Drift {
        unit: String,
    },
    StopTimeOut {
        unit: String,
    },
    Particulars {
        unit: String,
    },
    /// Answered with [`Told`] for ever: first of all units, then of those that change.
    Watch,
    /// Answered with lists of lines, the first of which may be empty.
    Journal {
        unit: String,
        query: QueryWire,
        /// Whether all that is known of a line is understood: an earlier version takes its text.
        #[serde(default)]
        whole: bool,
    },
    /// The same, from after a position on.
    JournalAfter {
        unit: String,
        position: String,
        follow: bool,
    },
}

/// Units that are there or have changed, and units that are there no more.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) here: Vec<String>,
    pub(super) gone: Vec<String>,
}

/// The source of a unit file: as text, or where it is none, as numbers.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum FileWire {
    Text(String),
    Bytes(Vec<u8>),
}

impl FileWire {
    pub(super) fn new(file: &UnitFile) -> Self {
        match file.source_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(file.source().to_vec()),
        }
    }

    pub(super) fn read(&self) -> Result<UnitFile, ParseError> {
        match self {
            Self::Text(text) => UnitFile::parse(text),
            Self::Bytes(bytes) => UnitFile::parse(bytes),
        }
    }
}

/// Which lines of a unit's output are wanted.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct QueryWire {
    lines: Option<usize>,
    /// In milliseconds.
    since: Option<u64>,
    follow: bool,
}

impl From<JournalQuery> for QueryWire {
    fn from(query: JournalQuery) -> Self {
        let JournalQuery { lines, since, follow } = query;
        Self { lines, since: since.map(Timestamp::as_millis), follow }
    }
}

impl From<QueryWire> for JournalQuery {
    fn from(query: QueryWire) -> Self {
        let QueryWire { lines, since, follow } = query;
        Self { lines, since: since.map(Timestamp::from_millis), follow }
    }
}

/// A line of a unit's output.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "AnyLine")]
pub(super) struct LineWire {
    text: String,
    /// In milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<String>,
}

/// What is read as a line: an earlier version, which may have run on while this program was
/// replaced, tells no more than the text.
#[derive(Deserialize)]
#[serde(untagged)]
enum AnyLine {
    Text(String),
    Whole { text: String, at: Option<u64>, position: Option<String> },
}

impl From<AnyLine> for LineWire {
    fn from(line: AnyLine) -> Self {
        match line {
            AnyLine::Text(text) => Self { text, at: None, position: None },
            AnyLine::Whole { text, at, position } => Self { text, at, position },
        }
    }
}

impl From<JournalLine> for LineWire {
    fn from(line: JournalLine) -> Self {
        let JournalLine { at, text, position } = line;
        Self { text, at: at.map(Timestamp::as_millis), position }
    }
}

impl From<LineWire> for JournalLine {
    fn from(line: LineWire) -> Self {
        let LineWire { text, at, position } = line;
        Self { at: at.map(Timestamp::from_millis), text, position }
    }
}

/// What somebody else has done to a unit.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DriftWire {
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

/// A time in whole nanoseconds; one that is longer than can be counted so never passes.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TimeWire(u64);

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

/// What there is to tell of a unit beyond its state.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ParticularsWire {
    retry_in: Option<TimeWire>,
    degraded_by: Vec<String>,
    tracking: Option<String>,
}

impl From<Particulars> for ParticularsWire {
    fn from(told: Particulars) -> Self {
        let Particulars { retry_in, degraded_by, tracking } = told;
        Self { retry_in: retry_in.map(TimeWire::from), degraded_by, tracking }
    }
}

impl From<ParticularsWire> for Particulars {
    fn from(told: ParticularsWire) -> Self {
        let ParticularsWire { retry_in, degraded_by, tracking } = told;
        Self { retry_in: retry_in.map(Duration::from), degraded_by, tracking }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_arrives_byte_for_byte_with_its_hash() {
        for source in [&b"# \xff\r\n[Service]\nExecStart=/a\n"[..], "[Unit]\n# ä\n".as_bytes()] {
            let file = UnitFile::parse(source).unwrap();
            let sent = serde_json::to_string(&FileWire::new(&file)).unwrap();
            let read = serde_json::from_str::<FileWire>(&sent).unwrap().read().unwrap();
            assert_eq!((read.source(), read.hash()), (source, file.hash()));
        }
    }

    #[test]
    fn lines_arrive_as_they_are_told_now_and_as_they_were_told_once() {
        let line = |text: &str| JournalLine::from(text.to_owned());
        let at = Some(Timestamp::from_millis(7));
        let whole = JournalLine { at, position: Some("p".to_owned()), ..line("one") };
        let sent = serde_json::to_string(&[LineWire::from(whole.clone()), line("two").into()]);
        let read: Vec<LineWire> = serde_json::from_str(&sent.unwrap()).unwrap();
        let read: Vec<JournalLine> = read.into_iter().map(JournalLine::from).collect();
        assert_eq!(read, [whole, line("two")]);
        let read: Vec<LineWire> = serde_json::from_str(r#"["one"]"#).unwrap();
        assert_eq!(read, [LineWire::from(line("one"))]);
    }

    #[test]
    fn times_arrive_as_they_are() {
        for time in [Duration::ZERO, Duration::from_micros(1_500_001), Duration::MAX] {
            assert_eq!(Duration::from(TimeWire::from(time)), time);
        }
    }
}
