//! What wakes the loops: news in the mirror that a decision could rest on.

use fleet_core::Revision;
use fleet_store::{Mirror, Progress};
use tokio::sync::watch;

/// Waits for news; what machines report, and reasons, are none.
#[derive(Debug)]
pub(crate) struct Wake {
    progress: watch::Receiver<Progress>,
    seen: (Revision, bool),
}

impl Wake {
    /// Everything that the mirror shows is news at first.
    pub(crate) fn of(mirror: &Mirror) -> Self {
        Self { progress: mirror.subscribe(), seen: (Revision::ZERO, false) }
    }

    /// Returns when there is something new to decide on, or the mirror's word on whether it is
    /// current has changed; `false` when the mirror has ended.
    pub(crate) async fn next(&mut self) -> bool {
        let news = |progress: &Progress| (progress.decisive, progress.is_current);
        let seen = self.seen;
        match self.progress.wait_for(|progress| news(progress) != seen).await {
            Ok(progress) => {
                self.seen = news(&progress);
                true
            }
            Err(_) => false,
        }
    }
}
