//! Lines of several journals in the order in which they were written.
//!
//! Of each journal one line is held, and the earliest of these is next: however much there is, no
//! more than that is kept here. The lines of each stay in its own order, so one of which nobody
//! knows when it was written goes with the one before it.

use std::collections::BTreeSet;
use std::time::Duration;

use fleet_core::Timestamp;
use futures_core::Stream;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream};
use tokio::time::timeout;

use crate::JournalLine;
use crate::clock::Stopwatch;

/// How much longer a journal is waited for after each line that it has told: one that goes on is
/// not cut off for being far away, and one that tells a line now and then does not hold up others.
const FOR_A_LINE: Duration = Duration::from_millis(10);

/// Why there are no more lines of a journal, where that is not their end.
#[derive(Debug, PartialEq, Eq)]
pub enum CutOff<E> {
    /// It said why.
    Failed(E),
    /// It kept the others waiting.
    Late,
}

/// The lines of several journals in the order in which they were written, each with the name of its
/// journal; after the last of them, why there are no more of those of which that is so.
///
/// All are opened at once. A journal that is waited for longer than `patience` in all is cut off;
/// with each line that it tells it is waited for a little longer again. What it has told while
/// others were waited for is always had.
///
/// ```
/// use std::future::ready;
/// use std::time::Duration;
///
/// use fleet_core::Timestamp;
/// use fleet_http::{JournalLine, merge_journals};
/// use futures_util::{StreamExt as _, stream};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let line = |at, text: &str| {
///     let at = Some(Timestamp::from_millis(at));
///     Ok::<_, String>(JournalLine { at, ..text.to_owned().into() })
/// };
/// let web = stream::iter([line(1, "begun"), line(3, "done")]);
/// let db = stream::iter([line(2, "asked"), Err("its disk is broken".to_owned())]);
/// let opening = vec![("web", ready(Ok(web))), ("db", ready(Ok(db)))];
/// let mut told = Vec::new();
/// let mut all = merge_journals(opening, Duration::from_secs(3));
/// while let Some((journal, line)) = all.next().await {
///     told.push(format!("{journal}: {}", line.map_or("cut off".to_owned(), |line| line.text)));
/// }
/// assert_eq!(told, ["web: begun", "db: asked", "web: done", "db: cut off"]);
/// # }
/// ```
pub fn merge_journals<W, E, O, S>(
    opening: Vec<(W, O)>,
    patience: Duration,
) -> BoxStream<'static, (W, Result<JournalLine, CutOff<E>>)>
where
    W: Clone + Send + 'static,
    E: Send + 'static,
    O: Future<Output = Result<S, E>> + Send + 'static,
    S: Stream<Item = Result<JournalLine, E>> + Unpin + Send + 'static,
{
    let begun = async move {
        let open = opening.into_iter().map(|(name, open)| Voice::open(name, open, patience));
        let merge = Merge::of(join_all(open).await);
        stream::unfold(merge, async |mut merge| Some((merge.next().await?, merge)))
    };
    stream::once(begun).flatten().boxed()
}

/// Journals that are being merged.
struct Merge<W, E, S> {
    voices: Vec<Voice<W, E, S>>,
    /// The voices that hold a line, by when it was written.
    heads: BTreeSet<(Timestamp, usize)>,
    /// The voice whose line was taken last, and that holds none.
    taken: Option<usize>,
}

impl<W: Clone, E, S: Stream<Item = Result<JournalLine, E>> + Unpin> Merge<W, E, S> {
    fn of(voices: Vec<Voice<W, E, S>>) -> Self {
        let heads = voices.iter().enumerate().filter(|(_, voice)| voice.head.is_some());
        let heads = heads.map(|(number, voice)| (voice.at, number)).collect();
        Self { voices, heads, taken: None }
    }

    async fn next(&mut self) -> Option<(W, Result<JournalLine, CutOff<E>>)> {
        if let Some(number) = self.taken.take() {
            let voice = &mut self.voices[number];
            voice.pull().await;
            self.heads.extend(voice.head.is_some().then_some((voice.at, number)));
        }
        let Some((_, number)) = self.heads.pop_first() else {
            return self.voices.iter_mut().find_map(Voice::complain);
        };
        self.taken = Some(number);
        let voice = &mut self.voices[number];
        Some((voice.name.clone(), Ok(voice.head.take()?)))
    }
}

/// What comes of one journal.
struct Voice<W, E, S> {
    name: W,
    /// What is left; nothing after the end.
    lines: Option<S>,
    /// The line that is next.
    head: Option<JournalLine>,
    /// When it was written, or no earlier than that.
    at: Timestamp,
    /// For how long more it is waited for.
    patience: Duration,
    /// How long that is at most.
    most: Duration,
    /// Why there are no more lines, if that is not their end.
    missing: Option<CutOff<E>>,
}

