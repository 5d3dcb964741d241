//! Where the server gets the log lines of units from.

use std::error::Error;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::{MachineId, Timestamp};
use fleet_unitfile::UnitName;
use futures_core::Stream;

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
}

impl JournalLine {
    /// The line as it is told to those who ask when it was written.
    pub(crate) fn dated(&self) -> String {
        match self.at {
            Some(at) => format!("{} {}", at.as_millis(), self.text),
            None => format!("- {}", self.text),
        }
    }

    /// Reads what [`dated`](Self::dated) wrote.
    pub(crate) fn read(text: &str) -> Self {
        let (at, rest) = text.split_once(' ').unwrap_or(("-", text));
        Self { at: at.parse().ok().map(Timestamp::from_millis), text: rest.to_owned() }
    }
}

impl From<String> for JournalLine {
    /// A line of which nobody knows when it was written.
    fn from(text: String) -> Self {
        Self { at: None, text }
    }
}

/// Which lines of a journal are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalQuery {
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
        Self { lines: Some(10), since: None, follow: false }
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
