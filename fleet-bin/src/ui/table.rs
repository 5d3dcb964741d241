//! Tables padded with tabs, in the layout that scripts for fleet v1 expect, and colours.
//!
//! Each cell is followed by as many tabs as lead to the next column; only the last cell of a row
//! has none. A script that uses `cut` must first merge these tabs with `tr -s '\t'`, but `awk`
//! works as it is.

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

use super::sanitize::sanitize_for_terminal;

/// Distance of tab stops, in columns.
const TAB: usize = 8;

/// Columns that show states, which are coloured.
const STATES: [&str; 4] = ["load", "active", "sub", "state"];

/// Text of an empty cell.
pub(crate) const NOTHING: &str = "-";

/// Formats rows as a table. If `legend` is set, the first line is the names of the columns in upper
/// case.
///
/// Each row has one cell for each column. Newlines and tabs in cells become blanks.
pub(crate) fn layout(columns: &[&str], legend: bool, rows: &[Vec<String>]) -> String {
    painted(columns, legend, rows, Colour::Off)
}

/// Like [`layout`], with the states in `colour`.
pub(crate) fn painted(
    columns: &[&str],
    legend: bool,
    rows: &[Vec<String>],
    colour: Colour,
) -> String {
    let paint: Vec<Colour> =
        columns.iter().map(|it| if STATES.contains(it) { colour } else { Colour::Off }).collect();
    let header = columns.iter().map(|column| column.to_uppercase()).collect();
    let header: Option<Vec<String>> = legend.then_some(header);
    let rows: Vec<Vec<String>> =
        header.iter().chain(rows).map(|row| row.iter().map(|cell| clean(cell)).collect()).collect();
    let widths = widths(columns.len(), &rows);
    rows.iter().map(|row| line(row, &widths, &paint)).collect()
}

/// Returns `text` as a cell; a dash if the text is `None` or empty.
pub(crate) fn cell(text: Option<impl Into<String>>) -> String {
    let text = text.map(Into::into).filter(|text: &String| !text.is_empty());
    text.unwrap_or_else(|| NOTHING.to_owned())
}

/// Returns the width of each column: that of its widest cell plus at least one blank, rounded up to
/// a tab stop.
fn widths(columns: usize, rows: &[Vec<String>]) -> Vec<usize> {
    let widest =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max();
    (0..columns).map(|column| (widest(column).unwrap_or(0) + 1).next_multiple_of(TAB)).collect()
}

fn line(row: &[String], widths: &[usize], paint: &[Colour]) -> String {
    let mut text = String::new();
    for (column, ((cell, column_width), colour)) in row.iter().zip(widths).zip(paint).enumerate() {
        text.push_str(&colour.state(cell));
        if column + 1 < row.len() {
            let tabs = (column_width - width(cell)).div_ceil(TAB);
            text.extend(std::iter::repeat_n('\t', tabs));
        }
    }
    text.push('\n');
    text
}

fn width(cell: &str) -> usize {
    cell.chars().count()
}

/// Returns the text on one line, sanitized for terminals.
pub(crate) fn clean(cell: &str) -> String {
    sanitize_for_terminal(cell).replace(['\n', '\t'], " ")
}

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

    fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
        cells.map(str::to_owned).to_vec()
    }

    #[test]
    fn cells_are_padded_past_the_widest() {
        let rows = [
            row(["app.service", "282f949f.../10.10.20.1", "active"]),
            row(["a", NOTHING, "failed"]),
        ];
        let text = layout(&["unit", "machine", "active"], true, &rows);
        insta::assert_snapshot!(text.replace('\t', "→"), @r"
        UNIT→→MACHINE→→→ACTIVE
        app.service→282f949f.../10.10.20.1→active
        a→→-→→→failed
        ");
    }

    #[test]
    fn colours_do_not_change_the_padding() {
        let rows = [row(["failed", "active", "running"]), row(["b", "failed", "-"])];
        let text = |colour| painted(&["unit", "active", "sub"], true, &rows, colour);
        insta::assert_snapshot!(text(Colour::On).replace('\t', "→").replace('\u{1b}', "^"), @r"
        UNIT→ACTIVE→SUB
        failed→^[32mactive^[0m→running
        b→^[1m^[31mfailed^[0m→-
        ");
        assert_eq!(text(Colour::Off), layout(&["unit", "active", "sub"], true, &rows));
    }

    #[test]
    fn cell_is_followed_by_at_least_one_tab() {
        for (cell, tabs) in [("", 1), ("1234567", 1), ("12345678", 1), ("éééééé", 1)] {
            let text = layout(&["x", "y"], false, &[row([cell, "end"])]);
            assert_eq!(text, format!("{cell}{}end\n", "\t".repeat(tabs)), "{cell:?}");
        }
        let rows = [row(["1234567", "a"]), row(["12345678", "b"])];
        assert_eq!(layout(&["x", "y"], false, &rows), "1234567\t\ta\n12345678\tb\n");
    }

    #[test]
    fn table_without_rows_is_the_header() {
        assert_eq!(layout(&["unit", "sub"], true, &[]), "UNIT\tSUB\n");
        assert_eq!(layout(&["unit", "sub"], false, &[]), "");
    }

    #[test]
    fn cell_content_stays_on_its_row() {
        let text = layout(&["desc", "x"], false, &[row(["two\nlines\tand a tab", "\u{1b}[31m"])]);
        assert_eq!(text, "two lines and a tab\t\\x1b[31m\n");
        assert_eq!(
            (cell(Some("")), cell(None::<&str>), cell(Some("a"))),
            ("-".into(), "-".into(), "a".into())
        );
    }

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
