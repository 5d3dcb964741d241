//! Names of units and targets.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Maximum length of a name, in bytes.
const MAX_LENGTH: usize = 255;

/// Name of a unit. Dependencies do not name units but targets (see [`Target`]), so the planner uses
/// unit names only to break ties.
///
/// A name has 1 to 255 characters: ASCII letters, digits and `_-.@:\`. Every systemd unit name is a
/// valid name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// Name of something that one unit provides and that other units can depend on. The syntax is that
/// of a [`Name`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target(Arc<str>);

/// Error for a text that is not a valid name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// The text is empty.
    #[error("the name is empty")]
    Empty,
    /// The text is longer than 255 bytes.
    #[error("the name has {0} bytes; at most 255 are allowed")]
    TooLong(usize),
    /// The text contains a character that names must not contain.
    #[error("`{character}` is not allowed; use ASCII letters, digits and _ - . @ : \\")]
    Character {
        /// First such character.
        character: char,
        /// Its byte offset in the text.
        at: usize,
    },
}

macro_rules! name_type {
    ($type:ident) => {
        impl $type {
            /// Creates a name from a text.
            ///
            /// # Errors
            ///
            /// Returns the first syntax rule that the text violates.
            pub fn new(text: &str) -> Result<Self, InvalidName> {
                check(text).map(|()| Self(text.into()))
            }

            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $type {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }
    };
}

name_type!(Name);
name_type!(Target);

impl From<&Name> for Target {
    /// Returns the target of the same name as the unit.
    fn from(name: &Name) -> Self {
        Self(Arc::clone(&name.0))
    }
}

fn check(text: &str) -> Result<(), InvalidName> {
    if text.is_empty() {
        return Err(InvalidName::Empty);
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.@:\\".contains(c);
    if let Some((at, character)) = text.char_indices().find(|&(_, c)| !allowed(c)) {
        return Err(InvalidName::Character { character, at });
    }
    if text.len() > MAX_LENGTH {
        return Err(InvalidName::TooLong(text.len()));
    }
    Ok(())
}
