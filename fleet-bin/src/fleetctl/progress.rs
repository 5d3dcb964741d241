//! Progress on standard error: one live line on a terminal, and notices everywhere.

use std::io::{self, IsTerminal, Write};

use crate::ui::sanitize::sanitize_for_terminal;
use crate::ui::table::clean;

/// Carriage return, then "erase to the end of the line".
const ERASE: &str = "\r\x1b[K";

/// Assumed width of a terminal of unknown size.
const DEFAULT_COLUMNS: usize = 80;

/// Printer of progress messages for people.
///
/// On a terminal, it keeps one live line, which it redraws in place and erases on drop. Elsewhere
/// it prints only notices. It ignores write errors, because there is no other place to report them.
pub(crate) struct Progress<W: Write> {
    to: W,
    live: bool,
    /// Returns the current width of the terminal, which may change during a wait.
    columns: fn() -> usize,
    current: String,
}

impl Progress<io::Stderr> {
    /// Creates a progress display on standard error.
    pub(crate) fn on_stderr() -> Self {
        let stderr = io::stderr();
        let live = stderr.is_terminal();
        Self::new(stderr, live, columns_of_stderr)
    }
}

impl<W: Write> Progress<W> {
    fn new(to: W, live: bool, columns: fn() -> usize) -> Self {
        Self { to, live, columns, current: String::new() }
    }

    /// Draws the live line if its text has changed. Without a terminal, does nothing.
    pub(crate) fn show(&mut self, text: &str) {
        if !self.live {
            return;
        }
        let text = fit(text, (self.columns)());
        if text != self.current {
            let _closed = write!(self.to, "{ERASE}{text}").and_then(|()| self.to.flush());
            self.current = text;
        }
    }

    /// Erases the live line, before other output.
    pub(crate) fn clear(&mut self) {
        if !self.current.is_empty() {
            let _closed = write!(self.to, "{ERASE}").and_then(|()| self.to.flush());
            self.current.clear();
        }
    }

    /// Prints a notice as a line of its own.
    pub(crate) fn note(&mut self, text: &str) {
        self.clear();
        let _closed = writeln!(self.to, "{}", sanitize_for_terminal(text));
    }
}

impl<W: Write> Drop for Progress<W> {
    fn drop(&mut self) {
        self.clear();
    }
}

fn columns_of_stderr() -> usize {
    let columns = rustix::termios::tcgetwinsize(io::stderr()).map(|size| size.ws_col.into());
    columns.ok().filter(|n| *n > 0).unwrap_or(DEFAULT_COLUMNS)
}

/// Shortens text to one line that leaves the last column of the terminal free. If that column were
/// used, the line would wrap on some terminals.
fn fit(text: &str, columns: usize) -> String {
    let room = columns.saturating_sub(1);
    let text = clean(text);
    if text.chars().count() <= room {
        return text;
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_line_is_redrawn_and_erased() {
        let mut screen = Vec::new();
        let mut progress = Progress::new(&mut screen, true, || 20);
        progress.show("0/2 units active");
        progress.show("0/2 units active");
        progress.note("web.service: no place");
        progress.show("1/2 units active; waiting for db.service");
        drop(progress);
        let text = String::from_utf8(screen).unwrap();
        insta::assert_snapshot!(text.replace(ERASE, "<erase>"), @r"
        <erase>0/2 units active<erase>web.service: no place
        <erase>1/2 units active; …<erase>
        ");
    }

    #[test]
    fn only_notices_are_printed_without_a_terminal() {
        let mut file = Vec::new();
        let mut progress = Progress::new(&mut file, false, || 80);
        progress.show("0/2 units active");
        progress.note("web.service: no place");
        drop(progress);
        assert_eq!(file, b"web.service: no place\n");
    }

    #[test]
    fn live_line_is_cut_to_the_width() {
        for (columns, expected) in [(80, "a b c"), (6, "a b c"), (5, "a b…"), (1, "…"), (0, "…")]
        {
            assert_eq!(fit("a\nb\tc", columns), expected, "{columns}");
        }
    }
}
