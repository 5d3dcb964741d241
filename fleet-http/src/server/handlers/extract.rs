//! Extractors for names, query parameters, bodies and dry runs, and the entity tags of units.

use std::convert::Infallible;

use axum::Json;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use fleet_core::{Revision, Snapshot};
use fleet_store::Mirror;
use fleet_store::mirror::ResultChange;
use fleet_store::registry::ExpectUnit;
use fleet_unitfile::UnitName;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::timeout;

use super::plan::run_planner;
use crate::server::failure::Failure;
use crate::server::net::limits::ConnectionOrigin;
use crate::wire;

/// A percent-decoded name in the path.
pub(crate) struct Name(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Path(name) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|rejection| Failure::bad_request(rejection.body_text()))?;
        // An escaped slash makes two segments, and no resource matches those.
        if name.contains('/') {
            return Err(crate::server::router::no_resource());
        }
        Ok(Self(name))
    }
}

/// Query parameters, or the fields of a form, in order.
#[derive(Debug, Default)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    /// Parses the query of a URI. Treats a malformed query as empty, like fleet v1.
    pub(crate) fn of(uri: &Uri) -> Self {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
        Self(pairs.map(|Query(pairs)| pairs).unwrap_or_default())
    }

    /// Parses the body of a form.
    pub(crate) fn of_form(body: &[u8]) -> Self {
        Self(form_urlencoded::parse(body).into_owned().collect())
    }

    /// Returns the first value of a parameter.
    pub(crate) fn first(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Returns the first value of a parameter unless it is empty.
    pub(crate) fn non_empty(&self, name: &str) -> Option<&str> {
        self.first(name).filter(|value| !value.is_empty())
    }

    /// Returns the value of a boolean parameter; false if absent.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Failure> {
        match self.first(name) {
            None | Some("0" | "false") => Ok(false),
            Some("" | "1" | "true") => Ok(true),
            Some(other) => Err(Failure::bad_request(format!(
                "query parameter {name:?}: {other:?} is neither 1 nor 0"
            ))),
        }
    }

    /// Returns whether the request is a dry run. Refuses misspellings of the parameter such as
    /// `dry_run`; if it ignored them, the write would be carried out.
    pub(crate) fn dry_run(&self) -> Result<bool, Failure> {
        let resembles_dry_run = |key: &str| key.to_lowercase().replace(['_', '-'], "") == "dryrun";
        let mut others = self.0.iter().map(|(key, _)| key).filter(|key| *key != "dryRun");
        match others.find(|key| resembles_dry_run(key)) {
            Some(other) => Err(Failure::bad_request(format!(
                "unknown query parameter {other:?}: use dryRun=1"
            ))),
            None => self.flag("dryRun"),
        }
    }

    /// Returns all values of a parameter.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.uri))
    }
}

/// Reads the whole body within the limits for size and time.
pub(crate) async fn read_body(head: &Parts, body: Body) -> Result<Bytes, Failure> {
    let limits =
        head.extensions.get::<ConnectionOrigin>().map(|origin| origin.limits).unwrap_or_default();
    let large = || {
        let message = format!("the body is larger than {} bytes", limits.body_size);
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    // A body whose announced length is too large is refused without reading it.
    if body.size_hint().lower() > limits.body_size as u64 {
        return Err(large());
    }
    let whole = Limited::new(body, limits.body_size).collect();
    let slow = || Failure::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive");
    match timeout(limits.body_time, whole).await.map_err(|_| slow())? {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(large()),
        Err(error) => Err(Failure::bad_request(format!("unable to read body: {error}"))),
    }
}

/// Responds to a write with `dryRun=1`: returns the plan that would result from the write, without
/// carrying it out.
///
/// The plan contains all pending steps, even those that are unrelated to the write.
pub(crate) async fn dry_run(
    known: &Snapshot,
    write: impl FnOnce(&mut Snapshot),
) -> Result<Response, Failure> {
    let mut after = known.clone();
    write(&mut after);
    Ok(Json(plan_report(after).await?).into_response())
}

/// Returns the plan for a snapshot.
pub(crate) async fn plan_report(after: Snapshot) -> Result<wire::PlanReport, Failure> {
    let plan = run_planner(move || fleet_scheduler::plan(&after)).await?;
    Ok(wire::plan(&plan))
}

/// Returns the entity tag of a unit that was read at that revision.
///
/// A tag consists of the revision and of the lineage of the store. The server detects every change
/// after that revision, even if a later change restores the unit's content.
pub(crate) fn etag_of(mirror: &Mirror, revision: Revision) -> HeaderValue {
    let tag = tag_of(mirror, revision);
    HeaderValue::try_from(format!("\"{tag}\""))
        .unwrap_or_else(|_| HeaderValue::from_static("\"0\""))
}

/// Returns the text that identifies a revision of the store, without quotes.
pub(crate) fn tag_of(mirror: &Mirror, revision: Revision) -> String {
    match mirror.lineage() {
        Some(lineage) => format!("{revision}-{lineage}"),
        None => revision.to_string(),
    }
}

/// Condition of a write, from the `If-Match` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// No condition.
    None,
    /// The unit exists.
    Exists,
    /// The unit exists and is unchanged since this revision.
    UnchangedSince(Revision),
    /// Never holds: the request contains no valid tag of the store's lineage.
    Never,
}

