//! `GET /events`: cluster events as server-sent events, encoded once for all subscribers.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use fleet_core::{Revision, Snapshot};
use fleet_store::Mirror;
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};
use tokio::sync::broadcast;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::event_stream::{Batch, Filter, batch, id_lines};
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::server::handlers::extract::Params;
use crate::server::handlers::filters::template;
use crate::server::handlers::openapi::Failures;
use crate::server::net::shutdown::{Shutdown, closed, sleep};

/// Time without a change in the cluster after which the server sends a client its position in the
/// stream. This keeps the connection alive. A client that receives few events can then resume from
/// a recent position.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Request header with the ID of the last received event. Clients send it when they reconnect.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Follow cluster events.
///
/// Server-sent events, beginning after `since` or the header `Last-Event-ID`.
#[utoipa::path(
    get,
    path = "/events",
    operation_id = "followEvents",
    tag = "cluster",
    params(
        ("since" = Option<String>, Query, description = "ID of the last received event"),
        (
            "Last-Event-ID" = Option<String>, Header,
            description = "ID of the last received event, as browsers send it",
        ),
        ("unit" = Option<String>, Query, description = "Only events of this unit"),
        ("machine" = Option<String>, Query, description = "Only events of this machine"),
        ("template" = Option<String>, Query, description = "Only instances of this template"),
    ),
    responses(
        (
            status = 200, body = String, content_type = "text/event-stream",
            description = "Endless stream of server-sent events",
        ),
        Failures,
    ),
)]
pub(crate) async fn events(
    State(api): State<SharedApi>,
    shutdown: Option<Extension<Shutdown>>,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, Failure> {
    // A client that has received no event may send an empty ID.
    let last = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty());
    let last = last.map(|id| id.to_str().unwrap_or("?"));
    let seen = last.or_else(|| params.non_empty("since")).map(StreamPosition::read).transpose()?;
    let filter = filter(&params)?;
    // Subscribing before reading may repeat a change; the other order could lose one.
    let batches = api.hub().subscribe();
    api.view()?;
    let first = since(&api.mirror, seen);
    let subscriber = Subscriber {
        at: first.revision,
        pending: first.lines_for(&filter),
        batches,
        filter,
        mirror: api.mirror.clone(),
    };
    let lines = stream::unfold(subscriber, async |mut subscriber| {
        Some((Ok::<_, Infallible>(subscriber.next().await?), subscriber))
    });
    let lines = lines.take_until(Box::pin(closed(shutdown)));
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::from_stream(lines)).into_response())
}

/// Reads the filter from the query parameters. Refuses invalid names, because no event could ever
/// match them, and the client would wait in vain.
fn filter(params: &Params) -> Result<Filter, Failure> {
    let unit =
        params.non_empty("unit").map(UnitName::parse).transpose().map_err(Failure::bad_request)?;
    let machine =
        params.non_empty("machine").map(str::parse).transpose().map_err(Failure::bad_request)?;
    Ok(Filter { unit, machine, template: template(params)? })
}

/// Position of a client in the stream: a revision and its lineage.
struct StreamPosition {
    revision: Revision,
    lineage: Option<String>,
}

impl StreamPosition {
    fn read(text: &str) -> Result<Self, Failure> {
        let (number, lineage) = match text.split_once('-') {
            Some((number, lineage)) => (number, Some(lineage.to_owned())),
            None => (text, None),
        };
        let bad = |_| {
            Failure::bad_request(format!(
                "invalid event ID {text:?}: use the ID of a received event"
            ))
        };
        Ok(Self { revision: Revision(number.parse().map_err(bad)?), lineage })
    }
}

/// Returns a client's first batch: all changes since the client's position. Returns a resync if the
/// client has no position, or if the server no longer knows these changes.
fn since(mirror: &Mirror, seen: Option<StreamPosition>) -> Batch {
    let lineage = mirror.lineage().map(|lineage| lineage.to_string());
    match seen {
        Some(seen) if seen.lineage == lineage || seen.lineage.is_none() => {
            batch(&mirror.full_delta_since(seen.revision), None, lineage.as_deref())
        }
        _ => Batch::resync(mirror.snapshot().revision, lineage.as_deref()),
    }
}

