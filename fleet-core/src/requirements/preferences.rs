//! What a unit would rather have, and what becomes of it when its machine is lost.

use std::fmt;

use crate::Expression;

/// One `Prefer=`: machines for which the expression is true are better, or worse.
///
/// It prints as it is written in a unit file, `10: disk = ssd`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Preference {
    /// How much better: -1000 to 1000, and not 0. It is 1 where the unit file does not say.
    pub weight: i32,
    /// What is asked of the machine's metadata.
    pub expression: Expression,
}

/// One `Spread=`: instances of the unit's template keep away from machines that have the same
/// value of a metadata key as those on which others are.
///
/// It prints as it is written in a unit file, `5: zone`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spread {
    /// How much worse each instance makes a machine: 1 to 1000. It is 1 where the unit file does
    /// not say.
    pub weight: i32,
    /// The key.
    pub key: String,
}

/// `Reschedule=`: whether a unit gets another machine when its own is lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reschedule {
    /// It does.
    #[default]
    Always,
    /// It does not, and waits for the machine to come back.
    Never,
}

/// `OnPartition=`: what an agent that has lost the cluster does with the unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnPartition {
    /// It lets the unit run, which may run twice then.
    #[default]
    Keep,
    /// It stops the unit before the engine may place it again, so that it never runs twice.
    Stop,
}

impl Preference {
    /// The weights that a preference may have, 0 excepted.
    pub const WEIGHTS: std::ops::RangeInclusive<i32> = -1000..=1000;
}

impl Spread {
    /// The weights that a spread may have.
    pub const WEIGHTS: std::ops::RangeInclusive<i32> = 1..=1000;
}

impl Reschedule {
    /// The value as it is written in a unit file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Never => "never",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        [Self::Always, Self::Never].into_iter().find(|value| value.as_str() == name)
    }
}

impl OnPartition {
    /// The value as it is written in a unit file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Stop => "stop",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        [Self::Keep, Self::Stop].into_iter().find(|value| value.as_str() == name)
    }
}

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.weight, self.expression)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.weight, self.key)
    }
}

impl fmt::Display for Reschedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for OnPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
