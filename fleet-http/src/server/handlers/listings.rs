//! Filters of lists, and their pages. Each list in progress has a token and a snapshot, so that all
//! pages of a list show the same revision.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use fleet_core::{ActiveState, Machine, Revision, Snapshot, TargetState, Unit, UnitState};
use fleet_unitfile::UnitName;

use super::extract::Params;
use crate::server::failure::Failure;
use crate::server::net::connection::sleep;

/// Maximum number of cached snapshots. Lists at the same revision share a snapshot. If the cache is
/// full, the least recently used snapshot is dropped, and clients that read its lists must start
/// again.
const MAX_SNAPSHOTS: usize = 64;

/// Maximum number of cached snapshots whose readers have all reached their last page, according to
/// the counts of readers.
///
/// Some are kept because a count may be too low: a client that requests the last page twice counts
/// as two finished readers. The limit is small because a snapshot may be as large as the cluster.
const MAX_FINISHED: usize = 4;

/// Interval of expiry checks. A snapshot expires after one to two intervals without use.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);

/// Cache of the snapshots of paginated lists.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listings(Arc<Mutex<SnapshotCache>>);

impl Listings {
    /// Caches the snapshot of a list for the list's next pages. `begins` is `true` for the first
    /// page, and counts a new reader.
    pub(crate) fn keep(&self, snapshot: &Arc<Snapshot>, begins: bool) {
        let mut cache = self.lock();
        cache.keep(Arc::clone(snapshot), begins);
        if !cache.ages {
            cache.ages = true;
            tokio::spawn(age(Arc::downgrade(&self.0)));
        }
    }

    /// Returns the snapshot at that revision, if it is still cached.
    pub(crate) fn find(&self, revision: Revision) -> Option<Arc<Snapshot>> {
        self.lock().find(revision)
    }

    /// Records that a reader has reached the last page of a list with several pages.
    pub(crate) fn end(&self, revision: Revision) {
        self.lock().end(revision);
    }

    fn lock(&self) -> MutexGuard<'_, SnapshotCache> {
        lock(&self.0)
    }
}

/// Ignores poisoning: no panic can leave the map partially modified.
fn lock(cache: &Mutex<SnapshotCache>) -> MutexGuard<'_, SnapshotCache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops unused snapshots, until none is left or the server is gone.
async fn age(cache: Weak<Mutex<SnapshotCache>>) {
    loop {
        sleep(EXPIRY_INTERVAL).await;
        let Some(cache) = cache.upgrade() else { return };
        if !lock(&cache).age() {
            return;
        }
    }
}

#[derive(Debug, Default)]
struct SnapshotCache {
    snapshots: BTreeMap<Revision, CachedSnapshot>,
    uses: u64,
    /// Number of the last use before the current interval.
    old: u64,
    /// Whether the expiry task is running.
    ages: bool,
}

/// A cached snapshot.
#[derive(Debug)]
struct CachedSnapshot {
    snapshot: Arc<Snapshot>,
    used: Use,
    /// Number of readers that have not reached the last page. A reader that gives up is counted
    /// until the snapshot expires.
    readers: usize,
}

/// Sequence number of a use, over all snapshots.
type Use = u64;

impl SnapshotCache {
    fn keep(&mut self, snapshot: Arc<Snapshot>, begins: bool) {
        let used = self.next_use();
        let new = || CachedSnapshot { snapshot: Arc::clone(&snapshot), used, readers: 0 };
        let entry = self.snapshots.entry(snapshot.revision).or_insert_with(new);
        entry.used = used;
        entry.readers += usize::from(begins);
        self.forget_beyond(MAX_SNAPSHOTS, |_| true);
    }

    fn find(&mut self, revision: Revision) -> Option<Arc<Snapshot>> {
        let used = self.next_use();
        let entry = self.snapshots.get_mut(&revision)?;
        entry.used = used;
        Some(Arc::clone(&entry.snapshot))
    }

    fn end(&mut self, revision: Revision) {
        if let Some(entry) = self.snapshots.get_mut(&revision) {
            entry.readers = entry.readers.saturating_sub(1);
        }
        self.forget_beyond(MAX_FINISHED, |entry| entry.readers == 0);
    }

