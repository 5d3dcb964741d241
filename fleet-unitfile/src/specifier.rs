//! Specifiers: percent signs that stand for parts of the unit's own name.

use crate::escape::{EscapeError, unescape};
use crate::facts::Fact;
use crate::name::UnitName;

/// Replaces the specifiers of a value by parts of the unit's name.
///
/// | specifier | stands for |
/// |---|---|
/// | `%n` | the whole name |
/// | `%N` | the name without its type, unescaped |
/// | `%p` | the prefix, unescaped |
/// | `%i` | the instance, verbatim; empty where there is none |
/// | `%%` | a percent sign |
///
/// # Errors
///
/// A percent sign followed by anything else, or by nothing; a name that cannot be unescaped.
///
/// ```
/// use fleet_unitfile::{UnitName, expand_specifiers};
///
/// let name = UnitName::parse("web@3.service")?;
/// assert_eq!(expand_specifiers("%p-%i at 100%%", &name)?, "web-3 at 100%");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn expand_specifiers(text: &str, name: &UnitName) -> Result<String, SpecifierError> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        expanded.push_str(before);
        let at = text.len() - after.len() - 1;
        let mut characters = after.chars();
        let letter = characters.next().ok_or(SpecifierError::Unfinished { at })?;
        let unescaped =
            |part| unescape(part).map_err(|source| SpecifierError::Unescape { at, letter, source });
        match letter {
            '%' => expanded.push('%'),
            'n' => expanded.push_str(name.as_str()),
            'N' => expanded.push_str(&unescaped(name.stem())?),
            'p' => expanded.push_str(&unescaped(name.prefix())?),
            'i' => expanded.push_str(name.instance().unwrap_or_default()),
            _ => return Err(SpecifierError::Unknown { at, letter }),
        }
        rest = characters.as_str();
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Why the specifiers of a value cannot be replaced; offsets are in bytes of the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecifierError {
    /// A letter that is no specifier.
    #[error(
        "unknown specifier \"%{letter}\" at byte {at}: use %n, %N, %p or %i, and %% for a \
         percent sign"
    )]
    Unknown {
        /// The offset of the percent sign.
        at: usize,
        /// What follows it.
        letter: char,
    },
    /// A specifier that stands for something which is not known here.
    #[error("specifier \"%{letter}\" at byte {at} stands for the {fact}, which is not known")]
    UnknownFact {
        /// The offset of the percent sign.
        at: usize,
        /// The specifier.
        letter: char,
        /// What it stands for.
        fact: Fact,
    },
    /// A letter that systemd has no specifier for.
    #[error("unknown specifier \"%{letter}\" at byte {at}: write %% for a percent sign")]
    NoSpecifier {
        /// The offset of the percent sign.
        at: usize,
        /// What follows it.
        letter: char,
    },
    /// A percent sign with nothing after it.
    #[error("percent sign at the end, byte {at}: write %% for a percent sign")]
    Unfinished {
        /// The offset of the percent sign.
        at: usize,
    },
    /// The part of the name that is asked for is not escaped properly.
    #[error("specifier \"%{letter}\" at byte {at} needs a unit name with proper escapes")]
    Unescape {
        /// The offset of the percent sign.
        at: usize,
        /// The specifier.
        letter: char,
        /// What is wrong with the name.
        source: EscapeError,
    },
}
