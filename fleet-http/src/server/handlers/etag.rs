//! Entity tags of units, and conditional requests.
//!
//! A tag consists of the lineage of the store and the revision at which a unit was read. The server
//! detects every change after that revision, even if a later change restores the unit's content.

use axum::http::HeaderMap;
use axum::http::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use fleet_core::{Revision, Snapshot};
use fleet_store::Mirror;
use fleet_store::mirror::ResultChange;
use fleet_store::registry::ExpectUnit;
use fleet_unitfile::UnitName;

/// Returns the tag of the state at that revision.
pub(crate) fn of(mirror: &Mirror, revision: Revision) -> HeaderValue {
    let tag = match mirror.lineage() {
        Some(lineage) => format!("\"{revision}-{lineage}\""),
        None => format!("\"{revision}\""),
    };
    HeaderValue::try_from(tag).unwrap_or_else(|_| HeaderValue::from_static("\"0\""))
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
pub(crate) fn is_known(
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
            ResultChange::State(unit, _) | ResultChange::Reason(unit) => is_it(unit),
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
    let text = tag.strip_prefix('"')?.strip_suffix('"')?;
    let (number, lineage) = match text.split_once('-') {
        Some((number, lineage)) => (number, Some(lineage)),
        None => (text, None),
    };
    let own = mirror.lineage().map(|lineage| lineage.to_string());
    (own.as_deref() == lineage).then(|| number.parse().ok().map(Revision)).flatten()
}
