//! Combines queries about many units into few calls.
//!
//! A query is sent at once if no call is in progress. Queries that arrive during a call are sent
//! together after that call. So a single query is not delayed, and a hundred concurrent queries
//! need only a few calls.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::bus::CallError;

/// Maximum number of queries in a batch. The number is limited because systemd does nothing else
/// until it has responded to the whole batch.
const MAX_BATCH: usize = 64;

type Answer<T> = Result<T, CallError>;

/// Queries of one kind, each about one unit.
#[derive(Debug)]
pub(crate) struct QueryBatcher<T> {
    waiting: Mutex<Queue<T>>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Queue<T> {
    next: u64,
    queries: BTreeMap<u64, Query<T>>,
}

/// Subject of a query, and the receiver of its response.
type Query<T> = (String, oneshot::Sender<Answer<T>>);

/// Role of a caller in a batch.
pub(crate) enum BatchRole<'a, T> {
    /// Another caller has sent its query, and this is the response.
    Answered(Answer<T>),
    /// The caller has to send this batch.
    Leader(Batch<'a, T>),
}

/// Queries to send together; until this is dropped, no other batch begins.
#[derive(Debug)]
pub(crate) struct Batch<'a, T> {
    queries: Vec<Query<T>>,
    own: String,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

impl<T> Default for QueryBatcher<T> {
    fn default() -> Self {
        let waiting = Queue { next: 0, queries: BTreeMap::new() };
        Self { waiting: Mutex::new(waiting), turn: tokio::sync::Mutex::default() }
    }
}

impl<T> QueryBatcher<T> {
    /// Queues a query about a subject, and waits for one of two cases:
    ///
    /// - Another caller has sent the query with its batch: returns the response.
    /// - No batch is in progress: returns a batch, which this caller has to send. It contains this
    ///   query and other queued ones.
    pub(crate) async fn join(&self, about: &str) -> BatchRole<'_, T> {
        loop {
            let (number, mut answer) = self.wait(about);
            tokio::select! {
                biased;
                // The sender of the batch may have been dropped, and the query with it.
                answer = &mut answer => if let Ok(answer) = answer {
                    return BatchRole::Answered(answer);
                },
                turn = self.turn.lock() => {
                    let mut waiting = self.lock();
                    if waiting.queries.remove(&number).is_none() {
                        drop(waiting);
                        match answer.try_recv() {
                            Ok(answer) => return BatchRole::Answered(answer),
                            Err(_) => continue,
                        }
                    }
                    let others = std::iter::from_fn(|| waiting.queries.pop_first());
                    let queries = others.take(MAX_BATCH - 1).map(|(_, query)| query).collect();
                    return BatchRole::Leader(Batch { queries, own: about.to_owned(), _turn: turn });
                }
            }
        }
    }

    fn wait(&self, about: &str) -> (u64, oneshot::Receiver<Answer<T>>) {
        let (sender, answer) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.next += 1;
        let number = waiting.next;
        waiting.queries.insert(number, (about.to_owned(), sender));
        (number, answer)
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Batch<'_, T> {
    /// Returns the subjects of the queries, the caller's first.
    pub(crate) fn about(&self) -> Vec<&str> {
        let others = self.queries.iter().map(|(about, _)| about.as_str());
        std::iter::once(self.own.as_str()).chain(others).collect()
    }

    /// Delivers all responses, and returns that of the caller.
    pub(crate) fn answer(self, mut answer: impl FnMut(&str) -> Answer<T>) -> Answer<T> {
        for (about, waits) in self.queries {
            // The receiver may be gone.
            drop(waits.send(answer(&about)));
        }
        answer(&self.own)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::task::yield_now;

    use super::*;

    /// Sends a query, records the batch size, and responds with the subject.
    async fn ask(batcher: &QueryBatcher<String>, calls: &Mutex<Vec<usize>>, about: &str) -> String {
        let batch = match batcher.join(about).await {
            BatchRole::Answered(answer) => return answer.expect("it is answered"),
            BatchRole::Leader(batch) => batch,
        };
        calls.lock().expect("not poisoned").push(batch.about().len());
        for _ in 0..3 {
            yield_now().await;
        }
        batch.answer(|about| Ok(about.to_owned())).expect("it is answered")
    }

    #[tokio::test]
    async fn queries_during_a_call_are_batched() {
        let (batcher, calls) = (QueryBatcher::default(), Mutex::default());
        let names: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let answers = join_all(names.iter().map(|name| ask(&batcher, &calls, name))).await;
        assert_eq!(answers, names);
        assert_eq!(*calls.lock().expect("not poisoned"), [1, MAX_BATCH, 99 - MAX_BATCH]);
        assert_eq!(ask(&batcher, &calls, "alone").await, "alone");
    }

    #[tokio::test]
    async fn dropped_batch_leader_keeps_other_queries() {
        let (batcher, calls) = (QueryBatcher::default(), Mutex::default());
        let BatchRole::Leader(first) = batcher.join("first").await else {
            panic!("no other query is in progress")
        };
        let dropped = async {
            let BatchRole::Leader(batch) = batcher.join("a").await else {
                panic!("no other query is in progress")
            };
            assert_eq!(batch.about(), ["a", "b", "c"]);
        };
        let first = async move { drop(first) };
        let rest = join_all(["b", "c"].map(|name| ask(&batcher, &calls, name)));
        let ((), answers, ()) = tokio::join!(biased; dropped, rest, first);
        assert_eq!(answers, ["b", "c"]);
        assert!(batcher.lock().queries.is_empty());
    }
}
