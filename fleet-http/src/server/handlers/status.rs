//! `GET /units/<name>/status`: state and last journal lines of a unit.

use axum::Json;
use axum::extract::State;
use axum::http::request::Parts;
use fleet_core::MachineId;
use futures_util::{StreamExt as _, stream};

use super::extract::{Name, Params};
use super::openapi::{self as path, Failures};
use super::units;
use crate::server::api::SharedApi;
use crate::server::failure::{Failure, error_chain};
use crate::server::stream::journal::{JournalError, MAX_MACHINES, machines_of, query};
use crate::server::stream::journal_source::JournalSource;
use crate::wire;
use crate::wire::{MachineStatus, UnitStatusReport};

/// Number of machines queried concurrently.
const AT_ONCE: usize = 64;

/// Maximum number of lines of one machine. All of them are buffered.
const MOST_LINES: usize = 1000;

/// Get a unit's status with its last journal lines.
///
/// Waits at most three seconds for each machine. If lines of a machine are missing, the response
/// contains the reason.
#[utoipa::path(
    get,
    path = "/units/{name}/status",
    operation_id = "getStatus",
    tag = "units",
    params(
        path::UnitName,
        ("lines" = Option<u32>, Query, description = "Maximum number of lines of each machine"),
        (
            "since" = Option<String>, Query,
            description = "Maximum age of the lines, such as 5min",
        ),
        ("machine" = Option<String>, Query, description = "Only this machine"),
    ),
    responses(
        (status = 200, body = UnitStatusReport, description = "The unit on each of its machines"),
        Failures,
    ),
)]
pub(crate) async fn status(
    State(api): State<SharedApi>,
    Name(name): Name,
    params: Params,
    request: Parts,
) -> Result<Json<UnitStatusReport>, Failure> {
    let snapshot = api.view()?;
    let unit = units::show_unit(&api, &snapshot, &name)?;
    let mut query = query(&params)?;
    let lines = query.lines.unwrap_or(MOST_LINES);
    if lines > MOST_LINES || query.follow {
        return Err(Failure::bad_request(format!(
            "the status of a unit has at most {MOST_LINES} journal lines and cannot be followed: \
             read the journal instead"
        )));
    }
    query.lines = Some(lines);
    let Some(known) = snapshot.unit(&name) else {
        return Ok(Json(UnitStatusReport { machines: Vec::new(), unit }));
    };
    let source = JournalSource::new(&api, &known.name, query, &request);
    let mut on = machines_of(&snapshot, known);
    if let Some(only) = params.non_empty("machine") {
        on.retain(|machine| machine.as_str() == only);
    }
    let on = on.into_iter().enumerate().map(|(at, machine)| {
        let (source, snapshot) = (source.clone(), snapshot.clone());
        async move {
            let is_read = at < MAX_MACHINES;
            let details = async { if is_read { source.details(&machine).await } else { None } };
            let last = async {
                match lines {
                    0 => (Vec::new(), None),
                    _ if is_read => source.last_lines(&machine).await,
                    _ => (Vec::new(), Some(too_many(&machine))),
                }
            };
            let (details, (lines, missing)) = tokio::join!(details, last);
            let state = snapshot.state(source.unit().as_str(), machine.as_str());
            MachineStatus {
                lines,
                machine_id: machine.to_string(),
                journal_error: missing.map_or_else(String::new, |error| error_chain(&error)),
                details,
                state: state.map(|state| wire::state(state)),
            }
        }
    });
    let machines = stream::iter(on).buffered(AT_ONCE).collect().await;
    Ok(Json(UnitStatusReport { machines, unit }))
}

/// Returns the error for a machine beyond the maximum number of machines. The server does not query
/// such a machine, because many machines that do not respond would delay the status too long.
fn too_many(machine: &MachineId) -> JournalError {
    let limit = format!("only {MAX_MACHINES} machines are read for a status");
    JournalError::Failed(format!("{limit}: read the journal with machine={machine}").into())
}
