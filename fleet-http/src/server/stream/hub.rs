//! Publishes changes as events, encoded once for all subscribers.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fleet_core::Snapshot;
use fleet_store::Mirror;
use tokio::sync::broadcast;
use tokio::task::AbortHandle;

use super::event_stream::{Batch, batch};
use crate::server::net::sleep::sleep;

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
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<Batch>> {
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
