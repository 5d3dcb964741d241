//! The strategy of a rollout: its pace, its limits, and the reaction to a failure.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::RolloutError;

/// A number of members, as a count or as a percentage of all members.
///
/// ```
/// use fleet_core::rollout::CountOrPercent;
///
/// let share: CountOrPercent = "30%".parse()?;
/// assert_eq!((share.of(10), share.of(4)), (3, 2));
/// assert_eq!("2".parse(), Ok(CountOrPercent::Count(2)));
/// # Ok::<(), fleet_core::rollout::CountOrPercentError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountOrPercent {
    /// This many members.
    Count(u32),
    /// This percentage of the members, rounded up.
    Percent(u32),
}

impl CountOrPercent {
    /// Returns the number of members that this share of `members` means. A count is returned
    /// unchanged, even if there are fewer members.
    #[must_use]
    pub fn of(self, members: usize) -> usize {
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        match self {
            Self::Count(count) => number(count),
            Self::Percent(percent) => members.saturating_mul(number(percent)).div_ceil(100),
        }
    }
}

impl fmt::Display for CountOrPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Error for a text that is not a share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a number of members: write a count such as 2, or a percentage such as 25%")]
pub struct CountOrPercentError(pub String);

impl FromStr for CountOrPercent {
    type Err = CountOrPercentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || CountOrPercentError(text.to_owned());
        let (digits, share): (&str, fn(u32) -> Self) = match text.strip_suffix('%') {
            Some(digits) => (digits, Self::Percent),
            None => (text, Self::Count),
        };
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(error());
        }
        digits.parse().map(share).map_err(|_| error())
    }
}

/// Reaction to a member that fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// All updated members return to their former version.
    #[default]
    Rollback,
    /// The rollout ends, and all members keep the version that they have.
    Stop,
}

/// The strategy of a rollout.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of rollouts that a new field has to become a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolloutStrategy {
    /// Maximum number of members in a batch, at least one.
    pub at_once: CountOrPercent,
    /// Minimum number of healthy members. The rollout changes no healthy member if fewer than these
    /// would remain.
    pub min_available: CountOrPercent,
    /// Time for which a member must be healthy without interruption before it counts as updated.
    pub settle: Duration,
    /// Time in which a member of a batch must become healthy. It begins when the rollout observes
    /// that the member's new version is stored.
    pub deadline: Duration,
    /// Reaction to a member that fails.
    pub on_failure: OnFailure,
}

impl Default for RolloutStrategy {
    /// One member after the other, each healthy for five seconds and within five minutes, with a
    /// rollback on failure.
    fn default() -> Self {
        Self {
            at_once: CountOrPercent::Count(1),
            min_available: CountOrPercent::Count(0),
            settle: Duration::from_secs(5),
            deadline: Duration::from_secs(300),
            on_failure: OnFailure::default(),
        }
    }
}

impl RolloutStrategy {
    /// Checks the strategy for a rollout of this many members. `existing` is the number of members
    /// that the rollout does not create.
    ///
    /// # Errors
    ///
    /// Returns [`RolloutError`] if a percentage is above 100, or if the strategy would never update
    /// a member.
    pub fn check(&self, members: usize, existing: usize) -> Result<(), RolloutError> {
        let shares = [("at-once", self.at_once), ("min-available", self.min_available)];
        for (setting, share) in shares {
            if let CountOrPercent::Percent(percent @ 101..) = share {
                return Err(RolloutError::PercentTooHigh { setting, percent });
            }
        }
        if matches!(self.at_once, CountOrPercent::Count(0) | CountOrPercent::Percent(0)) {
            return Err(RolloutError::NothingAtOnce { at_once: self.at_once });
        }
        if self.deadline.is_zero() {
            return Err(RolloutError::NoDeadline);
        }
        // To create a member makes no other member unavailable.
        let min_available = self.min_available;
        if existing > 0 && min_available.of(members) >= members {
            return Err(RolloutError::NoMemberAdmitted { min_available, members });
        }
        Ok(())
    }

    /// Returns the maximum number of members in a batch.
    #[must_use]
    pub fn batch_size(&self, members: usize) -> usize {
        self.at_once.of(members).max(1)
    }
}
