//! Checks of values that are lists, word by word.

use std::borrow::Cow;

use crate::check::choices::{self, WordList};
use crate::check::finding::{FindingCode, ValueError, one_of, pieces, quoted, words};
use crate::check::forms::bad_escape;
use crate::check::specifiers::{expanded, path_form};
use crate::check::{sections, values};
use crate::name::{UnitName, UnitType};
use crate::values::size::integer;
use crate::values::words::{WordError, split_words, split_words_relaxed};

/// Checks unit names, of one type if given. systemd removes quotes only from those in `[Install]`.
pub(super) fn units(
    option: &str,
    value: &str,
    unit_type: Option<UnitType>,
    own: &UnitName,
) -> Vec<ValueError> {
    if sections::OPTIONS.contains(&option) {
        return each_word(value, |word| values::unit(word, unit_type, own));
    }
    let errors = pieces(value).filter_map(|(at, word)| {
        let error = values::unit(word, unit_type, own)?;
        let is_quoted = word.starts_with(['"', '\'']);
        let help = if is_quoted { "write the name without quotes".to_owned() } else { error.help };
        Some(ValueError { help, ..error }.at_word((at, word)))
    });
    errors.collect()
}

/// Checks URLs. systemd expands the specifiers of the whole value before it splits the value.
pub(super) fn urls(value: &str, unit: &UnitName) -> Vec<ValueError> {
    let Some(expanded) = expanded(value, unit) else { return Vec::new() };
    let errors = each_word(&expanded, |word| {
        (!is_url(word)).then(|| {
            let message = format!("{} is not the URL of a document", quoted(word));
            let help = "begin the URL with https://, http://, file:/, info: or man:";
            ValueError::new(FindingCode::Url, message, help)
        })
    });
    of_expanded(errors, &expanded, value)
}

/// Returns errors about a value whose specifiers were expanded. Their places are those in the value
/// only if nothing was expanded.
fn of_expanded(errors: Vec<ValueError>, expanded: &str, value: &str) -> Vec<ValueError> {
    let is_same = expanded == value;
    let place = |error: ValueError| if is_same { error } else { ValueError { at: 0..0, ..error } };
    errors.into_iter().map(place).collect()
}

fn is_url(word: &str) -> bool {
    let begins = ["http://", "https://", "file:/", "info:", "man:"];
    begins.iter().any(|start| is_more_than(word, start))
}

fn is_more_than(word: &str, start: &str) -> bool {
    word.len() > start.len() && word.starts_with(start)
}

/// Checks that each word is one of a list.
pub(super) fn choices(value: &str, list: &WordList) -> Vec<ValueError> {
    if list.alone == Some(value) {
        return Vec::new();
    }
    let bare = if list.may_invert { value.strip_prefix('~').unwrap_or(value) } else { value };
    let start = value.len() - bare.len();
    let is_known = |word: &str| {
        let is_same = |known: &&&str| match list.ignores_case {
            true => known.eq_ignore_ascii_case(word),
            false => **known == word,
        };
        list.words.iter().any(|known| is_same(&known))
    };
    let error = |word: &str| {
        (!is_known(word)).then(|| {
            let message = format!("{} is not an accepted value", quoted(word));
            let known: Vec<&str> = list.alone.iter().chain(list.words).copied().collect();
            ValueError::new(FindingCode::Choice, message, one_of(word, &known))
        })
    };
    let errors = match list.removes_quotes {
        true => each_word(bare, error),
        false => {
            let words = pieces(bare);
            words.filter_map(|word| Some(error(word.1)?.at_word(word))).collect()
        }
    };
    errors.into_iter().map(|error| error.shifted(start)).collect()
}

pub(super) fn exit_statuses(value: &str) -> Vec<ValueError> {
    let errors = pieces(value).filter(|(_, word)| !is_exit_status(word)).map(|word| {
        let message = format!("{} is neither an exit status nor a signal", quoted(word.1));
        let help = "write a number from 0 to 255, a name such as TEMPFAIL, or a signal";
        ValueError::new(FindingCode::ExitStatus, message, help).at_word(word)
    });
    errors.collect()
}

