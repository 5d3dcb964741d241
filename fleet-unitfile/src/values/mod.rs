//! Values of options: booleans, words, sizes, time spans and variables.

pub(crate) mod size;
pub(crate) mod timespan;
pub(crate) mod words;

pub use crate::values::size::{Size, SizeError, parse_permyriad, parse_size};
pub use crate::values::timespan::{Timespan, TimespanError, parse_timespan};
pub use crate::values::words::{
    WordError, cescape, cunescape, quote_word, split_words, split_words_relaxed,
};

/// Parses a boolean as systemd does. Returns `None` if the text is not a boolean.
///
/// The texts `1`, `yes`, `y`, `true`, `t` and `on` are true. The texts `0`, `no`, `n`, `false`, `f`
/// and `off` are false. Case is ignored. Blanks are not skipped.
///
/// ```
/// assert_eq!(fleet_unitfile::values::parse_bool("Yes"), Some(true));
/// assert_eq!(fleet_unitfile::values::parse_bool("off"), Some(false));
/// assert_eq!(fleet_unitfile::values::parse_bool("maybe"), None);
/// ```
pub fn parse_bool(text: &str) -> Option<bool> {
    let is = |word: &&str| text.eq_ignore_ascii_case(word);
    if ["1", "yes", "y", "true", "t", "on"].iter().any(is) {
        Some(true)
    } else if ["0", "no", "n", "false", "f", "off"].iter().any(is) {
        Some(false)
    } else {
        None
    }
}

/// Expands the environment variables in one word of a command, by the rules of
/// [`CommandLine::argv_with`](crate::CommandLine::argv_with). The result can be several words, or
/// none.
///
/// ```
/// use fleet_unitfile::values::expand_variables;
///
/// let value = |name: &str| (name == "TWO").then_some("a 'b c'");
/// assert_eq!(expand_variables("$TWO", value), ["a", "b c"]);
/// assert_eq!(expand_variables("<${TWO}> $$", value), ["<a 'b c'> $"]);
/// ```
pub fn expand_variables<V: AsRef<str>>(
    word: &str,
    variable: impl Fn(&str) -> Option<V>,
) -> Vec<String> {
    expand_word(word, &variable)
}

/// Same as [`expand_variables`], borrowing the lookup so that it serves many words.
pub(crate) fn expand_word<V: AsRef<str>>(
    word: &str,
    variable: &impl Fn(&str) -> Option<V>,
) -> Vec<String> {
    match word.strip_prefix('$') {
        // The name is everything up to the end of the word.
        Some(name) if !name.starts_with(['{', '$']) => {
            value(name, variable).map_or_else(Vec::new, |value| split(value.as_ref()))
        }
        _ => vec![expand_braces(word, variable)],
    }
}

/// Expands the variables in braces in a word.
fn expand_braces<V: AsRef<str>>(word: &str, variable: &impl Fn(&str) -> Option<V>) -> String {
    let mut text = String::with_capacity(word.len());
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        rest = match (after.strip_prefix('$'), after.strip_prefix('{')) {
            (Some(after), _) => {
                text.push('$');
                after
            }
            (None, Some(braced)) => push_braced(braced, &mut text, variable),
            (None, None) => {
                text.push('$');
                after
            }
        };
    }
    text.push_str(rest);
    text
}

/// Expands the variable at the start of `braced`, the text after `${`, and appends its value to
/// `text`. Returns the remaining text of the word.
fn push_braced<'w, V: AsRef<str>>(
    braced: &'w str,
    text: &mut String,
    variable: &impl Fn(&str) -> Option<V>,
) -> &'w str {
    let end = braced.find(['}', ':']).unwrap_or(braced.len());
    let (name, after) = (&braced[..end], &braced[end..]);
    if let Some(after) = after.strip_prefix('}') {
        text.push_str(value(name, variable).as_ref().map_or("", AsRef::as_ref));
        return after;
    }
    // Not closed, or with a default value, which systemd does not expand in command lines.
    text.push_str("${");
    text.push_str(name);
    after
}

/// Looks up a variable; an empty name is never looked up.
fn value<V>(name: &str, variable: &impl Fn(&str) -> Option<V>) -> Option<V> {
    if name.is_empty() { None } else { variable(name) }
}

/// Splits a value into words. Quotes keep blanks together, and a backslash makes the next character
/// literal. An unclosed quote extends to the end of the value.
fn split(value: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' | '\n' | '\r' if quote.is_none() => words.extend(word.take()),
            _ if quote == Some(character) => quote = None,
            '"' | '\'' if quote.is_none() => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            '\\' => word.get_or_insert_default().extend(characters.next()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boolean_words() {
        for (words, meaning) in [
            (&["1", "yes", "y", "true", "t", "on", "YES", "On", "tRuE"][..], Some(true)),
            (&["0", "no", "n", "false", "f", "off", "No", "OFF"][..], Some(false)),
            (&["", " yes", "yes ", "2", "01", "ye", "enable", "ÿes"][..], None),
        ] {
            for word in words {
                assert_eq!(parse_bool(word), meaning, "{word:?}");
            }
        }
    }
}
