//! Reading a journal line by line.

use fleet_unitfile::Timespan;

use super::ClientError;
use super::call::Caller;
use super::lines::BodyLines;
use super::query::Query;
use crate::{JournalLine, MOMENTS};

/// Which lines of a journal are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalOptions {
    /// How many of the lines that are already there; `None` leaves it to the server, which sends
    /// all with `since` and a few without.
    pub lines: Option<u32>,
    /// How long ago the first of these lines was written at most, by the clock of the unit's
    /// machine; `None` leaves none out.
    pub since: Option<Timespan>,
    /// Whether lines to come are wanted too.
    pub follow: bool,
    /// The machine whose lines are wanted; `None` is the one that the unit is placed on, or all on
    /// which a global unit is, each line then with the ID of its machine and a colon before it.
    pub machine: Option<String>,
}

impl JournalOptions {
    fn query(&self) -> Query {
        let lines = self.lines.map(|lines| lines.to_string());
        let since = self.since.map(|since| since.to_string());
        Query::new()
            .with("follow", self.follow.then_some("1"))
            .with("lines", lines.as_deref())
            .with("machine", self.machine.as_deref())
            .with("since", since.as_deref())
    }

    /// The same, asking when each line was written.
    fn dated_query(&self) -> Query {
        self.query().with("moments", Some("1"))
    }
}

/// The lines of a journal as they come.
#[derive(Debug)]
pub struct JournalLines {
    lines: BodyLines,
    /// Whether each line begins with when it was written.
    is_dated: bool,
}

impl JournalLines {
    /// Opens the journal at that path.
    pub(super) async fn open(
        caller: &Caller,
        path: &str,
        options: &JournalOptions,
    ) -> Result<Self, ClientError> {
        Self::open_by(caller, path, &options.query()).await
    }

    /// The same, asking when each line was written.
    pub(super) async fn open_dated(
        caller: &Caller,
        path: &str,
        options: &JournalOptions,
    ) -> Result<Self, ClientError> {
        Self::open_by(caller, path, &options.dated_query()).await
    }

    async fn open_by(caller: &Caller, path: &str, query: &Query) -> Result<Self, ClientError> {
        let answer = caller.open(path, query).await?;
        let is_dated = answer.headers().contains_key(MOMENTS);
        Ok(Self { lines: BodyLines::new(caller.endpoint().clone(), answer), is_dated })
    }

    /// The next line without its end; `None` after the last one. Bytes that are not UTF-8 are
    /// replaced, and what goes on for more than a mebibyte comes in pieces of that size. May be
    /// dropped at any time: no line is lost by that.
    ///
    /// # Errors
    ///
    /// [`ClientError::Broken`] when the journal was cut off.
    pub async fn next_line(&mut self) -> Result<Option<String>, ClientError> {
        Ok(self.next_dated().await?.map(|line| line.text))
    }

    /// The next line with when it was written, as far as the server told so.
    ///
    /// # Errors
    ///
    /// As [`next_line`](Self::next_line).
    pub async fn next_dated(&mut self) -> Result<Option<JournalLine>, ClientError> {
        let line = self.lines.next_line().await?;
        let read =
            |line: String| if self.is_dated { JournalLine::read(&line) } else { line.into() };
        Ok(line.map(read))
    }
}
