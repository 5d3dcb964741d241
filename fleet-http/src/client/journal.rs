//! Reads a journal line by line.

use std::time::Duration;

use fleet_core::TargetState;
use fleet_core::journal::JournalLine;
use fleet_unitfile::values::Timespan;

use super::ClientError;
use super::body::BodyLines;
use super::call::Caller;
use super::events::Retry;
use super::query::Query;
use crate::clock::Stopwatch;
use crate::cursors::Cursors;
use crate::server::LinePrefix;
use crate::setters::setters;
use crate::wire;
use crate::wire::{CURSORS, TIMESTAMPS};

/// Time after which an open journal counts as working, even if it has returned no line. If the
/// journal breaks later than that, the retries start again with the shortest delay. Each returned
/// line has the same effect.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// Selects lines of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalOptions {
    /// Maximum number of existing lines. If `None`, the server returns all lines that `since`
    /// selects, or the last ten lines if `since` is not set.
    pub lines: Option<u32>,
    /// Maximum age of existing lines, by the clock of the unit's machine. `None` sets no limit.
    pub since: Option<Timespan>,
    /// Whether to wait for new lines.
    pub follow: bool,
    /// The machine from which to read lines. If `None`, the server reads the journal on the machine
    /// that the unit is placed on.
    ///
    /// A unit without a placement, such as a global unit, may be on several machines. The server
    /// then reads the journals of all machines that report a state of the unit. If several machines
    /// do, each line begins with the machine ID and a colon.
    pub machine: Option<String>,
}

impl JournalOptions {
    setters! {
        optional:
            with_lines = lines: u32,
            with_since = since: Timespan,
            with_machine = machine: String;
        plain:
            with_follow = follow: bool;
    }
}

impl JournalOptions {
    /// Maximum number of lines in a request; the API refuses more.
    pub const MAX_LINES: u32 = 100_000;

    fn query(&self) -> Query {
        let lines = self.lines.map(|lines| lines.to_string());
        let since = self.since.map(|since| since.to_string());
        Query::new()
            .with("follow", self.follow.then_some("1"))
            .with("lines", lines.as_deref())
            .with("machine", self.machine.as_deref())
            .with("since", since.as_deref())
    }
}

/// Line stream of a journal.
#[derive(Debug)]
pub struct JournalLines {
    caller: Caller,
    /// Path of the unit.
    unit: String,
    options: JournalOptions,
    opened: OpenJournal,
    cursors: Cursors,
    /// Retries since the last line.
    retry: Retry,
    reconnects: bool,
}

impl JournalLines {
    /// Opens the journal of a unit; `unit` is its API path. If the journal is followed, requests a
    /// cursor for each line, because a [`reconnecting`](Self::reconnecting) stream needs them to
    /// resume.
    pub(super) async fn open(
        caller: Caller,
        unit: String,
        options: JournalOptions,
    ) -> Result<Self, ClientError> {
        let cursors = options.follow.then_some("1");
        let query = options.query().with("cursors", cursors);
        Self::open_by(caller, unit, options, query).await
    }

    /// Opens the journal with a timestamp for each line.
    pub(super) async fn open_with_timestamps(
        caller: Caller,
        unit: String,
        options: JournalOptions,
    ) -> Result<Self, ClientError> {
        let cursors = options.follow.then_some("1");
        let query = options.query().with("timestamps", Some("1")).with("cursors", cursors);
        Self::open_by(caller, unit, options, query).await
    }

    /// Opens the journal after the line with the cursor `after`. Requests a timestamp and a cursor
    /// for each line.
    pub(super) async fn open_full(
        caller: Caller,
        unit: String,
        options: JournalOptions,
        after: Option<&str>,
    ) -> Result<Self, ClientError> {
        let query = options.query().with("timestamps", Some("1")).with("cursors", Some("1"));
        let query = query.with("after", after);
        Self::open_by(caller, unit, options, query).await
    }

    async fn open_by(
        caller: Caller,
        unit: String,
        options: JournalOptions,
        query: Query,
    ) -> Result<Self, ClientError> {
        let cursors = Cursors::new();
        let opened = OpenJournal::new(&caller, &unit, &query).await?;
        let retry = Retry::new();
        Ok(Self { caller, unit, options, opened, cursors, retry, reconnects: false })
    }

