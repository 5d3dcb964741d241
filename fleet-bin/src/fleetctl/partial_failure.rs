//! Pure: errors of commands that fail after they have already changed some units.
//!
//! The changes are not undone, so the error lists the units that were changed.

use crate::ui::error::CliError;

/// Largest number of units to list.
const MAX_NAMES: usize = 8;

/// Returns all values if there is no error.
///
/// # Errors
///
/// The first error, with a hint that lists the successful units. `done` describes their change, for
/// example "stopped".
pub(crate) fn all_or_partial_failure<'a, T>(
    results: impl IntoIterator<Item = (&'a str, Result<T, CliError>)>,
    done: &str,
) -> Result<Vec<T>, CliError> {
    let (mut names, mut all, mut failure) = (Vec::new(), Vec::new(), None);
    for (name, result) in results {
        match result {
            Ok(value) => {
                names.push(name);
                all.push(value);
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match failure {
        None => Ok(all),
        Some(error) => Err(with_completed(error, done, &names)),
    }
}

/// Adds a hint that lists the units that were already changed. If `names` is empty, the error stays
/// unchanged.
pub(crate) fn with_completed(error: CliError, done: &str, names: &[&str]) -> CliError {
    if names.is_empty() {
        return error;
    }
    error.help(format!("{done} before this error: {}", abbreviated_list(names)))
}

/// Joins the first names, and then gives only the number of the others (`a, b and 7 more`).
pub(crate) fn abbreviated_list(names: &[&str]) -> String {
    match names.len().checked_sub(MAX_NAMES) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..MAX_NAMES].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_text(count: usize) -> String {
        let names: Vec<String> = (1..=count).map(|number| format!("u{number}")).collect();
        let refused = || Err(CliError::failed("no"));
        let done = names.iter().map(|name| (name.as_str(), Ok(())));
        let results = done.chain([("bad", refused()), ("worse", refused())]);
        let mut text = Vec::new();
        all_or_partial_failure(results, "stopped").unwrap_err().print(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn failure_lists_a_limited_number_of_changed_units() {
        insta::assert_snapshot!(error_text(0), @"fleetctl: no");
        insta::assert_snapshot!(error_text(8), @r"
        fleetctl: no
        help: stopped before this error: u1, u2, u3, u4, u5, u6, u7, u8
        ");
        insta::assert_snapshot!(error_text(10), @r"
        fleetctl: no
        help: stopped before this error: u1, u2, u3, u4, u5, u6, u7, u8 and 2 more
        ");
        let fine = [("a", Ok(1)), ("b", Ok(2))];
        assert_eq!(all_or_partial_failure(fine, "stopped").unwrap(), [1, 2]);
    }
}
