//! `GET /events`: changes between two snapshots as server-sent events, encoded once for all
//! subscribers.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use fleet_core::{MachineId, Revision, Snapshot};
use fleet_store::Mirror;
use fleet_store::mirror::{FullDelta, ResultChange};
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};
use tokio::sync::broadcast;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::server::handlers::extract::Params;
use crate::server::handlers::listings::template;
use crate::server::handlers::openapi::Failures;
use crate::server::net::connection::{Shutdown, closed, sleep};
use crate::server::page::live::ListPatches;
use crate::wire;
use crate::wire::{ClusterEvent, MachineEntity, UnitEntity, UnitStateEntity};

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
    let seen = position(&headers, &params)?;
    let filter = filter(&params)?;
    let encode = move |batch: &Batch| batch.lines_for(&filter);
    follow(&api, seen, shutdown, encode)
}

/// Returns the endless response with the batches after `seen`. `encode` returns the lines of a
/// batch, or `None` if nothing in it concerns the client.
pub(crate) fn follow(
    api: &SharedApi,
    seen: Option<StreamPosition>,
    shutdown: Option<Extension<Shutdown>>,
    encode: impl Fn(&Batch) -> Option<Bytes> + Send + 'static,
) -> Result<Response, Failure> {
    // Subscribing before reading may repeat a change; the other order could lose one.
    let batches = api.hub().subscribe();
    api.view()?;
    let first = since(&api.mirror, seen);
    let (at, pending) = (first.revision, encode(&first));
    let subscriber = Subscriber { at, pending, batches, encode, mirror: api.mirror.clone() };
    let lines = stream::unfold(subscriber, async |mut subscriber| {
        Some((Ok::<_, Infallible>(subscriber.next().await?), subscriber))
    });
    let lines = lines.take_until(Box::pin(closed(shutdown)));
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::from_stream(lines)).into_response())
}

/// Returns the position of a client: the ID of the last event that it received, as browsers send
/// it, or the parameter `since`.
pub(crate) fn position(
    headers: &HeaderMap,
    params: &Params,
) -> Result<Option<StreamPosition>, Failure> {
    // A client that has received no event may send an empty ID.
    let last = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty());
    let last = last.map(|id| id.to_str().unwrap_or("?"));
    last.or_else(|| params.non_empty("since")).map(StreamPosition::read).transpose()
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
pub(crate) struct StreamPosition {
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
struct Subscriber<E> {
    /// Revision that the client has reached.
    at: Revision,
    pending: Option<Bytes>,
    batches: Receiver<Arc<Batch>>,
    encode: E,
    mirror: Mirror,
}

impl<E: Fn(&Batch) -> Option<Bytes>> Subscriber<E> {
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
            self.pending = (self.encode)(batch);
        }
    }

    /// Skips the missed batches and sends a resync.
    fn resync(&mut self) {
        self.batches = self.batches.resubscribe();
        self.at = self.mirror.snapshot().revision;
        self.pending = (self.encode)(&Batch::resync(self.at, self.lineage().as_deref()));
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

/// Maximum number of events of a batch. A larger batch becomes a resync.
const MAX_EVENTS: usize = 4096;

/// Events of all changes up to a revision.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) revision: Revision,
    /// Encoded events, followed by the ID of the position after them.
    lines: Bytes,
    /// Range of that ID in `lines`.
    id_range: Range<usize>,
    pub(crate) events: Vec<EncodedEvent>,
    /// Whether the batch is a resync.
    pub(crate) is_resync: bool,
    /// The batch as changes of the page's lists, rendered for the first subscriber that needs it.
    pub(crate) patches: ListPatches,
}

/// An event of a batch.
#[derive(Debug)]
pub(crate) struct EncodedEvent {
    pub(crate) unit: Option<UnitName>,
    /// Whether the event is about the unit's state on one machine.
    pub(crate) is_state: bool,
    /// Machines whose filter the event passes: the current machine, and the machine that the unit
    /// has left.
    pub(crate) machines: [Option<MachineId>; 2],
    /// Whether the unit may have left a machine that is not known. If so, the event passes every
    /// machine filter.
    may_have_left: bool,
    lines: Range<usize>,
}

