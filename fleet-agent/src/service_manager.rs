//! The contract between an agent and whatever runs units on its machine.

mod changes;
mod journal;
mod particulars;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::{Epoch, Generation, KnownUnit, SystemdState};
use fleet_unitfile::{UnitFile, UnitName};

pub use changes::{StateChanges, StateFeed};
pub use journal::{Journal, JournalLine, JournalQuery};
pub use particulars::Particulars;

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

    /// What there is to tell of a known unit beyond its state; nothing is provided.
    ///
    /// # Errors
    ///
    /// [`ServiceError::NotLoaded`], and [`ServiceError::Unavailable`].
    async fn particulars(&self, unit: &UnitName) -> Result<Particulars, ServiceError> {
        let _ = unit;
        Ok(Particulars::default())
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
    #[error(
        "{unit} did not start: {missing}, which it is to start, is not loaded on its machine: \
         start it as well, and keep it there by MachineOf={missing} in the [X-Fleet] section of \
         {unit}"
    )]
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
