//! Group commit: merging concurrent transactions into one.
//!
//! A transaction that arrives while no commit is in progress is committed immediately in its
//! caller's task, without a channel. So a single write has no delay.
//!
//! Transactions that arrive during a commit wait, and are then committed as one. So a hundred
//! concurrent writes need two revisions instead of a hundred. This saves work, because the store
//! must keep each revision and every mirror must apply it. In etcd, 64 writers store about eight
//! times as many units (ADR 0056). The embedded store has a queue of its own and gains no speed.
//!
//! Each caller gets the same result as from a separate commit. If a condition of one transaction
//! does not hold, only this transaction is refused, and the others are committed without it.
//!
//! Transactions are dropped when their callers stop waiting, so the number of waiting callers
//! bounds the queue.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::{Commit, Entry, Store, StoreError, Transaction, Write};

type CommitResult = Result<Commit, StoreError>;

/// Commits of one process that wait to be merged.
#[derive(Debug, Default)]
pub(super) struct GroupCommit {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<PendingCommit>,
    has_committer: bool,
    /// Queue length at which transactions without a waiting caller are dropped.
    prune_at: usize,
}

/// Queue length below which nothing is dropped.
const MIN_PRUNE_LEN: usize = 256;

/// A transaction and the channel for its result.
#[derive(Debug)]
struct PendingCommit {
    transaction: Transaction,
    responder: oneshot::Sender<CommitResult>,
}

impl GroupCommit {
    /// Commits a transaction that binds no key to a lease.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::commit`].
    pub(super) async fn commit(
        self: &Arc<Self>,
        store: &Arc<dyn Store>,
        transaction: Transaction,
    ) -> CommitResult {
        transaction.check()?;
        let joined = self.lock().join(transaction);
        match joined {
            Ok(result) => result.await.unwrap_or_else(|_ended| Err(lost())),
            Err(alone) => {
                let _next = Handoff { group: self, store };
                store.commit(alone).await
            }
        }
    }

    /// Waits briefly for the next batch, because callers that have just got a result often write
    /// again immediately. The wait ends as soon as one of the following is true:
    ///
    /// - As many transactions are queued as `responded`, the number of callers that got a result.
    /// - No transaction has arrived during the first yield to the scheduler.
    /// - No further transaction has arrived during two yields in a row.
    async fn gather(&self, responded: usize) {
        let (mut arrived, mut idle_rounds) = (0, 1);
        while arrived < responded && idle_rounds < 2 {
            tokio::task::yield_now().await;
            let waiting = self.lock().waiting.len();
            idle_rounds = if waiting > arrived { 0 } else { idle_rounds + 1 };
            arrived = waiting;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard that starts a task for the transactions that arrived during a commit. It does so on drop,
/// so these transactions are also served if the commit's future is dropped or panics.
struct Handoff<'a> {
    group: &'a Arc<GroupCommit>,
    store: &'a Arc<dyn Store>,
}

impl Drop for Handoff<'_> {
    fn drop(&mut self) {
        let Self { group, store } = *self;
        let mut queue = group.lock();
        if queue.waiting.is_empty() {
            queue.has_committer = false;
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(serve(group.clone(), store.clone()))),
            // The runtime has ended, and with it all waiting callers.
            Err(_) => *queue = Queue::default(),
        }
    }
}

/// Commits until the queue is empty.
async fn serve(group: Arc<GroupCommit>, store: Arc<dyn Store>) {
    let mut guard = ServeGuard { group: &group, is_over: false };
    loop {
        let batch = group.lock().next();
        if batch.is_empty() {
            guard.is_over = true;
            return;
        }
        let responded = batch.len();
        commit_all(&*store, batch).await;
        group.gather(responded).await;
    }
}

/// Guard that clears the queue if `serve` ends early, for example by a panic. The waiting callers
/// then get an error; otherwise they would wait forever.
struct ServeGuard<'a> {
    group: &'a GroupCommit,
    is_over: bool,
}

impl Drop for ServeGuard<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            *self.group.lock() = Queue::default();
        }
    }
}

