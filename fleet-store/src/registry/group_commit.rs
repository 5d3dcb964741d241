//! Commits that come group, as one.
//!
//! Whoever commits while nobody does commits at once and by himself: there is no task and no
//! channel in between. What comes until that is done waits, and is then committed as a whole. So
//! one write loses no time, and a hundred are two revisions, which the store keeps and every mirror
//! takes over, instead of a hundred.
//!
//! Each is told what it would have been told alone: one whose condition does not hold is refused
//! by itself, and the others are committed without it. What waits is bounded by who waits for it:
//! what nobody waits for any more is forgotten.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::{Commit, Entry, Store, StoreError, Transaction, Write};

type CommitResult = Result<Commit, StoreError>;

/// The commits of one process that wait to be made group.
#[derive(Debug, Default)]
pub(super) struct GroupCommit {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<PendingCommit>,
    has_committer: bool,
    /// How many may wait before it is looked who of them has gone.
    prune_at: usize,
}

/// So few are not looked at.
const MIN_PRUNE_LEN: usize = 256;

/// A transaction, and who waits for what becomes of it.
#[derive(Debug)]
struct PendingCommit {
    transaction: Transaction,
    answer: oneshot::Sender<CommitResult>,
}

impl GroupCommit {
    /// Commits a transaction that binds no key to a lease.
    ///
    /// # Errors
    ///
    /// Those of [`Store::commit`].
    pub(super) async fn commit(
        self: &Arc<Self>,
        store: &Arc<dyn Store>,
        transaction: Transaction,
    ) -> CommitResult {
        transaction.check()?;
        let joined = self.lock().join(transaction);
        match joined {
            Ok(responded) => responded.await.unwrap_or_else(|_ended| Err(lost())),
            Err(alone) => {
                let _next = Handoff { group: self, store };
                store.commit(alone).await
            }
        }
    }

    /// Who has been told writes on, mostly at once: lets them come, so that the next batch is as
    /// large as the last. Where nobody comes at once, none is waited for; where some do, until all
    /// others have had their turn twice and nobody more has come.
    async fn gather(&self, responded: usize) {
        let (mut came, mut idle_rounds) = (0, 1);
        while came < responded && idle_rounds < 2 {
            tokio::task::yield_now().await;
            let waiting = self.lock().waiting.len();
            idle_rounds = if waiting > came { 0 } else { idle_rounds + 1 };
            came = waiting;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands on what came while somebody committed for himself, however that ended: whoever commits may
/// be dropped while others wait, so those get a task of their own.
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
            // The runtime has ended, and with it all that wait.
            Err(_) => *queue = Queue::default(),
        }
    }
}

/// Commits until nothing waits any more.
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

/// However the guard ends, be it by a panic: nobody may wait for ever after that.
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
    /// Lets a transaction wait for whoever commits. While nobody does it is given back: whoever has
    /// it commits it, and is the one whom others wait for.
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
        let (answer, responded) = oneshot::channel();
        self.waiting.push_back(PendingCommit { transaction, answer });
        Ok(responded)
    }

    /// Forgets what nobody waits for any more: else who asks and goes, again and again, would fill
    /// the memory while the store does not answer.
    fn prune(&mut self) {
        self.waiting.retain(|waiting| !waiting.answer.is_closed());
    }

    /// Takes those that have waited longest, as far as they fit into one transaction. When there
    /// are none, nobody serves any more.
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

/// What a transaction holds that others are to join. It lives no longer than a look at the queue.
#[derive(Debug, Default)]
struct BatchBuilder<'a> {
    conditions: usize,
    size: usize,
    expected: BTreeSet<&'a str>,
    written: BTreeMap<&'a str, &'a Write>,
    /// What those have to do with that wait on: no later one goes before them.
    deferred: DeferredKeys<'a>,
}

#[derive(Debug, Default)]
struct DeferredKeys<'a> {
    expected: BTreeSet<&'a str>,
    written: BTreeSet<&'a str>,
}

impl<'a> BatchBuilder<'a> {
    /// Lets a transaction join, unless it would be too large then, or mean something else: then it
    /// waits on.
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

    /// Whether it comes to the same if this one is committed with the others or after them: what
    /// one writes, no other one writes in another way, or sets a condition on.
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

/// Commits a batch, without those that are refused, and tells each what became of it.
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
            // Nothing happened. A server may be set to take less at once than is usual, and each of
            // them alone may be little enough.
            Err(StoreError::Invalid(_)) if batch.len() > 1 => {
                let half = batch.split_off(batch.len() / 2);
                batches.extend([half, batch]);
            }
            Err(error) => respond_error(batch, error),
        }
    }
}

/// All of a batch as one transaction. What several of them write alike is written once.
fn merge(batch: &[PendingCommit]) -> Transaction {
    let (mut all, mut written) = (Transaction::new(), BTreeSet::new());
    for PendingCommit { transaction, .. } in batch {
        all.conditions.extend(transaction.conditions.iter().cloned());
        let new = transaction.writes.iter().filter(|write| written.insert(write.key()));
        all.writes.extend(new.cloned());
    }
    all
}

/// Tells the one whose condition it is that it is refused, and takes it out.
fn respond_refused(batch: &mut Vec<PendingCommit>, mut condition: usize, found: Option<Entry>) {
    let counts = batch.iter().map(|waiting| waiting.transaction.conditions.len());
    let at = counts.take_while(|count| {
        let is_before = *count <= condition;
        condition -= if is_before { *count } else { 0 };
        is_before
    });
    let at = at.count().min(batch.len() - 1);
    let refused = batch.remove(at);
    // Who waited may have gone.
    drop(refused.answer.send(Ok(Commit::Refused { condition, found })));
}

fn respond_all(batch: Vec<PendingCommit>, mut answer: impl FnMut() -> CommitResult) {
    for waiting in batch {
        // Who waited may have gone.
        drop(waiting.answer.send(answer()));
    }
}

fn respond_error(mut batch: Vec<PendingCommit>, error: StoreError) {
    if batch.len() > 1 {
        let copy = error_copies(error);
        respond_all(batch, || Err(copy()));
    } else if let Some(alone) = batch.pop() {
        drop(alone.answer.send(Err(error)));
    }
}

/// What one failure means for each of several.
fn error_copies(error: StoreError) -> impl Fn() -> StoreError {
    let (is_unknown, cause): (_, Arc<dyn Error + Send + Sync>) = match error {
        StoreError::Unknown(cause) => (true, cause.into()),
        StoreError::Unavailable(cause) => (false, cause.into()),
        // What is wrong with one of them is told to that one alone, so nothing else is left.
        error => (false, Arc::new(error)),
    };
    move || match is_unknown {
        true => StoreError::Unknown(Box::new(SharedError(cause.clone()))),
        false => StoreError::Unavailable(Box::new(SharedError(cause.clone()))),
    }
}

/// The one cause of what befell several.
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
#[error("the daemon ends")]
struct ShuttingDown;

fn lost() -> StoreError {
    StoreError::Unknown(Box::new(ShuttingDown))
}

#[cfg(test)]
mod tests;
