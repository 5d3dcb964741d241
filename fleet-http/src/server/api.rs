//! What the API is made of, and what all handlers share.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use fleet_core::{Revision, Snapshot, Strictness};
use fleet_store::{Mirror, Registry};

use super::extract::Params;
use super::failure::Failure;
use super::hub::Hub;
use super::journals::Journals;
use super::listings::Listings;
use super::metrics::Metrics;
use super::page::Token;
use super::peers::Peers;

/// How long a write waits until reads on this server see it.
const SEEN: Duration = Duration::from_secs(5);

/// How long a request waits for the store to be read for the first time: whoever makes systemd
/// start the daemon, by asking its socket, is not to be told that there is no store.
const BEGINNING: Duration = Duration::from_secs(2);

/// All that the API needs to answer.
pub struct Api {
    /// Where writes go.
    pub registry: Registry,
    /// What reads are answered from.
    pub mirror: Mirror,
    /// Where log lines come from.
    pub journals: Arc<dyn Journals>,
    /// How other daemons are asked for what is on their machines.
    pub peers: Peers,
    /// What is counted, for `GET /metrics`.
    pub metrics: Metrics,
    /// How many items a page of a list has; zero is read as one.
    pub page_size: u16,
    /// What to do about unit files that the old program would have passed over in silence.
    pub strictness: Strictness,
    /// The daemon's version.
    pub version: String,
}

impl Api {
    /// The page size of version 1.
    pub const PAGE_SIZE: u16 = 100;

    /// The routes of the API, ready to be [served](crate::serve).
    pub fn router(mut self) -> Router {
        self.page_size = self.page_size.max(1);
        let hub = Hub::new(&self.mirror);
        super::router::router(Shared(Arc::new(self), Listings::default(), hub))
    }
}

/// The API as handlers have it.
#[derive(Clone)]
pub(super) struct Shared(Arc<Api>, Listings, Hub);

impl std::ops::Deref for Shared {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.0
    }
}

impl Shared {
    /// Waits a while for the first look at the store; after that, for nothing.
    pub(super) async fn begin(&self) {
        if self.mirror.snapshot().revision == Revision::ZERO && !self.mirror.is_current() {
            // Who needs what is known is told soon enough that it is not.
            drop(tokio::time::timeout(BEGINNING, self.mirror.wait_current()).await);
        }
    }

    /// What is known. Before the store was read once nothing is, and that is not the same as that
    /// there is nothing.
    pub(super) fn view(&self) -> Result<Arc<Snapshot>, Failure> {
        let snapshot = self.mirror.snapshot();
        if snapshot.revision == Revision::ZERO && !self.mirror.is_current() {
            return Err(Failure::unavailable("fleet server unable to communicate with its store"));
        }
        Ok(snapshot)
    }

    /// Where those who follow events hear of them.
    pub(super) fn hub(&self) -> &Hub {
        &self.2
    }

    /// Waits until reads on this server see the revision. The write is done in any case, so waiting
    /// too long is no failure of it.
    pub(super) async fn settle(&self, revision: Revision) {
        let seen = tokio::time::timeout(SEEN, self.mirror.wait_for(revision)).await;
        if !matches!(seen, Ok(Ok(_))) {
            tracing::warn!(%revision, "a write is done, but reads do not see it yet");
        }
    }

    /// Finds what a list request shows: the next page of a listing, or the first page of a new one.
    pub(super) fn listing(&self, params: &Params) -> Result<Listing, Failure> {
        let mut tokens = params.all("nextPageToken");
        let Some(token) = tokens.next() else {
            return Ok(Listing { snapshot: self.view()?, begins: true, page: 1, first: None });
        };
        if tokens.next().is_some() {
            return Err(Failure::bad("too many values for page token"));
        }
        let token = Token::decode(token, self.page_size).map_err(Failure::bad)?;
        let Some(revision) = token.revision else {
            let (snapshot, page) = (self.view()?, token.page);
            return Ok(Listing { snapshot, begins: true, page, first: None });
        };
        let snapshot = self.1.find(revision).ok_or_else(|| {
            Failure::bad(
                "nextPageToken is of a list that is no longer kept: list again from the start",
            )
        })?;
        Ok(Listing { snapshot, begins: false, page: token.page, first: token.first })
    }

    /// Cuts the page out of the items, and says how to ask for the next one, if there is one.
    ///
    /// `begun` says whether the items begin with the first one of the page, and not with the first
    /// of all; `first` how a page is named that begins with an item.
    pub(super) fn page<T>(
        &self,
        listing: &Listing,
        begun: bool,
        items: impl Iterator<Item = T>,
        first: impl FnOnce(T) -> String,
    ) -> (Vec<T>, String) {
        let before = if begun { 0 } else { listing.before(self.page_size) };
        let mut items = items.skip(before);
        let page: Vec<T> = items.by_ref().take(self.page_size.into()).collect();
        let Some(next) = items.next().filter(|_| !page.is_empty()) else {
            if !listing.begins {
                self.1.end(listing.snapshot.revision);
            }
            return (page, String::new());
        };
        self.1.keep(&listing.snapshot, listing.begins);
        let (limit, number) = (self.page_size, listing.page.saturating_add(1));
        let (revision, first) = (Some(listing.snapshot.revision), Some(first(next)));
        (page, Token { limit, page: number, revision, first }.encode())
    }
}

/// A page of a listing.
pub(super) struct Listing {
    /// What the whole listing shows.
    pub(super) snapshot: Arc<Snapshot>,
    /// Whether nobody was given a page of it before.
    begins: bool,
    page: u64,
    /// What the page begins with, if that is known, as the listing named it.
    pub(super) first: Option<String>,
}

impl Listing {
    /// How many items are on the pages before.
    fn before(&self, page_size: u16) -> usize {
        usize::try_from(self.page - 1).unwrap_or(usize::MAX).saturating_mul(page_size.into())
    }
}
