//! The output of a unit, as its service manager returns it.

use fleet_core::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::ServiceError;

/// Selects lines of a unit's output. By default all stored lines, without following.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JournalQuery {
    /// How many of the last stored lines come first; `None` means all.
    pub lines: Option<usize>,
    /// Leaves out stored lines written before this time, even if `lines` asks for more. A line
    /// written at exactly this time is included. `None` includes lines of any age.
    ///
    /// The time is a [`wall_time`](crate::wall_time) on the machine that runs the unit, and the
    /// clocks of other machines may differ. A time in the future leaves out all stored lines, but
    /// no followed lines.
    ///
    /// A service manager that does not know when each line was written may begin some seconds too
    /// early, but never too late.
    pub since: Option<Timestamp>,
    /// Whether to continue with new lines as they are written.
    pub follow: bool,
}

/// A line of a unit's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalLine {
    /// Time at which the line was written, as [`wall_time`](crate::wall_time) on the unit's
    /// machine. `None` if the service manager does not know the time.
    pub at: Option<Timestamp>,
    /// The line, without its newline.
    pub text: String,
    /// Position of the line, for [`journal_from`](super::ServiceManager::journal_from). It consists
    /// of at most 512 bytes of visible ASCII, and only the machine's service manager can interpret
    /// it. `None` if the service manager has no cursors.
    pub cursor: Option<String>,
}

impl JournalLine {
    /// Creates a line that reports a gap in a journal. Lines may be missing at the gap, because the
    /// line after which the reader wanted to continue is no longer stored.
    #[must_use]
    pub fn gap() -> Self {
        Self::from(
            "[lines may be missing here: the last line that was read is no longer stored]"
                .to_owned(),
        )
    }
}

impl From<String> for JournalLine {
    /// Creates a line without time and cursor.
    fn from(text: String) -> Self {
        Self { at: None, text, cursor: None }
    }
}

/// A stream of lines of a unit's output.
#[derive(Debug)]
pub struct Journal {
    /// A line before all others.
    first: Option<JournalLine>,
    lines: mpsc::Receiver<JournalLine>,
    /// The reason for an early end, if there is one.
    failure: Option<oneshot::Receiver<ServiceError>>,
}

impl Journal {
    /// Number of lines buffered between writer and reader. While the buffer is full, the writer
    /// waits.
    const CAPACITY: usize = 256;

    /// Creates a journal and its sender; the journal ends when the sender is dropped.
    #[must_use]
    pub fn channel() -> (mpsc::Sender<JournalLine>, Self) {
        let (sender, lines) = mpsc::channel(Self::CAPACITY);
        (sender, Self { first: None, lines, failure: None })
    }

    /// Like [`channel`](Self::channel), but also returns a second sender for the reason if the
    /// journal ends early. The reason has to be sent before the first sender is dropped.
    #[must_use]
    pub fn fallible() -> (mpsc::Sender<JournalLine>, oneshot::Sender<ServiceError>, Self) {
        let (sender, journal) = Self::channel();
        let (broken, failure) = oneshot::channel();
        (sender, broken, Self { failure: Some(failure), ..journal })
    }

    /// Creates a journal of those stored `lines` that the query selects. Each line comes with the
    /// time at which it was written. If the query asks for later lines too (`follow`), also returns
    /// the sender for these lines.
    ///
    /// All selected lines are buffered for the reader, so the caller has to limit their number.
    pub fn from_lines<L: AsRef<str>>(
        lines: impl IntoIterator<Item = (Timestamp, L)>,
        query: JournalQuery,
    ) -> (Option<mpsc::Sender<JournalLine>>, Self) {
        let is_early = |at: Timestamp| query.since.is_some_and(|since| at < since);
        let lines = lines.into_iter().skip_while(|&(at, _)| is_early(at));
        let lines: Vec<_> = lines.collect();
        let skipped = query.lines.map_or(0, |wanted| lines.len().saturating_sub(wanted));
        let (sender, waiting) = mpsc::channel(Self::CAPACITY + lines.len());
        for (at, line) in &lines[skipped..] {
            let line = JournalLine { at: Some(*at), ..line.as_ref().to_owned().into() };
            // The buffer has room for all of them, and the reader exists.
            drop(sender.try_send(line));
        }
        (query.follow.then_some(sender), Self { first: None, lines: waiting, failure: None })
    }

    /// Prepends a line that reports [missing lines](JournalLine::gap).
    #[must_use]
    pub fn with_gap(self) -> Self {
        Self { first: Some(JournalLine::gap()), ..self }
    }

    /// Returns the next line, without its newline; `None` at the end.
    pub async fn next(&mut self) -> Option<String> {
        self.next_line().await.map(|line| line.text)
    }

    /// Returns the next line with its time and cursor.
    pub async fn next_line(&mut self) -> Option<JournalLine> {
        match self.first.take() {
            Some(line) => Some(line),
            None => self.lines.recv().await,
        }
    }

    /// Returns the reason for an early end of the journal; `None` if the journal ended normally. To
    /// be called after the last line. Later calls return `None`.
    pub fn failure(&mut self) -> Option<ServiceError> {
        self.failure.take()?.try_recv().ok()
    }
}
