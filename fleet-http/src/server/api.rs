//! The API's dependencies, and the state shared by all handlers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use fleet_core::manager::{ManagerInfo, ManagerVerdict};
use fleet_core::{Revision, Snapshot, Strictness};
use fleet_store::mirror::StoreIdentity;
use fleet_store::{Mirror, Registry};
use fleet_unitfile::{UnitFile, UnitName};

use super::failure::Failure;
use super::handlers::extract::Params;
use super::handlers::listings::{Listings, PageToken};
use super::metrics::Metrics;
use super::stream::events::Hub;
use super::stream::journal::{Journals, NoJournals};
use super::stream::journal_source::Peers;
use crate::wire::OTHER_STORE;

/// Maximum time that a write waits until reads on this server show it.
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time that a request waits for the first read of the store. The wait is needed with
/// socket activation: the request that starts the daemon arrives before the daemon has read the
/// store.
const FIRST_READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Checks a unit file as a service manager does.
pub type UnitChecker =
    Arc<dyn Fn(&ManagerInfo, &UnitName, &UnitFile) -> ManagerVerdict + Send + Sync>;

/// Dependencies of the API.
pub struct Api {
    pub(super) registry: Registry,
    pub(super) mirror: Mirror,
    pub(super) journals: Arc<dyn Journals>,
    pub(super) peers: Peers,
    pub(super) metrics: Metrics,
    pub(super) page_size: u16,
    pub(super) strictness: Strictness,
    pub(super) version: String,
    pub(super) unit_checker: UnitChecker,
    pub(super) join_problem: Arc<dyn Fn() -> Option<String> + Send + Sync>,
}

impl Api {
    /// Page size of version 1.
    pub const PAGE_SIZE: u16 = 100;

    /// Creates an API that writes to `registry` and reads from `mirror`. It has no journals,
    /// refuses unit files that fleet v1 silently accepted, and has a page size of
    /// [`Self::PAGE_SIZE`].
    #[must_use]
    pub fn new(registry: Registry, mirror: Mirror) -> Self {
        Self {
            registry,
            mirror,
            journals: Arc::new(NoJournals),
            peers: Peers::default(),
            metrics: Metrics::new(),
            page_size: Self::PAGE_SIZE,
            strictness: Strictness::Refuse,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            unit_checker: Arc::new(|_, _, _| ManagerVerdict::default()),
            join_problem: Arc::new(|| None),
        }
    }

    /// Sets the source of journals on this daemon's machines.
    #[must_use]
    pub fn with_journals(self, journals: Arc<dyn Journals>) -> Self {
        Self { journals, ..self }
    }

    /// Sets the clients of the daemons of other machines.
    #[must_use]
    pub fn with_peers(self, peers: Peers) -> Self {
        Self { peers, ..self }
    }

    /// Sets the metrics for `GET /metrics`.
    #[must_use]
    pub fn with_metrics(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// Sets the number of items on a list page; zero means one.
    #[must_use]
    pub fn with_page_size(self, page_size: u16) -> Self {
        Self { page_size: page_size.max(1), ..self }
    }

    /// Sets the handling of unit files that fleet v1 silently accepted.
    #[must_use]
    pub fn with_strictness(self, strictness: Strictness) -> Self {
        Self { strictness, ..self }
    }

    /// Sets the daemon's version.
    #[must_use]
    pub fn with_version(self, version: impl Into<String>) -> Self {
        Self { version: version.into(), ..self }
    }

    /// Sets a function that returns why a machine of this daemon could not join the cluster, or
    /// `None` if all have joined.
    #[must_use]
    pub fn with_join_problem(
        self,
        join_problem: Arc<dyn Fn() -> Option<String> + Send + Sync>,
    ) -> Self {
        Self { join_problem, ..self }
    }

    /// Sets the function that checks unit files for `POST /check`. The default has no findings.
    #[must_use]
    pub fn with_unit_checker(self, unit_checker: UnitChecker) -> Self {
        Self { unit_checker, ..self }
    }

    /// Builds the router of the API. Pass the router to [`serve`](crate::serve).
    pub fn router(self) -> Router {
        let hub = Hub::new(&self.mirror);
        super::router::router(SharedApi(Arc::new(self), Listings::default(), hub))
    }
}

/// Maximum size of a list page in bytes, as estimated before the page is encoded. A page always has
/// at least one item, which may be larger.
const MAX_PAGE_BYTES: usize = 4 << 20;

/// The API as shared by handlers.
#[derive(Clone)]
pub(super) struct SharedApi(Arc<Api>, Listings, Hub);

impl std::ops::Deref for SharedApi {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.0
    }
}

impl SharedApi {
    /// Waits until the store has been read once, for at most two seconds. Returns at once if the
    /// store has already been read.
    pub(super) async fn wait_for_first_read(&self) {
        if self.mirror.snapshot().revision == Revision::ZERO && !self.mirror.is_current() {
            // Handlers that need the snapshot return an error if the time has run out.
            drop(tokio::time::timeout(FIRST_READ_TIMEOUT, self.mirror.wait_current()).await);
        }
    }