    fn next_use(&mut self) -> Use {
        self.uses += 1;
        self.uses
    }

    /// Limits the number of snapshots for which `matches` returns `true`. If there are more than
    /// `most` of them, drops the least recently used one.
    fn forget_beyond(&mut self, most: usize, matches: impl Fn(&CachedSnapshot) -> bool) {
        let matching = || self.snapshots.iter().filter(|(_, entry)| matches(entry));
        if matching().count() > most
            && let Some((revision, _)) = matching().min_by_key(|(_, entry)| entry.used)
        {
            let revision = *revision;
            self.snapshots.remove(&revision);
        }
    }

    /// Drops snapshots that were not used since the last call. Returns whether any snapshot is
    /// left.
    fn age(&mut self) -> bool {
        let old = std::mem::replace(&mut self.old, self.uses);
        self.snapshots.retain(|_, entry| entry.used > old);
        self.ages = !self.snapshots.is_empty();
        self.ages
    }
}

/// Position in a paginated list, as the token of a page.
///
/// A token is URL-safe base64 of these fields, all little endian:
/// - four bytes as in version 1: page size and page number, 16 bits each
/// - sixteen bytes that version 1 ignores: the full page number and the list's revision, 64 bits
///   each
/// - a reference to the page's first item, so that the server finds the page without iterating over
///   the preceding pages
///
/// Clients and servers of version 1 understand the first four bytes. The other fields allow more
/// pages than 16 bits can count, and let all pages of a list show one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageToken {
    /// Page size.
    pub(crate) limit: u16,
    /// Page number, counted from one.
    pub(crate) page: u64,
    /// Revision of the list; `None` in a token of version 1.
    pub(crate) revision: Option<Revision>,
    /// Reference to the page's first item, in a format that the list defines. Encoded only if
    /// `revision` is set.
    pub(crate) first: Option<String>,
}

/// Error of an invalid page token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PageTokenError {
    #[error("invalid value of nextPageToken query parameter")]
    Encoding,
    #[error("invalid value of nextPageToken query parameter: it is incomplete")]
    Short,
    #[error("token limit must be {expected}")]
    Limit { expected: u16 },
    #[error("token page must be greater than zero")]
    Page,
}

const OLD_BYTES: usize = 4;

impl PageToken {
    /// Encodes the token.
    pub(crate) fn encode(self) -> String {
        let number = u16::try_from(self.page).unwrap_or(u16::MAX);
        let mut bytes = Vec::with_capacity(OLD_BYTES + 16);
        bytes.extend(self.limit.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        if let Some(revision) = self.revision {
            bytes.extend(self.page.to_le_bytes());
            bytes.extend(revision.0.to_le_bytes());
            bytes.extend(self.first.iter().flat_map(|first| first.bytes()));
        }
        URL_SAFE.encode(bytes)
    }

    /// Decodes a token for a server with page size `limit`.
    pub(crate) fn decode(text: &str, limit: u16) -> Result<Self, PageTokenError> {
        let bytes = URL_SAFE.decode(text).map_err(|_| PageTokenError::Encoding)?;
        let Some((&[l0, l1, p0, p1], added)) = bytes.split_first_chunk() else {
            return Err(PageTokenError::Short);
        };
        if u16::from_le_bytes([l0, l1]) != limit {
            return Err(PageTokenError::Limit { expected: limit });
        }
        let (page, rest) = match added.split_first_chunk() {
            Some((&page, rest)) => (u64::from_le_bytes(page), rest.split_first_chunk()),
            None => (u64::from(u16::from_le_bytes([p0, p1])), None),
        };
        if page == 0 {
            return Err(PageTokenError::Page);
        }
        let revision = rest.map(|(bytes, _)| Revision(u64::from_le_bytes(*bytes)));
        let first = rest.and_then(|(_, first)| str::from_utf8(first).ok());
        let first = first.filter(|first| !first.is_empty()).map(str::to_owned);
        Ok(Self { limit, page, revision, first })
    }
}

/// Filter for units. A unit must match all fields that are set.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnitFilter {
    machine: Option<String>,
    desired: Option<TargetState>,
    current: Option<TargetState>,
    template: Option<UnitName>,
    /// Filter for the machine that the unit is placed on.
    metadata: MachineFilter,
}

