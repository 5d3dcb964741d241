//! Writes that forms of the page request. Each calls the function behind the API's own write, and
//! then redirects to a page with a notice.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use fleet_core::unit::Transition;
use fleet_core::{TargetState, Verb};

use super::layout::{machine_url, unit_url};
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::server::handlers::extract::{Name, Params, read_body};
use crate::server::handlers::{bulk, intents, units};
use crate::wire::{BulkRequest, PutUnit};

/// Notices about completed actions, by the value of the parameter `done`. The parameter contains no
/// text, so that a link cannot put foreign words on the page.
const NOTICES: [(&str, &str); 9] = [
    ("start", "The start was requested."),
    ("stop", "The stop was requested."),
    ("restart", "The restart was requested."),
    ("unload", "The unit leaves its machine."),
    ("destroy", "The unit was destroyed."),
    ("cordon", "The machine takes no more units."),
    ("uncordon", "The machine takes units again."),
    ("drain", "The drain was started."),
    ("apply", "The unit files were applied."),
];

/// Returns the notice that the query requests.
pub(super) fn notice(params: &Params) -> Option<&'static str> {
    let done = params.first("done")?;
    NOTICES.into_iter().find(|(key, _)| *key == done).map(|(_, text)| text)
}

/// Redirects to a page with a notice.
pub(super) fn see(url: &str, done: &str) -> Response {
    (StatusCode::SEE_OTHER, [(LOCATION, format!("{url}?done={done}"))]).into_response()
}

/// Reads the fields of a form.
pub(super) async fn fields(request: Request) -> Result<Params, Failure> {
    let (head, body) = request.into_parts();
    Ok(Params::of_form(&read_body(&head, body).await?))
}

/// Starts, stops, restarts, unloads or destroys a unit.
pub(super) async fn unit(
    State(api): State<SharedApi>,
    Name(name): Name,
    request: Request,
) -> Result<Response, Failure> {
    let form = fields(request).await?;
    let done = form.first("action").unwrap_or_default();
    match done {
        "start" => change(&api, &name, Verb::Start).await?,
        "stop" => change(&api, &name, Verb::Stop).await?,
        "unload" => change(&api, &name, Verb::Unload).await?,
        "restart" => {
            let restart = vec![name.clone()];
            bulk::carry_out(&api, BulkRequest { restart, ..BulkRequest::default() }).await?;
        }
        "destroy" => {
            let destroy = vec![name.clone()];
            bulk::carry_out(&api, BulkRequest { destroy, ..BulkRequest::default() }).await?;
            return Ok(see("/", done));
        }
        other => return Err(unknown(other)),
    }
    Ok(see(&unit_url(&name), done))
}

/// Changes the desired state of a unit. A stop of a loaded unit ends its run.
async fn change(api: &SharedApi, name: &str, verb: Verb) -> Result<(), Failure> {
    let desired = api.view()?.unit(name).ok_or_else(Failure::no_unit)?.desired;
    let goal = match verb.apply(Some(desired)).map_err(|it| Failure::conflict(it.to_string()))? {
        Transition::Change(Some(goal)) => goal,
        _ if verb == Verb::Stop && desired == TargetState::Loaded => {
            let (api, name) = (State(api.clone()), Name(name.to_owned()));
            return units::stop(api, name, Params::default()).await.map(drop);
        }
        _ => return Ok(()),
    };
    let put = PutUnit {
        name: Some(name.to_owned()),
        desired_state: Some(goal.to_string()),
        ..PutUnit::default()
    };
    bulk::carry_out(api, BulkRequest { units: vec![put], ..BulkRequest::default() }).await.map(drop)
}

/// Cordons or uncordons a machine.
pub(super) async fn machine(
    State(api): State<SharedApi>,
    Name(id): Name,
    request: Request,
) -> Result<Response, Failure> {
    let form = fields(request).await?;
    let done = form.first("action").unwrap_or_default();
    let (api, name) = (State(api), Name(id.clone()));
    match done {
        "cordon" => intents::cordon(api, name, Params::default()).await?,
        "uncordon" => intents::uncordon(api, name, Params::default()).await?,
        other => return Err(unknown(other)),
    };
    Ok(see(&machine_url(&id), done))
}

/// Starts a drain.
pub(super) async fn drain(
    State(api): State<SharedApi>,
    Name(id): Name,
    request: Request,
) -> Result<Response, Failure> {
    let form = fields(request).await?;
    drop(intents::drain(State(api), Name(id.clone()), form).await?);
    Ok(see(&format!("{}/drain", machine_url(&id)), "drain"))
}

fn unknown(action: &str) -> Failure {
    Failure::bad_request(format!("unknown action {action:?}: use a button of the page"))
}
