//! The contract between an agent and the service manager of its machine.

mod wire;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::{Epoch, Generation, KnownUnit, SystemdState, Timestamp};
use fleet_unitfile::{UnitFile, UnitName};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// Runs units on one machine.
///
/// An agent relies on these guarantees, which every implementation has to provide:
///
/// * A unit is *known* from a successful [`load`](Self::load) until a successful
///   [`unload`](Self::unload), also across restarts of fleet's daemon. The service manager stores
///   the last request for the unit, with hash, epoch and generation.
/// * The end of the daemon, however sudden, changes no unit. The next daemon finds all units in the
///   state that they have reached by then.
/// * Calls for different units do not wait for each other. Calls for one unit take effect in the
///   order in which they are made.
/// * A failed call affects no other unit, and returns an error that a person understands.
/// * Every change of a unit's state reaches every [`ChangeReceiver`]. Changes in quick succession
///   may be reported as one.
///
/// The output of units is the matter of another trait,
/// [`JournalReader`](crate::journal::JournalReader).
#[async_trait]
pub trait ServiceManager: Send + Sync + 'static {
    /// Loads a unit from its file. If the unit is already known with the same file, only records
    /// the epoch. If it is known with another file, replaces that file: a running unit keeps
    /// running, its requested state stays the same, and its next start uses the new file.
    ///
    /// # Errors
    ///
    /// [`ServiceError::BadSetting`] if the file uses something that this service manager does not
    /// support. A new unit does not become known then.
    async fn load(
        &self,
        unit: &UnitName,
        file: &UnitFile,
        epoch: Epoch,
    ) -> Result<(), ServiceError>;

    /// Makes the service manager read all loaded files. The caller has to call this after a batch
    /// of loads and before any start.
    async fn reload(&self) -> Result<(), ServiceError>;

    /// Stops a unit if it runs, waits for its end, and forgets the unit. If the unit is not known,
    /// does nothing.
    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError>;

    /// Starts a unit and records the generation. Returns once the start has succeeded or failed.
    ///
    /// A failed unit is started again, and the count of its recent starts is reset. An active unit
    /// keeps running. As soon as the generation is recorded, the state of an inactive unit no
    /// longer shows the result of an earlier run.
    ///
    /// # Errors
    ///
    /// - [`ServiceError::NotLoaded`] if the unit is not known.
    /// - [`ServiceError::StartFailed`] if the unit did not become active. The unit is nevertheless
    ///   recorded as launched, and its own restart policy takes over.
    /// - [`ServiceError::NothingToTrigger`] if the unit would start another unit that is not
    ///   loaded. The unit is not recorded as launched.
    async fn start(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError>;

    /// Stops a unit if it is active, starts it again, and records the generation.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start).
    async fn restart(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError>;

    /// Stops a unit and waits for its end. The unit stays loaded. A start or restart in progress is
    /// cancelled, so this call takes no longer than the stop of a running unit.
    ///
    /// # Errors
    ///
    /// [`ServiceError::NotLoaded`], and [`ServiceError::Unavailable`].
    async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError>;

    /// Makes an active unit reload its own configuration, as its file specifies. Returns once the
    /// reload is over. The unit keeps running, and its requested state stays the same.
    ///
    /// No agent calls this method, because reloads are not a part of a unit's desired state.
    ///
    /// # Errors
    ///
    /// [`ServiceError::ReloadFailed`] if the unit is not active, if its file does not specify how
    /// to reload it, or if the reload failed. The default implementation returns this error for
    /// every known unit.
    async fn reload_unit(&self, unit: &UnitName) -> Result<(), ServiceError> {
        let unit = unit.clone();
        if self.get(&unit).await?.is_none() {
            return Err(ServiceError::NotLoaded { unit });
        }
        let problem = "this service manager cannot reload units: restart it".to_owned();
        Err(ServiceError::ReloadFailed { unit, problem })
    }

    /// Returns a known unit; `None` if it is not known.
    async fn get(&self, unit: &UnitName) -> Result<Option<ManagedUnit>, ServiceError>;

    /// Returns all known units, ordered by name.
    async fn list(&self) -> Result<Vec<ManagedUnit>, ServiceError>;

    /// Returns how the unit was changed outside of fleet since fleet's last request for the unit.
    /// Returns `None` if it was not changed, or if this service manager cannot detect such changes.
    /// When the returned value changes, the unit is reported as changed.
    async fn drift(&self, unit: &UnitName) -> Result<Option<Drift>, ServiceError> {
        let _ = unit;
        Ok(None)
    }

    /// Returns the stop timeout that the service manager applies to a known unit. It includes
    /// drop-ins and defaults of the machine, which the unit's file does not show. [`Duration::MAX`]
    /// means that there is no timeout. `None` means that the unit's file alone determines the
    /// timeout.
    ///
    /// # Errors
    ///
    /// [`ServiceError::NotLoaded`], and [`ServiceError::Unavailable`].
    async fn stop_timeout(&self, unit: &UnitName) -> Result<Option<Duration>, ServiceError> {
        let _ = unit;
        Ok(None)
    }

    /// Returns details of a known unit beyond its state. The default implementation returns empty
    /// details.
    ///
    /// # Errors
    ///
    /// [`ServiceError::NotLoaded`], and [`ServiceError::Unavailable`].
    async fn details(&self, unit: &UnitName) -> Result<UnitDetails, ServiceError> {
        let _ = unit;
        Ok(UnitDetails::default())
    }

    /// Subscribes to the names of units that change from now on.
    fn changes(&self) -> ChangeReceiver;
}

/// A unit as its service manager knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ManagedUnit {
    /// Its name.
    pub unit: UnitName,
    /// The loaded definition, and the last request.
    #[serde(with = "wire::KnownUnitWire")]
    pub known: KnownUnit,
    /// Its current state.
    #[serde(with = "wire::SystemdStateWire")]
    pub state: SystemdState,
    /// Why it has not begun to start, if it waits for something outside of fleet. A text for which
    /// [`is_wait_reason`] returns `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

/// First words of the reason of a unit that waits for something outside of fleet, or for another
/// unit of the cluster (`StartAfter=`).
pub(crate) const WAITS_FOR: &str = "waits for ";

/// Returns whether the published problem of a unit is only that it waits for something outside of
/// fleet, or for another unit of the cluster. Such a unit starts by itself once this is there.
#[must_use]
pub fn is_wait_reason(problem: &str) -> bool {
    problem.starts_with(WAITS_FOR)
}

impl ManagedUnit {
    /// Creates a description of a known unit.
    #[must_use]
    pub fn new(unit: UnitName, known: KnownUnit, state: SystemdState) -> Self {
        Self { unit, known, state, waits_for: None }
    }

    /// Whether the unit is neither active nor in transition: it is inactive or failed.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.state.active.has_ended()
    }
}

