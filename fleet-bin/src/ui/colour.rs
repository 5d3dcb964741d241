//! Colours of text for people, by the usual conventions.

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

/// Whether to print colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Off,
    On,
}

/// Style of errors.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

/// Style of good states.
const GOOD: Style = AnsiColor::Green.on_default();

/// Style of warnings and of transitional states.
pub(crate) const ODD: Style = AnsiColor::Yellow.on_default();

/// Style of hints.
pub(crate) const HELP: Style = AnsiColor::Cyan.on_default();

impl Colour {
    /// Returns `On` if the stream is a terminal. The environment can override this with `NO_COLOR`,
    /// `CLICOLOR`, `CLICOLOR_FORCE`, or a `TERM` without colours.
    pub(crate) fn for_stream(stream: &impl RawStream) -> Self {
        match AutoStream::choice(stream) {
            ColorChoice::Never => Self::Off,
            _ => Self::On,
        }
    }

    /// Applies a style to text.
    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        match self {
            Self::On if style != Style::new() => format!("{style}{text}{style:#}"),
            _ => text.to_owned(),
        }
    }

    /// Colours a state word of a unit.
    pub(crate) fn state(self, word: &str) -> String {
        let style = match word {
            "active" | "launched" => GOOD,
            "failed" | "error" | "not-found" | "bad-setting" | "masked" => BAD,
            "activating" | "deactivating" | "reloading" | "unknown" => ODD,
            // State words of fleet-init.
            "starting" | "stopping" => ODD,
            word if word.ends_with(", degraded") => ODD,
            _ => Style::new(),
        };
        self.paint(style, word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_notable_states_are_coloured() {
        let words = ["active", "inactive", "failed", "activating", "-", "starting"];
        let painted = words.map(|word| Colour::On.state(word)).join(" ");
        insta::assert_snapshot!(painted.replace('\u{1b}', "^").replace(' ', "\n"), @r"
        ^[32mactive^[0m
        inactive
        ^[1m^[31mfailed^[0m
        ^[33mactivating^[0m
        -
        ^[33mstarting^[0m
        ");
        assert_ne!(Colour::On.state("running, degraded"), "running, degraded");
        assert_eq!(words.map(|word| Colour::Off.state(word)), words);
    }
}
