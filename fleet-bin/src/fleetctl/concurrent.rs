//! Runs many requests concurrently, and returns the responses in the order of the requests, or the
//! first failure.
//!
//! One request after the other would take the sum of all round-trip times. Concurrent requests also
//! let the daemon commit several writes together.
//!
//! A query of many units asks for each unit, or for the lists of all units if that costs less.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::ready;

use fleet_http::wire;
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};

use super::session::Session;
use super::wait::Observation;
use crate::ui::error::CliError;

/// Maximum number of requests in flight. It is large enough for the daemon to commit many writes
/// together, and far below the number of requests that a daemon accepts.
const MAX_IN_FLIGHT: usize = 64;

/// Runs all requests.
pub(crate) async fn buffered<T, F>(requests: impl IntoIterator<Item = F>) -> Vec<T>
where
    F: Future<Output = T>,
{
    stream::iter(requests).buffered(MAX_IN_FLIGHT).collect().await
}

/// Runs requests until one fails, and then waits for those in flight.
///
/// The result has one item for each request that was sent. Requests that were not sent have no
/// item, so the result can be shorter than `requests`.
pub(crate) async fn try_buffered<T, F>(
    requests: impl IntoIterator<Item = F>,
) -> Vec<Result<T, CliError>>
where
    F: Future<Output = Result<T, CliError>>,
{
    let refused = Cell::new(false);
    let sent = stream::iter(requests).take_while(|_| ready(!refused.get()));
    let results = sent.map(async |request| {
        let result = request.await;
        refused.set(refused.get() || result.is_err());
        result
    });
    results.buffered(MAX_IN_FLIGHT).collect().await
}

/// Minimum number of units for which the poller requests the lists of the whole cluster. For fewer
/// units, two requests per unit cost less.
const LIST_THRESHOLD: usize = 32;

/// Number of list entries that cost as much as one request.
const ENTRIES_PER_REQUEST: usize = 100;

/// Strategy to poll many units.
#[derive(Debug, Default)]
pub(crate) struct Poller {
    /// Whether the lists turned out to cost more than single requests.
    are_lists_long: bool,
}

impl Poller {
    /// Observes all units once.
    ///
    /// # Errors
    ///
    /// A request failed.
    pub(crate) async fn poll(
        &mut self,
        session: &Session,
        units: &[&UnitName],
    ) -> Result<Vec<Observation>, CliError> {
        if units.len() < LIST_THRESHOLD || self.are_lists_long {
            let observed = buffered(units.iter().map(|unit| session.observe(unit))).await;
            return observed.into_iter().collect();
        }
        let (listed, states) = futures_util::try_join!(session.units(), session.states())?;
        self.are_lists_long = (listed.len() + states.len()) / ENTRIES_PER_REQUEST > 2 * units.len();
        let mut by_name = observations(listed, states);
        let observed =
            units.iter().map(|unit| (unit, by_name.remove(unit.as_str()).unwrap_or_default()));
        let observed =
            buffered(observed.map(async |(unit, observation)| match &observation.unit {
                // Lists omit the source, and the eligible machines of a global unit follow from it.
                Some(listed) if listed.global => session.observe(unit).await,
                _ => Ok(observation),
            }));
        observed.await.into_iter().collect()
    }
}

/// Groups the entries of the lists by unit.
fn observations(
    units: Vec<wire::UnitEntity>,
    states: Vec<wire::UnitStateEntity>,
) -> BTreeMap<String, Observation> {
    let mut by_name: BTreeMap<String, Observation> = BTreeMap::new();
    for state in states {
        by_name.entry(state.name.clone()).or_default().states.push(state);
    }
    for unit in units {
        let observation = by_name.entry(unit.name.clone()).or_default();
        observation.unit = Some(unit);
    }
    by_name
}

/// Largest number of units to list.
const MAX_NAMES: usize = 8;

/// Returns all values if there is no error. Changes of a command that fails are not undone, so the
/// error lists the units that were changed.
///
/// # Errors
///
/// The first error, with a hint that lists the successful units. `done` describes their change, for
/// example "stopped".
pub(crate) fn all_or_partial_failure<'a, T>(
    results: impl IntoIterator<Item = (&'a str, Result<T, CliError>)>,
    done: &str,
) -> Result<Vec<T>, CliError> {
    let (mut names, mut all, mut failure) = (Vec::new(), Vec::new(), None);
    for (name, result) in results {
        match result {
            Ok(value) => {
                names.push(name);
                all.push(value);
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match failure {
        None => Ok(all),
        Some(error) => Err(with_completed(error, done, &names)),
    }
}

/// Adds a hint that lists the units that were already changed. If `names` is empty, the error stays
/// unchanged.
pub(crate) fn with_completed(error: CliError, done: &str, names: &[&str]) -> CliError {
    if names.is_empty() {
        return error;
    }
    error.help(format!("{done} before this error: {}", abbreviated_list(names)))
}

/// Joins the first names, and then gives only the number of the others (`a, b and 7 more`).
pub(crate) fn abbreviated_list(names: &[&str]) -> String {
    match names.len().checked_sub(MAX_NAMES) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..MAX_NAMES].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn buffered_keeps_order_and_limits_concurrency() {
        let (now, most) = (Cell::new(0), Cell::new(0));
        let (now, most) = (&now, &most);
        let requests = (0..100).map(|number| async move {
            now.set(now.get() + 1);
            most.set(most.get().max(now.get()));
            for _ in 0..100 - number {
                yield_now().await;
            }
            now.set(now.get() - 1);
            number
        });
        assert!(buffered(requests).await.into_iter().eq(0..100));
        assert_eq!(most.get(), MAX_IN_FLIGHT);
    }

    #[tokio::test]
    async fn try_buffered_starts_nothing_after_a_failure() {
        let sent = Cell::new(0);
        let sent = &sent;
        let requests = (0..100).map(|number| async move {
            sent.set(sent.get() + 1);
            if number == 20 {
                return Err(CliError::failed("no"));
            }
            yield_now().await;
            Ok(number)
        });
        let results = try_buffered(requests).await;
        assert_eq!(results.len(), sent.get(), "every sent request has a result");
        assert!((21..=20 + MAX_IN_FLIGHT).contains(&results.len()), "{}", results.len());
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
    }

    fn error_text(count: usize) -> String {
        let names: Vec<String> = (1..=count).map(|number| format!("u{number}")).collect();
        let refused = || Err(CliError::failed("no"));
        let done = names.iter().map(|name| (name.as_str(), Ok(())));
        let results = done.chain([("bad", refused()), ("worse", refused())]);
        let mut text = Vec::new();
        all_or_partial_failure(results, "stopped").unwrap_err().print(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn failure_lists_a_limited_number_of_changed_units() {
        insta::assert_snapshot!(error_text(0), @"fleetctl: no");
        insta::assert_snapshot!(error_text(8), @r"
        fleetctl: no
        help: stopped before this error: u1, u2, u3, u4, u5, u6, u7, u8
        ");
        insta::assert_snapshot!(error_text(10), @r"
        fleetctl: no
        help: stopped before this error: u1, u2, u3, u4, u5, u6, u7, u8 and 2 more
        ");
        let fine = [("a", Ok(1)), ("b", Ok(2))];
        assert_eq!(all_or_partial_failure(fine, "stopped").unwrap(), [1, 2]);
    }
}
