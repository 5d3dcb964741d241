//! Reading a journal line by line.

use std::time::Duration;

use fleet_unitfile::Timespan;

use super::ClientError;
use super::again::Again;
use super::call::Caller;
use super::lines::BodyLines;
use super::query::Query;
use super::told::Told;
use crate::clock::Stopwatch;
use crate::{JournalLine, MOMENTS};

/// From how long before the last line on a journal is read again that broke off: as long as a line
/// may take from where it is written to here. What was told of that is not told again.
const OVERLAP: Duration = Duration::from_secs(10);

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
    caller: Caller,
    path: String,
    options: JournalOptions,
    opened: Opened,
    is_lasting: bool,
    told: Told,
    /// Runs since it was opened, or since the last line.
    silent: Stopwatch,
}

impl JournalLines {
    /// Opens the journal at that path. Of one that is followed it asks when each line was written,
    /// so that it can be [`lasting`](Self::lasting).
    pub(super) async fn open(
        caller: Caller,
        path: String,
        options: JournalOptions,
    ) -> Result<Self, ClientError> {
        let asks_when = options.follow;
        Self::open_as(caller, path, options, asks_when).await
    }

    /// The same, asking in any case.
    pub(super) async fn open_dated(
        caller: Caller,
        path: String,
        options: JournalOptions,
    ) -> Result<Self, ClientError> {
        Self::open_as(caller, path, options, true).await
    }

    async fn open_as(
        caller: Caller,
        path: String,
        options: JournalOptions,
        asks_when: bool,
    ) -> Result<Self, ClientError> {
        let query = if asks_when { options.dated_query() } else { options.query() };
        let opened = Opened::new(&caller, &path, &query).await?;
        let (told, silent) = (Told::default(), Stopwatch::start());
        Ok(Self { caller, path, options, opened, is_lasting: false, told, silent })
    }

    /// The same, which goes on where it breaks off, if it is one that is followed.
    ///
    /// It is opened again as [`Events::lasting`](crate::Events::lasting) is, and goes on with what
    /// was written since the last line. Where the server does not tell when lines were written, it
    /// goes on with what comes then. It ends where there is no journal any more.
    #[must_use]
    pub fn lasting(self) -> Self {
        Self { is_lasting: self.options.follow, ..self }
    }

    /// The next line without its end; `None` after the last one. Bytes that are not UTF-8 are
    /// replaced, and what goes on for more than a mebibyte comes in pieces of that size. May be
    /// dropped at any time: no line is lost by that.
    ///
    /// # Errors
    ///
    /// [`ClientError::Broken`] when the journal was cut off. Those of a lasting one are the ones of
    /// its last try.
    pub async fn next_line(&mut self) -> Result<Option<String>, ClientError> {
        Ok(self.next_dated().await?.map(|line| line.text))
    }

    /// The next line with when it was written, as far as the server told so.
    pub(crate) async fn next_dated(&mut self) -> Result<Option<JournalLine>, ClientError> {
        loop {
            match self.opened.next().await {
                told if !self.is_lasting => return told,
                Ok(Some(line)) => {
                    self.silent = Stopwatch::start();
                    if self.told.is_new(&line) {
                        return Ok(Some(line));
                    }
                }
                Ok(None) => match self.go_on().await {
                    Err(ClientError::Api { status: 404 | 409, .. }) => return Ok(None),
                    went_on => went_on?,
                },
                Err(error) if error.is_passing() => self.go_on().await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens it anew, from a little before the last line on.
    async fn go_on(&mut self) -> Result<(), ClientError> {
        let mut again = Again::new();
        self.opened = loop {
            again.pause().await;
            let query = self.what_follows().dated_query();
            match Opened::new(&self.caller, &self.path, &query).await {
                Err(error) if again.goes_on(&error) => {}
                opened => break opened?,
            }
        };
        self.told.go_back();
        Ok(())
    }

    /// What to ask for to miss nothing.
    fn what_follows(&self) -> JournalOptions {
        let (lines, since) = match self.opened.is_dated {
            false => (Some(0), None),
            true => (None, Some(self.silent.elapsed() + self.told.overlap(OVERLAP))),
        };
        JournalOptions { lines, since: since.map(Timespan::Finite), ..self.options.clone() }
    }
}

/// A journal as one answer tells it.
#[derive(Debug)]
struct Opened {
    lines: BodyLines,
    /// Whether each line begins with when it was written.
    is_dated: bool,
}

impl Opened {
    async fn new(caller: &Caller, path: &str, query: &Query) -> Result<Self, ClientError> {
        let answer = caller.open(path, query).await?;
        let is_dated = answer.headers().contains_key(MOMENTS);
        Ok(Self { lines: BodyLines::new(caller.endpoint().clone(), answer), is_dated })
    }

    async fn next(&mut self) -> Result<Option<JournalLine>, ClientError> {
        let line = self.lines.next_line().await?;
        let read =
            |line: String| if self.is_dated { JournalLine::read(&line) } else { line.into() };
        Ok(line.map(read))
    }
}
