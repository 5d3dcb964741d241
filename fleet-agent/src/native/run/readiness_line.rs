//! Waits for an output line that signals the readiness of a unit.
//!
//! A unit writes directly to its log file. So the file is read as it grows, until the readiness
//! line is found. However fast the unit writes, the log discards only output that has already been
//! searched.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::graph::LinePattern;
use regex::bytes::{Regex, RegexBuilder};
use rustix::io::Errno;

use crate::Clock;
use crate::native::linux::files::FileWatch;
use crate::native::log::{Log, ReadLock};

/// Bounds of the interval between two reads if inotify is not available.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(50);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Longer lines are searched in pieces of this many bytes.
const MAX_LINE: usize = 64 * 1024;

/// Number of blocks to search before the log is trimmed.
const MAX_BLOCKS: usize = 16;

/// Completes when a line that has not been searched yet matches. Cancel-safe.
pub(crate) async fn wait_for_line(
    log: Arc<Log>,
    reading: ReadLock,
    pattern: LinePattern,
    clock: Arc<dyn Clock>,
) -> io::Result<()> {
    // The watch starts before the first read, so that no change is missed.
    let mut growth = Growth::of(FileWatch::of_file(log.path()), clock)?;
    let mut search = Search::new(compiled(&pattern)?);
    let reading = Arc::new(reading);
    loop {
        let (log, reading) = (Arc::clone(&log), Arc::clone(&reading));
        let search_more = move || search.search_more(&log, &reading).map(|step| (search, step));
        let joined = tokio::task::spawn_blocking(search_more).await;
        let (returned, step) = joined.map_err(io::Error::other)??;
        search = returned;
        match step {
            Progress::Found => return Ok(()),
            Progress::Further => {}
            Progress::End => growth.next().await?,
        }
    }
}

/// Progress of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Found,
    Further,
    /// Everything in the log has been searched.
    End,
}

/// Source of wake-ups for the next read.
enum Growth {
    Inotify(FileWatch),
    /// The limits of inotify are exhausted.
    Polling {
        pause: Duration,
        clock: Arc<dyn Clock>,
    },
}

impl Growth {
    fn of(changes: io::Result<FileWatch>, clock: Arc<dyn Clock>) -> io::Result<Self> {
        match changes {
            Err(error) if is_exhausted(&error) => {
                Ok(Self::Polling { pause: MIN_POLL_INTERVAL, clock })
            }
            changes => changes.map(Self::Inotify),
        }
    }

    async fn next(&mut self) -> io::Result<()> {
        match self {
            Self::Inotify(changes) => changes.next().await,
            Self::Polling { pause, clock } => {
                clock.sleep(*pause).await;
                *pause = (*pause * 2).min(MAX_POLL_INTERVAL);
                Ok(())
            }
        }
    }
}

/// Returns whether a limit of inotify instances, watches or open files is exhausted.
fn is_exhausted(error: &io::Error) -> bool {
    let Some(error) = Errno::from_io_error(error) else { return false };
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOSPC)
}

fn compiled(pattern: &LinePattern) -> io::Result<Regex> {
    RegexBuilder::new(pattern.as_str()).build().map_err(io::Error::other)
}

/// Assembles lines from pieces, and searches each once.
struct Search {
    regex: Regex,
    partial: Vec<u8>,
}

impl Search {
    fn new(regex: Regex) -> Self {
        Self { regex, partial: Vec::new() }
    }

    /// Searches some blocks, and releases them to the log.
    fn search_more(&mut self, log: &Log, reading: &ReadLock) -> io::Result<Progress> {
        for _ in 0..MAX_BLOCKS {
            let (text, end) = log.read_from(reading.offset())?;
            if text.is_empty() {
                return Ok(Progress::End);
            }
            if self.matches_in(&text) {
                return Ok(Progress::Found);
            }
            reading.advance(end);
        }
        if log.exceeds_limit() {
            log.trim()?;
        }
        Ok(Progress::Further)
    }

    fn matches_in(&mut self, text: &[u8]) -> bool {
        let mut rest = text;
        while !rest.is_empty() {
            let room = MAX_LINE - self.partial.len();
            let newline = rest.iter().take(room).position(|&byte| byte == b'\n');
            let (piece, after) = rest.split_at(newline.map_or(rest.len().min(room), |at| at + 1));
            self.partial.extend_from_slice(piece);
            rest = after;
            if newline.is_none() && self.partial.len() < MAX_LINE {
                return false;
            }
            let line = self.partial.strip_suffix(b"\n").unwrap_or(&self.partial);
            let found = self.regex.is_match(line.strip_suffix(b"\r").unwrap_or(line));
            self.partial.clear();
            if found {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By default the kernel allows 128 inotify instances per user, and each waiting unit uses one.
    /// If no instance is left, the log is polled.
    #[tokio::test]
    async fn log_is_polled_without_inotify() {
        let clock: Arc<dyn Clock> = Arc::new(crate::SystemClock::start());
        for full in [Errno::MFILE, Errno::NFILE, Errno::NOSPC] {
            let mut growth =
                Growth::of(Err(full.into()), Arc::clone(&clock)).expect("it continues");
            growth.next().await.expect("it is looked at again");
            let Growth::Polling { pause, .. } = growth else { panic!("inotify is not used") };
            assert_eq!(pause, 2 * MIN_POLL_INTERVAL);
        }
        assert!(Growth::of(Err(Errno::ACCESS.into()), clock).is_err());
    }

    fn search(pattern: &str) -> Search {
        let pattern = LinePattern::new(pattern).expect("it is well formed");
        Search::new(compiled(&pattern).expect("it is not large"))
    }

    #[test]
    fn matching_lines() {
        for (pattern, pieces, found) in [
            ("^ready$", &["rea", "dy", "\n"][..], true),
            ("^ready$", &["ready"], false),
            ("^ready$", &["not ready\nready\r\n"], true),
            ("^$", &["x\n"], false),
            ("^$", &["x\n\n"], true),
            ("a.b", &["a\nb\n"], false),
            ("é", &["caf\u{e9}\n"], true),
        ] {
            let mut search = search(pattern);
            let any = pieces.iter().any(|piece| search.matches_in(piece.as_bytes()));
            assert_eq!(any, found, "{pattern} in {pieces:?}");
        }
        assert!(search("(?-u:\\xff)x").matches_in(b"\xff\xfe\xffx\n"));
    }

    #[test]
    fn endless_line_takes_bounded_space() {
        let mut search = search("needle$");
        let block = vec![b'x'; 50_000];
        for _ in 0..100 {
            assert!(!search.matches_in(&block));
            assert!(search.partial.len() <= MAX_LINE);
        }
        assert!(search.matches_in(b"\nneedle\n"));
    }

    proptest! {
        /// The reference implementation searches the whole text at once.
        #[test]
        fn matches_do_not_depend_on_the_pieces(
            text in "[abr\\n]{0,60}",
            cuts in prop::collection::vec(0..60usize, 0..6),
        ) {
            let mut search = search("^ab+r?$");
            let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
            let expected = complete.lines().any(|line| search.regex.is_match(line.as_bytes()));
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let found = cuts.windows(2).any(|it| search.matches_in(&text.as_bytes()[it[0]..it[1]]));
            prop_assert_eq!(found, expected);
        }
    }
}
