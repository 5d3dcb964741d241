//! Tables, and colours.
//!
//! On a terminal, blanks separate the columns, and no row is wider than the terminal. Elsewhere,
//! tables are padded with tabs, in the layout that scripts for fleet v1 expect: each cell is
//! followed by as many tabs as lead to the next column; only the last cell of a row has none. A
//! script that uses `cut` must first merge these tabs with `tr -s '\t'`, but `awk` works as it is.

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

use super::sanitize::sanitize_for_terminal;

/// Distance of tab stops, in columns.
const TAB: usize = 8;

/// Distance of columns without tabs.
const GAP: &str = "  ";

/// Width to which each column is reduced before any column is reduced further.
const LEGIBLE: usize = 20;

/// Least width of a column, unless all its cells are shorter.
const SHORTEST: usize = 4;

/// Columns that are cut before the others, in this order. Columns that are not listed follow, the
/// last one first.
const CUT_FIRST: [&str; 14] = [
    "reason", "desc", "metadata", "offers", "result", "last", "units", "event", "version", "hash",
    "machine", "target", "tmachine", "unit",
];

/// Columns that show states, which are coloured.
const STATES: [&str; 4] = ["load", "active", "sub", "state"];

/// Text of an empty cell.
pub(crate) const NOTHING: &str = "-";

/// How to print a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableStyle {
    /// Colour of the states.
    pub(crate) colour: Colour,
    /// Distance between the columns, and their width.
    pub(crate) spacing: Spacing,
}

/// Distance between the columns of a table, and their width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// Tabs lead to the next column, as in fleet v1.
    Tabs,
    /// Blanks lead to the next column, and no row is wider than this number of columns.
    Blanks(usize),
}

impl TableStyle {
    /// Tabs, and no colours.
    pub(crate) const PLAIN: Self = Self { colour: Colour::Off, spacing: Spacing::Tabs };

    /// Removes the limit of the width.
    pub(crate) fn uncut(self) -> Self {
        match self.spacing {
            Spacing::Tabs => self,
            Spacing::Blanks(_) => Self { spacing: Spacing::Blanks(usize::MAX), ..self },
        }
    }
}

/// Formats rows as a table without colours. If `legend` is set, the first line is the names of the
/// columns in upper case.
///
/// Each row has one cell for each column. Newlines and tabs in cells become blanks.
pub(crate) fn layout(columns: &[&str], legend: bool, rows: &[Vec<String>]) -> String {
    painted(columns, legend, rows, TableStyle::PLAIN)
}

/// Like [`layout`], in a style.
pub(crate) fn painted(
    columns: &[&str],
    legend: bool,
    rows: &[Vec<String>],
    style: TableStyle,
) -> String {
    let paint: Vec<Colour> = columns
        .iter()
        .map(|it| if STATES.contains(it) { style.colour } else { Colour::Off })
        .collect();
    let header = columns.iter().map(|column| column.to_uppercase()).collect();
    let header: Option<Vec<String>> = legend.then_some(header);
    let rows: Vec<Vec<String>> =
        header.iter().chain(rows).map(|row| row.iter().map(|cell| clean(cell)).collect()).collect();
    let widest = widest(columns.len(), &rows);
    match style.spacing {
        Spacing::Tabs => {
            let stops: Vec<usize> =
                widest.iter().map(|width| (width + 1).next_multiple_of(TAB)).collect();
            rows.iter().map(|row| tabbed_line(row, &stops, &paint)).collect()
        }
        Spacing::Blanks(limit) => {
            let widths = fitting_widths(columns, widest, limit);
            rows.iter().map(|row| aligned_line(row, &widths, &paint)).collect()
        }
    }
}

/// Returns `text` as a cell; a dash if the text is `None` or empty.
pub(crate) fn cell(text: Option<impl Into<String>>) -> String {
    let text = text.map(Into::into).filter(|text: &String| !text.is_empty());
    text.unwrap_or_else(|| NOTHING.to_owned())
}

/// Returns the width of the widest cell of each column.
fn widest(columns: usize, rows: &[Vec<String>]) -> Vec<usize> {
    let widest =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max();
    (0..columns).map(|column| widest(column).unwrap_or(0)).collect()
}

/// Reduces the widths of columns until a row fits into `limit`. The least important columns are
/// reduced first: to a legible width, and if this is not enough, to a few characters. If even this
/// is too wide, the last columns are omitted.
pub(crate) fn fitting_widths(columns: &[&str], mut widths: Vec<usize>, limit: usize) -> Vec<usize> {
    let total = |widths: &[usize]| {
        widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
    };
    let importance = |at: &usize| {
        let place = CUT_FIRST.iter().position(|name| *name == columns[*at]);
        (place.unwrap_or(CUT_FIRST.len()), std::cmp::Reverse(*at))
    };
    let mut order: Vec<usize> = (0..widths.len()).collect();
    order.sort_by_key(importance);
    for least in [LEGIBLE, SHORTEST] {
        for at in &order {
            let excess = total(&widths).saturating_sub(limit);
            widths[*at] -= excess.min(widths[*at].saturating_sub(least));
        }
    }
    while widths.len() > 1 && total(&widths) > limit {
        widths.pop();
    }
    if let [only] = &mut widths[..] {
        *only = limit.min(*only);
    }
    widths
}

