//! Access to information that only machines have, such as journals.

use std::error::Error;
use std::pin::Pin;

use async_trait::async_trait;
use fleet_core::journal::{JournalLine, JournalQuery};
use fleet_core::{MachineId, Timestamp};
use fleet_unitfile::UnitName;
use futures_core::Stream;

use crate::wire::StatusDetails;

/// Source of the journals of units on local machines.
///
/// An implementation reads only the journals of its own machines. The server determines the machine
/// of a unit, and contacts the daemons of other machines to read the journals there.
#[async_trait]
pub trait Journals: Send + Sync {
    /// Opens the journal of `unit` on `machine`.
    ///
    /// # Errors
    ///
    /// Returns [`JournalError::NotLocal`] if the machine is not local. The server then contacts the
    /// machine's own daemon.
    async fn open(
        &self,
        machine: &MachineId,
        unit: &UnitName,
        query: &JournalQuery,
    ) -> Result<JournalStream, JournalError>;

    /// Returns details of `unit` on `machine` beyond its state. The default implementation returns
    /// `None`.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    async fn details(
        &self,
        machine: &MachineId,
        unit: &UnitName,
    ) -> Result<Option<StatusDetails>, JournalError> {
        let _ = (machine, unit);
        Ok(None)
    }
}

/// No journals, for a daemon without machines.
pub(crate) struct NoJournals;

#[async_trait]
impl Journals for NoJournals {
    async fn open(
        &self,
        machine: &MachineId,
        _: &UnitName,
        _: &JournalQuery,
    ) -> Result<JournalStream, JournalError> {
        Err(JournalError::NotLocal { machine: machine.clone() })
    }
}

/// Lines of a journal, oldest first. If an error occurs, it is the last item. Dropping the stream
/// closes the journal.
pub type JournalStream = Pin<Box<dyn Stream<Item = Result<JournalLine, JournalError>> + Send>>;

/// Fields at the beginning of each line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LinePrefix {
    /// The cursor.
    pub(crate) cursors: bool,
    /// The timestamp.
    pub(crate) timestamps: bool,
}

impl LinePrefix {
    /// Encodes a line with these fields.
    pub(crate) fn encode(self, line: JournalLine) -> String {
        let JournalLine { at, text, cursor, .. } = line;
        let unknown = || "-".to_owned();
        let cursor = self.cursors.then(|| cursor.unwrap_or_else(unknown) + " ");
        let millis = at.map_or_else(unknown, |at| at.as_millis().to_string());
        let timestamp = self.timestamps.then(|| millis + " ");
        [cursor, timestamp, Some(text)].into_iter().flatten().collect()
    }

    /// Decodes a line that was written by [`encode`](Self::encode). Accepts any input.
    pub(crate) fn read(self, mut line: &str) -> JournalLine {
        let mut word = |is_there: bool| {
            let (word, rest) = line.split_once(' ').filter(|_| is_there)?;
            line = rest;
            Some(word)
        };
        let cursor = word(self.cursors).filter(|word| is_cursor(word)).map(str::to_owned);
        let millis = word(self.timestamps).and_then(|word| word.parse().ok());
        JournalLine::new(line).with_time(millis.map(Timestamp::from_millis)).with_cursor(cursor)
    }
}

/// Whether a word is a valid cursor.
pub(crate) fn is_cursor(word: &str) -> bool {
    let lengths = 1..=JournalLine::MAX_CURSOR_LEN;
    lengths.contains(&word.len()) && word.bytes().all(|b| b.is_ascii_graphic()) && word != "-"
}

/// Error of opening or reading a journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The machine is not local.
    #[error("the journal is on machine {machine}, which has not published the URL of its API")]
    NotLocal {
        /// The machine.
        machine: MachineId,
    },
    /// The unit is not loaded on the machine, so it has no journal there.
    #[error("{unit} has no journal on machine {machine}: the unit is not loaded there")]
    NotLoaded {
        /// The unit.
        unit: UnitName,
        /// The machine.
        machine: MachineId,
    },
    /// The machine's daemon did not respond, or failed.
    #[error("cannot read from machine {machine}")]
    Unreachable {
        /// The machine.
        machine: MachineId,
        /// The cause, as far as known.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
    /// The machine's service manager failed to read the journal.
    #[error("cannot read the journal")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [LinePrefix; 4] = [
        LinePrefix { cursors: false, timestamps: false },
        LinePrefix { cursors: false, timestamps: true },
        LinePrefix { cursors: true, timestamps: false },
        LinePrefix { cursors: true, timestamps: true },
    ];

    #[test]
    fn encoding_contains_only_requested_fields() {
        let timestamp = Some(Timestamp::from_millis(7));
        let line = JournalLine::new("a b").with_time(timestamp).with_cursor("m1/3".to_owned());
        let encoded = ALL.map(|prefix| prefix.encode(line.clone()));
        assert_eq!(encoded, ["a b", "7 a b", "m1/3 a b", "m1/3 7 a b"]);
        let encoded = ALL.map(|prefix| prefix.encode(JournalLine::new("")));
        assert_eq!(encoded, ["", "- ", "- ", "- - "]);
    }

    proptest! {
        #[test]
        fn lines_round_trip(
            at in proptest::option::of(any::<u64>()),
            text in "[^\\n]{0,40}",
            cursor in proptest::option::of("[!-~]{2,40}"),
        ) {
            let at = at.map(Timestamp::from_millis);
            let line = JournalLine::new(text).with_time(at).with_cursor(cursor);
            for prefix in ALL {
                let read = prefix.read(&prefix.encode(line.clone()));
                let expected = JournalLine::new(line.text.clone())
                    .with_time(line.at.filter(|_| prefix.timestamps))
                    .with_cursor(line.cursor.clone().filter(|_| prefix.cursors));
                prop_assert_eq!(read, expected);
            }
        }

        /// Arbitrary input becomes a line, without content that was not in the input.
        #[test]
        fn arbitrary_bytes_decode_to_a_line(bytes in any::<Vec<u8>>()) {
            let text = String::from_utf8_lossy(&bytes);
            for prefix in ALL {
                let line = prefix.read(&text);
                prop_assert!(text.ends_with(&line.text));
                prop_assert!(line.cursor.is_none_or(|cursor| is_cursor(&cursor)));
            }
        }
    }
}
