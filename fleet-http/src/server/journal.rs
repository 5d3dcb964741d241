//! `GET /units/<name>/journal`: the log lines of a unit, from the machine that it is on.

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use fleet_core::{MachineId, Snapshot, Unit};
use fleet_unitfile::{parse_bool, parse_timespan};
use futures_util::StreamExt as _;

use super::api::Shared;
use super::extract::{Name, Params};
use super::failure::{Failure, chain};
use super::intents::present;
use super::journals::{JournalError, JournalQuery};
use super::openapi::{self as path, Failures};
use crate::wire;

/// The log lines of a unit.
///
/// With `since` and without `lines` it is all lines of that time, otherwise ten.
///
/// An error after the first line cannot be told any more, so it cuts the answer off.
#[utoipa::path(
    get,
    path = "/units/{name}/journal",
    operation_id = "readJournal",
    tag = "units",
    params(
        path::UnitName,
        ("lines" = Option<u32>, Query, description = "How many of the last lines"),
        (
            "since" = Option<String>, Query,
            description = "Only lines of that time up to now, such as 5min",
        ),
        ("follow" = Option<bool>, Query, description = "Whether to go on with what comes"),
        ("machine" = Option<String>, Query, description = "The machine whose lines are wanted"),
    ),
    responses(
        (status = 200, body = String, content_type = "text/plain", description = "The lines"),
        Failures,
    ),
)]
pub(super) async fn journal(
    State(api): State<Shared>,
    Name(name): Name,
    params: Params,
) -> Result<Response, Failure> {
    let snapshot = api.view()?;
    let unit = snapshot.unit(&name).ok_or_else(Failure::no_unit)?;
    let query = query(&params)?;
    let machine = machine(&snapshot, unit, &params)?;
    let lines = api.journals.open(&machine, &unit.name, &query).await;
    let lines = lines.map_err(|error| cannot_open(&snapshot, error))?;
    let body = Body::from_stream(lines.then(line));
    Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
}

/// A line as it is sent. Before an error the connection gets the chance to send what came before:
/// the error ends it.
async fn line(line: Result<String, JournalError>) -> Result<String, JournalError> {
    if let Err(error) = &line {
        tracing::warn!(error = chain(error), "a journal is cut off");
        tokio::task::yield_now().await;
    }
    line.map(|line| line + "\n")
}

fn query(params: &Params) -> Result<JournalQuery, Failure> {
    let mut query = JournalQuery::default();
    if let Some(text) = params.first("since") {
        let span = parse_timespan(text)
            .map_err(|error| Failure::bad(format!("invalid value of since: {text:?}: {error}")))?;
        (query.since, query.lines) = (span.as_duration(), None);
    }
    if let Some(text) = params.first("lines") {
        let lines = text.parse().ok().filter(|lines| *lines <= JournalQuery::MOST_LINES);
        query.lines = Some(lines.ok_or_else(|| {
            let most = JournalQuery::MOST_LINES;
            Failure::bad(format!("invalid value of lines: {text:?} is no number from 0 to {most}"))
        })?);
    }
    if let Some(text) = params.first("follow") {
        query.follow = parse_bool(text).ok_or_else(|| {
            Failure::bad(format!("invalid value of follow: {text:?} is neither 1 nor 0"))
        })?;
    }
    Ok(query)
}

/// The machine that is asked for, or else the one that the unit is on.
fn machine(snapshot: &Snapshot, unit: &Unit, params: &Params) -> Result<MachineId, Failure> {
    if let Some(id) = params.first("machine") {
        let invalid = |error| Failure::bad(format!("invalid value of machine: {error}"));
        return id.parse().map_err(invalid);
    }
    let name = unit.name.as_str();
    if let Some(placement) = snapshot.placement(name) {
        return Ok(placement.machine.clone());
    }
    let reporting: Vec<&MachineId> = snapshot.states_of(name).map(|state| &state.machine).collect();
    match reporting[..] {
        [machine] => Ok(machine.clone()),
        [] => Err(Failure::conflict(format!(
            "{name} is on no machine: {}",
            wire::reason_text(snapshot, unit)
        ))),
        [first, ..] => Err(Failure::bad(format!(
            "{name} is on {} machines: choose one, for example with machine={first}",
            reporting.len()
        ))),
    }
}

fn cannot_open(snapshot: &Snapshot, error: JournalError) -> Failure {
    if let JournalError::NotHere { machine } = &error
        && let Err(absent) = present(snapshot, machine.as_str())
    {
        return absent;
    }
    let status = match &error {
        JournalError::NotLoaded { .. } => StatusCode::NOT_FOUND,
        JournalError::NotHere { .. } => StatusCode::NOT_IMPLEMENTED,
        JournalError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Failure::new(status, chain(&error))
}