fn tabbed_line(row: &[String], stops: &[usize], paint: &[Colour]) -> String {
    let mut text = String::new();
    for (column, ((cell, stop), colour)) in row.iter().zip(stops).zip(paint).enumerate() {
        text.push_str(&colour.state(cell));
        if column + 1 < row.len() {
            let tabs = (stop - width(cell)).div_ceil(TAB);
            text.extend(std::iter::repeat_n('\t', tabs));
        }
    }
    text.push('\n');
    text
}

fn aligned_line(row: &[String], widths: &[usize], paint: &[Colour]) -> String {
    let mut text = String::new();
    for (column, ((cell, column_width), colour)) in row.iter().zip(widths).zip(paint).enumerate() {
        let shown = shorten(cell, *column_width);
        text.push_str(&if shown == *cell { colour.state(cell) } else { shown.clone() });
        if column + 1 < widths.len() {
            text.extend(std::iter::repeat_n(' ', column_width - width(&shown)));
            text.push_str(GAP);
        }
    }
    text.push('\n');
    text
}

/// Returns the number of columns that a text takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Shortens a text to a number of columns. An ellipsis marks the omission.
pub(crate) fn shorten(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut end = 0;
    for (at, character) in text.char_indices() {
        let next = at + character.len_utf8();
        if width(&text[..next]) + 1 > columns {
            break;
        }
        end = next;
    }
    if columns == 0 { String::new() } else { format!("{}…", text[..end].trim_end()) }
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
        let text = |colour| {
            let style = TableStyle { colour, ..TableStyle::PLAIN };
            painted(&["unit", "active", "sub"], true, &rows, style)
        };
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
    fn table_on_a_terminal_fits_its_width() {
        let columns = ["unit", "machine", "active", "sub", "reason"];
        let long = "a-unit-with-a-long-name.service";
        let rows = [
            row([long, "dev-1/10.0.0.1", "active", "running", NOTHING]),
            row(["db.service", NOTHING, NOTHING, NOTHING, "no machine has gpu=yes"]),
            row(["東京.service", "dev-2/10.0.0.2", "failed", "failed", "exited with status 3"]),
        ];
        let table = |limit| {
            let style = TableStyle { spacing: Spacing::Blanks(limit), ..TableStyle::PLAIN };
            painted(&columns, true, &rows, style)
        };
        let shown: Vec<String> = [usize::MAX, 80, 40, 8].map(table).into();
        insta::assert_snapshot!(shown.join("\n"), @r"
        UNIT                             MACHINE         ACTIVE  SUB      REASON
        a-unit-with-a-long-name.service  dev-1/10.0.0.1  active  running  -
        db.service                       -               -       -        no machine has gpu=yes
        東京.service                     dev-2/10.0.0.2  failed  failed   exited with status 3

        UNIT                       MACHINE         ACTIVE  SUB      REASON
        a-unit-with-a-long-name.…  dev-1/10.0.0.1  active  running  -
        db.service                 -               -       -        no machine has gpu=…
        東京.service               dev-2/10.0.0.2  failed  failed   exited with status 3

        UNIT         MAC…  ACTIVE  SUB      REA…
        a-unit-wit…  dev…  active  running  -
        db.service   -     -       -        no…
        東京.servi…  dev…  failed  failed   exi…

        UNIT
        a-u…
        db.…
        東…
        ");
        for limit in 1..=120 {
            let table = table(limit);
            assert_eq!(table.lines().count(), 4);
            let wide = table.lines().find(|line| width(line) > limit);
            assert_eq!(wide, None, "{limit}");
        }
    }

    #[test]
    fn cut_states_have_no_colour() {
        let style = TableStyle { colour: Colour::On, spacing: Spacing::Blanks(11) };
        let text = painted(&["unit", "active"], false, &[row(["a.service", "failed"])], style);
        assert_eq!(text, "a.s…  fail…\n");
    }

    #[test]
    fn text_is_shortened_by_display_width() {
        for (text, columns, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("ab cd", 4, "ab…"),
            ("東京都", 6, "東京都"),
            ("東京都", 5, "東京…"),
            ("東京都", 4, "東…"),
            ("ab", 1, "…"),
            ("ab", 0, ""),
        ] {
            assert_eq!(shorten(text, columns), expected, "{text} {columns}");
        }
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