impl UnitFilter {
    pub(crate) fn read(params: &Params) -> Result<Self, Failure> {
        let state =
            |name| params.non_empty(name).map(str::parse).transpose().map_err(Failure::bad_request);
        Ok(Self {
            machine: params.non_empty("machineID").map(str::to_owned),
            desired: state("desiredState")?,
            current: state("currentState")?,
            template: template(params)?,
            metadata: MachineFilter::read(params),
        })
    }

    pub(crate) fn matches(&self, snapshot: &Snapshot, unit: &Unit) -> bool {
        let placed = snapshot.placement(unit.name.as_str());
        let is_on = |id: &String| placed.is_some_and(|there| there.machine.as_str() == id);
        let there = || snapshot.machine(placed?.machine.as_str());
        self.matches_template(&unit.name)
            && (self.metadata.is_empty() || there().is_some_and(|at| self.metadata.matches(at)))
            && self.machine.as_ref().is_none_or(is_on)
            && self.desired.is_none_or(|desired| unit.desired == desired)
            && self.current.is_none_or(|current| snapshot.current(unit) == current)
    }

    /// Returns whether a unit that cannot be decoded matches. Only its name is known, so it matches
    /// only if no filter except the template is set.
    pub(crate) fn matches_faulty(&self, name: &UnitName) -> bool {
        let asks_more = self.desired.is_some() || self.current.is_some() || self.machine.is_some();
        !asks_more && self.metadata.is_empty() && self.matches_template(name)
    }

    fn matches_template(&self, name: &UnitName) -> bool {
        self.template.is_none() || name.template() == self.template
    }
}

/// Filter for unit states. A state must match all fields that are set. The filter by unit name is
/// not among them: the request handler applies it.
#[derive(Debug, Clone)]
pub(crate) struct StateFilter {
    machine: Option<String>,
    active: Option<ActiveState>,
    template: Option<UnitName>,
    /// Filter for the reporting machine.
    metadata: MachineFilter,
}

impl StateFilter {
    pub(crate) fn read(params: &Params) -> Result<Self, Failure> {
        let active = params.non_empty("systemdActiveState").map(str::parse).transpose();
        Ok(Self {
            machine: params.non_empty("machineID").map(str::to_owned),
            active: active.map_err(|error| {
                Failure::bad_request(format!(
                    "query parameter \"systemdActiveState\": {error}; use a state such as active \
                     or failed"
                ))
            })?,
            template: template(params)?,
            metadata: MachineFilter::read(params),
        })
    }

    pub(crate) fn matches(&self, snapshot: &Snapshot, state: &UnitState) -> bool {
        let there = || snapshot.machine(state.machine.as_str());
        self.machine.as_ref().is_none_or(|machine| state.machine.as_str() == machine)
            && self.active.is_none_or(|active| state.systemd.active == active)
            && (self.template.is_none() || state.unit.template() == self.template)
            && (self.metadata.is_empty() || there().is_some_and(|at| self.metadata.matches(at)))
    }
}

/// Returns the template in the parameter `template`, which selects the instances of that template.
pub(crate) fn template(params: &Params) -> Result<Option<UnitName>, Failure> {
    let Some(text) = params.non_empty("template") else { return Ok(None) };
    let bad = || {
        Failure::bad_request(format!(
            "query parameter \"template\": {text:?} is not a template; use a name such as \
             web@.service"
        ))
    };
    UnitName::parse(text).ok().filter(UnitName::is_template).map(Some).ok_or_else(bad)
}

/// Filter for machines. A machine must have all given metadata.
#[derive(Debug, Clone, Default)]
pub(crate) struct MachineFilter(Vec<(String, Option<String>)>);

