//! Pure: estimates when parts of a log were written, from occasional checks of its file.
//!
//! Units write to their logs directly, so fleet does not see when each line is written. But each
//! check of the file yields the time of the last write, and everything in the file was written by
//! then.

use std::time::Duration;

use fleet_core::Timestamp;

/// Maximum number of recorded checks. If there are more, every second one is dropped.
const MAX_SAMPLES: usize = 256;

/// Maximum lag of the clock that the file system uses for timestamps.
const MAX_CLOCK_LAG: Duration = Duration::from_millis(20);

/// Recorded offsets of a log, each with a time by which everything before it was written.
#[derive(Debug, Clone, Default)]
pub(crate) struct TimeIndex {
    /// Ordered by offset.
    marks: Vec<Sample>,
}

#[derive(Debug, Clone)]
struct Sample {
    offset: u64,
    /// Time by which everything before the offset was written.
    by: Timestamp,
}

impl TimeIndex {
    /// Records a check of the log file.
    ///
    /// - `offset` is the end of the log.
    /// - `written` is the time of the last write, by the clock of the file system.
    /// - `now` is the time at which the check ended.
    pub(crate) fn record_check(&mut self, offset: u64, written: Timestamp, now: Timestamp) {
        // Another program may have truncated the file.
        self.marks.retain(|mark| mark.offset <= offset);
        if self.marks.last().is_some_and(|last| last.offset == offset) {
            return;
        }
        self.marks.push(Sample { offset, by: written.after(MAX_CLOCK_LAG).min(now) });
        if self.marks.len() > MAX_SAMPLES {
            // The last one stays, since the count is odd.
            let mut is_kept = false;
            self.marks.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
    }

    /// Returns the end of the log at the last check.
    pub(crate) fn end(&self) -> u64 {
        self.marks.last().map_or(0, |mark| mark.offset)
    }

    /// Returns the highest recorded offset for which all text up to it was certainly written before
    /// `since`. Returns zero if there is none.
    pub(crate) fn offset_before(&self, since: Timestamp) -> u64 {
        let before = self.marks.iter().rfind(|mark| mark.by < since);
        before.map_or(0, |mark| mark.offset)
    }

    /// Returns a time by which the text before an offset was certainly written. Returns `None` if
    /// the log was shorter at the last check.
    pub(crate) fn written_by(&self, offset: u64) -> Option<Timestamp> {
        let after = self.marks.partition_point(|mark| mark.offset < offset);
        self.marks.get(after).map(|mark| mark.by)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn certainly_older_part_is_left_out() {
        let mut time_index = TimeIndex::default();
        assert_eq!(time_index.offset_before(at(u64::MAX)), 0);
        time_index.record_check(10, at(1000), at(1001));
        time_index.record_check(20, at(2000), at(5000));
        time_index.record_check(20, at(7000), at(7000));
        let rows = [(1001, 0), (1002, 10), (2020, 10), (2021, 20), (9000, 20)];
        for (since, offset) in rows {
            assert_eq!(time_index.offset_before(at(since)), offset, "since {since}");
        }
        time_index.record_check(15, at(8000), at(8000));
        assert_eq!(time_index.offset_before(at(5000)), 10, "the file was emptied in between");
    }

    #[test]
    fn next_check_bounds_write_time() {
        let mut time_index = TimeIndex::default();
        assert_eq!(time_index.written_by(0), None);
        time_index.record_check(10, at(1000), at(1001));
        time_index.record_check(20, at(2000), at(5000));
        let rows = [(1, Some(1001)), (10, Some(1001)), (11, Some(2020)), (21, None)];
        for (offset, by) in rows {
            assert_eq!(time_index.written_by(offset), by.map(at), "at {offset}");
        }
    }

    #[test]
    fn index_is_bounded_and_most_precise_at_end() {
        let mut time_index = TimeIndex::default();
        for step in 1..=100_000 {
            time_index.record_check(step, at(step * 1000), at(step * 1000));
            assert!(time_index.marks.len() <= MAX_SAMPLES);
            assert_eq!(time_index.offset_before(at(u64::MAX)), step);
        }
        assert!(time_index.offset_before(at(99_990_000)) > 99_000);
    }

    proptest! {
        /// The model records the time of every byte.
        #[test]
        fn no_recent_line_is_left_out(
            steps in vec((0..60_u64, 0..4_usize, any::<bool>()), 1..400),
            since in 0..20_000_u64,
        ) {
            let (mut time_index, mut bytes, mut now) = (TimeIndex::default(), Vec::new(), 0);
            for (pause, written, is_looked_at) in steps {
                now += pause;
                bytes.extend(std::iter::repeat_n(now, written));
                if is_looked_at {
                    let last = bytes.last().copied().unwrap_or_default();
                    // The file system's clock is behind.
                    let timestamp = at(last - last % 10);
                    time_index.record_check(bytes.len() as u64, timestamp, at(now));
                }
            }
            let first = bytes.iter().position(|&moment| moment >= since).unwrap_or(bytes.len());
            let offset = time_index.offset_before(at(since));
            prop_assert!(offset <= first as u64, "{offset} is beyond {first}");
        }
    }
}
