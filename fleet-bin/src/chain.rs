//! An error with its causes, in one line: printed once, at the top, by both programs.

use std::error::Error;

/// `message: cause: cause`, where `cause` is the first of the causes.
pub(crate) fn in_one_line(message: &str, mut cause: Option<&dyn Error>) -> String {
    let mut line = message.to_owned();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}
