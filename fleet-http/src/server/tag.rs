//! Entity tags of units, and the conditions that are made with them.
//!
//! A tag is the revision at which a unit was looked at, and the lineage that it is of. It says
//! nothing of what the unit was, but everything that changed later can be told by it.

use axum::http::HeaderMap;
use axum::http::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use fleet_core::{Revision, Snapshot};
use fleet_store::{ExpectUnit, Mirror, Report};
use fleet_unitfile::UnitName;

/// The tag of whatever is seen, or was written, at that revision.
pub(super) fn of(mirror: &Mirror, revision: Revision) -> HeaderValue {
    let tag = match mirror.lineage() {
        Some(lineage) => format!("\"{revision}-{lineage}\""),
        None => format!("\"{revision}\""),
    };
    HeaderValue::try_from(tag).unwrap_or_else(|_| HeaderValue::from_static("\"0\""))
}

/// What must be true of a unit for a write to be carried out: the header `If-Match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// Nothing was said.
    None,
    /// There is one.
    Exists,
    /// There is one, and it is as it was then.
    UnchangedSince(Revision),
    /// Something that cannot be: a tag that nobody gave, or one of another lineage.
    Never,
}

impl Condition {
    pub(super) fn read(headers: &HeaderMap, mirror: &Mirror) -> Self {
        if !headers.contains_key(IF_MATCH) {
            return Self::None;
        }
        if tags(headers, &IF_MATCH).any(|tag| tag == "*") {
            return Self::Exists;
        }
        // Of several it is enough that one holds, and the latest holds if any does.
        let revisions = tags(headers, &IF_MATCH).filter_map(|tag| revision(tag, mirror));
        revisions.max().map_or(Self::Never, Self::UnchangedSince)
    }

    /// Whether it holds as far as is known here. The store has the last word.
    pub(super) fn holds(self, mirror: &Mirror, known: &Snapshot, name: &UnitName) -> bool {
        let is_there = known.unit(name.as_str()).is_some() || known.fault(name.as_str()).is_some();
        match self {
            Self::None => true,
            Self::Exists => is_there,
            Self::Never => false,
            Self::UnchangedSince(seen) => {
                let difference = mirror.news_since(seen).difference;
                is_there && difference.is_none_or(|it| !it.units.contains(name))
            }
        }
    }

    /// The same for the store.
    pub(super) fn expect(self, otherwise: ExpectUnit) -> ExpectUnit {
        match self {
            Self::None | Self::Never => otherwise,
            Self::Exists => ExpectUnit::Present,
            Self::UnchangedSince(seen) => ExpectUnit::UnchangedSince(seen),
        }
    }
}

/// Whether who asks has seen the unit, by its tag, as it is shown.
pub(super) fn is_known(headers: &HeaderMap, mirror: &Mirror, shown: &Snapshot, name: &str) -> bool {
    let seen = tags(headers, &IF_NONE_MATCH);
    let seen: Vec<&str> = seen.map(|tag| tag.strip_prefix("W/").unwrap_or(tag)).collect();
    let latest = seen.iter().filter_map(|tag| revision(tag, mirror)).max();
    seen.contains(&"*")
        || latest.is_some_and(|seen| {
            seen == shown.revision || (seen < shown.revision && is_unchanged(mirror, seen, name))
        })
}

/// Whether nothing that is shown of a unit has changed since.
fn is_unchanged(mirror: &Mirror, seen: Revision, name: &str) -> bool {
    let tidings = mirror.tidings_since(seen);
    let (Some(difference), Some(reports)) = (tidings.news.difference, tidings.reports) else {
        return false; // nobody can say
    };
    let is_it = |unit: &UnitName| unit.as_str() == name;
    // Of a machine that comes or goes, its units are not told of.
    difference.machines.is_empty()
        && !difference.units.iter().any(is_it)
        && !difference.placements.iter().any(is_it)
        && !reports.iter().any(|report| match report {
            Report::State(unit, _) | Report::Reason(unit) => is_it(unit),
        })
}

/// The tags of a header, with their quotation marks.
fn tags<'a>(headers: &'a HeaderMap, header: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(header).into_iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// The revision of a tag, if it is one of this lineage.
fn revision(tag: &str, mirror: &Mirror) -> Option<Revision> {
    let text = tag.strip_prefix('"')?.strip_suffix('"')?;
    let (number, lineage) = match text.split_once('-') {
        Some((number, lineage)) => (number, Some(lineage)),
        None => (text, None),
    };
    let own = mirror.lineage().map(|lineage| lineage.to_string());
    (own.as_deref() == lineage).then(|| number.parse().ok().map(Revision)).flatten()
}
