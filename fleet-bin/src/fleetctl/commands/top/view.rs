//! Pure: draws the live view.

use fleet_core::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::state::{ListView, MACHINE_COLUMNS, Page, Pane, Row, Top, UNIT_COLUMNS};
use crate::ui::table::{Colour, clean, fitting_widths, shorten, width};

/// Smallest screen with lists.
const MIN_COLUMNS: u16 = 40;
const MIN_ROWS: u16 = 10;

/// Columns that are aligned to the right.
const AMOUNTS: [&str; 8] =
    ["units", "cpu%", "memory", "load", "since", "tasks", "restarts", "number"];

/// Columns that show states.
const STATES: [&str; 3] = ["active", "sub", "state"];

/// Draws the view.
pub(super) fn draw(top: &Top, colour: Colour, now: Timestamp, buffer: &mut Buffer) {
    let area = buffer.area;
    if area.width < MIN_COLUMNS || area.height < MIN_ROWS {
        let text = format!("{}; enlarge the terminal", summary(top));
        put(buffer, area.x, area.y, &text, Style::new());
        return;
    }
    let mut screen = Screen { top, colour, now, buffer };
    screen.title();
    match &top.page {
        Some(page) => screen.page(page),
        None => {
            let (machines, units) = split(top, area, now);
            screen.list(Pane::Machines, machines);
            screen.list(Pane::Units, units);
        }
    }
    screen.footer();
}

/// Returns the number of rows on a page of the list with the focus, or of the page over the lists.
pub(super) fn page_rows(top: &Top, area: Rect, now: Timestamp) -> usize {
    let (machines, units) = split(top, area, now);
    let height = match (&top.page, top.focus) {
        (Some(_), _) => area.height.saturating_sub(3),
        (None, Pane::Machines) => machines.height.saturating_sub(1),
        (None, Pane::Units) => units.height.saturating_sub(1),
    };
    usize::from(height)
}

/// Divides the screen between machines and units. The first and the last row belong to neither.
fn split(top: &Top, area: Rect, now: Timestamp) -> (Rect, Rect) {
    let height = area.height.saturating_sub(2);
    let wanted = top.rows(Pane::Machines, now).len().max(1) + 1;
    // The lists have an empty row between them.
    let machines = u16::try_from(wanted).unwrap_or(u16::MAX).min(height * 2 / 5);
    let units = height.saturating_sub(machines + 1);
    let at = |y: u16, height: u16| Rect { y: area.y + y, height, ..area };
    (at(1, machines), at(machines + 2, units))
}

fn summary(top: &Top) -> String {
    let (units, failed) = top.counts();
    match top.is_loaded {
        true => format!("{} machines, {units} units, {failed} failed", top.present().len()),
        false => "waiting for fleetd".to_owned(),
    }
}

fn put(buffer: &mut Buffer, x: u16, y: u16, text: &str, style: Style) {
    let room = usize::from(buffer.area.right().saturating_sub(x));
    if room > 0 && y < buffer.area.bottom() {
        buffer.set_stringn(x, y, shorten(&clean(text), room), room, style);
    }
}

struct Screen<'a> {
    top: &'a Top,
    colour: Colour,
    now: Timestamp,
    buffer: &'a mut Buffer,
}

