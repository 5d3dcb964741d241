//! Specifiers of v1: percent signs that stand for parts of the unit's own name. Used in the options
//! of the section `X-Fleet`.

use crate::escape::{EscapeError, unescape};
use crate::name::UnitName;
use crate::specifier_context::Specifier;

/// Expands specifiers in an option of fleet, by the rules of fleet v1. All of them stand for parts
/// of the unit's name.
///
/// These rules are wrong for options of systemd: use
/// [`SpecifierContext::expand`](crate::SpecifierContext::expand) for those, and
/// [`CommandLine`](crate::CommandLine) for commands.
///
/// | specifier | stands for |
/// |---|---|
/// | `%n` | the whole name |
/// | `%N` | the name without its type, unescaped |
/// | `%p` | the prefix, unescaped |
/// | `%i` | the instance, verbatim; empty if the name has none |
/// | `%%` | a percent sign |
///
/// # Errors
///
/// Returns an error if a percent sign is not followed by one of these letters or another percent
/// sign. Also returns an error if the part of the name for `%N` or `%p` cannot be unescaped.
///
/// ```
/// use fleet_unitfile::{UnitName, expand_fleet_specifiers};
///
/// let name = UnitName::parse("web@3.service")?;
/// assert_eq!(expand_fleet_specifiers("%p-%i at 100%%", &name)?, "web-3 at 100%");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn expand_fleet_specifiers(text: &str, name: &UnitName) -> Result<String, SpecifierError> {
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

/// Error for specifiers that cannot be expanded. Its offsets are byte offsets in the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecifierError {
    /// A letter that is not a specifier.
    #[error("unknown specifier \"%{letter}\": use %n, %N, %p or %i, and %% for a percent sign")]
    Unknown {
        /// The offset of the percent sign.
        at: usize,
        /// The character after the percent sign.
        letter: char,
    },
    /// A specifier without a value in the context.
    #[error(
        "specifier \"%{letter}\" cannot be expanded, because the {specifier} is not known: write \
         the value itself"
    )]
    UnknownValue {
        /// The offset of the percent sign.
        at: usize,
        /// The letter of the specifier.
        letter: char,
        /// The specifier.
        specifier: Specifier,
    },
    /// A letter for which systemd has no specifier.
    #[error("unknown specifier \"%{letter}\": write %% for a percent sign")]
    NotASpecifier {
        /// The offset of the percent sign.
        at: usize,
        /// The character after the percent sign.
        letter: char,
    },
    /// A percent sign with nothing after it.
    #[error("incomplete specifier \"%\" at the end: write %% for a percent sign")]
    Unfinished {
        /// The offset of the percent sign.
        at: usize,
    },
    /// The specifier stands for an unescaped part of the name, but this part contains an invalid
    /// escape.
    #[error(
        "specifier \"%{letter}\" cannot be expanded, because the unit name has an invalid escape"
    )]
    Unescape {
        /// The offset of the percent sign.
        at: usize,
        /// The letter of the specifier.
        letter: char,
        /// The invalid escape in the name.
        source: EscapeError,
    },
}