impl Queue {
    /// Queues a transaction for the current committer, and returns the receiver of its result. If
    /// there is no committer, returns the transaction as `Err`. The caller is then the committer,
    /// and commits the transaction itself.
    fn join(
        &mut self,
        transaction: Transaction,
    ) -> Result<oneshot::Receiver<CommitResult>, Transaction> {
        if !std::mem::replace(&mut self.has_committer, true) {
            return Err(transaction);
        }
        if self.waiting.len() >= self.prune_at.max(MIN_PRUNE_LEN) {
            self.prune();
            self.prune_at = 2 * self.waiting.len();
        }
        let (responder, result) = oneshot::channel();
        self.waiting.push_back(PendingCommit { transaction, responder });
        Ok(result)
    }

    /// Drops the transactions of callers that have stopped waiting. Otherwise, while the store does
    /// not respond, callers that time out and retry would fill the memory with transactions.
    fn prune(&mut self) {
        self.waiting.retain(|waiting| !waiting.responder.is_closed());
    }

    /// Takes the next batch: the transaction that has waited longest, and all others that can be
    /// merged with it. If no transaction is waiting, the batch is empty, and there is no committer
    /// any more.
    fn next(&mut self) -> Vec<PendingCommit> {
        self.prune();
        let mut builder = BatchBuilder::default();
        let joins: Vec<_> = self.waiting.iter().map(|it| builder.take(&it.transaction)).collect();
        let (mut taken, mut left) = (Vec::new(), VecDeque::new());
        for (waiting, joins) in self.waiting.drain(..).zip(joins) {
            if joins {
                taken.push(waiting);
            } else {
                left.push_back(waiting);
            }
        }
        self.waiting = left;
        self.has_committer = !taken.is_empty();
        taken
    }
}

/// State for building a batch from the queue.
#[derive(Debug, Default)]
struct BatchBuilder<'a> {
    conditions: usize,
    size: usize,
    expected: BTreeSet<&'a str>,
    written: BTreeMap<&'a str, &'a Write>,
    /// Keys of transactions that stay queued. A later transaction must not overtake them.
    deferred: DeferredKeys<'a>,
}

#[derive(Debug, Default)]
struct DeferredKeys<'a> {
    expected: BTreeSet<&'a str>,
    written: BTreeSet<&'a str>,
}

impl<'a> BatchBuilder<'a> {
    /// Adds a transaction to the batch, unless the batch would then be too large or its result
    /// would differ from that of separate commits. Returns whether the transaction was added.
    fn take(&mut self, transaction: &'a Transaction) -> bool {
        let is_first = self.conditions == 0 && self.written.is_empty();
        let joins = is_first || (self.is_independent(transaction) && self.fits(transaction));
        let Transaction { conditions, writes } = transaction;
        let expected = conditions.iter().map(|it| it.key.as_str());
        if joins {
            self.conditions += conditions.len();
            self.size += transaction.size();
            self.expected.extend(expected);
            self.written.extend(writes.iter().map(|it| (it.key(), it)));
        } else {
            self.deferred.expected.extend(expected);
            self.deferred.written.extend(writes.iter().map(Write::key));
        }
        joins
    }

    /// Returns whether merging the transaction into the batch has the same result as committing it
    /// in its turn. This is so if all of the following hold for the batch and for the deferred
    /// transactions:
    ///
    /// - They write no key on which the transaction has a condition.
    /// - They have no condition on a key that the transaction writes.
    /// - They do not write a key that the transaction writes, except that the batch may contain the
    ///   same write.
    fn is_independent(&self, Transaction { conditions, writes }: &Transaction) -> bool {
        let Self { expected, written, deferred, .. } = self;
        let conflicts = |write: &Write| {
            let key = write.key();
            expected.contains(key)
                || written.get(key).is_some_and(|other| *other != write)
                || deferred.expected.contains(key)
                || deferred.written.contains(key)
        };
        let is_written = |key: &str| written.contains_key(key) || deferred.written.contains(key);
        !writes.iter().any(conflicts) && !conditions.iter().any(|it| is_written(&it.key))
    }

