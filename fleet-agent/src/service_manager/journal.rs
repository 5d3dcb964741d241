//! The lines that a unit writes, as whoever runs it hands them out.

use fleet_core::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::ServiceError;

/// Which lines of a unit's output are wanted. By default all that are kept, and none to come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JournalQuery {
    /// How many of the latest lines come first; `None` is all that are kept.
    pub lines: Option<usize>,
    /// Of the kept lines none comes that was written before that moment, however many are wanted;
    /// one of the moment itself does. `None` leaves none out.
    ///
    /// It is a moment of [`wall_time`](crate::wall_time) on the machine that runs the unit, so
    /// another machine's clock may be off from it. One that is still to come leaves out all kept
    /// lines, and none of those that are followed. A service manager that does not see each line
    /// being written may be some seconds too early with where it begins, and is never too late.
    pub since: Option<Timestamp>,
    /// Whether to go on with new lines as they are written.
    pub follow: bool,
}

/// A line of a unit's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalLine {
    /// When it was written, by the machine's [`wall_time`](crate::wall_time), as well as the
    /// service manager knows; `None` where that is not at all.
    pub at: Option<Timestamp>,
    /// The line, without its end.
    pub text: String,
    /// Where it is, for [`journal_after`](super::ServiceManager::journal_after): a word of visible
    /// ASCII, of no more than 512 bytes, that says something to its service manager alone. `None`
    /// where that cannot tell.
    pub position: Option<String>,
}

impl JournalLine {
    /// Stands in a journal where lines may be missing, because nobody can say any more after which
    /// line it was to go on.
    #[must_use]
    pub fn gap() -> Self {
        Self::from(
            "[lines may be missing here: what was told last is not kept any more]".to_owned(),
        )
    }
}

impl From<String> for JournalLine {
    /// A line of which nobody knows when it was written, nor where it is.
    fn from(text: String) -> Self {
        Self { at: None, text, position: None }
    }
}

/// Lines of a unit's output.
#[derive(Debug)]
pub struct Journal {
    /// What comes before all others.
    first: Option<JournalLine>,
    lines: mpsc::Receiver<JournalLine>,
    /// Why it ends early, if it does.
    broke: Option<oneshot::Receiver<ServiceError>>,
}

impl Journal {
    /// How many lines wait between writer and reader; the writer then waits for the reader.
    const CAPACITY: usize = 256;

    /// A journal and the end that feeds it; the journal ends when that end is dropped.
    #[must_use]
    pub fn channel() -> (mpsc::Sender<JournalLine>, Self) {
        let (sender, lines) = mpsc::channel(Self::CAPACITY);
        (sender, Self { first: None, lines, broke: None })
    }

    /// The same for who may be unable to go on: why it cannot is to be sent by the second end,
    /// before the first one is dropped.
    #[must_use]
    pub fn breakable() -> (mpsc::Sender<JournalLine>, oneshot::Sender<ServiceError>, Self) {
        let (sender, journal) = Self::channel();
        let (broken, broke) = oneshot::channel();
        (sender, broken, Self { broke: Some(broke), ..journal })
    }

    /// A journal of lines that are kept, each with the moment at which it was written: the last
    /// ones that are asked for. With it comes the end that feeds it, if later lines are asked for,
    /// too.
    ///
    /// All that are kept wait for the reader, so whoever keeps them has to bound them.
    pub fn kept<L: AsRef<str>>(
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
            // There is room for all of them, and the reader is here.
            drop(sender.try_send(line));
        }
        (query.follow.then_some(sender), Self { first: None, lines: waiting, broke: None })
    }

    /// The same, beginning with a line that says that some [may be missing](JournalLine::gap).
    #[must_use]
    pub fn after_a_gap(self) -> Self {
        Self { first: Some(JournalLine::gap()), ..self }
    }

    /// The next line, without its line end; `None` when there is no more.
    pub async fn next(&mut self) -> Option<String> {
        self.next_line().await.map(|line| line.text)
    }

    /// The same with when it was written.
    pub async fn next_line(&mut self) -> Option<JournalLine> {
        match self.first.take() {
            Some(line) => Some(line),
            None => self.lines.recv().await,
        }
    }

    /// After the last line: why it is the last one, if the journal did not end but break. Told
    /// once.
    pub fn failure(&mut self) -> Option<ServiceError> {
        self.broke.take()?.try_recv().ok()
    }
}
