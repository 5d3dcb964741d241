//! Pure: cursors, each of which marks the end of a line in a log.
//!
//! A cursor consists of a log offset and a hash of the bytes before that offset. It stays valid
//! after a cut or rotation of the log, because log offsets keep their meaning.
//!
//! The log offset at which the file begins (its base offset) can be lost, so that a later daemon
//! counts from zero again. A cursor offset beyond the end of the log shows this. Only then is the
//! log searched for the hashed bytes. Otherwise the hash only verifies the offset.

use std::fmt;
use std::str::FromStr;

/// Number of bytes before an offset that are hashed.
pub(crate) const MAX_CONTEXT: usize = 64;

/// The end of a line in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogCursor {
    offset: u64,
    /// Number of hashed bytes.
    length: usize,
    /// Hash of these bytes.
    hash: u64,
}

impl LogCursor {
    /// Creates a cursor for an offset, with the text before it.
    pub(crate) fn new(offset: u64, before: &[u8]) -> Self {
        let known = &before[before.len().saturating_sub(MAX_CONTEXT)..];
        Self { offset, length: known.len(), hash: hash(known) }
    }

    /// Returns the position of the cursor in `text`, which begins at the log offset `begin`.
    /// Returns `None` if the position is not found, or if several positions match. The caller then
    /// reports a gap, because a wrong position would silently skip lines.
    pub(crate) fn find(&self, text: &[u8], begin: u64) -> Option<usize> {
        // Anything before the beginning was dropped, even if it looks the same.
        let at = usize::try_from(self.offset.checked_sub(begin)?).unwrap_or(usize::MAX);
        if at <= text.len() {
            return self.is_at(text, at).then_some(at);
        }
        let ends = (1..=text.len()).filter(|&end| text[end - 1] == b'\n');
        let mut found = ends.filter(|&end| self.length > 0 && self.is_at(text, end));
        found.next().filter(|_| found.next().is_none())
    }

    fn is_at(&self, text: &[u8], at: usize) -> bool {
        at.checked_sub(self.length).is_some_and(|from| hash(&text[from..at]) == self.hash)
    }
}

impl fmt::Display for LogCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:x}", self.offset, self.length, self.hash)
    }
}

/// Error for a text that is not a valid cursor.
#[derive(Debug)]
pub(crate) struct InvalidLogCursor;

impl FromStr for LogCursor {
    type Err = InvalidLogCursor;

    fn from_str(text: &str) -> Result<Self, InvalidLogCursor> {
        let mut parts = text.split('.');
        let mut part = || parts.next().ok_or(InvalidLogCursor);
        let offset = part()?.parse().map_err(|_| InvalidLogCursor)?;
        let length =
            part()?.parse().ok().filter(|length| *length <= MAX_CONTEXT).ok_or(InvalidLogCursor)?;
        let hash = u64::from_str_radix(part()?, 16).map_err(|_| InvalidLogCursor)?;
        if parts.next().is_some() {
            Err(InvalidLogCursor)
        } else {
            Ok(Self { offset, length, hash })
        }
    }
}

/// Computes the FNV-1a hash. All versions of this program must use the same hash, because a client
/// may keep a cursor across an upgrade.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cursor_is_found_after_cut() {
        let text = b"one\ntwo\ntwo\nthree\nfour\n";
        let two = LogCursor::new(1008, b"one\ntwo\n");
        assert_eq!(two.find(text, 1000), Some(8), "nothing was cut");
        assert_eq!(two.find(b"three\n", 1012), None, "it was dropped");
        let third = LogCursor::new(1012, b"two\ntwo\n");
        assert_eq!(third.find(b"two\ntwo\nthree\n", 0), Some(8), "the base has changed");
        assert_eq!(third.find(b"two\nthree\n", 0), None, "half of the hashed text was dropped");
        let word = LogCursor::new(90, b"tick\n");
        assert_eq!(word.find(b"tock\ntick\ntock\n", 0), Some(10), "there is one of it");
        assert_eq!(word.find(b"tick\ntick\ntock\n", 0), None, "it could be either");
        assert_eq!(LogCursor::new(9, b"tick\n").find(b"tick\ntock\ntick\n", 0), None);
        assert_eq!(
            LogCursor::new(7, b"").find(text, 0),
            Some(7),
            "the offset is all that is known"
        );
        assert_eq!(LogCursor::new(700, b"").find(text, 0), None);
    }

    #[test]
    fn cursor_round_trips() {
        let position = LogCursor::new(7, b"one\n");
        insta::assert_snapshot!(position, @"7.4.715adb46adb6c5f");
        assert_eq!(position.to_string().parse::<LogCursor>().unwrap(), position);
        for text in
            ["", "1", "1.2", "1.2.x", "1.2.3.4", "-1.2.3", "1.65.3", "1.2.11111111111111111"]
        {
            assert!(text.parse::<LogCursor>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_or_fails(text in ".*", log in any::<Vec<u8>>()) {
            if let Ok(position) = text.parse::<LogCursor>() {
                let _any = position.find(&log, 3);
            }
        }

        /// No line is skipped silently, however often lines repeat.
        #[test]
        fn cursor_is_exact_or_reported_lost(
            lines in proptest::collection::vec(prop_oneof!["tick\n", "tock\n"], 1..60),
            read in any::<prop::sample::Index>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let (read, cut) = (read.index(lines.len() + 1), cut.index(lines.len() + 1));
            let (before, begin) = (lines[..read].concat(), lines[..cut].concat().len());
            let position = LogCursor::new(before.len() as u64, before.as_bytes());
            let remaining = lines[cut..].concat();
            let found = position.find(remaining.as_bytes(), begin as u64);
            let offset = before.len().checked_sub(begin);
            // With that much text before it, the cursor is unambiguous.
            if offset.is_some_and(|at| at >= MAX_CONTEXT.min(before.len())) {
                prop_assert_eq!(found, offset);
            } else {
                prop_assert!(found.is_none() || found == offset, "{:?} is not {:?}", found, offset);
            }
        }

        /// Checks that a cut of the log does not invalidate a cursor. With `base_changed`, the
        /// cursor's offset may lie beyond the end of the log. Then the cursor is found by the text
        /// before it, which is unique here.
        #[test]
        fn cut_does_not_move_cursor(
            numbers in proptest::collection::btree_set(0..10_000_u32, 1..60),
            read in any::<prop::sample::Index>(),
            cut in any::<prop::sample::Index>(),
            base_changed in any::<bool>(),
        ) {
            let lines: Vec<String> = numbers.iter().map(|number| format!("n{number}\n")).collect();
            let read = read.index(lines.len());
            let cut = cut.index(read + 1);
            let before = lines[..=read].concat();
            let position = LogCursor::new(before.len() as u64, lines[read].as_bytes());
            let begin = if base_changed { 0 } else { lines[..cut].concat().len() };
            let remaining = lines[cut..].concat();
            let found = position.find(remaining.as_bytes(), begin as u64);
            let rest = lines[read + 1..].concat();
            if base_changed && before.len() <= remaining.len() && cut > 0 {
                prop_assert!(found.is_none_or(|at| remaining[at..] == rest));
            } else {
                prop_assert_eq!(found.map(|at| &remaining[at..]), Some(&*rest));
            }
        }
    }
}