    fn fits(&self, transaction: &Transaction) -> bool {
        let new = transaction.writes.iter().filter(|it| !self.written.contains_key(it.key()));
        self.conditions + transaction.conditions.len() <= Transaction::MAX_OPERATIONS
            && self.written.len() + new.count() <= Transaction::MAX_OPERATIONS
            && self.size + transaction.size() <= Transaction::MAX_BYTES
    }
}

/// Commits a batch without the transactions that are refused, and responds to each.
async fn commit_all(store: &dyn Store, batch: Vec<PendingCommit>) {
    let mut batches = vec![batch];
    while let Some(mut batch) = batches.pop() {
        if batch.is_empty() {
            continue;
        }
        match store.commit(merge(&batch)).await {
            Ok(Commit::Refused { condition, found }) => {
                respond_refused(&mut batch, condition, found);
                batches.push(batch);
            }
            Ok(applied) => respond_all(batch, || Ok(applied.clone())),
            // Nothing was applied. A server may have lower limits than usual; smaller batches may
            // fit.
            Err(StoreError::Invalid(_)) if batch.len() > 1 => {
                let half = batch.split_off(batch.len() / 2);
                batches.extend([half, batch]);
            }
            Err(error) => respond_error(batch, error),
        }
    }
}

/// Merges a batch into one transaction. A write that several transactions contain is kept only
/// once.
fn merge(batch: &[PendingCommit]) -> Transaction {
    let (mut all, mut written) = (Transaction::new(), BTreeSet::new());
    for PendingCommit { transaction, .. } in batch {
        all.conditions.extend(transaction.conditions.iter().cloned());
        let new = transaction.writes.iter().filter(|write| written.insert(write.key()));
        all.writes.extend(new.cloned());
    }
    all
}

/// Responds to the transaction with the failed condition, and removes it from the batch.
fn respond_refused(batch: &mut Vec<PendingCommit>, mut condition: usize, found: Option<Entry>) {
    let counts = batch.iter().map(|waiting| waiting.transaction.conditions.len());
    let at = counts.take_while(|count| {
        let is_before = *count <= condition;
        condition -= if is_before { *count } else { 0 };
        is_before
    });
    let at = at.count().min(batch.len() - 1);
    let refused = batch.remove(at);
    // The caller may have stopped waiting.
    drop(refused.responder.send(Ok(Commit::Refused { condition, found })));
}

fn respond_all(batch: Vec<PendingCommit>, mut result: impl FnMut() -> CommitResult) {
    for waiting in batch {
        // The caller may have stopped waiting.
        drop(waiting.responder.send(result()));
    }
}

fn respond_error(mut batch: Vec<PendingCommit>, error: StoreError) {
    if batch.len() > 1 {
        let copy = error_copies(error);
        respond_all(batch, || Err(copy()));
    } else if let Some(alone) = batch.pop() {
        drop(alone.responder.send(Err(error)));
    }
}

/// Returns a function that creates copies of an error for several callers.
fn error_copies(error: StoreError) -> impl Fn() -> StoreError {
    let (is_unknown, cause): (_, Arc<dyn Error + Send + Sync>) = match error {
        StoreError::Unknown(cause) => (true, cause.into()),
        StoreError::Unavailable(cause) => (false, cause.into()),
        // Errors of a single transaction are handled before. Report others as unavailable.
        error => (false, Arc::new(error)),
    };
    move || match is_unknown {
        true => StoreError::Unknown(Box::new(SharedError(cause.clone()))),
        false => StoreError::Unavailable(Box::new(SharedError(cause.clone()))),
    }
}

/// A cause shared by several errors.
#[derive(Debug)]
struct SharedError(Arc<dyn Error + Send + Sync>);

impl std::fmt::Display for SharedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for SharedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the daemon is shutting down")]
struct ShuttingDown;

fn lost() -> StoreError {
    StoreError::Unknown(Box::new(ShuttingDown))
}

#[cfg(test)]
mod tests;
