//! Pure: what had been done for other units when one was refused.
//!
//! What several units are asked for is not taken back where one of them is refused. So whoever
//! reads of the refusal is told how far it came.

use super::error::CliError;

/// How many units are named at most.
const MOST_NAMES: usize = 8;

/// The answers for units; or else the first refusal, with the units that were done beside it.
///
/// # Errors
///
/// The first refusal. `done` is what became of the others, such as "stopped".
pub(crate) fn all_or_partly<'a, T>(
    answers: impl IntoIterator<Item = (&'a str, Result<T, CliError>)>,
    done: &str,
) -> Result<Vec<T>, CliError> {
    let (mut names, mut all, mut refusal) = (Vec::new(), Vec::new(), None);
    for (name, answer) in answers {
        match answer {
            Ok(answer) => {
                names.push(name);
                all.push(answer);
            }
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    match refusal {
        None => Ok(all),
        Some(error) => Err(with_done(error, done, &names)),
    }
}

/// The same error, with the units of which something was done, if there are any.
pub(crate) fn with_done(error: CliError, done: &str, names: &[&str]) -> CliError {
    if names.is_empty() {
        return error;
    }
    error.help(format!("{done} before that: {}", some_of(names)))
}

/// The first of these, and how many there are beside them.
pub(crate) fn some_of(names: &[&str]) -> String {
    match names.len().checked_sub(MOST_NAMES) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..MOST_NAMES].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(count: usize) -> String {
        let names: Vec<String> = (1..=count).map(|number| format!("u{number}")).collect();
        let refused = || Err(CliError::failed("no"));
        let done = names.iter().map(|name| (name.as_str(), Ok(())));
        let answers = done.chain([("bad", refused()), ("worse", refused())]);
        let mut text = Vec::new();
        all_or_partly(answers, "stopped").unwrap_err().print(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_refusal_tells_what_was_done_before_and_not_without_end() {
        insta::assert_snapshot!(told(0), @"fleetctl: no");
        insta::assert_snapshot!(told(8), @r"
        fleetctl: no
        help: stopped before that: u1, u2, u3, u4, u5, u6, u7, u8
        ");
        insta::assert_snapshot!(told(10), @r"
        fleetctl: no
        help: stopped before that: u1, u2, u3, u4, u5, u6, u7, u8 and 2 more
        ");
        let fine = [("a", Ok(1)), ("b", Ok(2))];
        assert_eq!(all_or_partly(fine, "stopped").unwrap(), [1, 2]);
    }
}
