//! Merges lines of several journals in timestamp order.
//!
//! The merge holds one line per journal and returns the earliest of them, so its memory use is
//! bounded. Lines of one journal keep their order. A line without a timestamp is sorted as if it
//! had the timestamp of the line before it.

use std::collections::BTreeSet;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::journal::JournalLine;
use futures_core::Stream;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream};
use tokio::time::timeout;

use crate::clock::Stopwatch;

/// Time added to a journal's wait budget after each line. Because of this refill, a distant journal
/// that makes steady progress is not cut off. A journal that writes a line only occasionally soon
/// uses up its budget, so it does not delay the other journals.
const REFILL_PER_LINE: Duration = Duration::from_millis(10);

/// Reason that a journal was cut off before its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Interrupted<E> {
    /// The journal failed with this error.
    Failed(E),
    /// The journal kept the others waiting for too long.
    TimedOut,
}

/// Merges the lines of several journals in timestamp order. Each line comes with the name of its
/// journal. After the last line, the merge returns one error for each journal that was interrupted.
///
/// All journals are opened at once. The merge waits for a journal until the journal's wait budget
/// is used up; then the journal is cut off. The budget is initially `max_wait`, and waiting reduces
/// it. Each line of the journal adds ten milliseconds, up to `max_wait` in total. Lines that arrive
/// while the merge waits for another journal are never lost.
///
/// ```
/// use std::future::ready;
/// use std::time::Duration;
///
/// use fleet_core::Timestamp;
/// use fleet_http::merge::merge_journals;
/// use fleet_core::journal::JournalLine;
/// use futures_util::{StreamExt as _, stream};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let line = |at, text: &str| {
///     let timestamp = Some(Timestamp::from_millis(at));
///     Ok::<_, String>(JournalLine::new(text).with_time(timestamp))
/// };
/// let web = stream::iter([line(1, "started"), line(3, "done")]);
/// let db = stream::iter([line(2, "query"), Err("disk failure".to_owned())]);
/// let opening = vec![("web", ready(Ok(web))), ("db", ready(Ok(db)))];
/// let mut lines = Vec::new();
/// let mut merged = merge_journals(opening, Duration::from_secs(3));
/// while let Some((journal, line)) = merged.next().await {
///     let text = line.map_or("interrupted".to_owned(), |line| line.text);
///     lines.push(format!("{journal}: {text}"));
/// }
/// assert_eq!(lines, ["web: started", "db: query", "web: done", "db: interrupted"]);
/// # }
/// ```
pub fn merge_journals<W, E, O, S>(
    opening: Vec<(W, O)>,
    max_wait: Duration,
) -> BoxStream<'static, (W, Result<JournalLine, Interrupted<E>>)>
where
    W: Clone + Send + 'static,
    E: Send + 'static,
    O: Future<Output = Result<S, E>> + Send + 'static,
    S: Stream<Item = Result<JournalLine, E>> + Unpin + Send + 'static,
{
    let merged = async move {
        let open = opening.into_iter().map(|(name, open)| Source::open(name, open, max_wait));
        let merge = Merge::new(join_all(open).await);
        stream::unfold(merge, async |mut merge| Some((merge.next().await?, merge)))
    };
    stream::once(merged).flatten().boxed()
}

/// Merge state.
struct Merge<W, E, S> {
    sources: Vec<Source<W, E, S>>,
    /// Sources that hold a line, ordered by its timestamp.
    heads: BTreeSet<(Timestamp, usize)>,
    /// Index of the source whose line was returned last. Its next line is read at the next call.
    /// `None` if no line was returned last.
    last_emitted: Option<usize>,
}

impl<W: Clone, E, S: Stream<Item = Result<JournalLine, E>> + Unpin> Merge<W, E, S> {
    fn new(sources: Vec<Source<W, E, S>>) -> Self {
        let heads = sources.iter().enumerate().filter(|(_, source)| source.head.is_some());
        let heads = heads.map(|(number, source)| (source.at, number)).collect();
        Self { sources, heads, last_emitted: None }
    }

    async fn next(&mut self) -> Option<(W, Result<JournalLine, Interrupted<E>>)> {
        if let Some(number) = self.last_emitted.take() {
            let source = &mut self.sources[number];
            source.pull().await;
            self.heads.extend(source.head.is_some().then_some((source.at, number)));
        }
        let Some((_, number)) = self.heads.pop_first() else {
            return self.sources.iter_mut().find_map(Source::take_interruption);
        };
        self.last_emitted = Some(number);
        let source = &mut self.sources[number];
        Some((source.name.clone(), Ok(source.head.take()?)))
    }
}

/// One journal of a merge.
struct Source<W, E, S> {
    name: W,
    /// Remaining lines; `None` after the end.
    lines: Option<S>,
    /// Next line.
    head: Option<JournalLine>,
    /// Timestamp by which the next line is sorted: its own, but at least that of the preceding
    /// line.
    at: Timestamp,
    /// Remaining wait budget.
    budget: Duration,
    /// Upper bound of the wait budget.
    max_wait: Duration,
    /// Reason that the journal was cut off, if it was.
    interrupted: Option<Interrupted<E>>,
}