impl Condition {
    pub(crate) fn read(headers: &HeaderMap, mirror: &Mirror) -> Self {
        if !headers.contains_key(IF_MATCH) {
            return Self::None;
        }
        if tags(headers, &IF_MATCH).any(|tag| tag == "*") {
            return Self::Exists;
        }
        // One matching tag suffices, and if any matches, the latest does.
        let revisions = tags(headers, &IF_MATCH).filter_map(|tag| revision(tag, mirror));
        revisions.max().map_or(Self::Never, Self::UnchangedSince)
    }

    /// Whether the condition holds in this snapshot. The store checks it again.
    pub(crate) fn holds(self, mirror: &Mirror, known: &Snapshot, name: &UnitName) -> bool {
        let is_there = known.unit(name.as_str()).is_some() || known.fault(name.as_str()).is_some();
        match self {
            Self::None => true,
            Self::Exists => is_there,
            Self::Never => false,
            Self::UnchangedSince(seen) => {
                let changes = mirror.delta_since(seen).changes;
                is_there && changes.is_none_or(|it| !it.units.contains(name))
            }
        }
    }

    /// Returns the condition for the store.
    pub(crate) fn expect(self, otherwise: ExpectUnit) -> ExpectUnit {
        match self {
            Self::None | Self::Never => otherwise,
            Self::Exists => ExpectUnit::Present,
            Self::UnchangedSince(seen) => ExpectUnit::UnchangedSince(seen),
        }
    }
}

/// Returns whether the client already has the current state of the unit, according to the tags in
/// `If-None-Match`.
pub(crate) fn etag_is_known(
    headers: &HeaderMap,
    mirror: &Mirror,
    snapshot: &Snapshot,
    name: &str,
) -> bool {
    let seen = tags(headers, &IF_NONE_MATCH);
    let seen: Vec<&str> = seen.map(|tag| tag.strip_prefix("W/").unwrap_or(tag)).collect();
    let latest = seen.iter().filter_map(|tag| revision(tag, mirror)).max();
    seen.contains(&"*")
        || latest.is_some_and(|seen| {
            seen == snapshot.revision
                || (seen < snapshot.revision && is_unchanged(mirror, seen, name))
        })
}

/// Returns whether the unit has certainly looked the same to clients since the revision `seen`.
/// Returns `false` if the changes since then are unknown, or if any machine has changed.
fn is_unchanged(mirror: &Mirror, seen: Revision, name: &str) -> bool {
    let delta = mirror.full_delta_since(seen);
    let (Some(changes), Some(results)) = (delta.inputs.changes, delta.results) else {
        return false; // the changes are unknown
    };
    let is_it = |unit: &UnitName| unit.as_str() == name;
    // Machine changes do not list the affected units.
    changes.machines.is_empty()
        && !changes.units.iter().any(is_it)
        && !changes.placements.iter().any(is_it)
        && !results.iter().any(|change| match change {
            ResultChange::State(unit, _)
            | ResultChange::Reason(unit)
            | ResultChange::Progress(unit) => is_it(unit),
        })
}

/// Returns the tags of a header, with their quotes.
fn tags<'a>(headers: &'a HeaderMap, header: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(header).into_iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Returns the revision of a tag. Returns `None` if the tag is invalid or of another lineage.
fn revision(tag: &str, mirror: &Mirror) -> Option<Revision> {
    revision_of(tag.strip_prefix('"')?.strip_suffix('"')?, mirror)
}

/// Returns the revision of a text from [`tag_of`].
pub(crate) fn revision_of(text: &str, mirror: &Mirror) -> Option<Revision> {
    let (number, lineage) = match text.split_once('-') {
        Some((number, lineage)) => (number, Some(lineage)),
        None => (text, None),
    };
    let own = mirror.lineage().map(|lineage| lineage.to_string());
    (own.as_deref() == lineage).then(|| number.parse().ok().map(Revision)).flatten()
}
