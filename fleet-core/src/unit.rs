//! Units: a named unit file with its desired state, and the states that machines report. Also
//! placements, which assign units to machines.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use fleet_unitfile::{UnitFile, UnitHash, UnitName};

use crate::health::Health;
use crate::{Epoch, Generation, MachineId, Requirements, Timestamp};

/// A unit of the cluster.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of units that a new field has to become a part of.
#[derive(Debug, Clone)]
pub struct Unit {
    /// The name, unique in the cluster.
    pub name: UnitName,
    /// The unit file.
    pub file: UnitFile,
    /// Requirements for a machine, parsed from the `[X-Fleet]` section.
    pub requirements: Arc<Requirements>,
    /// The state requested by the user.
    pub desired: TargetState,
    /// Number of requested restarts.
    pub generation: Generation,
}

impl Unit {
    /// Makes a unit without any requested restart.
    #[must_use]
    pub fn new(
        name: UnitName,
        file: UnitFile,
        requirements: Requirements,
        desired: TargetState,
    ) -> Self {
        let requirements = Arc::new(requirements);
        Self { name, file, requirements, desired, generation: Generation::ZERO }
    }

    /// Returns the hash of the unit file.
    #[must_use]
    pub fn hash(&self) -> UnitHash {
        self.file.hash()
    }

    /// Returns `true` if the unit runs on every eligible machine instead of being placed on one.
    #[must_use]
    pub fn is_global(&self) -> bool {
        self.requirements.global
    }

    /// Returns `true` if the unit is a job: it runs to completion once (`RunOnce=true`), and has no
    /// schedule.
    #[must_use]
    pub fn is_job(&self) -> bool {
        self.requirements.is_job()
    }

    /// Returns `true` if the unit is a schedule (`Schedule=`), of which the leader makes runs.
    #[must_use]
    pub fn is_schedule(&self) -> bool {
        self.requirements.is_schedule()
    }

    /// Returns `true` if the unit belongs on a machine, because it is neither inactive nor a
    /// template nor a schedule.
    ///
    /// The unit of a schedule never runs itself, whatever its desired state is. Only the runs that
    /// the leader makes of it are placed, and each of them is a unit with its own name.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.desired != TargetState::Inactive && !self.name.is_template() && !self.is_schedule()
    }
}

/// The engine's decision to run a unit on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The machine.
    pub machine: MachineId,
    /// Epoch of the decision; see [`Epoch`].
    pub epoch: Epoch,
}

/// A cluster-level state of a unit, either desired or current.
///
/// The states are ordered: `Inactive`, `Loaded`, `Launched`. A unit that changes from one state to
/// another passes through the states in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetState {
    /// Known to fleet, but not assigned to a machine.
    Inactive,
    /// Assigned to a machine and loaded into its service manager, but not started.
    Loaded,
    /// Loaded, and requested to start.
    Launched,
}

impl TargetState {
    /// All states, in ascending order.
    pub const ALL: [Self; 3] = [Self::Inactive, Self::Loaded, Self::Launched];

    /// Returns the state's name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Loaded => "loaded",
            Self::Launched => "launched",
        }
    }

    /// Returns the states on the way from this state to `goal`, including `goal`.
    pub fn steps_to(self, goal: Self) -> impl Iterator<Item = Self> {
        let (from, to) = (self as usize, goal as usize);
        let rising = Self::ALL.into_iter().filter(move |s| from < *s as usize && *s as usize <= to);
        let falling =
            Self::ALL.into_iter().rev().filter(move |s| to <= *s as usize && (*s as usize) < from);
        rising.chain(falling)
    }
}

impl fmt::Display for TargetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Error for a text that is none of the three states.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown state {0:?}: write \"inactive\", \"loaded\" or \"launched\"")]
pub struct UnknownTargetState(pub String);

impl FromStr for TargetState {
    type Err = UnknownTargetState;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|state| state.as_str() == text);
        known.ok_or_else(|| UnknownTargetState(text.to_owned()))
    }
}

/// A command that changes the desired state of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Makes the unit known.
    Submit,
    /// Assigns the unit to a machine and loads it.
    Load,
    /// Starts the unit.
    Start,
    /// Stops the unit, but keeps it loaded.
    Stop,
    /// Stops the unit and removes it from its machine.
    Unload,
    /// Removes the unit from the cluster.
    Destroy,
}

impl Verb {
    /// Returns the command's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Load => "load",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Unload => "unload",
            Self::Destroy => "destroy",
        }
    }

    /// Returns the desired state after the command. Returns `None` if fleet does not know the unit
    /// afterwards.
    #[must_use]
    pub const fn goal(self) -> Option<TargetState> {
        match self {
            Self::Submit | Self::Unload => Some(TargetState::Inactive),
            Self::Load | Self::Stop => Some(TargetState::Loaded),
            Self::Start => Some(TargetState::Launched),
            Self::Destroy => None,
        }
    }

    /// Applies the command to a unit with the desired state `from`, which is `None` for an unknown
    /// unit.
    ///
    /// Submit, load and start only raise the desired state; the other commands only lower it.
    /// Repeating a command changes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidTransition`] if the command would change the state in the wrong direction,
    /// for example if it stops a unit that was never loaded.
    pub fn apply(self, from: Option<TargetState>) -> Result<Transition, InvalidTransition> {
        let goal = self.goal();
        if from == goal {
            return Ok(Transition::Unchanged);
        }
        let brings_up = matches!(self, Self::Submit | Self::Load | Self::Start);
        if brings_up == (from < goal) {
            return Ok(Transition::Change(goal));
        }
        Err(InvalidTransition { verb: self, from })
    }
}

/// The effect of a command on a desired state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// The unit is already in that state.
    Unchanged,
    /// The desired state becomes this one; `None` removes the unit.
    Change(Option<TargetState>),
}

