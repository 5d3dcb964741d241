//! Metrics for Prometheus, and a store wrapper that counts and times calls.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::Revision;
use fleet_store::{Commit, LeaseId, Listing, Store, StoreError, Transaction, Watch};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::failure::error_chain;
use crate::clock::Stopwatch;

/// Metric labels. Their values come from small fixed sets.
type Labels = Vec<(&'static str, String)>;

type Durations = Family<Labels, Histogram, fn() -> Histogram>;

/// Metrics of a daemon, as `GET /metrics` returns them in the OpenMetrics text format. Clones share
/// the same metrics.
///
/// Metrics that existed in fleet v1 keep their names.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    requests: Family<Labels, Counter>,
    request_durations: Durations,
    operations: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    operation_durations: Durations,
    writes: WriteHealth,
}

impl Metrics {
    /// Creates metrics with all counters at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("fleet");
        let durations = || Durations::new_with_constructor(buckets);
        let (requests, request_durations) = (Family::default(), durations());
        let (operations, failures) = (Family::default(), Family::default());
        let operation_durations = durations();
        let name = "api_requests";
        registry.register(name, "Requests by route, method and status", requests.clone());
        let (name, help) =
            ("api_request_duration_seconds", "Time until a response began, in seconds");
        registry.register(name, help, request_durations.clone());
        let (name, help) = ("registry_operation_count", "Store calls by type");
        registry.register(name, help, operations.clone());
        let (name, help) = ("registry_operation_failed_count", "Failed store calls by type");
        registry.register(name, help, failures.clone());
        let (name, help) =
            ("registry_operation_duration_second", "Duration of store calls, in seconds");
        registry.register(name, help, operation_durations.clone());
        let registry = Arc::new(Mutex::new(registry));
        let writes = WriteHealth::default();
        Self {
            registry,
            requests,
            request_durations,
            operations,
            failures,
            operation_durations,
            writes,
        }
    }

    /// Registers additional metrics. The values of each label must come from a small fixed set, so
    /// unit names, for example, are not allowed.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Wraps a store so that its calls are counted and timed.
    #[must_use]
    pub fn metered_store(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(MeteredStore::new(store, self.clone()))
    }

    /// Returns the outcome of the last write to a metered store.
    pub(super) fn writes(&self) -> &WriteHealth {
        &self.writes
    }

    pub(super) fn request(&self, route: &str, method: &'static str, status: u16, took: Duration) {
        let route = ("route", route.to_owned());
        let durations = self.request_durations.get_or_create_owned(&vec![route.clone()]);
        durations.observe(took.as_secs_f64());
        let labels = vec![route, ("method", method.to_owned()), ("status", status.to_string())];
        self.requests.get_or_create_owned(&labels).inc();
    }

    pub(super) fn operation(&self, name: &'static str, succeeded: bool, took: Duration) {
        let labels = vec![("type", name.to_owned())];
        self.operations.get_or_create_owned(&labels).inc();
        self.operation_durations.get_or_create_owned(&labels).observe(took.as_secs_f64());
        // Adds zero on success, so that the counter exists from the beginning.
        self.failures.get_or_create_owned(&labels).inc_by(u64::from(!succeeded));
    }

    /// Encodes all metrics, followed by those of the current snapshot.
    pub(super) fn text(&self, now: &Registry) -> Result<String, fmt::Error> {
        let mut text = String::new();
        {
            let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
            encode_registry(&mut text, &registry)?;
        }
        encode_registry(&mut text, now)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Creates a histogram with buckets from a quarter of a millisecond to four seconds.
fn buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.000_25, 4.0, 8))
}

/// A store that counts and times its calls. Cancelled calls are not counted.
pub(super) struct MeteredStore {
    store: Arc<dyn Store>,
    metrics: Metrics,
}

impl MeteredStore {
    pub(super) fn new(store: Arc<dyn Store>, metrics: Metrics) -> Self {
        Self { store, metrics }
    }

    async fn meter<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let watch = Stopwatch::start();
        let result = call.await;
        self.metrics.operation(name, result.is_ok(), watch.elapsed());
        result
    }
}

#[async_trait]
impl Store for MeteredStore {
    async fn read(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.meter("read", self.store.read(prefix)).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit, StoreError> {
        let result = self.meter("commit", self.store.commit(transaction)).await;
        self.metrics.writes().note(&result);
        result
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        self.meter("watch", self.store.watch(prefix, after)).await
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.meter("grant", self.store.grant(ttl)).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.meter("renew", self.store.renew(lease)).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.meter("revoke", self.store.revoke(lease)).await
    }
}

/// The last write that a store refused, unless a later one succeeded.
#[derive(Debug, Clone, Default)]
pub(super) struct WriteHealth(Arc<Mutex<Option<(Stopwatch, String)>>>);

impl WriteHealth {
    /// Time after which a refusal is no longer reported. A daemon without further writes could not
    /// notice that the store accepts writes again.
    const MAX_AGE: Duration = Duration::from_secs(60);

    fn note(&self, result: &Result<Commit, StoreError>) {
        let refusal = match result {
            Ok(_) => None,
            Err(error @ (StoreError::Unavailable(_) | StoreError::Unknown(_))) => {
                Some((Stopwatch::start(), error_chain(error)))
            }
            // The store has decided on the transaction, so it can write.
            Err(_) => return,
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
    }

    /// Returns the error of the last write, if the store refused it within the last minute.
    pub(super) fn problem(&self) -> Option<String> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.filter(|(since, _)| since.elapsed() < Self::MAX_AGE).map(|(_, error)| error)
    }
}
