//! `GET /units/<name>/journal`: the journal of a unit on its machines. Also the interface to other
//! information that only machines have.

use std::error::Error;
use std::pin::Pin;

use async_trait::async_trait;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use fleet_core::journal::{JournalLine, JournalQuery, Since};
use fleet_core::{MachineId, Snapshot, Timestamp, Unit};
use fleet_unitfile::UnitName;
use fleet_unitfile::values::{parse_bool, parse_timespan};
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};

use super::journal_source::JournalSource;
use crate::client::JournalOptions;
use crate::server::api::SharedApi;
use crate::server::failure::{Failure, error_chain};
use crate::server::handlers::extract::{Name, Params};
use crate::server::handlers::intents::present_machine;
use crate::server::handlers::listings::MachineFilter;
use crate::server::handlers::openapi::{self as path, Failures};
use crate::server::net::connection::{Shutdown, closed};
use crate::wire;
use crate::wire::MachineUsage;
use crate::wire::{CURSORS, StatusDetails, TIMESTAMPS};

/// Maximum number of machines from which one request can read journals.
pub(crate) const MAX_MACHINES: usize = 256;

/// Read a unit's journal.
///
/// By default, returns the last ten lines. With `since` but without `lines`, returns all lines that
/// are recent enough.
///
/// If the unit is on several machines, returns the lines of all of them. Each line is then prefixed
/// with the machine ID and a colon. Followed lines are returned as they arrive, other lines in
/// timestamp order.
///
/// With `after`, resumes after the line that was returned with this cursor. From the machine of
/// that line, returns all later lines, regardless of `lines` and `since`. For other machines,
/// `after` has no effect. If the machine no longer stores the line, an additional line reports the
/// gap.
///
/// If the journal fails after the response has begun, the connection is cut off. With several
/// machines, a line reports the error instead, and the lines of the other machines continue. If the
/// journal is followed, the server then reconnects to the failed machine.
#[utoipa::path(
    get,
    path = "/units/{name}/journal",
    operation_id = "readJournal",
    tag = "units",
    params(
        path::UnitName,
        ("lines" = Option<u32>, Query, description = "Maximum number of existing lines"),
        (
            "since" = Option<String>, Query,
            description = "Maximum age of the lines, such as 5min",
        ),
        ("follow" = Option<bool>, Query, description = "Whether to wait for new lines"),
        ("machine" = Option<String>, Query, description = "ID of the machine whose lines to read"),
        (
            "metadata" = Option<Vec<String>>, Query,
            description = "Only machines of the unit with this metadata, KEY=VALUE or KEY",
        ),
        (
            "timestamps" = Option<bool>, Query,
            description = "Whether each line begins with its timestamp and a space. The timestamp \
                is in milliseconds since 1970 by the machine's clock, or - if unknown",
        ),
        (
            "cursors" = Option<bool>, Query,
            description = "Whether each line begins with its cursor and a space, before the \
                timestamp. The cursor is - if unknown",
        ),
        (
            "after" = Option<Vec<String>>, Query,
            description = "Cursor of a line to resume after; once for each machine",
        ),
    ),
    responses(
        (
            status = 200, body = String, content_type = "text/plain",
            description = "Lines of the journal",
        ),
        Failures,
    ),
)]
pub(crate) async fn journal(
    State(api): State<SharedApi>,
    Name(name): Name,
    params: Params,
    shutdown: Option<Extension<Shutdown>>,
    request: Parts,
) -> Result<Response, Failure> {
    let snapshot = api.view()?;
    let unit = snapshot.unit(&name).ok_or_else(Failure::no_unit)?;
    let mut source = JournalSource::new(&api, &unit.name, query(&params)?, &request);
    source.resume_after(params.all("after"))?;
    let prefix =
        LinePrefix { cursors: params.flag("cursors")?, timestamps: params.flag("timestamps")? };
    let mut machines = requested_machines(&snapshot, unit, &params)?;
    let lines = match machines.len() {
        1 => source
            .open(&machines.remove(0))
            .await
            .map_err(|error| open_failure(&snapshot, error))?,
        _ => source.open_all(machines),
    };
    let lines = until_shutdown(lines, shutdown);
    let body = Body::from_stream(lines.then(move |entry| encode_line(entry, prefix)));
    let dated = prefix.timestamps.then_some([(TIMESTAMPS, "1")]);
    let placed = prefix.cursors.then_some([(CURSORS, "1")]);
    Ok((dated, placed, [(CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
}

/// Ends the stream at shutdown, because the server does not wait for followers. The last item is an
/// error, so that clients do not mistake the shutdown for the end of the journal.
fn until_shutdown(lines: JournalStream, shutdown: Option<Extension<Shutdown>>) -> JournalStream {
    let closed = Box::pin(closed(shutdown));
    let next = async |open: Option<(JournalStream, _)>| {
        let (mut lines, mut closed) = open?;
        tokio::select! {
            biased;
            line = lines.next() => Some((line?, Some((lines, closed)))),
            () = &mut closed => {
                let error = JournalError::Failed("the daemon is shutting down".into());
                Some((Err(error), None))
            }
        }
    };
    stream::unfold(Some((lines, closed)), next).boxed()
}

/// Encodes a line. Returning an error cuts off the connection. Therefore, before it returns an
/// error, this function yields, so that the connection can send the preceding lines.
async fn encode_line(
    line: Result<JournalLine, JournalError>,
    prefix: LinePrefix,
) -> Result<String, JournalError> {
    if let Err(error) = &line {
        tracing::warn!(
            error = error_chain(error),
            "cannot send all of a journal: the client receives only a part"
        );
        tokio::task::yield_now().await;
    }
    line.map(|line| prefix.encode(line) + "\n")
}

pub(crate) fn query(params: &Params) -> Result<JournalQuery, Failure> {
    let mut query = JournalQuery::default().with_lines(10);
    if let Some(text) = params.first("since") {
        let span = parse_timespan(text).map_err(|error| {
            Failure::bad_request(format!("query parameter \"since\", {text:?}: {error}"))
        })?;
        (query.since, query.lines) = (span.as_duration().map(Since::Age), None);
    }
    if let Some(text) = params.first("lines") {
        let lines = text.parse::<u32>().ok().filter(|lines| *lines <= JournalOptions::MAX_LINES);
        let lines = lines.ok_or_else(|| {
            let most = JournalOptions::MAX_LINES;
            Failure::bad_request(format!(
                "query parameter \"lines\": {text:?} is not a number from 0 to {most}"
            ))
        })?;
        query.lines = Some(lines as usize);
    }
    if let Some(text) = params.first("follow") {
        query.follow = parse_bool(text).ok_or_else(|| {
            Failure::bad_request(format!("query parameter \"follow\": {text:?} is neither 1 nor 0"))
        })?;
    }
    Ok(query)
}

/// Returns the machines from which the request reads:
///
/// - With the parameter `machine`: this machine, even if the unit is not on it.
/// - Otherwise: all machines that the unit is on and that match the metadata filter.
///
/// Returns an error if the machine ID is invalid, or if there are no machines or more than
/// [`MAX_MACHINES`].
fn requested_machines(
    snapshot: &Snapshot,
    unit: &Unit,
    params: &Params,
) -> Result<Vec<MachineId>, Failure> {
    if let Some(id) = params.first("machine") {
        let id = id.parse();
        let bad = |error| Failure::bad_request(format!("query parameter \"machine\": {error}"));
        return id.map(|id| vec![id]).map_err(bad);
    }
    let name = unit.name.as_str();
    let mut machines = machines_of(snapshot, unit);
    let filter = MachineFilter::read(params);
    let is_wanted =
        |id: &MachineId| snapshot.machine(id.as_str()).is_some_and(|m| filter.matches(m));
    if !filter.is_empty() && !machines.is_empty() {
        machines.retain(is_wanted);
        if machines.is_empty() {
            let message = format!("{name} is on no machine with this metadata");
            return Err(Failure::conflict(message));
        }
    }
    match machines[..] {
        [] => Err(Failure::conflict(format!(
            "{name} is on no machine: {}",
            wire::reason_text(snapshot, unit)
        ))),
        [ref first, ..] if machines.len() > MAX_MACHINES => Err(Failure::bad_request(format!(
            "{name} is on {} machines, but at most {MAX_MACHINES} can be read at once: \
             choose one machine, for example with machine={first}",
            machines.len()
        ))),
        _ => Ok(machines),
    }
}

/// Returns the machine that a unit is placed on. For a unit without a placement, such as a global
/// unit, returns all machines that report a state of the unit.
pub(crate) fn machines_of(snapshot: &Snapshot, unit: &Unit) -> Vec<MachineId> {
    let name = unit.name.as_str();
    match snapshot.placement(name) {
        Some(placement) => vec![placement.machine.clone()],
        None => snapshot.states_of(name).map(|state| state.machine.clone()).collect(),
    }
}

pub(crate) fn open_failure(snapshot: &Snapshot, error: JournalError) -> Failure {
    if let JournalError::NotLocal { machine } = &error
        && let Err(absent) = present_machine(snapshot, machine.as_str())
    {
        return absent;
    }
    let status = match &error {
        JournalError::NotLocal { .. } => StatusCode::NOT_IMPLEMENTED,
        JournalError::NotLoaded { .. } => StatusCode::NOT_FOUND,
        JournalError::Unreachable { .. } => StatusCode::BAD_GATEWAY,
        JournalError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Failure::new(status, error_chain(&error))
}

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

    /// Returns the resources that `machine` and its units use. The default implementation knows no
    /// machine.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    async fn usage(&self, machine: &MachineId) -> Result<MachineUsage, JournalError> {
        Err(JournalError::NotLocal { machine: machine.clone() })
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
