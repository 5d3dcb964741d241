//! Lines of several journals in the order in which they were written.
//!
//! Of each journal one line is held, and the earliest of these is next: however much there is, no
//! more than that is kept here. Each journal stays in its own order, so a line of which nobody
//! knows when it was written goes with the one before it.

use std::collections::BTreeSet;

use fleet_core::Timestamp;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream, StreamExt as _};

/// What a journal has, each with when it was written.
pub(crate) type Dated<T> = BoxStream<'static, (Option<Timestamp>, T)>;

/// All that these journals have.
pub(crate) fn interleaved<T: Send + 'static>(journals: Vec<Dated<T>>) -> BoxStream<'static, T> {
    let begun = async move {
        let lanes = join_all(journals.into_iter().map(Lane::open)).await;
        let heads = lanes.iter().enumerate().filter(|(_, lane)| lane.head.is_some());
        let heads = heads.map(|(number, lane)| (lane.at, number)).collect();
        let merge = Merge { lanes, heads, taken: None };
        stream::unfold(merge, async |mut merge| Some((merge.next().await?, merge)))
    };
    stream::once(begun).flatten().boxed()
}

/// Journals that are being merged.
struct Merge<T> {
    lanes: Vec<Lane<T>>,
    /// The journals that hold something, by when it was written.
    heads: BTreeSet<(Timestamp, usize)>,
    /// The journal of which something was taken last, and that holds nothing.
    taken: Option<usize>,
}

impl<T> Merge<T> {
    async fn next(&mut self) -> Option<T> {
        if let Some(number) = self.taken.take() {
            let lane = &mut self.lanes[number];
            lane.pull().await;
            self.heads.extend(lane.head.is_some().then_some((lane.at, number)));
        }
        let (_, number) = self.heads.pop_first()?;
        self.taken = Some(number);
        self.lanes[number].head.take()
    }
}

/// One journal.
struct Lane<T> {
    lines: Dated<T>,
    /// What is next; nothing after the end.
    head: Option<T>,
    /// When it was written, or no earlier than that.
    at: Timestamp,
}

impl<T> Lane<T> {
    async fn open(lines: Dated<T>) -> Self {
        let mut lane = Self { lines, head: None, at: Timestamp::default() };
        lane.pull().await;
        lane
    }

    async fn pull(&mut self) {
        if let Some((at, line)) = self.lines.next().await {
            self.at = at.map_or(self.at, |at| at.max(self.at));
            self.head = Some(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(journals: Vec<Vec<(Option<u64>, &'static str)>>) -> String {
        let journals = journals.into_iter().map(|lines| {
            let lines = lines.into_iter();
            let lines = lines.map(|(at, line)| (at.map(Timestamp::from_millis), line));
            stream::iter(lines.collect::<Vec<_>>()).boxed()
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let all: Vec<&str> = runtime.block_on(interleaved(journals.collect()).collect());
        all.join(", ")
    }

    #[test]
    fn the_earliest_is_next_and_each_journal_stays_in_its_order() {
        for (journals, expected) in [
            (vec![vec![(Some(1), "a"), (Some(4), "b")], vec![(Some(2), "c")]], "a, c, b"),
            (
                vec![vec![(Some(5), "a"), (Some(3), "set back")], vec![(Some(4), "c")]],
                "c, a, set back",
            ),
            (
                vec![vec![(Some(1), "a"), (None, "goes with a")], vec![(Some(2), "c")]],
                "a, goes with a, c",
            ),
            (vec![vec![(None, "a"), (None, "b")], vec![(None, "c")]], "a, b, c"),
            (vec![vec![], vec![(Some(2), "c")], vec![]], "c"),
            (vec![], ""),
        ] {
            assert_eq!(merged(journals), expected);
        }
    }
}
