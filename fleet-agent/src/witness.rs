//! What the loops tell of their work to those who count it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleet_scheduler::Step;
use fleet_store::RegistryError;

/// Hears what an engine does, for example to count it. The engine waits for each of these calls, so
/// none may take long.
pub trait EngineWitness: Send + Sync + 'static {
    /// It leads from now on, or no longer.
    fn on_lead(&self, leads: bool) {
        let _unheard = leads;
    }

    /// It wanted to write these steps; `written` says whether it did.
    fn on_steps(&self, steps: &[Step], written: bool) {
        let _unheard = (steps, written);
    }

    /// It has looked at what is new once, which took so long by its clock, and came to nothing if
    /// there is an error.
    fn on_pass(&self, took: Duration, error: Option<&RegistryError>) {
        let _unheard = (took, error);
    }
}

/// One who does not listen.
#[derive(Debug)]
pub(crate) struct Nobody;

impl EngineWitness for Nobody {}

/// How often an agent came to nothing, counted since it was started. Clones count the same.
#[derive(Debug, Clone, Default)]
pub struct AgentTally(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    failures: AtomicU64,
    retries: AtomicU64,
}

impl AgentTally {
    /// Tasks that failed: units that could not be loaded, started, stopped or unloaded.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// Those of them that are tried again, as all are but units that were started and failed.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.0.retries.load(Ordering::Relaxed)
    }

    pub(crate) fn on_failure(&self, is_tried_again: bool) {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
        self.0.retries.fetch_add(u64::from(is_tried_again), Ordering::Relaxed);
    }
}
