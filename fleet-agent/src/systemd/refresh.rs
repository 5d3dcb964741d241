//! Queries the states of units where signals are not enough, and the elapses of timers.
//!
//! Queries about many units need only a few calls. A query is sent at once if no call is in
//! progress. Queries that arrive during a call are sent together after that call. So a single query
//! is not delayed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_unitfile::{UnitName, UnitType};
use futures_util::stream;
use futures_util::stream::{StreamExt as _, TryStreamExt as _};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;
use zbus::wire::OwnedVariant;

use super::bus::{Bus, CallError, JOB, States, UNIT, unit_path};
use super::context::ManagerContext;
use super::recovery::PendingRequests;
use super::state::{ObservedState, Properties, details};
use super::units::apply_properties;
use crate::{UnitDetails, wall_time};

/// Number of units queried concurrently.
const MAX_CONCURRENT: usize = 8;

/// Maximum number of attempts to read the details of a unit. An attempt is repeated if a signal
/// about the unit arrives during it, because the details may then be outdated. Even if all attempts
/// fail, no change is missed, because each change has its own signal.
const ATTEMPTS: usize = 3;

/// Reads all units, and resolves pending requests. Then notifies callers that wait for a job that
/// no longer exists.
pub(crate) async fn refresh_all(context: &ManagerContext, bus: &Bus) -> Result<(), CallError> {
    let units = context.units.names();
    if !units.is_empty() {
        refresh_units(context, bus, &units).await?;
    }
    resolve_jobs(context, bus).await
}

/// Reads the states of all units in one call, and then the details of units that have changed.
async fn refresh_units(
    context: &ManagerContext,
    bus: &Bus,
    units: &[UnitName],
) -> Result<(), CallError> {
    // Locked before the query, so that the response shows the effect of each pending request.
    let pending = PendingRequests::lock(context);
    let signals: Vec<u64> = units.iter().map(|unit| context.units.signals(unit)).collect();
    let names: Vec<UnitName> = units.iter().map(UnitName::systemd_name).collect();
    let names: Vec<&str> = names.iter().map(UnitName::as_str).collect();
    let states = bus.states(&names).await?;
    let mut changed = Vec::new();
    for ((unit, signals), states) in units.iter().zip(signals).zip(&states) {
        if apply_states(context, unit, signals, states) {
            changed.push(refresh_details(context, bus, unit));
        }
    }
    stream::iter(changed).buffer_unordered(MAX_CONCURRENT).try_collect::<()>().await?;
    pending.resolve(context, bus, &units.iter().zip(&states).collect()).await
}

/// Applies the states of a unit. Returns whether its details have to be read.
fn apply_states(context: &ManagerContext, unit: &UnitName, signals: u64, states: &States) -> bool {
    let mut more = false;
    let take =
        |observed: &mut ObservedState, is_latest| more = observed.on_states(states, is_latest);
    if context.units.on_response(unit, signals, take) {
        context.feed.report(unit);
    }
    more
}

/// Loads one unit, and applies its states.
pub(crate) async fn refresh_unit(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
) -> Result<Option<States>, CallError> {
    let (signals, states) = states(context, bus, unit).await?;
    if let Some(states) = &states
        && apply_states(context, unit, signals, states)
    {
        refresh_details(context, bus, unit).await?;
    }
    Ok(states)
}

/// Queries the states of a unit. Concurrent queries for other units share one call. Also returns
/// the unit's signal count from before the query.
async fn states(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
) -> Result<(u64, Option<States>), CallError> {
    let signals = context.units.signals(unit);
    let batch = match context.state_queries.join(unit.systemd_name().as_str()).await {
        BatchRole::Answered(states) => return Ok((signals, states?)),
        BatchRole::Leader(batch) => batch,
    };
    let answer = bus.states(&batch.about()).await;
    let mut found = match &answer {
        Ok(all) => all.iter().map(|states| (states.name.as_str(), states)).collect(),
        Err(_) => BTreeMap::new(),
    };
    let states = batch.answer(|unit| match &answer {
        Ok(_) => Ok(found.remove(unit).cloned()),
        Err(error) => Err(error.clone()),
    });
    Ok((signals, states?))
}

/// Reads the details that the three states lack.
pub(crate) async fn refresh_details(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
) -> Result<(), CallError> {
    let path = unit_path(unit);
    for _ in 0..ATTEMPTS {
        let signals = context.units.signals(unit);
        let common = ask(bus, &path, UNIT, &["StateChangeTimestamp", "InvocationID"]).await?;
        let own = match details(unit.unit_type()) {
            Some((interface, names)) => ask(bus, &path, interface, names).await?,
            None => Properties::new(),
        };
        let mut is_done = false;
        let is_new = context.units.on_response(unit, signals, |observed, is_latest| {
            is_done = is_latest;
            if is_latest {
                apply_properties(UNIT, &common)(observed);
                apply_properties("", &own)(observed);
            }
        });
        if is_new {
            context.feed.report(unit);
        }
        if is_done {
            break;
        }
    }
    Ok(())
}

