//! `GET /units/<name>/status`: all that is known of a unit, with the last lines that it wrote.

use axum::Json;
use axum::extract::State;
use axum::http::request::Parts;
use fleet_core::MachineId;
use futures_util::StreamExt as _;
use futures_util::stream;

use super::api::Shared;
use super::extract::{Name, Params};
use super::failure::{Failure, chain};
use super::journal::{MOST_MACHINES, machines_of, query};
use super::journals::JournalError;
use super::lines::Source;
use super::openapi::{self as path, Failures};
use super::units;
use crate::wire::{self, MachineStatus, UnitStatus};

/// How many machines are asked at a time.
const AT_ONCE: usize = 64;

/// How many lines there may be of one machine: each is kept until the last one is there.
const MOST_LINES: u32 = 1000;

/// All that is known of a unit, with the last lines that it wrote.
///
/// It is there within a few seconds, whatever a machine does that has lines: why they are missing
/// is told in their place.
#[utoipa::path(
    get,
    path = "/units/{name}/status",
    operation_id = "getStatus",
    tag = "units",
    params(
        path::UnitName,
        ("lines" = Option<u32>, Query, description = "How many of the last lines of each machine"),
        (
            "since" = Option<String>, Query,
            description = "Only lines of that time up to now, such as 5min",
        ),
        ("machine" = Option<String>, Query, description = "The machine that alone is wanted"),
    ),
    responses(
        (status = 200, body = UnitStatus, description = "The unit on each of its machines"),
        Failures,
    ),
)]
pub(super) async fn status(
    State(api): State<Shared>,
    Name(name): Name,
    params: Params,
    request: Parts,
) -> Result<Json<UnitStatus>, Failure> {
    let snapshot = api.view()?;
    let unit = units::shown(&api, &snapshot, &name)?;
    let mut query = query(&params)?;
    let lines = query.lines.unwrap_or(MOST_LINES);
    if lines > MOST_LINES || query.follow {
        return Err(Failure::bad(format!(
            "a status has at most {MOST_LINES} lines, and is not followed: ask for the journal"
        )));
    }
    query.lines = Some(lines);
    let Some(known) = snapshot.unit(&name) else {
        return Ok(Json(UnitStatus { machines: Vec::new(), unit }));
    };
    let source = Source::new(&api, &known.name, query, &request);
    let mut on = machines_of(&snapshot, known);
    if let Some(only) = params.given("machine") {
        on.retain(|machine| machine.as_str() == only);
    }
    let on = on.into_iter().enumerate().map(|(at, machine)| {
        let (source, snapshot) = (source.clone(), snapshot.clone());
        async move {
            let is_asked = at < MOST_MACHINES;
            let told = async { if is_asked { source.particulars(&machine).await } else { None } };
            let last = async {
                match lines {
                    0 => (Vec::new(), None),
                    _ if is_asked => source.last(&machine).await,
                    _ => (Vec::new(), Some(too_many(&machine))),
                }
            };
            let (particulars, (lines, missing)) = tokio::join!(told, last);
            let state = snapshot.state(source.unit().as_str(), machine.as_str());
            MachineStatus {
                lines,
                machine_id: machine.to_string(),
                missing: missing.map_or_else(String::new, |error| chain(&error)),
                particulars,
                state: state.map(|state| wire::state(state)),
            }
        }
    });
    let machines = stream::iter(on).buffered(AT_ONCE).collect().await;
    Ok(Json(UnitStatus { machines, unit }))
}

/// Each machine that does not answer takes its time, so not all of very many are asked.
fn too_many(machine: &MachineId) -> JournalError {
    let others = format!("{MOST_MACHINES} machines were asked already");
    JournalError::Failed(format!("{others}: ask for the journal with machine={machine}").into())
}
