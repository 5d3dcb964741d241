//! Lines of a unit's output, and the selection of lines to read.

use std::time::Duration;

use crate::Timestamp;

/// A line of a unit's output.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalLine {
    /// Time at which the line was written, by the wall clock of the unit's machine. `None` if
    /// unknown.
    pub at: Option<Timestamp>,
    /// The line, without its newline.
    pub text: String,
    /// Position of the line, for [`JournalQuery::after`]. It consists of at most
    /// [`MAX_CURSOR_LEN`](Self::MAX_CURSOR_LEN) visible ASCII characters, and only the service
    /// manager of the unit's machine can interpret it. `None` if unknown.
    pub cursor: Option<String>,
}

impl JournalLine {
    /// Maximum length of a cursor, in bytes.
    pub const MAX_CURSOR_LEN: usize = 512;

    /// Creates a line without time and cursor.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { at: None, text: text.into(), cursor: None }
    }

    /// Returns the line with the time at which it was written, if known.
    #[must_use]
    pub fn with_time(self, at: impl Into<Option<Timestamp>>) -> Self {
        Self { at: at.into(), ..self }
    }

    /// Returns the line with its cursor, if known.
    #[must_use]
    pub fn with_cursor(self, cursor: impl Into<Option<String>>) -> Self {
        Self { cursor: cursor.into(), ..self }
    }

    /// Creates a line that reports a gap in a journal. Lines may be missing at the gap, because the
    /// line after which the reader wanted to continue is no longer stored.
    #[must_use]
    pub fn gap() -> Self {
        Self::new("[lines may be missing here: the last line that was read is no longer stored]")
    }
}

impl From<String> for JournalLine {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// Selects lines of a unit's output. By default all stored lines, without following.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalQuery {
    /// The [cursor](JournalLine::cursor) of a line to resume after. All later lines are returned,
    /// and `lines` and `since` have no effect. If that line is no longer stored, the first returned
    /// line is [`JournalLine::gap`], and all stored lines follow.
    ///
    /// A cursor stays valid when the service manager or the daemon is restarted.
    pub after: Option<String>,
    /// How many of the last stored lines come first; `None` means all.
    pub lines: Option<usize>,
    /// Leaves out stored lines written before this, even if `lines` asks for more. `None` includes
    /// lines of any age.
    ///
    /// A service manager that does not know when each line was written may begin some seconds too
    /// early, but never too late.
    pub since: Option<Since>,
    /// Whether to continue with new lines as they are written.
    pub follow: bool,
}

impl JournalQuery {
    /// Resumes after the line with this cursor.
    #[must_use]
    pub fn with_after(self, cursor: impl Into<Option<String>>) -> Self {
        Self { after: cursor.into(), ..self }
    }

    /// Limits the stored lines to this many of the last ones.
    #[must_use]
    pub fn with_lines(self, lines: impl Into<Option<usize>>) -> Self {
        Self { lines: lines.into(), ..self }
    }

    /// Leaves out stored lines written before this.
    #[must_use]
    pub fn with_since(self, since: impl Into<Option<Since>>) -> Self {
        Self { since: since.into(), ..self }
    }

    /// Sets whether to continue with new lines.
    #[must_use]
    pub fn with_follow(self, follow: bool) -> Self {
        Self { follow, ..self }
    }
}

/// Time of the earliest line to read.
///
/// Times are by the wall clock of the machine that runs the unit, and the clocks of other machines
/// may differ. A reader on another machine therefore uses an age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// A time. A line written at exactly this time is included. A time in the future leaves out all
    /// stored lines, but no followed lines.
    Time(Timestamp),
    /// The maximum age of lines at the time of the request.
    Age(Duration),
}

impl Since {
    /// Returns the earliest time to include, for a request at the time `now`.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Time(time) => time,
            Self::Age(age) => {
                Timestamp::default().after(now.since(Timestamp::default().after(age)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_subtracted_from_now() {
        let now = Timestamp::from_millis(5_000);
        assert_eq!(Since::Age(Duration::from_secs(2)).at(now), Timestamp::from_millis(3_000));
        assert_eq!(Since::Age(Duration::from_secs(9)).at(now), Timestamp::default());
        assert_eq!(Since::Time(Timestamp::from_millis(9)).at(now), Timestamp::from_millis(9));
    }
}
