//! Reading a journal line by line.

use std::time::Duration;

use fleet_core::TargetState;
use fleet_unitfile::Timespan;

use super::ClientError;
use super::again::Again;
use super::call::Caller;
use super::lines::BodyLines;
use super::query::Query;
use crate::clock::Stopwatch;
use crate::server::With;
use crate::told::Told;
use crate::{JournalLine, MOMENTS, POSITIONS, wire};

/// After how long a journal that was open counts as one that holds, whether or not it told a line.
const HOLDS: Duration = Duration::from_secs(10);

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
}

/// The lines of a journal as they come.
#[derive(Debug)]
pub struct JournalLines {
    caller: Caller,
    /// The path of the unit.
    unit: String,
    options: JournalOptions,
    opened: Opened,
    told: Told,
    /// The tries since the last line.
    again: Again,
    is_lasting: bool,
}

impl JournalLines {
    /// Opens the journal of the unit at that path. Of one that is followed it asks where each line
    /// is, so that it can be [`lasting`](Self::lasting).
    pub(super) async fn open(
        caller: Caller,
        unit: String,
        options: JournalOptions,
    ) -> Result<Self, ClientError> {
        let positions = options.follow.then_some("1");
        let query = options.query().with("positions", positions);
        Self::open_by(caller, unit, options, query).await
    }

    /// The same, asking when each line was written, too.
    pub(super) async fn open_dated(
        caller: Caller,
        unit: String,
        options: JournalOptions,
    ) -> Result<Self, ClientError> {
        let positions = options.follow.then_some("1");
        let query = options.query().with("moments", Some("1")).with("positions", positions);
        Self::open_by(caller, unit, options, query).await
    }

    /// The same with all that is known of each line, after the one with that position.
    pub(super) async fn open_whole(
        caller: Caller,
        unit: String,
        options: JournalOptions,
        after: Option<&str>,
    ) -> Result<Self, ClientError> {
        let query = options.query().with("moments", Some("1")).with("positions", Some("1"));
        let query = query.with("after", after);
        Self::open_by(caller, unit, options, query).await
    }

    async fn open_by(
        caller: Caller,
        unit: String,
        options: JournalOptions,
        query: Query,
    ) -> Result<Self, ClientError> {
        let told = Told::new();
        let opened = Opened::new(&caller, &unit, &query).await?;
        let again = Again::new();
        Ok(Self { caller, unit, options, opened, told, again, is_lasting: false })
    }

    /// The same, which goes on where it breaks off, if it is one that is followed.
    ///
    /// It is opened again as [`Events::lasting`](crate::Events::lasting) is, and goes on after the
    /// last line: none is told twice, and none is left out but those that are not kept any more,
    /// in place of which a line says so. Where it was not even told where its lines are, those of
    /// the time since it was opened are told.
    ///
    /// It goes on where the unit is replaced or moved, too, and waits for one that is on no machine
    /// for as long as it is to be on one. It ends once the unit is destroyed or unloaded.
    ///
    /// ```
    /// use fleet_http::{Client, ClientError, JournalOptions};
    /// use fleet_unitfile::UnitName;
    ///
    /// async fn follow(client: &Client, unit: &UnitName) -> Result<(), ClientError> {
    ///     let options = JournalOptions { follow: true, ..JournalOptions::default() };
    ///     let mut lines = client.journal(unit, &options).await?.lasting();
    ///     while let Some(line) = lines.next_line().await? {
    ///         println!("{line}");
    ///     }
    ///     Ok(())
    /// }
    /// ```
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

    /// The next line with when it was written and where it is, as far as the server told so.
    ///
    /// # Errors
    ///
    /// As [`next_line`](Self::next_line).
    pub async fn next_dated(&mut self) -> Result<Option<JournalLine>, ClientError> {
        loop {
            let broke = match self.opened.next().await {
                Ok(Some(line)) => {
                    self.told.on_line(&line);
                    self.again = Again::new();
                    return Ok(Some(line));
                }
                ended if !self.is_lasting => return ended,
                Ok(None) => None,
                Err(error) => Some(error),
            };
            if !self.go_on(broke).await? {
                return Ok(None);
            }
        }
    }

    /// Opens it anew, after the last line, where it broke or ended. Returns whether its unit is
    /// still wanted: one that is replaced or moved is wanted, and its journal ends all the same.
    async fn go_on(&mut self, broke: Option<ClientError>) -> Result<bool, ClientError> {
        if self.opened.since.take().is_some_and(|since| since.elapsed() > HOLDS) {
            self.again = Again::new();
        }
        let mut has_ended = broke.is_none();
        if let Some(error) = broke.filter(|error| !self.again.goes_on(error)) {
            return Err(error);
        }
        loop {
            self.again.pause().await;
            match self.opened_again(has_ended).await {
                Ok(Some(opened)) => {
                    self.opened = opened;
                    return Ok(true);
                }
                Ok(None) => return Ok(false),
                // It is on no machine now, or not loaded there.
                Err(ClientError::Api { status: 404 | 409, .. }) => has_ended = true,
                Err(error) if self.again.goes_on(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// One try; `None` where there is nothing to wait for.
    async fn opened_again(&mut self, has_ended: bool) -> Result<Option<Opened>, ClientError> {
        if has_ended {
            if !self.is_wanted().await? {
                return Ok(None);
            }
            // Who is there to answer is waited for, for as long as the unit is wanted.
            self.again.on_answer();
        }
        Opened::new(&self.caller, &self.unit, &self.what_follows()).await.map(Some)
    }

    /// Whether the unit is known, and to be on a machine.
    async fn is_wanted(&self) -> Result<bool, ClientError> {
        match self.caller.get::<wire::Unit>(&self.unit, &Query::new()).await {
            Err(ClientError::Api { status: 404, .. }) => Ok(false),
            unit => Ok(unit?.desired_state != TargetState::Inactive.to_string()),
        }
    }

    /// What to ask for to miss nothing.
    fn what_follows(&self) -> Query {
        let since = Some(Timespan::Finite(self.told.since_opened()));
        let options = JournalOptions { lines: None, since, ..self.options.clone() };
        let moments = self.opened.with.moments.then_some("1");
        let query = options.query().with("moments", moments).with("positions", Some("1"));
        self.told.positions().fold(query, |query, position| query.with("after", Some(&position)))
    }
}

/// A journal as one answer tells it.
#[derive(Debug)]
struct Opened {
    lines: BodyLines,
    /// What each line begins with.
    with: With,
    /// Since when; nothing once it is over.
    since: Option<Stopwatch>,
}

impl Opened {
    async fn new(caller: &Caller, unit: &str, query: &Query) -> Result<Self, ClientError> {
        let answer = caller.open(&format!("{unit}/journal"), query).await?;
        let has = |name| answer.headers().contains_key(name);
        let with = With { positions: has(POSITIONS), moments: has(MOMENTS) };
        let lines = BodyLines::new(caller.endpoint().clone(), answer);
        Ok(Self { lines, with, since: Some(Stopwatch::start()) })
    }

    async fn next(&mut self) -> Result<Option<JournalLine>, ClientError> {
        let line = self.lines.next_line().await?;
        Ok(line.map(|line| JournalLine::read(&line, self.with)))
    }
}