/// Error for a command that may not be applied to a unit in its current desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidTransition {
    /// The command.
    pub verb: Verb,
    /// The unit's desired state; `None` if it is unknown.
    pub from: Option<TargetState>,
}

impl std::error::Error for InvalidTransition {}

impl fmt::Display for InvalidTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = self.verb.as_str();
        let Some(from) = self.from else {
            return write!(f, "cannot {verb} a unit that is not known: submit it first");
        };
        write!(f, "cannot {verb} a unit whose desired state is {from}")?;
        match (self.verb, from) {
            (Verb::Load, _) => f.write_str(": use stop to take it down to loaded"),
            (Verb::Submit, _) => f.write_str(": use unload to take it down to inactive"),
            (Verb::Stop, _) => f.write_str(": it is not started"),
            _ => Ok(()),
        }
    }
}

macro_rules! states {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// All states.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Returns systemd's word for the state.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl FromStr for $name {
            type Err = UnknownSystemdState;

            /// Parses systemd's word.
            fn from_str(text: &str) -> Result<Self, UnknownSystemdState> {
                let known = Self::ALL.iter().find(|state| state.as_str() == text);
                known.copied().ok_or_else(|| UnknownSystemdState {
                    property: stringify!($name),
                    word: text.to_owned(),
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

states! {
    /// Load state of the unit's definition; systemd's `LoadState`.
    LoadState {
        /// The definition was not loaded yet.
        Stub = "stub",
        /// The definition was loaded.
        Loaded = "loaded",
        /// No definition exists.
        NotFound = "not-found",
        /// The definition contains an invalid setting.
        BadSetting = "bad-setting",
        /// The definition could not be loaded.
        Error = "error",
        /// The definition was merged into that of another unit.
        Merged = "merged",
        /// The unit is masked.
        Masked = "masked",
    }
}

states! {
    /// Activation state of the unit; systemd's `ActiveState`.
    ActiveState {
        /// The unit is active.
        Active = "active",
        /// The unit is active and reloads its configuration.
        Reloading = "reloading",
        /// The unit is not active, and its last run did not fail.
        Inactive = "inactive",
        /// The unit is not active, and its last run failed.
        Failed = "failed",
        /// The unit is being activated.
        Activating = "activating",
        /// The unit is being deactivated.
        Deactivating = "deactivating",
        /// The unit is inactive during maintenance.
        Maintenance = "maintenance",
        /// The unit is active, and its mounts are being refreshed.
        Refreshing = "refreshing",
    }
}

impl ActiveState {
    /// Returns whether the unit is neither active nor in transition: it is inactive or failed.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Inactive | Self::Failed)
    }
}

/// Error for a word that is not a state of systemd.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not a value of {property} in systemd")]
#[non_exhaustive]
pub struct UnknownSystemdState {
    /// systemd's property: `LoadState` or `ActiveState`.
    pub property: &'static str,
    /// The unknown word.
    pub word: String,
}

/// Exit status of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExitStatus {
    /// The process exited with this code.
    Code(i32),
    /// The process was killed by this signal.
    Signal(i32),
    /// The exit status was not observed.
    Unknown,
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with status {code}"),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
            Self::Unknown => f.write_str("ended with unknown status"),
        }
    }
}

/// State of a unit as reported by its service manager, in systemd's terms.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of states that a new field has to become a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemdState {
    /// The load state.
    pub load: LoadState,
    /// The active state.
    pub active: ActiveState,
    /// The low-level state, which depends on the unit type, for example `running`.
    pub sub: String,
    /// Time at which the unit entered its active state, in milliseconds since 1970 by the machine's
    /// clock. `None` if it is not known, or if the unit was never started.
    pub since: Option<Timestamp>,
    /// The result of the last run in the terms of systemd, such as `success`, `exit-code`,
    /// `signal`, `timeout`, `start-limit-hit` or `resources`. `None` before the first run.
    pub result: Option<String>,
    /// The main process, while there is one.
    pub main_pid: Option<u32>,
    /// Exit status of the last main process.
    pub exit: Option<ExitStatus>,
    /// Number of automatic restarts by the service manager since the last requested start.
    pub restarts: u32,
}

impl SystemdState {
    /// Makes the state of a unit that was loaded and never started.
    #[must_use]
    pub fn loaded() -> Self {
        Self::new(LoadState::Loaded, ActiveState::Inactive, "dead")
    }

    /// Makes a state of which only the three main components are known.
    #[must_use]
    pub fn new(load: LoadState, active: ActiveState, sub: &str) -> Self {
        Self {
            load,
            active,
            sub: sub.to_owned(),
            since: None,
            result: None,
            main_pid: None,
            exit: None,
            restarts: 0,
        }
    }
}

/// State of a unit on one machine, as published by its agent.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of states that a new field has to become a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitState {
    /// The unit.
    pub unit: UnitName,
    /// The machine that reports the state.
    pub machine: MachineId,
    /// Hash of the unit file loaded on the machine.
    pub hash: UnitHash,
    /// The state that the agent last requested from its service manager: [`TargetState::Loaded`] or
    /// [`TargetState::Launched`].
    pub requested: TargetState,
    /// Epoch of the placement that the agent acted on.
    pub epoch: Epoch,
    /// The generation that the agent last started.
    pub generation: Generation,
    /// State reported by the service manager.
    pub systemd: SystemdState,
    /// The error that keeps the agent from applying the desired state, if there is one.
    pub problem: Option<String>,
    /// Result of the unit's health check. `None` if the unit has no health check, or is not active.
    pub health: Option<Health>,
    /// Last lines of the output of a job that has ended; empty for every other unit.
    pub output: Vec<String>,
}