/// Filter for events. An event must match all fields that are set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    pub(crate) unit: Option<UnitName>,
    pub(crate) machine: Option<MachineId>,
    pub(crate) template: Option<UnitName>,
}

impl Filter {
    fn matches(&self, event: &EncodedEvent) -> bool {
        let template = || event.unit.as_ref().and_then(UnitName::template);
        self.unit.as_ref().is_none_or(|unit| event.unit.as_ref() == Some(unit))
            && self.template.as_ref().is_none_or(|wanted| template().as_ref() == Some(wanted))
            && self.machine.as_ref().is_none_or(|machine| {
                event.may_have_left || event.machines.iter().flatten().any(|id| id == machine)
            })
    }

    fn matches_all(&self) -> bool {
        self.unit.is_none() && self.machine.is_none() && self.template.is_none()
    }
}

impl Batch {
    /// Creates a resync batch.
    pub(crate) fn resync(revision: Revision, lineage: Option<&str>) -> Self {
        let encoder = EventEncoder { lines: ClusterEvent::Resync.lines(), events: Vec::new() };
        Self { is_resync: true, ..encoder.finish(revision, lineage) }
    }

    pub(crate) fn should_send(&self) -> bool {
        self.is_resync || !self.events.is_empty()
    }

    /// Returns the lines of the events that match the filter, followed by the ID of their position.
    /// Returns `None` if no event matches. A resync passes every filter.
    pub(crate) fn lines_for(&self, filter: &Filter) -> Option<Bytes> {
        if self.is_resync || filter.matches_all() {
            return Some(self.lines.clone());
        }
        let wanted = self.events.iter().filter(|event| filter.matches(event));
        let mut lines = Vec::new();
        wanted.for_each(|event| lines.extend_from_slice(&self.lines[event.lines.clone()]));
        if lines.is_empty() {
            return None;
        }
        lines.extend_from_slice(&self.lines[self.id_range.clone()]);
        Some(lines.into())
    }
}

/// Encodes the ID of a stream's position, without an event.
///
/// The position comes after all changes of its revision, so a client that resumes there misses
/// nothing.
pub(crate) fn id_lines(revision: Revision, lineage: Option<&str>) -> String {
    match lineage {
        Some(lineage) => format!("id: {revision}-{lineage}\n\n"),
        None => format!("id: {revision}\n\n"),
    }
}

/// Encodes the changes of `delta` as a batch. If the changes are unknown or too many, returns a
/// resync. `before` is the snapshot before the changes, if known, and shows the machines that units
/// have left.
pub(crate) fn batch(delta: &FullDelta, before: Option<&Snapshot>, lineage: Option<&str>) -> Batch {
    let now = &delta.inputs.snapshot;
    let (Some(changes), Some(results)) = (&delta.inputs.changes, &delta.results) else {
        return Batch::resync(now.revision, lineage);
    };
    let mut units: BTreeSet<&UnitName> = changes.units.iter().chain(&changes.placements).collect();
    units.extend(results.iter().filter_map(|report| changed_unit(now, report)));
    let states = results.iter().filter(|report| matches!(report, ResultChange::State(..)));
    if units.len() + changes.machines.len() + states.count() > MAX_EVENTS {
        return Batch::resync(now.revision, lineage);
    }
    let mut encoder = EventEncoder::default();
    units.into_iter().for_each(|name| encoder.unit(name, now, before));
    for report in results {
        if let ResultChange::State(unit, machine) = report {
            encoder.state(unit, machine, now);
        }
    }
    changes.machines.iter().for_each(|id| encoder.machine(id, now));
    if changes.rebalancing {
        encoder.rebalancing(now);
    }
    encoder.finish(now.revision, lineage)
}