impl<W: Clone, E, S: Stream<Item = Result<JournalLine, E>> + Unpin> Voice<W, E, S> {
    async fn open(name: W, open: impl Future<Output = Result<S, E>>, most: Duration) -> Self {
        let (at, patience) = (Timestamp::default(), most);
        let mut voice = Self { name, lines: None, head: None, at, patience, most, missing: None };
        let Some(opened) = voice.within_patience(open).await else { return voice };
        match opened {
            Ok(lines) => {
                voice.lines = Some(lines);
                voice.pull().await;
            }
            Err(error) => voice.missing = Some(CutOff::Failed(error)),
        }
        voice
    }

    /// Waits for the next line, or finds that there is none.
    async fn pull(&mut self) {
        let Some(mut lines) = self.lines.take() else { return };
        match self.within_patience(lines.next()).await {
            None | Some(None) => {}
            Some(Some(Err(error))) => self.missing = Some(CutOff::Failed(error)),
            Some(Some(Ok(line))) => {
                self.at = line.at.map_or(self.at, |at| at.max(self.at));
                self.patience = self.most.min(self.patience + FOR_A_LINE);
                (self.head, self.lines) = (Some(line), Some(lines));
            }
        }
    }

    /// Waits no longer than there is patience. What is there already is always had.
    async fn within_patience<T>(&mut self, what: impl Future<Output = T>) -> Option<T> {
        let watch = Stopwatch::start();
        let had = timeout(self.patience, what).await.ok();
        self.patience = self.patience.saturating_sub(watch.elapsed());
        if had.is_none() {
            self.missing = Some(CutOff::Late);
        }
        had
    }

    /// Says, once, why there are no more lines.
    fn complain(&mut self) -> Option<(W, Result<JournalLine, CutOff<E>>)> {
        let missing = self.missing.take()?;
        Some((self.name.clone(), Err(missing)))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;

    use proptest::prelude::*;

    use super::*;

    type Told = Vec<(Option<u64>, String)>;

    /// What is merged of journals `m0`, `m1`, … of which everything is there.
    fn merge(journals: Vec<Told>) -> Vec<String> {
        let opening = journals.into_iter().enumerate().map(|(number, told)| {
            let line = |(at, text): (Option<u64>, String)| {
                Ok(JournalLine { at: at.map(Timestamp::from_millis), ..text.into() })
            };
            let lines = stream::iter(told.into_iter().map(line).collect::<Vec<_>>());
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
    fn the_earliest_is_next_and_each_journal_keeps_its_order() {
        let told = |lines: &[(Option<u64>, &str)]| -> Told {
            lines.iter().map(|(at, text)| (*at, (*text).to_owned())).collect()
        };
        let merged = merge(vec![
            told(&[(Some(10), "a"), (Some(30), "b"), (Some(20), "clock set back"), (None, "c")]),
            told(&[(None, "of old"), (Some(20), "d"), (None, "goes with d"), (Some(31), "e")]),
            told(&[]),
            told(&[(Some(10), "f")]),
        ]);
        let expected = [
            "m1: of old",
            "m0: a",
            "m3: f",
            "m1: d",
            "m1: goes with d",
            "m0: b",
            "m0: clock set back",
            "m0: c",
            "m1: e",
        ];
        assert_eq!(merged, expected);
    }

    proptest! {
        /// The naive twin gives each line the moment that it counts for, and sorts them all.
        #[test]
        fn it_is_a_sort_that_keeps_the_order_of_each_journal(
            moments in proptest::collection::vec(
                proptest::collection::vec(proptest::option::of(0..20_u64), 0..20), 0..6),
        ) {
            let mut all = Vec::new();
            for (machine, moments) in moments.iter().enumerate() {
                let mut counts = 0;
                for (number, moment) in moments.iter().enumerate() {
                    counts = moment.map_or(counts, |moment| moment.max(counts));
                    all.push((counts, machine, number));
                }
            }
            all.sort_unstable();
            let text = |(_, machine, number)| format!("m{machine}: {number}");
            let expected: Vec<String> = all.into_iter().map(text).collect();
            let told = |moments: Vec<Option<u64>>| -> Told {
                let numbered = moments.into_iter().enumerate();
                numbered.map(|(number, moment)| (moment, number.to_string())).collect()
            };
            prop_assert_eq!(merge(moments.into_iter().map(told).collect()), expected);
        }
    }
}
