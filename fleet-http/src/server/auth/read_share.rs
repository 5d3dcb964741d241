//! Share of a port's connections that requests with read-only tokens may occupy.
//!
//! Followed journals and event streams occupy their connections for as long as their clients like.
//! Without this limit, the owner of one read-only token could keep all other clients away.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Read-only requests in progress on one listener.
#[derive(Debug)]
pub(crate) struct ReadShare {
    max: usize,
    max_per_token: usize,
    /// Number of requests in progress for each token, by a hash of the token.
    in_progress: Mutex<HashMap<u64, usize>>,
}

impl ReadShare {
    /// Limits all read-only requests to half of the connections, and those of one token to a
    /// quarter. At least one request is always possible.
    pub(crate) fn new(connections: usize) -> Arc<Self> {
        let (max, max_per_token) = ((connections / 2).max(1), (connections / 4).max(1));
        Arc::new(Self { max, max_per_token, in_progress: Mutex::default() })
    }

    /// Begins a request with this token. Returns `None` if too many are in progress.
    pub(crate) fn begin(self: &Arc<Self>, token: &[u8]) -> Option<ReadPermit> {
        let mut hasher = DefaultHasher::new();
        token.hash(&mut hasher);
        let token = hasher.finish();
        let mut in_progress = self.in_progress();
        let own = in_progress.get(&token).copied().unwrap_or_default();
        if own >= self.max_per_token || in_progress.values().sum::<usize>() >= self.max {
            return None;
        }
        in_progress.insert(token, own + 1);
        Some(ReadPermit { share: self.clone(), token })
    }

    /// Ignores poisoning: no panic can leave the map partially modified.
    fn in_progress(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.in_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A read-only request in progress, until its response is sent.
#[derive(Debug)]
pub(crate) struct ReadPermit {
    share: Arc<ReadShare>,
    token: u64,
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        let mut in_progress = self.share.in_progress();
        let left = in_progress.remove(&self.token).unwrap_or_default().saturating_sub(1);
        if left > 0 {
            in_progress.insert(self.token, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_share_half_of_the_connections() {
        let share = ReadShare::new(8);
        let begin = |token: &str| share.begin(token.as_bytes());
        let first = [begin("a"), begin("a")];
        assert!(first.iter().all(Option::is_some) && begin("a").is_none(), "a quarter each");
        let others = [begin("b"), begin("c")];
        assert!(others.iter().all(Option::is_some) && begin("d").is_none(), "half for all");
        drop(first);
        assert!(begin("d").is_some());
        drop(others);
        assert!(share.in_progress().is_empty());
    }

    #[test]
    fn single_connection_serves_readers() {
        let share = ReadShare::new(1);
        let permit = share.begin(b"a");
        assert!(permit.is_some() && share.begin(b"a").is_none());
    }
}
