//! What a machine's service manager says of a unit.

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

            /// The word that systemd prints.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl FromStr for $name {
            type Err = UnknownSystemdState;

            /// Reads systemd's word; any other text is refused.
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
    /// Whether the unit's definition could be read; systemd's `LoadState`.
    LoadState {
        /// The definition was not read yet.
        Stub = "stub",
        /// The definition was read.
        Loaded = "loaded",
        /// There is no definition.
        NotFound = "not-found",
        /// The definition holds a setting that cannot be obeyed.
        BadSetting = "bad-setting",
        /// The definition could not be read.
        Error = "error",
        /// The definition was merged into another unit's.
        Merged = "merged",
        /// The unit is masked.
        Masked = "masked",
    }
}

states! {
    /// Whether the unit is active; systemd's `ActiveState`.
    ActiveState {
        /// It is active.
        Active = "active",
        /// It is active and reloads its configuration.
        Reloading = "reloading",
        /// It is not active, and its last run was no failure.
        Inactive = "inactive",
        /// It is not active, and its last run failed.
        Failed = "failed",
        /// It is becoming active.
        Activating = "activating",
        /// It is becoming inactive.
        Deactivating = "deactivating",
        /// It is inactive while maintenance is under way.
        Maintenance = "maintenance",
        /// It is active and its mounts are being refreshed.
        Refreshing = "refreshing",
    }
}

/// A word that systemd has for no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is no {property} that systemd has")]
pub struct UnknownSystemdState {
    /// systemd's property: `LoadState` or `ActiveState`.
    pub property: &'static str,
    /// The word.
    pub word: String,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// It ended while nobody watched, so how is not known.
    Unknown,
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with status {code}"),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
            Self::Unknown => f.write_str("ended unseen"),
        }
    }
}

/// The state of a unit as its service manager reports it, in systemd's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemdState {
    /// Whether its definition was read.
    pub load: LoadState,
    /// Whether it is active.
    pub active: ActiveState,
    /// The low-level state, whose words depend on the unit's type, for example `running`.
    pub sub: String,
    /// Why its last run ended, in systemd's words (`success`, `exit-code`, `signal`, `timeout`,
    /// `start-limit-hit`, `resources`...); `None` before its first run.
    pub result: Option<String>,
    /// The process that is the unit, while there is one.
    pub main_pid: Option<u32>,
    /// How its last main process ended.
    pub exit: Option<ExitStatus>,
    /// How often the service manager itself restarted it since it was last asked to start it.
    pub restarts: u32,
}

impl SystemdState {
    /// The state of a unit that was loaded and never started.
    #[must_use]
    pub fn loaded() -> Self {
        Self::new(LoadState::Loaded, ActiveState::Inactive, "dead")
    }

    /// A state of which only the three documented components are known.
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

/// The state of a unit on one machine, as that machine's agent published it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitState {
    /// The unit.
    pub unit: UnitName,
    /// The machine that reports it.
    pub machine: MachineId,
    /// The hash of the unit file that the machine has loaded.
    pub hash: UnitHash,
    /// What the agent last asked of its service manager: [`TargetState::Loaded`] or
    /// [`TargetState::Launched`].
    pub requested: TargetState,
    /// The epoch of the placement that the agent acted on.
    pub epoch: Epoch,
    /// The generation that the agent last started.
    pub generation: Generation,
    /// What the service manager says.
    pub systemd: SystemdState,
    /// Why the agent could not do what it was told, if it could not.
    pub problem: Option<String>,
}
