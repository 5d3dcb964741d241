//! What a person sees while `fleetctl` waits: one live line on a terminal, and notices anywhere.

use std::io::{self, IsTerminal, Write};

use super::harmless::harmless;
use super::table::clean;

/// Carriage return, then "erase to the end of the line".
const ERASE: &str = "\r\x1b[K";

/// How wide a terminal is taken to be when it does not say.
const DEFAULT_COLUMNS: usize = 80;

/// Speaks to the person on standard error.
///
/// On a terminal the live line is drawn over itself, and is gone once this is dropped. Elsewhere
/// there is no live line, only notices. Errors of writing are passed over: nobody is left to be
/// told of them.
pub(crate) struct Progress<W: Write> {
    to: W,
    live: bool,
    /// How wide the terminal is now: people change that while they wait.
    columns: fn() -> usize,
    shown: String,
}

impl Progress<io::Stderr> {
    /// On standard error.
    pub(crate) fn on_stderr() -> Self {
        let stderr = io::stderr();
        let live = stderr.is_terminal();
        Self::new(stderr, live, columns_of_stderr)
    }
}

impl<W: Write> Progress<W> {
    fn new(to: W, live: bool, columns: fn() -> usize) -> Self {
        Self { to, live, columns, shown: String::new() }
    }

    /// Draws the live line, if there is one and it changed.
    pub(crate) fn show(&mut self, text: &str) {
        if !self.live {
            return;
        }
        let text = fit(text, (self.columns)());
        if text != self.shown {
            let _closed = write!(self.to, "{ERASE}{text}").and_then(|()| self.to.flush());
            self.shown = text;
        }
    }

    /// Takes the live line away, so that something else can be printed.
    pub(crate) fn clear(&mut self) {
        if !self.shown.is_empty() {
            let _closed = write!(self.to, "{ERASE}").and_then(|()| self.to.flush());
            self.shown.clear();
        }
    }

    /// Prints a line that stays.
    pub(crate) fn note(&mut self, text: &str) {
        self.clear();
        let _closed = writeln!(self.to, "{}", harmless(text));
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

/// A text on one line of so many columns, the last of which stays free so that it never wraps.
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
    fn a_live_line_is_drawn_over_itself_and_taken_away() {
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
    fn without_a_terminal_only_notices_are_printed() {
        let mut file = Vec::new();
        let mut progress = Progress::new(&mut file, false, || 80);
        progress.show("0/2 units active");
        progress.note("web.service: no place");
        drop(progress);
        assert_eq!(file, b"web.service: no place\n");
    }

    #[test]
    fn a_line_fits_whatever_it_says() {
        for (columns, expected) in [(80, "a b c"), (6, "a b c"), (5, "a b…"), (1, "…"), (0, "…")]
        {
            assert_eq!(fit("a\nb\tc", columns), expected, "{columns}");
        }
    }
}
