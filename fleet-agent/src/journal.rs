//! The output of units, as the service manager of their machine returns it.

use async_trait::async_trait;
use fleet_core::Timestamp;
use fleet_core::journal::{JournalLine, JournalQuery};
use fleet_unitfile::UnitName;
use tokio::sync::{mpsc, oneshot};

use crate::{ServiceError, wall_time};

/// Reads the output of the units on one machine.
///
/// The service manager that runs the units usually implements this too.
#[async_trait]
pub trait JournalReader: Send + Sync + 'static {
    /// Returns the output of a unit, oldest line first. A journal with `follow` ends when the unit
    /// is unloaded. Stored lines outlive the daemon; whether they outlive the unload of their unit
    /// is up to the implementation.
    ///
    /// An implementation without cursors treats every [`after`](JournalQuery::after) as a line that
    /// is no longer stored, as [`Journal::from_lines`] does.
    ///
    /// # Errors
    ///
    /// [`ServiceError::NotLoaded`] if the unit is not known, and [`ServiceError::Unavailable`].
    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError>;
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
    /// These lines have no cursors. With [`after`](JournalQuery::after), all of them are selected,
    /// after a line that reports the gap.
    ///
    /// All selected lines are buffered for the reader, so the caller has to limit their number.
    pub fn from_lines<L: AsRef<str>>(
        lines: impl IntoIterator<Item = (Timestamp, L)>,
        query: &JournalQuery,
    ) -> (Option<mpsc::Sender<JournalLine>>, Self) {
        let is_gap = query.after.is_some();
        let since = query.since.filter(|_| !is_gap).map(|since| since.at(wall_time()));
        let is_early = |at: Timestamp| since.is_some_and(|since| at < since);
        let lines = lines.into_iter().skip_while(|&(at, _)| is_early(at));
        let lines: Vec<_> = lines.collect();
        let wanted = query.lines.filter(|_| !is_gap).unwrap_or(usize::MAX);
        let skipped = lines.len().saturating_sub(wanted);
        let (sender, waiting) = mpsc::channel(Self::CAPACITY + lines.len());
        for (at, line) in &lines[skipped..] {
            let line = JournalLine::new(line.as_ref()).with_time(*at);
            // The buffer has room for all of them, and the reader exists.
            drop(sender.try_send(line));
        }
        let first = is_gap.then(JournalLine::gap);
        (query.follow.then_some(sender), Self { first, lines: waiting, failure: None })
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