impl Screen<'_> {
    fn style(&self, colour: Color) -> Style {
        match self.colour {
            Colour::On => Style::new().fg(colour),
            Colour::Off => Style::new(),
        }
    }

    fn title(&mut self) {
        let area = self.buffer.area;
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let title = format!("fleetctl top: {}", summary(self.top));
        put(self.buffer, area.x, area.y, &title, bold);
        let used = u16::try_from(width(&title)).unwrap_or(u16::MAX).saturating_add(2);
        let style = self.style(Color::Yellow);
        put(self.buffer, area.x.saturating_add(used), area.y, &self.top.note, style);
    }

    fn footer(&mut self) {
        let (top, area) = (self.top, self.buffer.area);
        let view = top.view(top.focus);
        let text = match (top.is_typing, &top.page) {
            (true, _) => format!("Filter: {}_", view.filter),
            (false, Some(_)) => "↑↓ PgUp PgDn scroll  Esc back  Ctrl-C quit".to_owned(),
            (false, None) => {
                let failed = if top.only_failed { "f all" } else { "f failed" };
                let filter = match view.filter.as_str() {
                    "" => "/ filter".to_owned(),
                    filter => format!("/ filter: {filter}"),
                };
                format!(
                    "{filter}  s sort  r reverse  {failed}  l logs  i status  Tab  ? help  q quit"
                )
            }
        };
        put(self.buffer, area.x, area.bottom() - 1, &text, self.style(Color::Cyan));
    }

    fn page(&mut self, page: &Page) {
        let area = self.buffer.area;
        let bold = Style::new().add_modifier(Modifier::BOLD);
        put(self.buffer, area.x, area.y + 1, &page.title, bold);
        let height = usize::from(area.height.saturating_sub(3));
        let end = page.lines.len().saturating_sub(height);
        let above = page.above.unwrap_or(end).min(end);
        for (y, line) in (area.y + 2..).zip(page.lines.iter().skip(above).take(height)) {
            put(self.buffer, area.x, y, line, Style::new());
        }
    }

    fn list(&mut self, pane: Pane, area: Rect) {
        if area.height == 0 {
            return;
        }
        let (view, rows) = (self.top.view(pane), self.top.rows(pane, self.now));
        let columns: &[&str] = match pane {
            Pane::Machines => &MACHINE_COLUMNS,
            Pane::Units => &UNIT_COLUMNS,
        };
        let headers = headers(columns, view);
        let widest = |at: usize| {
            let cells = rows.iter().map(|row| width(&clean(row.cells[at].text())));
            cells.chain([width(&headers[at])]).max().unwrap_or(0)
        };
        let widest: Vec<usize> = (0..columns.len()).map(widest).collect();
        let shown = shown_columns(columns, &widest, view.sort, area.width.into());
        let names: Vec<&str> = shown.iter().map(|at| columns[*at]).collect();
        let widths = shown.iter().map(|at| widest[*at]).collect();
        let table = Table {
            widths: fitting_widths(&names, widths, area.width.into()),
            columns: names,
            shown,
        };
        let has_focus = self.top.focus == pane;
        let header = if has_focus { Modifier::BOLD | Modifier::UNDERLINED } else { Modifier::BOLD };
        let header = Style::new().add_modifier(header);
        let cells = table.shown.iter().map(|at| (headers[*at].as_str(), Style::new()));
        self.line(area.y, &table, cells, header);
        let height = usize::from(area.height - 1);
        let selected = view.position(&rows);
        let above = selected.saturating_sub(height / 2).min(rows.len().saturating_sub(height));
        for (at, row) in rows.iter().enumerate().skip(above).take(height) {
            let is_selected = has_focus && at == selected;
            let y = area.y + 1 + u16::try_from(at - above).unwrap_or(u16::MAX);
            self.row(y, &table, row, is_selected);
        }
        if rows.is_empty() && height > 0 {
            put(self.buffer, area.x, area.y + 1, "none", Style::new());
        }
    }

    fn row(&mut self, y: u16, table: &Table<'_>, row: &Row, is_selected: bool) {
        let base = if is_selected { Modifier::REVERSED } else { Modifier::empty() };
        let styles = table.columns.iter().zip(&table.shown).map(|(column, at)| {
            let cell = &row.cells[*at];
            let is_state = STATES.contains(column) && !is_selected;
            (cell.text(), if is_state { self.state_style(cell.text()) } else { Style::new() })
        });
        let cells: Vec<(&str, Style)> = styles.collect();
        self.line(y, table, cells.into_iter(), Style::new().add_modifier(base));
    }

    fn state_style(&self, word: &str) -> Style {
        match word.split(' ').next().unwrap_or_default() {
            "active" | "running" | "present" if !word.contains("unhealthy") => {
                self.style(Color::Green)
            }
            "failed" | "absent" => self.style(Color::Red).add_modifier(Modifier::BOLD),
            "activating" | "deactivating" | "reloading" | "unknown" | "cordoned" | "drained" => {
                self.style(Color::Yellow)
            }
            _ if word.contains("unhealthy") => self.style(Color::Red),
            _ => Style::new(),
        }
    }

    /// Draws the cells of a line. `style` applies to the whole line.
    fn line<'c>(
        &mut self,
        y: u16,
        table: &Table<'_>,
        cells: impl Iterator<Item = (&'c str, Style)>,
        style: Style,
    ) {
        let area = self.buffer.area;
        let mut x = usize::from(area.x);
        let rooms = table.columns.iter().zip(&table.widths);
        for ((column, room), (text, cell_style)) in rooms.zip(cells) {
            let text = shorten(&clean(text), *room);
            let indent = if AMOUNTS.contains(column) { room - width(&text) } else { 0 };
            let at = u16::try_from(x + indent).unwrap_or(u16::MAX);
            put(self.buffer, at, y, &text, cell_style);
            x += room + 2;
        }
        self.buffer.set_style(Rect { y, height: 1, ..area }, style);
    }
}

/// Columns of a list that fit on the screen.
struct Table<'a> {
    /// Their numbers.
    shown: Vec<usize>,
    /// Their names.
    columns: Vec<&'a str>,
    /// Their widths.
    widths: Vec<usize>,
}

/// Columns that are omitted on a narrow screen, in this order. Each is omitted for the sake of a
/// reason of this width.
const OMIT_FIRST: [(&str, usize); 6] =
    [("tasks", 22), ("load", 22), ("since", 22), ("sub", 22), ("memory", 12), ("cpu%", 12)];

/// Width to which a column can be cut before other columns are omitted.
fn legible(column: &str, reason: usize) -> usize {
    match column {
        "unit" => 20,
        "machine" | "state" => 12,
        "reason" => reason,
        _ => usize::MAX,
    }
}

/// Returns the numbers of the columns to show, so that long texts stay legible. The column that
/// determines the order is always shown.
fn shown_columns(columns: &[&str], widest: &[usize], sort: usize, room: usize) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    for (omitted, reason) in OMIT_FIRST {
        let needed = |at: &usize| widest[*at].min(legible(columns[*at], reason)) + 2;
        if shown.iter().map(needed).sum::<usize>() > room + 2 {
            shown.retain(|at| columns[*at] != omitted || *at == sort);
        }
    }
    shown
}

/// Returns the names of columns in upper case. An arrow marks the one that determines the order.
fn headers(columns: &[&str], view: &ListView) -> Vec<String> {
    let arrow = if view.is_reversed { "▲" } else { "▼" };
    let header = |(at, name): (usize, &&str)| match at == view.sort {
        true => format!("{}{arrow}", name.to_uppercase()),
        false => name.to_uppercase(),
    };
    columns.iter().enumerate().map(header).collect()
}
