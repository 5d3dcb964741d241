//! Peers in `MachineOf=`: a unit, or a pattern over unit names.

use std::fmt;

use fleet_unitfile::{NameError, UnitName};

use crate::{Pattern, PatternError};

/// A peer that must be on the same machine.
///
/// ```
/// use fleet_core::Peer;
///
/// let db: Peer = "db.service".parse()?;
/// assert!(db.name().is_some());
///
/// let any_db: Peer = "db@*.service".parse()?;
/// assert!(any_db.matches(&"db@1.service".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// This unit.
    Named(UnitName),
    /// At least one other unit that the pattern matches.
    Matching(Pattern),
}

/// Error for a text that is neither a unit name nor a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub enum PeerError {
    /// The text has no wildcard and is not a unit name.
    Name(NameError),
    /// The text has a wildcard and is not a pattern.
    Pattern(PatternError),
}

impl Peer {
    /// Returns the unit name, unless the peer is a pattern.
    #[must_use]
    pub fn name(&self) -> Option<&UnitName> {
        match self {
            Self::Named(name) => Some(name),
            Self::Matching(_) => None,
        }
    }

    /// Returns `true` if the peer is this unit or a pattern that matches this unit.
    #[must_use]
    pub fn matches(&self, unit: &UnitName) -> bool {
        match self {
            Self::Named(name) => name == unit,
            Self::Matching(pattern) => pattern.matches(unit),
        }
    }

    /// Returns the name or the pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Named(name) => name.as_str(),
            Self::Matching(pattern) => pattern.as_str(),
        }
    }
}

impl std::str::FromStr for Peer {
    type Err = PeerError;

    fn from_str(text: &str) -> Result<Self, PeerError> {
        if text.contains(['*', '?', '[']) {
            return text.parse().map(Self::Matching).map_err(PeerError::Pattern);
        }
        UnitName::parse(text).map(Self::Named).map_err(PeerError::Name)
    }
}

impl From<UnitName> for Peer {
    fn from(name: UnitName) -> Self {
        Self::Named(name)
    }
}

impl PartialEq<&str> for Peer {
    fn eq(&self, text: &&str) -> bool {
        self.as_str() == *text
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
