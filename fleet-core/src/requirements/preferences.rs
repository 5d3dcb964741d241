//! Soft preferences of a unit, and its policies for a lost machine.

use std::fmt;

use crate::Expression;

/// One `Prefer=` option: a condition with a weight. Machines that meet the condition are preferred
/// or, if the weight is negative, avoided.
///
/// `Display` writes the preference as in a unit file: `10: disk = ssd`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Preference {
    /// Weight from -1000 to 1000, except 0. The default is 1.
    pub weight: i32,
    /// The condition on the machine's metadata.
    pub expression: Expression,
}

/// One `Spread=` option: a metadata key with a weight. Instances of the unit's template are spread
/// over machines with different values of the key (for example, over zones).
///
/// `Display` writes the option as in a unit file: `5: zone`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spread {
    /// Penalty for choosing a machine, per instance that already runs on a machine with the same
    /// value of the key. From 1 to 1000; the default is 1.
    pub weight: i32,
    /// The metadata key.
    pub key: String,
}

/// `Reschedule=`: the policy after the loss of a unit's machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reschedule {
    /// The unit is placed on another machine.
    #[default]
    Always,
    /// The unit waits for its machine to return.
    Never,
}

/// `OnPartition=`: the policy of an agent that has lost contact with the cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnPartition {
    /// The unit keeps running, so it may run on two machines at once.
    #[default]
    Keep,
    /// The agent stops the unit before the engine may place it on another machine, so the unit
    /// never runs twice.
    Stop,
}

impl Preference {
    /// The allowed weights of a preference; 0 is excluded.
    pub const WEIGHTS: std::ops::RangeInclusive<i32> = -1000..=1000;
}

impl Spread {
    /// The allowed weights of a spread.
    pub const WEIGHTS: std::ops::RangeInclusive<i32> = 1..=1000;
}

impl Reschedule {
    /// Returns the value as written in a unit file.
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
    /// Returns the value as written in a unit file.
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

/// Returns whether a text can be the key of a `Spread=`.
pub(super) fn is_spread_key(key: &str) -> bool {
    !key.is_empty() && !key.contains(|c: char| c.is_whitespace() || c.is_control() || c == '=')
}