/// Returns the unit for which an event must be sent because a machine's report about the unit, its
/// reason, its job or its schedule has changed. Returns `None` if the unit no longer exists.
///
/// Also returns `None` for a global unit. Its current state depends on the reports of all its
/// machines, so sending an update for each report would take quadratic time.
fn changed_unit<'a>(now: &Snapshot, report: &'a ResultChange) -> Option<&'a UnitName> {
    let (ResultChange::State(unit, _) | ResultChange::Reason(unit) | ResultChange::Progress(unit)) =
        report;
    now.unit(unit.as_str()).is_some_and(|unit| !unit.is_global()).then_some(unit)
}

/// Encodes a batch.
#[derive(Default)]
struct EventEncoder {
    lines: String,
    events: Vec<EncodedEvent>,
}

impl EventEncoder {
    fn unit(&mut self, name: &UnitName, now: &Snapshot, before: Option<&Snapshot>) {
        let event = match (now.unit(name.as_str()), now.fault(name.as_str())) {
            (Some(unit), _) => ClusterEvent::Unit(wire::unit_summary(now, unit).into()),
            (None, Some(fault)) => ClusterEvent::Unit(wire::faulty_unit(name, fault).into()),
            (None, None) => ClusterEvent::UnitGone(
                UnitEntity { name: name.to_string(), ..UnitEntity::default() }.into(),
            ),
        };
        let machine = |snapshot: &Snapshot| {
            snapshot.placement(name.as_str()).map(|placement| placement.machine.clone())
        };
        self.write(&event, Some(name), [machine(now), before.and_then(machine)]);
        if let Some(event) = self.events.last_mut() {
            event.may_have_left = before.is_none();
        }
    }

    fn state(&mut self, unit: &UnitName, machine: &MachineId, now: &Snapshot) {
        let event = match now.state(unit.as_str(), machine.as_str()) {
            Some(state) => ClusterEvent::State(wire::state(state).into()),
            None => {
                let (name, machine_id) = (unit.to_string(), machine.to_string());
                ClusterEvent::StateGone(
                    UnitStateEntity { name, machine_id, ..UnitStateEntity::default() }.into(),
                )
            }
        };
        self.write(&event, Some(unit), [Some(machine.clone()), None]);
        if let Some(event) = self.events.last_mut() {
            event.is_state = true;
        }
    }

    fn machine(&mut self, id: &MachineId, now: &Snapshot) {
        let event = match now.machine(id.as_str()) {
            Some(machine) => ClusterEvent::Machine(wire::machine(machine).into()),
            None => ClusterEvent::MachineGone(
                MachineEntity { id: id.to_string(), ..MachineEntity::default() }.into(),
            ),
        };
        self.write(&event, None, [Some(id.clone()), None]);
    }

    /// Encodes the rebalancing, which belongs to no single unit or machine.
    fn rebalancing(&mut self, now: &Snapshot) {
        let order = now.rebalancing.as_deref().map(wire::rebalance_order);
        let event = order
            .map_or(ClusterEvent::RebalanceGone, |order| ClusterEvent::Rebalance(order.into()));
        self.write(&event, None, [None, None]);
    }

    fn write(
        &mut self,
        event: &ClusterEvent,
        unit: Option<&UnitName>,
        machines: [Option<MachineId>; 2],
    ) {
        let start = self.lines.len();
        self.lines.push_str(&event.lines());
        let (unit, lines) = (unit.cloned(), start..self.lines.len());
        self.events.push(EncodedEvent {
            unit,
            machines,
            is_state: false,
            may_have_left: false,
            lines,
        });
    }

    fn finish(mut self, revision: Revision, lineage: Option<&str>) -> Batch {
        let start = self.lines.len();
        self.lines.push_str(&id_lines(revision, lineage));
        let id_range = start..self.lines.len();
        let Self { lines, events } = self;
        let patches = ListPatches::default();
        Batch { revision, lines: lines.into(), id_range, events, is_resync: false, patches }
    }
}