impl<W: Clone, E, S: Stream<Item = Result<JournalLine, E>> + Unpin> Source<W, E, S> {
    async fn open(name: W, open: impl Future<Output = Result<S, E>>, max_wait: Duration) -> Self {
        let (at, budget) = (Timestamp::default(), max_wait);
        let mut source =
            Self { name, lines: None, head: None, at, budget, max_wait, interrupted: None };
        let Some(opened) = source.within_budget(open).await else { return source };
        match opened {
            Ok(lines) => {
                source.lines = Some(lines);
                source.pull().await;
            }
            Err(error) => source.interrupted = Some(Interrupted::Failed(error)),
        }
        source
    }

    /// Waits for the next line or the end of the journal.
    async fn pull(&mut self) {
        let Some(mut lines) = self.lines.take() else { return };
        match self.within_budget(lines.next()).await {
            None | Some(None) => {}
            Some(Some(Err(error))) => self.interrupted = Some(Interrupted::Failed(error)),
            Some(Some(Ok(line))) => {
                self.at = line.at.map_or(self.at, |at| at.max(self.at));
                self.budget = self.max_wait.min(self.budget + REFILL_PER_LINE);
                (self.head, self.lines) = (Some(line), Some(lines));
            }
        }
    }

    /// Waits for the result for at most the remaining budget. If the result is already available,
    /// returns it even if the budget is used up. Returns `None` if the budget does not suffice.
    async fn within_budget<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let watch = Stopwatch::start();
        let result = timeout(self.budget, future).await.ok();
        self.budget = self.budget.saturating_sub(watch.elapsed());
        if result.is_none() {
            self.interrupted = Some(Interrupted::TimedOut);
        }
        result
    }

    /// Returns the journal's name and the reason why it was interrupted; `None` if it was not.
    /// Later calls return `None`, so that the interruption is reported only once.
    fn take_interruption(&mut self) -> Option<(W, Result<JournalLine, Interrupted<E>>)> {
        let interrupted = self.interrupted.take()?;
        Some((self.name.clone(), Err(interrupted)))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;

    use proptest::prelude::*;

    use super::*;

    type Lines = Vec<(Option<u64>, String)>;

    /// Merges completely available journals named `m0`, `m1`, ….
    fn merge(journals: Vec<Lines>) -> Vec<String> {
        let opening = journals.into_iter().enumerate().map(|(number, journal)| {
            let line = |(at, text): (Option<u64>, String)| {
                Ok(JournalLine::new(text).with_time(at.map(Timestamp::from_millis)))
            };
            let lines = stream::iter(journal.into_iter().map(line).collect::<Vec<_>>());
            (format!("m{number}"), ready(Ok::<_, Infallible>(lines)))
        });
        let merged = merge_journals(opening.collect(), Duration::from_secs(60));
        let text = |(name, line): (String, Result<JournalLine, _>)| {
            format!("{name}: {}", line.unwrap().text)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(merged.map(text).collect())
    }

    #[test]
    fn earliest_line_is_next_and_journals_keep_order() {
        let journal = |lines: &[(Option<u64>, &str)]| -> Lines {
            lines.iter().map(|(at, text)| (*at, (*text).to_owned())).collect()
        };
        let merged = merge(vec![
            journal(&[(Some(10), "a"), (Some(30), "b"), (Some(20), "clock set back"), (None, "c")]),
            journal(&[
                (None, "no timestamp"),
                (Some(20), "d"),
                (None, "follows d"),
                (Some(31), "e"),
            ]),
            journal(&[]),
            journal(&[(Some(10), "f")]),
        ]);
        let expected = [
            "m1: no timestamp",
            "m0: a",
            "m3: f",
            "m1: d",
            "m1: follows d",
            "m0: b",
            "m0: clock set back",
            "m0: c",
            "m1: e",
        ];
        assert_eq!(merged, expected);
    }

    proptest! {
        /// The naive implementation assigns each line its effective timestamp and sorts all lines.
        #[test]
        fn merge_equals_sort_by_effective_timestamp(
            timestamps in proptest::collection::vec(
                proptest::collection::vec(proptest::option::of(0..20_u64), 0..20), 0..6),
        ) {
            let mut all = Vec::new();
            for (machine, timestamps) in timestamps.iter().enumerate() {
                let mut effective = 0;
                for (number, timestamp) in timestamps.iter().enumerate() {
                    effective = timestamp.map_or(effective, |timestamp| timestamp.max(effective));
                    all.push((effective, machine, number));
                }
            }
            all.sort_unstable();
            let text = |(_, machine, number)| format!("m{machine}: {number}");
            let expected: Vec<String> = all.into_iter().map(text).collect();
            let journal = |timestamps: Vec<Option<u64>>| -> Lines {
                let numbered = timestamps.into_iter().enumerate();
                numbered.map(|(number, timestamp)| (timestamp, number.to_string())).collect()
            };
            prop_assert_eq!(merge(timestamps.into_iter().map(journal).collect()), expected);
        }
    }
}