    /// Returns the current snapshot. Returns an error if the store has not been read yet, because
    /// the initial snapshot is empty even if the store is not.
    pub(super) fn view(&self) -> Result<Arc<Snapshot>, Failure> {
        let snapshot = self.mirror.snapshot();
        if snapshot.revision == Revision::ZERO && !self.mirror.is_current() {
            return Err(self.without_store("fleet server unable to communicate with its store"));
        }
        Ok(snapshot)
    }

    /// Returns the error of a request that needs an up-to-date view of the store: either this
    /// daemon refuses its store, or `unreachable` is the reason.
    pub(super) fn without_store(&self, unreachable: &str) -> Failure {
        Failure::unavailable(match self.mirror.store_identity() {
            StoreIdentity::Other => OTHER_STORE,
            _ => unreachable,
        })
    }

    /// Returns the hub that publishes events.
    pub(super) fn hub(&self) -> &Hub {
        &self.2
    }

    /// Waits until reads on this server show the revision, for at most five seconds. Does not
    /// return an error after that time, because the write is already committed.
    pub(super) async fn wait_until_visible(&self, revision: Revision) {
        let seen = tokio::time::timeout(VISIBILITY_TIMEOUT, self.mirror.wait_for(revision)).await;
        if !matches!(seen, Ok(Ok(_))) {
            tracing::warn!(%revision, "a write is stored, but this daemon does not show it yet");
        }
    }

    /// Returns the snapshot and position of the page that a list request asks for. Without a page
    /// token, this is the first page of a new list. Returns an error if the token is invalid or its
    /// snapshot was dropped.
    pub(super) fn listing(&self, params: &Params) -> Result<Listing, Failure> {
        let mut tokens = params.all("nextPageToken");
        let Some(token) = tokens.next() else {
            return Ok(Listing { snapshot: self.view()?, begins: true, page: 1, first: None });
        };
        if tokens.next().is_some() {
            return Err(Failure::bad_request("too many values for page token"));
        }
        let token = PageToken::decode(token, self.page_size).map_err(Failure::bad_request)?;
        let Some(revision) = token.revision else {
            let (snapshot, page) = (self.view()?, token.page);
            return Ok(Listing { snapshot, begins: true, page, first: None });
        };
        let snapshot = self.1.find(revision).ok_or_else(|| {
            Failure::bad_request("nextPageToken has expired: restart the list from its first page")
        })?;
        Ok(Listing { snapshot, begins: false, page: token.page, first: token.first })
    }

    /// Returns the items of the page, and the token of the next page. On the last page, the token
    /// is empty.
    ///
    /// If `starts_at_page` is `true`, `items` must begin with the first item of the page;
    /// otherwise, with the first item of the whole list. `first` converts an item to the reference
    /// that a token contains; it is called with the first item of the next page.
    ///
    /// `size` estimates the size of an item in the response, in bytes, or is 0 for items that are
    /// always small. A page ends early before the item that would exceed [`MAX_PAGE_BYTES`].
    pub(super) fn page<T>(
        &self,
        listing: &Listing,
        starts_at_page: bool,
        items: impl Iterator<Item = T>,
        size: impl Fn(&T) -> usize,
        first: impl FnOnce(T) -> String,
    ) -> (Vec<T>, String) {
        let before = if starts_at_page { 0 } else { listing.items_before(self.page_size) };
        let mut items = items.skip(before).peekable();
        let (mut page, mut bytes) = (Vec::new(), 0);
        while page.len() < self.page_size.into() {
            let fits = |item: &T| page.is_empty() || bytes + size(item) <= MAX_PAGE_BYTES;
            let Some(item) = items.next_if(fits) else { break };
            bytes += size(&item);
            page.push(item);
        }
        let Some(next) = items.next().filter(|_| !page.is_empty()) else {
            if !listing.begins {
                self.1.end(listing.snapshot.revision);
            }
            return (page, String::new());
        };
        self.1.keep(&listing.snapshot, listing.begins);
        let (limit, number) = (self.page_size, listing.page.saturating_add(1));
        let (revision, first) = (Some(listing.snapshot.revision), Some(first(next)));
        (page, PageToken { limit, page: number, revision, first }.encode())
    }
}

/// A page of a listing.
pub(super) struct Listing {
    /// Snapshot that the whole listing shows.
    pub(super) snapshot: Arc<Snapshot>,
    /// Whether this is the listing's first page.
    begins: bool,
    page: u64,
    /// Reference to the page's first item, if the token contains one.
    pub(super) first: Option<String>,
}

impl Listing {
    /// Returns the number of items on the preceding pages.
    fn items_before(&self, page_size: u16) -> usize {
        usize::try_from(self.page - 1).unwrap_or(usize::MAX).saturating_mul(page_size.into())
    }
}
