//! Lines of several machines in the order in which they were written.
//!
//! Of each machine one line is held, and the earliest of these is next: however much there is, no
//! more than that is kept here. Each machine's lines stay in its own order, so one of which nobody
//! knows when it was written goes with the one before it.

use std::collections::BTreeSet;
use std::time::Duration;

use fleet_core::{MachineId, Timestamp};
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use tokio::time::timeout;

use super::failure::chain;
use super::journals::{JournalError, JournalLine, JournalStream};
use super::lines::{PATIENCE, late};
use crate::clock::Stopwatch;

/// How much longer a machine is waited for after each line that it has told: one that goes on is
/// not cut off for being far away, and one that tells a line now and then does not hold up others.
const FOR_A_LINE: Duration = Duration::from_millis(10);

/// The lines that machines have, each with the machine's ID before it, and at the end why there are
/// no more of those of which that is so.
///
/// All are opened at once, and none is waited for longer than [`PATIENCE`].
pub(super) fn merged<O>(opening: Vec<(MachineId, O)>) -> JournalStream
where
    O: Future<Output = Result<JournalStream, JournalError>> + Send + 'static,
{
    let begun = async move {
        let lanes = join_all(opening.into_iter().map(|(machine, open)| Lane::open(machine, open)));
        let merge = Merge::of(lanes.await);
        stream::unfold(merge, async |mut merge| Some((Ok(merge.next().await?), merge)))
    };
    stream::once(begun).flatten().boxed()
}

/// Lines that are being merged.
struct Merge {
    lanes: Vec<Lane>,
    /// The lanes that hold a line, by when it was written.
    heads: BTreeSet<(Timestamp, usize)>,
    /// The lane whose line was taken last, and that holds none.
    taken: Option<usize>,
}

impl Merge {
    fn of(lanes: Vec<Lane>) -> Self {
        let heads = lanes.iter().enumerate().filter(|(_, lane)| lane.head.is_some());
        let heads = heads.map(|(number, lane)| (lane.at, number)).collect();
        Self { lanes, heads, taken: None }
    }

    async fn next(&mut self) -> Option<JournalLine> {
        if let Some(number) = self.taken.take() {
            let lane = &mut self.lanes[number];
            lane.pull().await;
            self.heads.extend(lane.head.is_some().then_some((lane.at, number)));
        }
        let Some((_, number)) = self.heads.pop_first() else {
            return self.lanes.iter_mut().find_map(Lane::complain);
        };
        self.taken = Some(number);
        let lane = &mut self.lanes[number];
        let line = lane.head.take()?;
        Some(JournalLine { text: format!("{}: {}", lane.machine, line.text), ..line })
    }
}

/// What comes of one machine.
struct Lane {
    machine: MachineId,
    /// What is left; nothing after the end.
    lines: Option<JournalStream>,
    /// The line that is next.
    head: Option<JournalLine>,
    /// When it was written, or no earlier than that.
    at: Timestamp,
    /// For how long more it is waited for.
    patience: Duration,
    /// Why there are no more lines, if that is not their end.
    missing: Option<JournalError>,
}

impl Lane {
    async fn open(
        machine: MachineId,
        open: impl Future<Output = Result<JournalStream, JournalError>>,
    ) -> Self {
        let (at, missing) = (Timestamp::default(), None);
        let mut lane = Self { machine, lines: None, head: None, at, patience: PATIENCE, missing };
        let Some(opened) = lane.within_patience(open).await else { return lane };
        match opened {
            Ok(lines) => {
                lane.lines = Some(lines);
                lane.pull().await;
            }
            Err(error) => lane.missing = Some(error),
        }
        lane
    }

    /// Waits for the next line, or finds that there is none.
    async fn pull(&mut self) {
        let Some(mut lines) = self.lines.take() else { return };
        match self.within_patience(lines.next()).await {
            None | Some(None) => {}
            Some(Some(Err(error))) => self.missing = Some(error),
            Some(Some(Ok(line))) => {
                self.at = line.at.map_or(self.at, |at| at.max(self.at));
                self.patience = PATIENCE.min(self.patience + FOR_A_LINE);
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
            self.missing = Some(late(&self.machine));
        }
        had
    }

    /// Says, once, why there are no more lines.
    fn complain(&mut self) -> Option<JournalLine> {
        let missing = self.missing.take()?;
        Some(format!("{}: [{}]", self.machine, chain(&missing)).into())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use proptest::prelude::*;
    use tokio::time::interval;

    use super::*;

    type Told = Vec<(Option<u64>, String)>;

    /// What is merged of machines `m0`, `m1`, … of which everything is there.
    fn merge(machines: Vec<Told>) -> Vec<String> {
        let opening = machines.into_iter().enumerate().map(|(number, told)| {
            let line = |(at, text): (Option<u64>, String)| {
                Ok(JournalLine { at: at.map(Timestamp::from_millis), ..text.into() })
            };
            let lines = stream::iter(told.into_iter().map(line).collect::<Vec<_>>()).boxed();
            (format!("m{number}").parse().unwrap(), async { Ok(lines) })
        });
        let opening = opening.collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let lines = async { merged(opening).map(|line| line.unwrap().text).collect().await };
        runtime.block_on(lines)
    }

    #[test]
    fn the_earliest_is_next_and_each_machine_keeps_its_order() {
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
        fn it_is_a_sort_that_keeps_the_order_of_each_machine(
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

    fn line(at: u64, text: &str) -> Result<JournalLine, JournalError> {
        Ok(JournalLine { at: Some(Timestamp::from_millis(at)), ..text.to_owned().into() })
    }

    /// One that tells a line now and then is cut off, and one that does not open is named.
    #[tokio::test]
    async fn who_is_slow_or_away_is_named_and_not_waited_for() {
        let quick = stream::iter([line(1, "one"), line(2, "two")]).boxed();
        let slow = stream::unfold(interval(Duration::from_secs(1)), async |mut pace| {
            pace.tick().await;
            Some((line(0, "slow"), pace))
        });
        let opening = vec![
            ("m1".parse().unwrap(), async { Ok(quick) }.boxed()),
            ("m2".parse().unwrap(), async { Ok(slow.boxed()) }.boxed()),
            ("m3".parse().unwrap(), std::future::pending().boxed()),
            ("m4".parse().unwrap(), async { Err(JournalError::Failed("no disk".into())) }.boxed()),
        ];
        let told: Vec<String> = merged(opening).map(|line| line.unwrap().text).collect().await;
        let (slow, others): (Vec<_>, Vec<_>) = told.into_iter().partition(|it| it == "m2: slow");
        assert!((1..10).contains(&slow.len()), "{slow:?}");
        let silent = "does not answer: nothing came within 3 seconds]";
        let expected = [
            "m1: one".to_owned(),
            "m1: two".to_owned(),
            format!("m2: [machine m2 {silent}"),
            format!("m3: [machine m3 {silent}"),
            "m4: [the journal cannot be read: no disk]".to_owned(),
        ];
        assert_eq!(others, expected);
    }
}
