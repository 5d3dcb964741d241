//! Where what changes becomes events, once for all who follow them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fleet_core::Snapshot;
use fleet_store::Mirror;
use tokio::sync::broadcast;
use tokio::task::AbortHandle;

use super::event_stream::{Batch, batch};
use super::pause::pause;

/// How many batches of events wait for who does not read. Who falls further behind is told to look
/// at everything, and holds nobody else up.
const MOST_WAITING: usize = 64;

/// How long changes are gathered after a batch was told. So a busy cluster wakes those who follow
/// it twenty times a second, and what happens in a quiet one is told at once.
const BREATH: Duration = Duration::from_millis(50);

/// Tells events to those who follow them. Its task begins with the first of them.
#[derive(Clone)]
pub(super) struct Hub(Arc<Inner>);

struct Inner {
    mirror: Mirror,
    tell: broadcast::Sender<Arc<Batch>>,
    task: OnceLock<AbortHandle>,
}

impl Hub {
    pub(super) fn new(mirror: &Mirror) -> Self {
        let (tell, _) = broadcast::channel(MOST_WAITING);
        Self(Arc::new(Inner { mirror: mirror.clone(), tell, task: OnceLock::new() }))
    }

    /// How many follow.
    pub(super) fn followers(&self) -> usize {
        self.0.tell.receiver_count()
    }

    /// All batches from now on.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arc<Batch>> {
        let follower = self.0.tell.subscribe();
        self.0.task.get_or_init(|| {
            let telling = run(self.0.mirror.clone(), self.0.tell.clone());
            tokio::spawn(telling).abort_handle()
        });
        follower
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

async fn run(mirror: Mirror, tell: broadcast::Sender<Arc<Batch>>) {
    let mut progress = mirror.subscribe();
    let mut seen = mirror.snapshot();
    while progress.changed().await.is_ok() {
        let is_new = progress.borrow_and_update().revision > seen.revision;
        if is_new && let Some(batch) = turn(&mirror, &mut seen, tell.receiver_count() > 0) {
            // Nobody may be there any more.
            let _told = tell.send(Arc::new(batch));
            pause(BREATH).await;
        }
    }
}

/// What has changed since `seen`, if anybody is there to hear it and it is worth telling.
fn turn(mirror: &Mirror, seen: &mut Arc<Snapshot>, is_heard: bool) -> Option<Batch> {
    if !is_heard {
        *seen = mirror.snapshot();
        return None;
    }
    let tidings = mirror.tidings_since(seen.revision);
    let lineage = mirror.lineage().map(|lineage| lineage.to_string());
    let batch = batch(&tidings, Some(seen), lineage.as_deref());
    *seen = tidings.news.snapshot;
    batch.is_worth_telling().then_some(batch)
}
