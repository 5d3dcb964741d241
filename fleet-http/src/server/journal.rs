//! `GET /units/<name>/journal`: the log lines of a unit, from the machines that it is on.

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use fleet_core::{MachineId, Snapshot, Unit};
use fleet_unitfile::{parse_bool, parse_timespan};
use futures_util::{StreamExt as _, stream};

use super::api::Shared;
use super::closing::{Closing, closed};
use super::extract::{Name, Params};
use super::failure::{Failure, chain};
use super::filters::MachineFilter;
use super::intents::present;
use super::journals::{JournalError, JournalLine, JournalQuery, JournalStream, With};
use super::lines::Source;
use super::openapi::{self as path, Failures};
use crate::{MOMENTS, POSITIONS, wire};

/// Of how many machines lines are told at once.
pub(super) const MOST_MACHINES: usize = 256;

/// The log lines of a unit.
///
/// With `since` and without `lines` it is all lines of that time, otherwise ten.
///
/// Of a unit that is on several machines it is the lines of all of them, each with the ID of its
/// machine and a colon before it: as they come where they are followed, otherwise in the order of
/// their moments.
///
/// With `after` it goes on after a line that was told with its position: for each machine whose
/// position is given, with all that came since, and for any other as without. Where the line is not
/// kept any more, a line says so.
///
/// An error after the first line cannot be told any more, so it cuts the answer off. Where several
/// machines are followed it is told in a line, and that machine is asked again until it is back.
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
        (
            "metadata" = Option<Vec<String>>, Query,
            description = "Of all that the unit is on, only machines with that metadata, KEY=VALUE \
                or KEY",
        ),
        (
            "moments" = Option<bool>, Query,
            description = "Whether each line is to begin with when it was written, in milliseconds \
                since 1970 by its machine's clock, or - where nobody knows, and a space",
        ),
        (
            "positions" = Option<bool>, Query,
            description = "Whether each line is to begin with where it is, before its moment: a \
                word to go on after, or - where nobody can tell, and a space",
        ),
        (
            "after" = Option<Vec<String>>, Query,
            description = "The position of a line, to go on after it; once for each machine",
        ),
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
    closing: Option<Extension<Closing>>,
    request: Parts,
) -> Result<Response, Failure> {
    let snapshot = api.view()?;
    let unit = snapshot.unit(&name).ok_or_else(Failure::no_unit)?;
    let mut source = Source::new(&api, &unit.name, query(&params)?, &request);
    source.go_on_after(params.all("after"))?;
    let with = With { positions: params.flag("positions")?, moments: params.flag("moments")? };
    let mut machines = asked_for(&snapshot, unit, &params)?;
    let lines = match machines.len() {
        1 => {
            source.open(&machines.remove(0)).await.map_err(|error| cannot_open(&snapshot, error))?
        }
        _ => source.open_all(machines),
    };
    let lines = until_the_end(lines, closing);
    let body = Body::from_stream(lines.then(move |told| line(told, with)));
    let dated = with.moments.then_some([(MOMENTS, "1")]);
    let placed = with.positions.then_some([(POSITIONS, "1")]);
    Ok((dated, placed, [(CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
}

/// The lines, for as long as there is a server: it does not wait for who follows. They are cut off
/// then, so that nobody takes that for their end.
fn until_the_end(lines: JournalStream, closing: Option<Extension<Closing>>) -> JournalStream {
    let closed = Box::pin(closed(closing));
    let next = async |open: Option<(JournalStream, _)>| {
        let (mut lines, mut closed) = open?;
        tokio::select! {
            biased;
            line = lines.next() => Some((line?, Some((lines, closed)))),
            () = &mut closed => Some((Err(JournalError::Failed("the daemon ends".into())), None)),
        }
    };
    stream::unfold(Some((lines, closed)), next).boxed()
}

/// A line as it is sent. Before an error the connection gets the chance to send what came before:
/// the error ends it.
async fn line(line: Result<JournalLine, JournalError>, with: With) -> Result<String, JournalError> {
    if let Err(error) = &line {
        tracing::warn!(error = chain(error), "a journal is cut off");
        tokio::task::yield_now().await;
    }
    line.map(|line| line.told(with) + "\n")
}

pub(super) fn query(params: &Params) -> Result<JournalQuery, Failure> {
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

/// The machine that is asked for, or else those that the unit is on: at least one.
fn asked_for(snapshot: &Snapshot, unit: &Unit, params: &Params) -> Result<Vec<MachineId>, Failure> {
    if let Some(id) = params.first("machine") {
        let id = id.parse();
        let bad = |error| Failure::bad(format!("invalid value of machine: {error}"));
        return id.map(|id| vec![id]).map_err(bad);
    }
    let name = unit.name.as_str();
    let mut machines = machines_of(snapshot, unit);
    let filter = MachineFilter::read(params);
    let is_wanted = |id: &MachineId| snapshot.machine(id.as_str()).is_some_and(|m| filter.wants(m));
    if !filter.wants_any() && !machines.is_empty() {
        machines.retain(is_wanted);
        if machines.is_empty() {
            let message = format!("{name} is on no machine that has this metadata");
            return Err(Failure::conflict(message));
        }
    }
    match machines[..] {
        [] => Err(Failure::conflict(format!(
            "{name} is on no machine: {}",
            wire::reason_text(snapshot, unit)
        ))),
        [ref first, ..] if machines.len() > MOST_MACHINES => Err(Failure::bad(format!(
            "{name} is on {} machines, and more than {MOST_MACHINES} are not asked at once: \
             choose one, for example with machine={first}",
            machines.len()
        ))),
        _ => Ok(machines),
    }
}

/// The machine that a unit is placed on, or else those that report a state of it.
pub(super) fn machines_of(snapshot: &Snapshot, unit: &Unit) -> Vec<MachineId> {
    let name = unit.name.as_str();
    match snapshot.placement(name) {
        Some(placement) => vec![placement.machine.clone()],
        None => snapshot.states_of(name).map(|state| state.machine.clone()).collect(),
    }
}

fn cannot_open(snapshot: &Snapshot, error: JournalError) -> Failure {
    if let JournalError::NotHere { machine } = &error
        && let Err(absent) = present(snapshot, machine.as_str())
    {
        return absent;
    }
    let status = match &error {
        JournalError::NotHere { .. } => StatusCode::NOT_IMPLEMENTED,
        JournalError::NotLoaded { .. } => StatusCode::NOT_FOUND,
        JournalError::Unreachable { .. } => StatusCode::BAD_GATEWAY,
        JournalError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Failure::new(status, chain(&error))
}
