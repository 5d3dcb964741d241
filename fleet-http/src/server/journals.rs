//! Where the server gets from what machines alone can tell of units, such as their log lines.

use std::error::Error;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::{MachineId, Timestamp};
use fleet_unitfile::UnitName;
use futures_core::Stream;

use crate::wire::Particulars;

/// Opens the journals of units.
///
/// The server knows where a unit is; an implementation knows how to get at the lines of the
/// machines that are its own. For those of others the server asks their daemons.
#[async_trait]
pub trait Journals: Send + Sync {
    /// Opens the journal of `unit` on `machine`.
    ///
    /// # Errors
    ///
    /// [`JournalError::NotHere`] when the machine is another one and its lines cannot be had from
    /// here.
    async fn open(
        &self,
        machine: &MachineId,
        unit: &UnitName,
        query: &JournalQuery,
    ) -> Result<JournalStream, JournalError>;

    /// What there is to tell of `unit` on `machine` beyond its state; nothing is provided.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    async fn particulars(
        &self,
        machine: &MachineId,
        unit: &UnitName,
    ) -> Result<Option<Particulars>, JournalError> {
        let _ = (machine, unit);
        Ok(None)
    }
}

/// Lines of a journal, oldest first. Dropping it closes the journal; an error ends it.
pub type JournalStream = Pin<Box<dyn Stream<Item = Result<JournalLine, JournalError>> + Send>>;

/// A line of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalLine {
    /// When it was written, since 1970 by the clock of the machine that the unit is on; `None`
    /// where nobody knows.
    pub at: Option<Timestamp>,
    /// The line, without the newline that ends it.
    pub text: String,
    /// Where it is in what its unit wrote on its machine, for [`JournalQuery::after`]; `None` where
    /// nobody can tell. It is a word of visible ASCII, of at most
    /// [`LONGEST_POSITION`](Self::LONGEST_POSITION) bytes.
    pub position: Option<String>,
}

impl JournalLine {
    /// How long a position is at most, in bytes.
    pub const LONGEST_POSITION: usize = 512;

    /// The line as it is told to those who ask for more than its text.
    pub(crate) fn told(self, with: With) -> String {
        let Self { at, text, position } = self;
        let unknown = || "-".to_owned();
        let position = with.positions.then(|| position.unwrap_or_else(unknown) + " ");
        let at = at.map_or_else(unknown, |at| at.as_millis().to_string());
        let at = with.moments.then(|| at + " ");
        [position, at, Some(text)].into_iter().flatten().collect()
    }

    /// Reads what [`told`](Self::told) wrote. Of what it never writes it makes what it can.
    pub(crate) fn read(mut line: &str, with: With) -> Self {
        let mut word = |is_there: bool| {
            let (word, rest) = line.split_once(' ').filter(|_| is_there)?;
            line = rest;
            Some(word)
        };
        let position = word(with.positions).filter(|word| is_position(word)).map(str::to_owned);
        let at = word(with.moments).and_then(|word| word.parse().ok());
        Self { at: at.map(Timestamp::from_millis), text: line.to_owned(), position }
    }
}

/// What lines begin with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct With {
    /// Where they are.
    pub(crate) positions: bool,
    /// When they were written.
    pub(crate) moments: bool,
}

/// Whether it may be the position of a line.
pub(crate) fn is_position(word: &str) -> bool {
    let lengths = 1..=JournalLine::LONGEST_POSITION;
    lengths.contains(&word.len()) && word.bytes().all(|b| b.is_ascii_graphic()) && word != "-"
}

impl From<String> for JournalLine {
    /// A line of which nobody knows when it was written, nor where it is.
    fn from(text: String) -> Self {
        Self { at: None, text, position: None }
    }
}

/// Which lines of a journal are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalQuery {
    /// The [position](JournalLine::position) of the line after which those come that are wanted,
    /// however many and however old they are. Where that line is not known any more, all that are
    /// there come, after one that says so.
    pub after: Option<String>,
    /// How many of the lines that are already there, counted from the end; `None` is all.
    pub lines: Option<u32>,
    /// How long ago the first of these lines was written at most, by the clock of the machine that
    /// the unit is on; `None` leaves none out.
    pub since: Option<Duration>,
    /// Whether lines to come are wanted too.
    pub follow: bool,
}

impl JournalQuery {
    /// The most lines that may be asked for; the API refuses more.
    pub const MOST_LINES: u32 = 100_000;
}

impl Default for JournalQuery {
    /// The last ten lines.
    fn default() -> Self {
        Self { after: None, lines: Some(10), since: None, follow: false }
    }
}

/// Why a journal cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The lines are on another machine.
    #[error("the journal is on machine {machine}, which does not say where its API is reached")]
    NotHere {
        /// That machine.
        machine: MachineId,
    },
    /// The machine has no lines of the unit, which is not loaded there.
    #[error("{unit} has no journal on machine {machine}: it is not loaded there")]
    NotLoaded {
        /// The unit.
        unit: UnitName,
        /// The machine.
        machine: MachineId,
    },
    /// The daemon of that machine does not answer, or not well.
    #[error("machine {machine} does not answer")]
    Unreachable {
        /// That machine.
        machine: MachineId,
        /// What is known of it.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
    /// The service manager of the machine failed to give the lines.
    #[error("the journal cannot be read")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [With; 4] = [
        With { positions: false, moments: false },
        With { positions: false, moments: true },
        With { positions: true, moments: false },
        With { positions: true, moments: true },
    ];

    #[test]
    fn what_was_not_asked_for_is_not_told() {
        let at = Some(Timestamp::from_millis(7));
        let line = JournalLine { at, text: "a b".to_owned(), position: Some("m1/3".to_owned()) };
        let told = ALL.map(|with| line.clone().told(with));
        assert_eq!(told, ["a b", "7 a b", "m1/3 a b", "m1/3 7 a b"]);
        let told = ALL.map(|with| JournalLine::from(String::new()).told(with));
        assert_eq!(told, ["", "- ", "- ", "- - "]);
    }

    proptest! {
        #[test]
        fn a_line_is_read_as_it_was_told(
            at in proptest::option::of(any::<u64>()),
            text in "[^\\n]{0,40}",
            position in proptest::option::of("[!-~]{2,40}"),
        ) {
            let at = at.map(Timestamp::from_millis);
            let line = JournalLine { at, text, position };
            for with in ALL {
                let read = JournalLine::read(&line.clone().told(with), with);
                let expected = JournalLine {
                    at: line.at.filter(|_| with.moments),
                    text: line.text.clone(),
                    position: line.position.clone().filter(|_| with.positions),
                };
                prop_assert_eq!(read, expected);
            }
        }

        /// Whoever sends it: it is read, and nothing of it is more than what came.
        #[test]
        fn any_bytes_make_a_line(bytes in any::<Vec<u8>>()) {
            let text = String::from_utf8_lossy(&bytes);
            for with in ALL {
                let line = JournalLine::read(&text, with);
                prop_assert!(text.ends_with(&line.text));
                prop_assert!(line.position.is_none_or(|position| is_position(&position)));
            }
        }
    }
}
