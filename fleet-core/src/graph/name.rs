//! Names of units, and of the targets that they provide.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// How long a name may be, in bytes.
const LONGEST: usize = 255;

/// The name of a unit. It means nothing to the planner beyond breaking ties; dependencies name
/// [`Target`]s.
///
/// One to 255 of the ASCII letters, digits and `_-.@:\`, so that every name of a systemd unit is
/// one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// What a unit provides and others depend on. It is spelt as a [`Name`] is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target(Arc<str>);

/// Why a text is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// It is longer than 255 bytes.
    #[error("it is {0} bytes long, and 255 is the most")]
    TooLong(usize),
    /// It holds a character that no name holds, at this byte.
    #[error("`{character}` is not allowed in it, only ASCII letters, digits and _ - . @ : \\")]
    Character {
        /// The first one that is not allowed.
        character: char,
        /// Where it begins, in bytes from the start.
        at: usize,
    },
}

macro_rules! spelt_as_a_name {
    ($type:ident) => {
        impl $type {
            /// Reads it.
            ///
            /// # Errors
            ///
            /// The first thing that is wrong with the text.
            pub fn new(text: &str) -> Result<Self, InvalidName> {
                check(text).map(|()| Self(text.into()))
            }

            /// As it is written.
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

spelt_as_a_name!(Name);
spelt_as_a_name!(Target);

impl From<&Name> for Target {
    /// The target that is called as a unit.
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
    if text.len() > LONGEST {
        return Err(InvalidName::TooLong(text.len()));
    }
    Ok(())
}