/// Change of a unit on its machine that fleet did not make. `Display` formats the change as a
/// sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Drift {
    /// It was stopped.
    Stopped,
    /// It was started, though it should only be loaded.
    Started,
    /// Its definition is another file, or has drop-ins that fleet did not add.
    Changed,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => {
                "stopped on its machine, but not by fleet, which leaves it stopped: start it with \
                 fleetctl start"
            }
            Self::Started => {
                "started on its machine, but not by fleet, which leaves it running: end that run \
                 with fleetctl stop, or make it the desired state with fleetctl start"
            }
            Self::Changed => {
                "its definition was changed on its machine, but not by fleet, which leaves it so: \
                 revert the change there, or make it with fleet"
            }
        })
    }
}

/// Error of a service manager.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ServiceError {
    /// The unit is not known.
    #[error("{unit} is not loaded")]
    NotLoaded {
        /// The unit.
        unit: UnitName,
    },
    /// The unit's file uses something that this service manager does not support.
    #[error("{unit}{}: {problem}", of_line(*line))]
    BadSetting {
        /// The unit.
        unit: UnitName,
        /// Line of the unit's file, counted from one; zero if the problem concerns the whole file.
        line: usize,
        /// The problem, and an alternative.
        problem: String,
    },
    /// The unit did not become active.
    #[error("{unit} did not start: {problem}")]
    StartFailed {
        /// The unit.
        unit: UnitName,
        /// The cause.
        problem: String,
    },
    /// The only purpose of the unit is to start another unit (for example, it is a timer), and that
    /// other unit is not loaded yet. The unit is not recorded as launched. Start it again once the
    /// other unit is loaded.
    #[error(
        "{unit} did not start: {missing}, which it triggers, is not loaded on its machine: \
         load it as well, and keep it there with MachineOf={missing} in the [X-Fleet] section of \
         {unit}"
    )]
    NothingToTrigger {
        /// The unit: a timer, socket or path.
        unit: UnitName,
        /// The other unit.
        missing: String,
    },
    /// The unit did not stop, or a later request has cancelled its stop.
    #[error("{unit} did not stop: {problem}")]
    StopFailed {
        /// The unit.
        unit: UnitName,
        /// The cause.
        problem: String,
    },
    /// The unit did not reload its configuration. It keeps running.
    #[error("{unit} was not reloaded: {problem}")]
    ReloadFailed {
        /// The unit.
        unit: UnitName,
        /// The cause, and an alternative.
        problem: String,
    },
    /// A file or process operation failed.
    #[error("cannot {action}")]
    Io {
        /// The attempted action.
        action: String,
        /// The cause.
        #[source]
        #[serde(with = "wire::io_error")]
        source: std::io::Error,
    },
    /// The service manager cannot be reached, or has ended.
    #[error("the service manager is unavailable: {0}")]
    Unavailable(String),
}

