//! Waits for a line of a unit's output that says that the unit is ready.
//!
//! A unit writes to its log itself, so the log is read as it grows, and only until the line has
//! come: nobody looks at what a unit writes once it is up.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::graph::Pattern;
use regex::bytes::{Regex, RegexBuilder};
use rustix::io::Errno;

use super::changes::Changes;
use super::log::Log;
use crate::Clock;

/// The shortest and the longest pause between two looks where the kernel does not tell.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// A longer line is looked at in pieces of this many bytes.
const LONGEST_LINE: usize = 64 * 1024;

/// Returns when a line that was written after that place of the log matches. May be dropped at any
/// time.
pub(crate) async fn line_that_matches(
    log: Arc<Log>,
    mut place: u64,
    pattern: Pattern,
    clock: Arc<dyn Clock>,
) -> io::Result<()> {
    let regex = compiled(&pattern)?;
    // The watch begins before the first look, so that nothing falls between the two.
    let mut growth = Growth::of(Changes::of(log.path()), clock)?;
    let mut search = Search { regex, begun: Vec::new() };
    loop {
        let reader = Arc::clone(&log);
        let read = tokio::task::spawn_blocking(move || reader.read_from(place)).await;
        let (text, end) = read.map_err(io::Error::other)??;
        if search.finds_in(&text) {
            return Ok(());
        }
        place = end;
        if text.is_empty() {
            growth.next().await?;
        }
    }
}

/// Says when to look again.
enum Growth {
    Told(Changes),
    /// The kernel has no more to give that could tell.
    Untold {
        pause: Duration,
        clock: Arc<dyn Clock>,
    },
}

impl Growth {
    fn of(changes: io::Result<Changes>, clock: Arc<dyn Clock>) -> io::Result<Self> {
        match changes {
            Err(error) if is_used_up(&error) => Ok(Self::Untold { pause: SHORTEST, clock }),
            changes => changes.map(Self::Told),
        }
    }

    async fn next(&mut self) -> io::Result<()> {
        match self {
            Self::Told(changes) => changes.next().await,
            Self::Untold { pause, clock } => {
                clock.sleep(*pause).await;
                *pause = (*pause * 2).min(LONGEST);
                Ok(())
            }
        }
    }
}

/// Whether a user has as many instances or watches of the kernel's, or files, as they may have.
fn is_used_up(error: &io::Error) -> bool {
    let Some(error) = Errno::from_io_error(error) else { return false };
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOSPC)
}

fn compiled(pattern: &Pattern) -> io::Result<Regex> {
    RegexBuilder::new(pattern.as_str()).build().map_err(io::Error::other)
}

/// Puts lines together that are read in pieces, and looks at each once.
struct Search {
    regex: Regex,
    begun: Vec<u8>,
}

impl Search {
    fn finds_in(&mut self, text: &[u8]) -> bool {
        let mut rest = text;
        while !rest.is_empty() {
            let room = LONGEST_LINE - self.begun.len();
            let newline = rest.iter().take(room).position(|&byte| byte == b'\n');
            let (piece, after) = rest.split_at(newline.map_or(rest.len().min(room), |at| at + 1));
            self.begun.extend_from_slice(piece);
            rest = after;
            if newline.is_none() && self.begun.len() < LONGEST_LINE {
                return false;
            }
            let line = self.begun.strip_suffix(b"\n").unwrap_or(&self.begun);
            let found = self.regex.is_match(line.strip_suffix(b"\r").unwrap_or(line));
            self.begun.clear();
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

    /// The kernel gives each user 128 instances, and each unit that is waited for takes one.
    #[tokio::test]
    async fn where_the_kernel_tells_nobody_the_log_is_looked_at_all_the_same() {
        let clock: Arc<dyn Clock> = Arc::new(crate::SystemClock::start());
        for full in [Errno::MFILE, Errno::NFILE, Errno::NOSPC] {
            let mut growth = Growth::of(Err(full.into()), Arc::clone(&clock)).expect("it goes on");
            growth.next().await.expect("it is looked at again");
            let Growth::Untold { pause, .. } = growth else { panic!("nobody tells") };
            assert_eq!(pause, 2 * SHORTEST);
        }
        assert!(Growth::of(Err(Errno::ACCESS.into()), clock).is_err());
    }

    fn search(pattern: &str) -> Search {
        let pattern = Pattern::new(pattern).expect("it is well formed");
        Search { regex: compiled(&pattern).expect("it is not large"), begun: Vec::new() }
    }

    #[test]
    fn lines_that_match() {
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
            let any = pieces.iter().any(|piece| search.finds_in(piece.as_bytes()));
            assert_eq!(any, found, "{pattern} in {pieces:?}");
        }
        assert!(search("(?-u:\\xff)x").finds_in(b"\xff\xfe\xffx\n"));
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_room_than_a_piece() {
        let mut search = search("needle$");
        let block = vec![b'x'; 50_000];
        for _ in 0..100 {
            assert!(!search.finds_in(&block));
            assert!(search.begun.len() <= LONGEST_LINE);
        }
        assert!(search.finds_in(b"\nneedle\n"));
    }

    proptest! {
        /// The naive twin has all of it at once.
        #[test]
        fn however_it_is_cut(
            text in "[abr\\n]{0,60}",
            cuts in prop::collection::vec(0..60usize, 0..6),
        ) {
            let mut search = search("^ab+r?$");
            let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
            let expected = complete.lines().any(|line| search.regex.is_match(line.as_bytes()));
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let found = cuts.windows(2).any(|it| search.finds_in(&text.as_bytes()[it[0]..it[1]]));
            prop_assert_eq!(found, expected);
        }
    }
}
