//! Asks for confirmation on the terminal.

use std::io::{self, IsTerminal as _, Write as _};

use crate::ui::error::CliError;
use crate::ui::sanitize::sanitize_for_terminal;

/// Asks a question on standard error, and reads the answer from standard input.
///
/// Returns `None` without a terminal, and otherwise whether the answer is yes.
pub(crate) async fn confirm(question: &str) -> Result<Option<bool>, CliError> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(None);
    }
    let question = sanitize_for_terminal(question);
    // If the question cannot be printed, the answer cannot be yes.
    write!(io::stderr(), "{question} [y/N] ")?;
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map(|_length| answer)
    });
    let answer = answer.await.map_err(io::Error::other).flatten();
    let answer =
        answer.map_err(|error| CliError::failed("cannot read the answer").because(error))?;
    Ok(Some(is_yes(&answer)))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for (answer, expected) in
            [("y\n", true), ("Yes\r\n", true), ("", false), ("\n", false), ("no\n", false)]
        {
            assert_eq!(is_yes(answer), expected, "{answer:?}");
        }
    }
}
