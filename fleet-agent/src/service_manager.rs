//! The contract between an agent and whatever runs units on its machine.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::{Epoch, Generation, KnownUnit, SystemdState, Timestamp};
use fleet_unitfile::{UnitFile, UnitName};
use tokio::sync::{Notify, mpsc, oneshot};

/// Runs units on one machine.
///
/// An agent may rely on this, and whoever implements the trait must see to it:
///
/// * A unit is *known* from a successful [`load`](Self::load) until a successful
///   [`unload`](Self::unload), also across restarts of fleet's daemon: what was last asked of it,
///   its hash, its epoch and its generation are remembered with it.
/// * The end of the daemon, however sudden, changes no unit, and the next daemon finds them as they
///   are then.
/// * Calls about different units do not wait for each other. Calls about one unit take effect in
///   the order in which they are made.
/// * A call that fails leaves other units alone, and says what is wrong in a person's words.
/// * Every change of a unit's state reaches every [`StateChanges`]; changes in quick succession may
///   be reported as one.
#[async_trait]
pub trait ServiceManager: Send + Sync + 'static {
    /// Takes over a unit's file. Loading a known unit with the same file only records the epoch.
    ///
    /// # Errors
    ///
    /// [`ServiceError::BadSetting`] when the file asks for what this service manager cannot do;
    /// the unit then is not known.
    async fn load(
        &self,
        unit: &UnitName,
        file: &UnitFile,
        epoch: Epoch,
    ) -> Result<(), ServiceError>;

    /// Reads all files that were taken over. Comes after a batch of loads and before any start.
    async fn reload(&self) -> Result<(), ServiceError>;

    /// Stops a unit if it runs, waits for its end, and forgets it. An unknown unit is no error.
    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError>;

    /// Starts a unit and remembers the generation; returns when its start is over.
    ///
    /// A unit that failed before gets a new attempt, with a new count of its starts; one that is
    /// active stays as it is.
    ///
    /// # Errors
    ///
    /// [`ServiceError::StartFailed`] when the unit did not become active. It counts as launched
    /// all the same, and its own restart policy goes on. Only after
    /// [`ServiceError::NothingToTrigger`] it does not.
    async fn start(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError>;

    /// Stops a unit if it is active, starts it again, and remembers the generation.
    async fn restart(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError>;

    /// Stops a unit and waits for its end; it stays loaded. A start or restart of it that is under
    /// way is given up, so that the end takes no longer than that of a unit that runs.
    async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError>;

    /// Has a unit that is active read its own configuration again, as its file says how, and
    /// returns when that is over. The unit goes on running, and what was asked of it stays as it
    /// was. The desired state of a unit does not say this, so no agent asks for it.
    ///
    /// # Errors
    ///
    /// [`ServiceError::ReloadFailed`] when that is not possible: the unit is not active, its file
    /// does not say how, or it has failed to do it. A service manager that reloads no unit says so,
    /// which is what is provided.
    async fn reload_unit(&self, unit: &UnitName) -> Result<(), ServiceError> {
        let unit = unit.clone();
        if self.get(&unit).await?.is_none() {
            return Err(ServiceError::NotLoaded { unit });
        }
        let problem = "this service manager cannot have a unit read its configuration again: \
                       restart it"
            .to_owned();
        Err(ServiceError::ReloadFailed { unit, problem })
    }

    /// One known unit; `None` when it is not known.
    async fn get(&self, unit: &UnitName) -> Result<Option<ManagedUnit>, ServiceError>;

    /// All known units, in order of their names.
    async fn list(&self) -> Result<Vec<ManagedUnit>, ServiceError>;

    /// What somebody other than fleet has done to a known unit since fleet last asked something of
    /// it; nothing if that is nothing, or if this service manager cannot know. When it becomes
    /// something else, the unit has changed.
    async fn drift(&self, unit: &UnitName) -> Result<Option<Drift>, ServiceError> {
        let _ = unit;
        Ok(None)
    }

    /// The time-out of a known unit's stop, as its service manager goes by it: with what the
    /// machine adds to the unit, and with the machine's own defaults; [`Duration::MAX`] for one
    /// that never passes. Nothing when what the unit's file says is all that counts.
    ///
    /// # Errors
    ///
    /// [`ServiceError::NotLoaded`], and [`ServiceError::Unavailable`].
    async fn stop_time_out(&self, unit: &UnitName) -> Result<Option<Duration>, ServiceError> {
        let _ = unit;
        Ok(None)
    }

    /// Reports which units change from now on.
    fn changes(&self) -> StateChanges;

    /// The output of a unit, oldest line first. One that is followed ends when the unit is
    /// unloaded.
    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError>;

    /// What a unit wrote after the line that had this [position](JournalLine::position), and, where
    /// it is followed, what it writes. It need not be this manager that told the line: one of an
    /// earlier daemon is as good.
    ///
    /// Where that line is not known any more, all that is kept comes, after one that says so. Who
    /// gives its lines no positions has nothing to do here.
    ///
    /// # Errors
    ///
    /// Those of [`journal`](Self::journal).
    async fn journal_after(
        &self,
        unit: &UnitName,
        position: &str,
        follow: bool,
    ) -> Result<Journal, ServiceError> {
        let _unknown = position;
        let query = JournalQuery { follow, ..JournalQuery::default() };
        Ok(self.journal(unit, query).await?.after_a_gap())
    }
}

/// A unit as its service manager knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedUnit {
    /// Its name.
    pub unit: UnitName,
    /// What is loaded, and what was last asked.
    pub known: KnownUnit,
    /// What it does.
    pub state: SystemdState,
}