    /// Makes a followed journal reconnect and resume when it ends or breaks. Has no effect on a
    /// journal that is not followed.
    ///
    /// The stream reconnects like [`Events::reconnecting`](crate::client::Events::reconnecting),
    /// and resumes after the last line, so no line is repeated. If the machine no longer stores
    /// some of the missed lines, a line reports the gap. If no line with a cursor was received
    /// before the interruption, the stream reads the lines written since the journal was opened.
    ///
    /// The stream continues when the unit is replaced or moved. While the unit is on no machine but
    /// still wanted, the stream waits for it. The stream ends when the unit is destroyed or its
    /// desired state becomes inactive.
    ///
    /// ```
    /// use fleet_http::{Client, ClientError};
    /// use fleet_http::client::JournalOptions;
    /// use fleet_unitfile::UnitName;
    ///
    /// async fn follow(client: &Client, unit: &UnitName) -> Result<(), ClientError> {
    ///     let options = JournalOptions::default().with_follow(true);
    ///     let mut lines = client.journal(unit, &options).await?.reconnecting();
    ///     while let Some(line) = lines.next_line().await? {
    ///         println!("{line}");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn reconnecting(self) -> Self {
        Self { reconnects: self.options.follow, ..self }
    }

    /// Returns the next line without its newline, or `None` at the end. Invalid UTF-8 is replaced.
    /// A line of more than one mebibyte is split into parts of that size. Cancel-safe: dropping the
    /// future loses no line.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Broken`] if the connection broke. A reconnecting journal returns the
    /// error of its last attempt.
    pub async fn next_line(&mut self) -> Result<Option<String>, ClientError> {
        Ok(self.next_entry().await?.map(|line| line.text))
    }

    /// Returns the next line with its timestamp and cursor, if the server sent them.
    ///
    /// # Errors
    ///
    /// As for [`next_line`](Self::next_line).
    pub async fn next_entry(&mut self) -> Result<Option<JournalLine>, ClientError> {
        loop {
            let error = match self.opened.next().await {
                Ok(Some(line)) => {
                    self.cursors.record(&line);
                    self.retry = Retry::new();
                    return Ok(Some(line));
                }
                ended if !self.reconnects => return ended,
                Ok(None) => None,
                Err(error) => Some(error),
            };
            if !self.reconnect(error).await? {
                return Ok(None);
            }
        }
    }

    /// Reopens the journal after the last line. Returns `false` if the unit is no longer wanted.
    ///
    /// `error` is `None` if the server has ended the stream. In this case the unit may still be
    /// wanted, because the stream also ends when the unit is replaced or moved.
    async fn reconnect(&mut self, error: Option<ClientError>) -> Result<bool, ClientError> {
        if self.opened.since.take().is_some_and(|since| since.elapsed() > STABLE_AFTER) {
            self.retry = Retry::new();
        }
        let mut has_ended = error.is_none();
        if let Some(error) = error.filter(|error| !self.retry.should_retry(error)) {
            return Err(error);
        }
        loop {
            self.retry.wait().await;
            match self.try_reopen(has_ended).await {
                Ok(Some(opened)) => {
                    self.opened = opened;
                    return Ok(true);
                }
                Ok(None) => return Ok(false),
                // The unit is currently on no machine, or not loaded there.
                Err(ClientError::Api { status: 404 | 409, .. }) => has_ended = true,
                Err(error) if self.retry.should_retry(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Tries once to reopen the journal. Returns `None` if the stream has ended and the unit is no
    /// longer wanted.
    async fn try_reopen(&mut self, has_ended: bool) -> Result<Option<OpenJournal>, ClientError> {
        if has_ended {
            if !self.is_wanted().await? {
                return Ok(None);
            }
            // Waits without a time limit for a machine while the unit is wanted.
            self.retry.on_response();
        }
        OpenJournal::new(&self.caller, &self.unit, &self.resume_query()).await.map(Some)
    }

    /// Whether the unit exists and its desired state is not inactive.
    async fn is_wanted(&self) -> Result<bool, ClientError> {
        match self.caller.get::<wire::UnitEntity>(&self.unit, &Query::new()).await {
            Err(ClientError::Api { status: 404, .. }) => Ok(false),
            unit => Ok(unit?.desired_state != TargetState::Inactive.to_string()),
        }
    }

    /// Returns the query that resumes without a gap.
    fn resume_query(&self) -> Query {
        let since = Some(Timespan::Finite(self.cursors.time_since_opened()));
        let options = JournalOptions { lines: None, since, ..self.options.clone() };
        let timestamps = self.opened.prefix.timestamps.then_some("1");
        let query = options.query().with("timestamps", timestamps).with("cursors", Some("1"));
        self.cursors.cursors().fold(query, |query, cursor| query.with("after", Some(&cursor)))
    }
}

/// A journal from one response.
#[derive(Debug)]
struct OpenJournal {
    lines: BodyLines,
    /// Fields at the beginning of each line.
    prefix: LinePrefix,
    /// Time since the journal was opened; `None` once it has ended.
    since: Option<Stopwatch>,
}

impl OpenJournal {
    async fn new(caller: &Caller, unit: &str, query: &Query) -> Result<Self, ClientError> {
        let response = caller.open(&format!("{unit}/journal"), query).await?;
        let has = |name| response.headers().contains_key(name);
        let prefix = LinePrefix { cursors: has(CURSORS), timestamps: has(TIMESTAMPS) };
        let lines = BodyLines::new(caller.endpoint().clone(), response);
        Ok(Self { lines, prefix, since: Some(Stopwatch::start()) })
    }

    async fn next(&mut self) -> Result<Option<JournalLine>, ClientError> {
        let line = self.lines.next_line().await?;
        Ok(line.map(|line| self.prefix.read(&line)))
    }
}
