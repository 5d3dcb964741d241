//! States of a unit as reported by a machine's service manager.

use std::fmt;
use std::str::FromStr;

use fleet_unitfile::{UnitHash, UnitName};

use crate::{Epoch, Generation, MachineId, TargetState};

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
}