async fn ask(
    bus: &Bus,
    path: &str,
    interface: &str,
    names: &[&str],
) -> Result<Properties, CallError> {
    let mut properties = Properties::new();
    for name in names {
        match bus.property::<OwnedVariant>(path, interface, name).await {
            Ok(value) => drop(properties.insert((*name).to_owned(), value)),
            // An idle unit may be unloaded between two calls.
            Err(CallError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(properties)
}

/// Returns the stop timeout that systemd applies to a unit; `Duration::MAX` if there is none.
/// Returns `None` if units of this type have no processes.
pub(crate) async fn stop_timeout(
    bus: &Bus,
    unit: &UnitName,
) -> Result<Option<Duration>, CallError> {
    let Some((interface, name)) = timeout_property(unit.unit_type()) else { return Ok(None) };
    let path = unit_path(unit);
    let micros: u64 = bus.property(&path, interface, name).await?;
    let kills: bool = bus.property(&path, interface, "SendSIGKILL").await?;
    let ends = kills && micros != u64::MAX;
    Ok(Some(if ends { Duration::from_micros(micros) } else { Duration::MAX }))
}

/// Returns the interface and property with the stop timeout.
fn timeout_property(unit_type: UnitType) -> Option<(&'static str, &'static str)> {
    match unit_type {
        UnitType::Container | UnitType::Service => {
            Some(("org.freedesktop.systemd1.Service", "TimeoutStopUSec"))
        }
        UnitType::Socket => Some(("org.freedesktop.systemd1.Socket", "TimeoutUSec")),
        UnitType::Mount => Some(("org.freedesktop.systemd1.Mount", "TimeoutUSec")),
        UnitType::Swap => Some(("org.freedesktop.systemd1.Swap", "TimeoutUSec")),
        _ => None,
    }
}

/// Resolves callers of jobs that are gone, whose signal may have been missed.
async fn resolve_jobs(context: &ManagerContext, bus: &Bus) -> Result<(), CallError> {
    for job in context.jobs.waited_for() {
        match bus.property::<OwnedVariant>(&job, JOB, "State").await {
            Err(CallError::Refused { .. }) => {
                // The signal may have been sent already, and not processed yet.
                context.catch_up(bus).await?;
                context.jobs.on_gone(&job);
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    Ok(())
}

const SERVICE: &str = "org.freedesktop.systemd1.Service";
const TIMER: &str = "org.freedesktop.systemd1.Timer";

/// Reads when a timer elapses next, and when it last elapsed.
pub(crate) async fn timer_details(bus: &Bus, unit: &UnitName) -> Result<UnitDetails, CallError> {
    let path = unit_path(unit);
    let read = async |name| {
        let micros: u64 = bus.property(&path, TIMER, name).await?;
        Ok::<_, CallError>(timestamp(micros))
    };
    let monotonic = read("NextElapseUSecMonotonic").await?;
    let wall = read("NextElapseUSecRealtime").await?;
    let last = read("LastTriggerUSec").await?;
    let monotonic = monotonic.map(|at| wall_time().after(at.since(monotonic_time())));
    let next_elapse = monotonic.into_iter().chain(wall).min();
    Ok(UnitDetails::default().with_next_elapse(next_elapse).with_last_elapse(last))
}

/// Reads the latest `STATUS=` message of a service.
pub(crate) async fn status_text(bus: &Bus, unit: &UnitName) -> Result<Option<String>, CallError> {
    let text: String = bus.property(&unit_path(unit), SERVICE, "StatusText").await?;
    Ok((!text.is_empty()).then_some(text))
}

/// Converts one of systemd's times, which are in microseconds. Zero and the maximum mean that there
/// is no time.
fn timestamp(micros: u64) -> Option<Timestamp> {
    (micros != 0 && micros != u64::MAX).then(|| Timestamp::from_millis(micros / 1000))
}

/// Returns the time of the clock that systemd's monotonic times refer to. It differs from fleet's
/// clock: it stops while the machine sleeps.
fn monotonic_time() -> Timestamp {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock starts at zero on boot, and never has a negative time.
    let since = Duration::try_from(now).unwrap_or_default();
    Timestamp::from_millis(0).after(since)
}

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

    #[test]
    fn unset_times_of_systemd_are_none() {
        assert_eq!(timestamp(0), None);
        assert_eq!(timestamp(u64::MAX), None);
        assert_eq!(timestamp(1_500_999), Some(Timestamp::from_millis(1500)));
    }

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