/// Returns `true` if a word is an exit status, by number or name, or a signal.
fn is_exit_status(word: &str) -> bool {
    match word.bytes().next() {
        Some(b'0'..=b'9' | b'+' | b'-') => {
            integer(word).is_some_and(|status| (0..=255).contains(&status))
        }
        _ => choices::EXIT_STATUSES.contains(&word) || values::is_signal(word),
    }
}

/// Checks absolute paths with optional prefixes. The prefix `-` means that the path may be missing,
/// and `+`, which must come second, that the path is relative to the root directory of the unit.
pub(super) fn paths(value: &str, unit: &UnitName) -> Vec<ValueError> {
    each_word(value, |word| {
        let path = word.strip_prefix('-').unwrap_or(word);
        values::path(&path_form(path.strip_prefix('+').unwrap_or(path), unit))
    })
}

/// Checks absolute paths.
pub(super) fn paths_only(value: &str, unit: &UnitName) -> Vec<ValueError> {
    each_word(value, |word| values::path(&path_form(word, unit)))
}

/// Checks names and numbers of groups. systemd removes no quotes from them.
pub(super) fn users(value: &str, unit: &UnitName) -> Vec<ValueError> {
    let error = |word| values::user(&expanded(word, unit)?);
    pieces(value).filter_map(|word| Some(error(word.1)?.at_word(word))).collect()
}

/// Checks relative paths. Most options accept a second path after a colon, which becomes a link to
/// the first.
pub(super) fn relative_paths(option: &str, value: &str, unit: &UnitName) -> Vec<ValueError> {
    if let Err(error @ WordError::Escape { .. }) = split_words(value) {
        return vec![bad_escape(value, error)];
    }
    each_word(value, |word| {
        // A second colon separates flags of newer versions.
        let mut parts = word.trim_start_matches(':').split(':');
        let path = parts.next().unwrap_or_default();
        let link = parts.next().filter(|link| !link.is_empty());
        if link.is_some() && option == "ConfigurationDirectory" {
            let message = format!("{} has a link, which this option does not create", quoted(word));
            return Some(ValueError::new(FindingCode::Path, message, "write the path alone"));
        }
        relative_path(path, unit).or_else(|| relative_path(link?, unit))
    })
}

fn relative_path(path: &str, unit: &UnitName) -> Option<ValueError> {
    let form = match expanded(path, unit) {
        Some(path) => path,
        None => Cow::Owned(path_form(path, unit).trim_start_matches('/').to_owned()),
    };
    let is_absolute = path.starts_with('/') || form.starts_with('/');
    let path = form;
    let mut parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    let (message, help) = if is_absolute || path.split('/').any(|part| part == "..") {
        let message = format!("{} leaves its base directory", quoted(&path));
        (message, "write a relative path without \"..\"")
    } else if parts.clone().next().is_none() {
        (format!("{} is not the name of a directory", quoted(&path)), "write a relative path")
    } else if parts.next() == Some("private") {
        let message = format!("{} is reserved for dynamic users", quoted(&path));
        (message, "give the directory another name than private")
    } else {
        return None;
    };
    Some(ValueError::new(FindingCode::Path, message, help))
}

/// Checks `SOURCE`, `SOURCE:TARGET` or `SOURCE:TARGET:OPTIONS`. A leading dash means that the
/// source may be missing.
pub(super) fn binds(value: &str, unit: &UnitName) -> Vec<ValueError> {
    // Quotes and escapes may hide a colon.
    let is_plain = !value.contains(['"', '\'', '\\']);
    each_word(value, |word| {
        let word = word.strip_prefix('-').unwrap_or(word);
        let mut parts = word.splitn(3, ':');
        let source = parts.next().unwrap_or_default();
        let target = parts.next().filter(|_| is_plain);
        let error = [Some(source), target].into_iter().flatten();
        let error = error.filter_map(|path| values::path(&path_form(path, unit))).next();
        let options = parts.next().filter(|_| is_plain).unwrap_or_default();
        error.or_else(|| {
            (!matches!(options, "" | "rbind" | "norbind")).then(|| {
                let message = format!("{} is not an option of a bind mount", quoted(options));
                ValueError::new(FindingCode::Choice, message, "write rbind or norbind")
            })
        })
    })
}

