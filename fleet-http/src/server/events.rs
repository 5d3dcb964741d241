//! `GET /events`: what changes in the cluster, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use fleet_core::Revision;
use fleet_store::Mirror;
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::api::Shared;
use super::closing::{Closing, closed};
use super::event_stream::{Batch, Filter, batch, place};
use super::extract::Params;
use super::failure::Failure;
use super::filters::template;
use super::openapi::Failures;

/// After how long without an event the place is told, so that nobody takes the connection for dead
/// and who hears little need not begin again far back.
const QUIET: Duration = Duration::from_secs(15);

/// How a client that lost its connection says what it has seen.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What changes in the cluster, as server-sent events.
///
/// They go on from `since` or the header `Last-Event-ID`.
#[utoipa::path(
    get,
    path = "/events",
    operation_id = "followEvents",
    tag = "cluster",
    params(
        ("since" = Option<String>, Query, description = "The id of the last event that was seen"),
        ("Last-Event-ID" = Option<String>, Header, description = "The same, as browsers send it"),
        ("unit" = Option<String>, Query, description = "Only of that unit"),
        ("machine" = Option<String>, Query, description = "Only of that machine"),
        ("template" = Option<String>, Query, description = "Only of instances of that template"),
    ),
    responses(
        (
            status = 200, body = String, content_type = "text/event-stream",
            description = "Server-sent events, without an end",
        ),
        Failures,
    ),
)]
pub(super) async fn events(
    State(api): State<Shared>,
    closing: Option<Extension<Closing>>,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, Failure> {
    // Who has seen nothing yet may send an empty one.
    let last = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty());
    let last = last.map(|id| id.to_str().unwrap_or("?"));
    let seen = last.or_else(|| params.given("since")).map(Seen::read).transpose()?;
    let filter = filter(&params)?;
    // What happens between hearing of it and looking is told twice; the other way it might not be.
    let batches = api.hub().subscribe();
    api.view()?;
    let first = since(&api.mirror, seen);
    let follower = Follower {
        at: first.revision,
        waiting: first.lines_for(&filter),
        batches,
        filter,
        mirror: api.mirror.clone(),
    };
    let lines = stream::unfold(follower, async |mut follower| {
        Some((Ok::<_, Infallible>(follower.next().await?), follower))
    });
    let lines = lines.take_until(Box::pin(closed(closing)));
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::from_stream(lines)).into_response())
}

/// What somebody wants to hear of. Who asks for what can never be would wait for ever.
fn filter(params: &Params) -> Result<Filter, Failure> {
    let unit = params.given("unit").map(UnitName::parse).transpose().map_err(Failure::bad)?;
    let machine = params.given("machine").map(str::parse).transpose().map_err(Failure::bad)?;
    Ok(Filter { unit, machine, template: template(params)? })
}

/// Where in which history a client says that it is.
struct Seen {
    revision: Revision,
    lineage: Option<String>,
}

impl Seen {
    fn read(text: &str) -> Result<Self, Failure> {
        let (number, lineage) = match text.split_once('-') {
            Some((number, lineage)) => (number, Some(lineage.to_owned())),
            None => (text, None),
        };
        let bad =
            |_| Failure::bad(format!("no event has the id {text:?}: write one that was told"));
        Ok(Self { revision: Revision(number.parse().map_err(bad)?), lineage })
    }
}

/// What a client hears first: all that changed since what it has seen, or that nobody can say.
fn since(mirror: &Mirror, seen: Option<Seen>) -> Batch {
    let lineage = mirror.lineage().map(|lineage| lineage.to_string());
    match seen {
        Some(seen) if seen.lineage == lineage || seen.lineage.is_none() => {
            batch(&mirror.tidings_since(seen.revision), None, lineage.as_deref())
        }
        _ => Batch::resync(mirror.snapshot().revision, lineage.as_deref()),
    }
}

/// A client that hears of events as fast as it reads.
struct Follower {
    /// How far it has come.
    at: Revision,
    waiting: Option<Bytes>,
    batches: Receiver<Arc<Batch>>,
    filter: Filter,
    mirror: Mirror,
}

impl Follower {
    /// What it hears next; nothing when there will be nothing more.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(lines) = self.waiting.take() {
                return Some(lines);
            }
            match timeout(QUIET, self.batches.recv()).await {
                Err(_quiet) => return Some(place(self.at, self.lineage().as_deref()).into()),
                Ok(Ok(batch)) => self.hear(&batch),
                Ok(Err(RecvError::Lagged(_))) => self.fall_behind(),
                Ok(Err(RecvError::Closed)) => return None,
            }
        }
    }

    fn hear(&mut self, batch: &Batch) {
        if batch.revision > self.at {
            self.at = batch.revision;
            self.waiting = batch.lines_for(&self.filter);
        }
    }

    /// What it has missed is told to nobody again: it looks at everything.
    fn fall_behind(&mut self) {
        self.batches = self.batches.resubscribe();
        self.at = self.mirror.snapshot().revision;
        self.waiting = Batch::resync(self.at, self.lineage().as_deref()).lines_for(&self.filter);
    }

    fn lineage(&self) -> Option<String> {
        self.mirror.lineage().map(|lineage| lineage.to_string())
    }
}