/// A client's subscription.
struct Subscriber {
    /// Revision that the client has reached.
    at: Revision,
    pending: Option<Bytes>,
    batches: Receiver<Arc<Batch>>,
    filter: Filter,
    mirror: Mirror,
}

impl Subscriber {
    /// Returns the next lines to send; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(lines) = self.pending.take() {
                return Some(lines);
            }
            match timeout(KEEPALIVE_INTERVAL, self.batches.recv()).await {
                Err(_quiet) => return Some(id_lines(self.at, self.lineage().as_deref()).into()),
                Ok(Ok(batch)) => self.accept(&batch),
                Ok(Err(RecvError::Lagged(_))) => self.resync(),
                Ok(Err(RecvError::Closed)) => return None,
            }
        }
    }

    fn accept(&mut self, batch: &Batch) {
        if batch.revision > self.at {
            self.at = batch.revision;
            self.pending = batch.lines_for(&self.filter);
        }
    }

    /// Skips the missed batches and sends a resync.
    fn resync(&mut self) {
        self.batches = self.batches.resubscribe();
        self.at = self.mirror.snapshot().revision;
        self.pending = Batch::resync(self.at, self.lineage().as_deref()).lines_for(&self.filter);
    }

    fn lineage(&self) -> Option<String> {
        self.mirror.lineage().map(|lineage| lineage.to_string())
    }
}

/// Number of batches queued for a slow subscriber. A subscriber that falls further behind gets a
/// resync instead of the missed batches, so it never delays the others.
const QUEUE_SIZE: usize = 64;

/// Minimum interval between batches. In a busy cluster, subscribers are woken at most twenty times
/// a second. In a quiet cluster, a change is published at once.
const BATCH_INTERVAL: Duration = Duration::from_millis(50);

/// Publishes events to subscribers. Its task starts with the first subscriber.
#[derive(Clone)]
pub(crate) struct Hub(Arc<Inner>);

struct Inner {
    mirror: Mirror,
    sender: broadcast::Sender<Arc<Batch>>,
    task: OnceLock<AbortHandle>,
}

impl Hub {
    pub(crate) fn new(mirror: &Mirror) -> Self {
        let (sender, _) = broadcast::channel(QUEUE_SIZE);
        Self(Arc::new(Inner { mirror: mirror.clone(), sender, task: OnceLock::new() }))
    }

    /// Returns the number of subscribers.
    pub(crate) fn subscribers(&self) -> usize {
        self.0.sender.receiver_count()
    }

    /// Subscribes to all further batches.
    pub(crate) fn subscribe(&self) -> Receiver<Arc<Batch>> {
        let subscriber = self.0.sender.subscribe();
        self.0.task.get_or_init(|| {
            let publishing = run(self.0.mirror.clone(), self.0.sender.clone());
            tokio::spawn(publishing).abort_handle()
        });
        subscriber
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

async fn run(mirror: Mirror, sender: broadcast::Sender<Arc<Batch>>) {
    let mut progress = mirror.subscribe();
    let mut seen = mirror.snapshot();
    while progress.changed().await.is_ok() {
        let is_new = progress.borrow_and_update().revision > seen.revision;
        if is_new && let Some(batch) = next_batch(&mirror, &mut seen, sender.receiver_count() > 0) {
            // All subscribers may be gone by now.
            let _sent = sender.send(Arc::new(batch));
            sleep(BATCH_INTERVAL).await;
        }
    }
}

/// Returns the changes since `seen` as a batch, and sets `seen` to the current snapshot. Returns
/// `None` if the hub has no subscribers, or if no event results from the changes.
fn next_batch(mirror: &Mirror, seen: &mut Arc<Snapshot>, has_subscribers: bool) -> Option<Batch> {
    if !has_subscribers {
        *seen = mirror.snapshot();
        return None;
    }
    let delta = mirror.full_delta_since(seen.revision);
    let lineage = mirror.lineage().map(|lineage| lineage.to_string());
    let batch = batch(&delta, Some(seen), lineage.as_deref());
    *seen = delta.inputs.snapshot;
    batch.should_send().then_some(batch)
}
