//! Formatting of an error with its causes in one line, for both programs.

use std::error::Error;

/// Formats `message: cause: cause`, starting with `cause` and following its sources.
pub(crate) fn in_one_line(message: &str, mut cause: Option<&dyn Error>) -> String {
    let mut line = message.to_owned();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}