/// What somebody other than fleet has done to a unit on one machine. Displayed it is a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drift {
    /// It was stopped.
    Stopped,
    /// It was started, though it was only wanted loaded.
    Started,
    /// What it is run by is another file, or has drop-ins that fleet did not put there.
    Changed,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => {
                "somebody other than fleet stopped it on its machine, and fleet leaves it so: \
                 fleetctl restart starts it again"
            }
            Self::Started => {
                "somebody other than fleet started it on its machine, and fleet leaves it so: \
                 fleetctl start makes it wanted"
            }
            Self::Changed => {
                "somebody other than fleet changed on its machine by what it is run, and fleet \
                 leaves it so: take the change back there, or make it by fleet"
            }
        })
    }
}

/// Why a service manager could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The unit is not known.
    #[error("{unit} is not loaded")]
    NotLoaded {
        /// The unit.
        unit: UnitName,
    },
    /// The unit's file asks for something that this service manager cannot do.
    #[error("{unit}{}: {problem}", of_line(*line))]
    BadSetting {
        /// The unit.
        unit: UnitName,
        /// The line of its file, from one; zero when it is about the whole file.
        line: usize,
        /// What is wrong, and what would do instead.
        problem: String,
    },
    /// The unit did not become active.
    #[error("{unit} did not start: {problem}")]
    StartFailed {
        /// The unit.
        unit: UnitName,
        /// What happened.
        problem: String,
    },
    /// The unit is there to start another, which is not loaded yet. It counts as not started: start
    /// it again when the other one has come.
    #[error("{unit} did not start: {missing}, which it is to start, is not loaded on its machine")]
    NothingToTrigger {
        /// The unit: a timer, socket or path.
        unit: UnitName,
        /// The other one.
        missing: String,
    },
    /// The unit did not stop, or another order has overtaken its stop.
    #[error("{unit} did not stop: {problem}")]
    StopFailed {
        /// The unit.
        unit: UnitName,
        /// What happened.
        problem: String,
    },
    /// The unit did not read its configuration again. It runs on.
    #[error("{unit} was not reloaded: {problem}")]
    ReloadFailed {
        /// The unit.
        unit: UnitName,
        /// What happened, and what would do instead.
        problem: String,
    },
    /// A file or process could not be handled.
    #[error("cannot {action}")]
    Io {
        /// What was attempted.
        action: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The service manager cannot be reached, or has ended.
    #[error("the service manager is unavailable: {0}")]
    Unavailable(String),
}

fn of_line(line: usize) -> String {
    if line == 0 { String::new() } else { format!(", line {line}") }
}

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
    /// Where it is, for [`ServiceManager::journal_after`]: a word of visible ASCII, of no more than
    /// 512 bytes, that says something to its service manager alone. `None` where that cannot tell.
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

/// Collects the names of units that changed, for one reader.
///
/// It holds each name at most once, so it is bounded by the number of units.
#[derive(Debug)]
pub struct StateChanges {
    inbox: Arc<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    changed: Mutex<BTreeSet<UnitName>>,
    wake: Notify,
}

impl StateChanges {
    /// Waits until a unit has changed, and returns all that changed since the last call.
    pub async fn next(&mut self) -> BTreeSet<UnitName> {
        loop {
            let changed = std::mem::take(
                &mut *self.inbox.changed.lock().unwrap_or_else(PoisonError::into_inner),
            );
            if !changed.is_empty() {
                return changed;
            }
            self.inbox.wake.notified().await;
        }
    }
}

/// The sending side of [`StateChanges`], for those who implement a service manager.
#[derive(Debug, Default)]
pub struct StateFeed {
    inboxes: Mutex<Vec<Weak<Inbox>>>,
}

impl StateFeed {
    /// A new reader.
    #[must_use]
    pub fn subscribe(&self) -> StateChanges {
        let inbox = Arc::new(Inbox::default());
        let mut inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        inboxes.retain(|inbox| inbox.strong_count() > 0);
        inboxes.push(Arc::downgrade(&inbox));
        StateChanges { inbox }
    }

    /// Tells every reader that a unit has changed.
    pub fn report(&self, unit: &UnitName) {
        let inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        for inbox in inboxes.iter().filter_map(Weak::upgrade) {
            inbox.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(unit.clone());
            inbox.wake.notify_one();
        }
    }
}