pub(super) fn environment(value: &str) -> Vec<ValueError> {
    if let Err(error @ WordError::Escape { .. }) = split_words(value) {
        return vec![bad_escape(value, error)];
    }
    each_word(value, |word| {
        let (name, assigned) = match word.split_once('=') {
            Some((name, _)) => (name, true),
            None => (word, false),
        };
        let message = if !assigned {
            format!("{} assigns no value", quoted(word))
        } else if !name.contains('%') && !is_variable(name) {
            format!("{} is not the name of a variable", quoted(name))
        } else {
            return None;
        };
        let help = "write NAME=VALUE, in quotes if it contains blanks: \"NAME=two words\"";
        Some(ValueError::new(FindingCode::Environment, message, help))
    })
}

/// Checks variable names, which for some options may have a value.
pub(super) fn variables(value: &str, may_assign: bool, unit: &UnitName) -> Vec<ValueError> {
    if !may_assign && value.contains('\\') {
        // systemd removes each backslash, so such a name is not checked.
        return Vec::new();
    }
    if let Err(error @ WordError::Escape { .. }) = split_words(value) {
        return vec![bad_escape(value, error)];
    }
    each_word(value, |word| {
        let word = expanded(word, unit)?;
        let name = if may_assign { word.split('=').next().unwrap_or_default() } else { &word };
        (!is_variable(name)).then(|| {
            let message = format!("{} is not the name of a variable", quoted(name));
            let help = "use letters, digits and underscores, and do not begin with a digit";
            ValueError::new(FindingCode::Environment, message, help)
        })
    })
}

/// Returns `true` if `name` is valid as the name of a variable.
fn is_variable(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts_well && name.chars().all(is_letter)
}

/// Checks a list of processor numbers and ranges such as `0-3,8`, separated by commas or blanks.
/// In some options, a word may stand for the processors of the NUMA nodes, or for all nodes.
pub(super) fn cpu_set(option: &str, value: &str, unit: &UnitName) -> Vec<ValueError> {
    const MAX: i64 = 8191;
    if matches!((option, value), ("NUMAMask", "all") | ("CPUAffinity", "numa")) {
        return Vec::new();
    }
    let number = |text: &str| integer(text).filter(|number| (0..=MAX).contains(number));
    let is_fine = |word: &str| match word.split_once('-') {
        Some((first, last)) => {
            matches!((number(first), number(last)), (Some(first), Some(last)) if first <= last)
        }
        None => number(word).is_some(),
    };
    // systemd expands specifiers first, and removes quotes around each part of a list.
    let Some(expanded) = expanded(value, unit) else { return Vec::new() };
    let errors = each_word(&expanded.replace(',', " "), |word| {
        (!is_fine(word)).then(|| {
            let message = format!("{} is not a set of numbers", quoted(word));
            let help = "write numbers and ranges, such as 0-3,8";
            ValueError::new(FindingCode::Number, message, help)
        })
    });
    of_expanded(errors, &expanded, value)
}

/// Splits a list into words, and returns the errors that `error` finds in them. `error` gets each
/// word with its quotes removed and its escapes decoded.
pub(super) fn each_word(
    value: &str,
    error: impl Fn(&str) -> Option<ValueError>,
) -> Vec<ValueError> {
    let split = match split_words_relaxed(value) {
        Ok(split) => split,
        Err(error) => return vec![split_error(value, error)],
    };
    let errors = split.iter().filter_map(|word| {
        let error = error(word)?;
        // A word without quotes and escapes appears literally in the value.
        let at = words(value).find(|(_, written)| written == word);
        Some(match at {
            Some(word) => error.at_word(word),
            None => error,
        })
    });
    errors.collect()
}

fn split_error(value: &str, error: WordError) -> ValueError {
    let (at, message) = match error {
        WordError::OpenQuote { at } => (at..value.len(), "a quote is not closed"),
        _ => (0..0, "the escapes of a word do not form UTF-8"),
    };
    let help = "close each quote, and write \\\" for a quote in the text";
    ValueError { at, ..ValueError::new(FindingCode::Quotes, message, help) }
}