impl MachineFilter {
    pub(crate) fn read(params: &Params) -> Self {
        let pairs = params.all("metadata").map(|text| match text.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (text.to_owned(), None),
        });
        Self(pairs.filter(|(key, _)| !key.is_empty()).collect())
    }

    /// Whether the filter matches all machines.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, machine: &Machine) -> bool {
        self.0.iter().all(|(key, wanted)| {
            let found = machine.metadata.get(key);
            found.is_some_and(|found| wanted.as_ref().is_none_or(|wanted| wanted == found))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(revision: u64) -> Arc<Snapshot> {
        let mut snapshot = Snapshot::default();
        snapshot.revision = Revision(revision);
        Arc::new(snapshot)
    }

    #[test]
    fn cache_is_bounded_and_keeps_used_snapshots() {
        let mut cache = SnapshotCache::default();
        cache.keep(at(0), true);
        for revision in 1..=2 * MAX_SNAPSHOTS as u64 {
            cache.keep(at(revision), true);
            assert!(cache.find(Revision(0)).is_some(), "{revision}");
        }
        assert_eq!(cache.snapshots.len(), MAX_SNAPSHOTS);
        assert!(cache.find(Revision(1)).is_none());
        assert!(cache.find(Revision(2 * MAX_SNAPSHOTS as u64)).is_some());
    }

    #[test]
    fn few_finished_snapshots_are_kept() {
        let mut cache = SnapshotCache::default();
        for revision in 0..10 {
            cache.keep(at(revision), true);
            cache.keep(at(revision), false);
            cache.end(Revision(revision));
        }
        let there: Vec<_> = cache.snapshots.keys().map(|revision| revision.0).collect();
        assert_eq!(there, [6, 7, 8, 9]);
    }

    #[test]
    fn snapshots_with_readers_are_kept() {
        let mut cache = SnapshotCache::default();
        cache.keep(at(0), true);
        cache.keep(at(0), true);
        for revision in 0..10 {
            cache.keep(at(revision), true);
            cache.end(Revision(revision));
        }
        cache.end(Revision(0));
        assert!(cache.find(Revision(0)).is_some(), "one of three has not come to its end");
        cache.end(Revision(0));
        cache.end(Revision(9));
        let there: Vec<_> = cache.snapshots.keys().map(|revision| revision.0).collect();
        assert_eq!(there, [0, 7, 8, 9], "the one that was used before the others goes");
    }

    #[test]
    fn unused_snapshots_expire() {
        let mut cache = SnapshotCache::default();
        cache.keep(at(1), true);
        cache.keep(at(2), true);
        assert!(cache.age(), "both were used since the beginning");
        assert!(cache.find(Revision(2)).is_some());
        assert!(cache.age());
        assert!(cache.find(Revision(1)).is_none(), "it was unused for an interval");
        assert!(!cache.age(), "nothing is left in the end");
    }

    #[test]
    fn version_1_tokens_round_trip() {
        for (text, limit, page) in
            [("ZAACAA==", 100, 2), ("AgACAA==", 2, 2), ("ZAD__w==", 100, 65535)]
        {
            let token = PageToken { limit, page, revision: None, first: None };
            assert_eq!(PageToken::decode(text, limit), Ok(token.clone()));
            assert_eq!(token.encode(), text);
        }
        // Unknown trailing bytes are ignored, like in version 1.
        let token = PageToken { limit: 100, page: 2, revision: None, first: None };
        assert_eq!(PageToken::decode("ZAACAAcH", 100), Ok(token));
    }

    #[test]
    fn invalid_tokens_are_refused() {
        let cases = [
            ("", PageTokenError::Short),
            ("ZAAC", PageTokenError::Short),
            ("!", PageTokenError::Encoding),
            ("ZAACAA", PageTokenError::Encoding),
            ("AgACAA==", PageTokenError::Limit { expected: 100 }),
            ("ZAAAAA==", PageTokenError::Page),
        ];
        for (text, expected) in cases {
            assert_eq!(PageToken::decode(text, 100), Err(expected), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn tokens_round_trip(
            limit: u16,
            page in 1..=u64::MAX,
            revision: u64,
            first in proptest::option::of("[a-z]{1,20}\\.service"),
        ) {
            let token = PageToken { limit, page, revision: Some(Revision(revision)), first };
            let text = token.clone().encode();
            prop_assert_eq!(PageToken::decode(&text, limit), Ok(token));
            // Version 1 must never read the token as page zero.
            let old = URL_SAFE.decode(text).unwrap();
            prop_assert!(old[2] > 0 || old[3] > 0);
        }

        #[test]
        fn decoding_never_panics(text in "\\PC*", limit: u16) {
            let _token = PageToken::decode(&text, limit);
        }
    }
}
