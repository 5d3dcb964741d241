//! Hooks by which the loops report their work to metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleet_scheduler::Step;
use fleet_store::RegistryError;

/// Observes an engine, for example to count its work. The engine calls these methods directly, so
/// they must not block.
pub trait EngineObserver: Send + Sync + 'static {
    /// Called when the engine becomes the leader, or stops being it.
    fn on_leadership(&self, leads: bool) {
        let _unheard = leads;
    }

    /// Called when the engine has tried to write these steps. `written` is `true` if the write has
    /// succeeded.
    fn on_steps(&self, steps: &[Step], written: bool) {
        let _unheard = (steps, written);
    }

    /// Called after each planning pass. `took` is the duration by the engine's clock, and `error`
    /// is the error of a failed pass.
    fn on_pass(&self, took: Duration, error: Option<&RegistryError>) {
        let _unheard = (took, error);
    }
}

/// Observer that ignores everything.
#[derive(Debug)]
pub(crate) struct NoopObserver;

impl EngineObserver for NoopObserver {}

/// Counters of an agent's failures since it was started. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub struct AgentMetrics(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    failures: AtomicU64,
    retries: AtomicU64,
}

impl AgentMetrics {
    /// Returns the number of failed tasks. A task fails if its unit cannot be loaded, started,
    /// stopped or unloaded.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// Returns the number of failed tasks that are retried. A start after which the unit fails is
    /// not retried, because the unit's own restart policy takes over.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.0.retries.load(Ordering::Relaxed)
    }

    pub(crate) fn on_failure(&self, is_tried_again: bool) {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
        self.0.retries.fetch_add(u64::from(is_tried_again), Ordering::Relaxed);
    }
}