fn of_line(line: usize) -> String {
    if line == 0 { String::new() } else { format!(", line {line}") }
}

/// Collects the names of changed units for one subscriber.
///
/// The receiver holds each name at most once, so its size is bounded by the number of units.
#[derive(Debug)]
pub struct ChangeReceiver {
    inbox: Arc<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    changed: Mutex<BTreeSet<UnitName>>,
    wake: Notify,
}

impl ChangeReceiver {
    /// Waits until a unit has changed, and returns all units that changed since the last call.
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

/// Sending side of [`ChangeReceiver`], for implementations of a service manager.
#[derive(Debug, Default)]
pub struct ChangeSender {
    inboxes: Mutex<Vec<Weak<Inbox>>>,
}

impl ChangeSender {
    /// Creates a new subscriber.
    #[must_use]
    pub fn subscribe(&self) -> ChangeReceiver {
        let inbox = Arc::new(Inbox::default());
        let mut inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        inboxes.retain(|inbox| inbox.strong_count() > 0);
        inboxes.push(Arc::downgrade(&inbox));
        ChangeReceiver { inbox }
    }

    /// Notifies every subscriber that a unit has changed.
    pub fn report(&self, unit: &UnitName) {
        let inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        for inbox in inboxes.iter().filter_map(Weak::upgrade) {
            inbox.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(unit.clone());
            inbox.wake.notify_one();
        }
    }
}

/// Details of a unit beyond its state, for display. Many of them change constantly, so they are not
/// published, but read when a client asks for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UnitDetails {
    /// Latest `STATUS=` message of its current run.
    #[serde(default)]
    pub status_text: Option<String>,
    /// Time until it is restarted automatically, if it is.
    pub retry_in: Option<Duration>,
    /// Reasons why it is degraded, though it is active.
    pub degraded_by: Vec<String>,
    /// Options of the unit file that the service manager does not honour, or only in part. Each has
    /// its line, such as `PrivateTmp= (line 7)`.
    #[serde(default)]
    pub ignored_options: Vec<String>,
    /// Those of the ignored options that confine processes, limit their resources or change their
    /// privileges.
    #[serde(default)]
    pub ignored_sandboxing: Vec<String>,
    /// How its processes are tracked, and why not better.
    pub tracking: Option<String>,
    /// Time of the next elapse of a timer, as in [`wall_time`](crate::wall_time). `None` for other
    /// units, and for a timer that is not waiting.
    #[serde(with = "wire::millis")]
    pub next_elapse: Option<Timestamp>,
    /// Time of the last elapse of a timer, as in [`wall_time`](crate::wall_time).
    #[serde(with = "wire::millis")]
    pub last_elapse: Option<Timestamp>,
}

impl UnitDetails {
    /// Sets the latest `STATUS=` message.
    #[must_use]
    pub fn with_status_text(self, status_text: impl Into<Option<String>>) -> Self {
        Self { status_text: status_text.into(), ..self }
    }

    /// Sets the time until the unit is restarted automatically.
    #[must_use]
    pub fn with_retry_in(self, retry_in: impl Into<Option<Duration>>) -> Self {
        Self { retry_in: retry_in.into(), ..self }
    }

    /// Sets the reasons why the unit is degraded, though it is active.
    #[must_use]
    pub fn with_degraded_by(self, degraded_by: Vec<String>) -> Self {
        Self { degraded_by, ..self }
    }

    /// Sets the options of the unit file that are not honoured.
    #[must_use]
    pub fn with_ignored_options(self, ignored_options: Vec<String>) -> Self {
        Self { ignored_options, ..self }
    }

    /// Sets those of the ignored options that confine processes.
    #[must_use]
    pub fn with_ignored_sandboxing(self, ignored_sandboxing: Vec<String>) -> Self {
        Self { ignored_sandboxing, ..self }
    }

    /// Sets how the unit's processes are tracked.
    #[must_use]
    pub fn with_tracking(self, tracking: impl Into<Option<String>>) -> Self {
        Self { tracking: tracking.into(), ..self }
    }

    /// Sets the wall-clock time of a timer's next elapse.
    #[must_use]
    pub fn with_next_elapse(self, next_elapse: impl Into<Option<Timestamp>>) -> Self {
        Self { next_elapse: next_elapse.into(), ..self }
    }

    /// Sets the wall-clock time of a timer's last elapse.
    #[must_use]
    pub fn with_last_elapse(self, last_elapse: impl Into<Option<Timestamp>>) -> Self {
        Self { last_elapse: last_elapse.into(), ..self }
    }
}
