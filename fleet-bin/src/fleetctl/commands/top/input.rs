//! Pure: the effects of keys on the live view.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use fleet_core::Timestamp;

use super::state::{ListView, MACHINE_COLUMNS, Page, Pane, Top, UNIT_COLUMNS};

/// A request that a key makes to the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// End the program.
    Quit,
    /// Show the journal of a unit on a machine.
    Logs { unit: String, machine: String },
    /// Show the status of a unit.
    UnitStatus { unit: String },
    /// Show a machine.
    MachineStatus { machine: String },
    /// Stop reading for a page that was closed.
    Close,
}

/// The keys, with their effects.
pub(super) const KEYS: [(&str, &str); 13] = [
    ("Tab", "switch between machines and units"),
    ("↑ ↓ j k", "select a row"),
    ("PgUp PgDn", "scroll by a page"),
    ("Home End", "select the first or last row"),
    ("s", "sort by the next column"),
    ("r", "reverse the order"),
    ("/", "filter the rows by a text"),
    ("f", "show only failed units"),
    ("Enter l", "show the logs of the unit, or the units of the machine"),
    ("i", "show the status of the unit or machine"),
    ("?", "show this help"),
    ("Esc", "close the page, remove the filter, or quit"),
    ("q Ctrl-C", "quit"),
];

/// Applies a key. Returns the request that it makes, if any.
pub(super) fn press(top: &mut Top, key: KeyEvent, now: Timestamp) -> Option<Request> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    if is_control && matches!(key.code, KeyCode::Char('c' | 'd')) {
        return Some(Request::Quit);
    }
    if is_control || key.modifiers.contains(KeyModifiers::ALT) {
        return None;
    }
    if top.is_typing {
        type_filter(top, key.code);
        return None;
    }
    match &mut top.page {
        Some(_) => press_on_page(top, key.code),
        None => press_on_lists(top, key.code, now),
    }
}

fn type_filter(top: &mut Top, key: KeyCode) {
    let view = top.focused();
    match key {
        KeyCode::Char(character) => view.filter.push(character),
        KeyCode::Backspace => drop(view.filter.pop()),
        KeyCode::Esc => view.filter.clear(),
        _ => {}
    }
    if matches!(key, KeyCode::Esc | KeyCode::Enter) {
        top.is_typing = false;
    }
}

fn press_on_page(top: &mut Top, key: KeyCode) -> Option<Request> {
    let rows = top.page_rows;
    let page = top.page.as_mut()?;
    let end = page.lines.len().saturating_sub(rows);
    let above = page.above.unwrap_or(end).min(end);
    let to = match key {
        KeyCode::Esc | KeyCode::Char('q' | '?') | KeyCode::Enter => {
            top.page = None;
            return Some(Request::Close);
        }
        KeyCode::Up | KeyCode::Char('k') => above.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => above + 1,
        KeyCode::PageUp => above.saturating_sub(rows),
        KeyCode::PageDown | KeyCode::Char(' ') => above + rows,
        KeyCode::Home => 0,
        KeyCode::End => end,
        _ => return None,
    };
    page.above = (to < end).then_some(to);
    None
}

fn press_on_lists(top: &mut Top, key: KeyCode, now: Timestamp) -> Option<Request> {
    let columns = match top.focus {
        Pane::Machines => MACHINE_COLUMNS.len(),
        Pane::Units => UNIT_COLUMNS.len(),
    };
    match key {
        KeyCode::Char('q') => return Some(Request::Quit),
        KeyCode::Esc if top.focused().filter.is_empty() => return Some(Request::Quit),
        KeyCode::Esc => top.focused().filter.clear(),
        KeyCode::Tab | KeyCode::BackTab => {
            top.focus = match top.focus {
                Pane::Machines => Pane::Units,
                Pane::Units => Pane::Machines,
            };
        }
        KeyCode::Char('s') => {
            let view = top.focused();
            (view.sort, view.is_reversed) = ((view.sort + 1) % columns, false);
        }
        KeyCode::Char('r') => top.focused().is_reversed ^= true,
        KeyCode::Char('/') => top.is_typing = true,
        KeyCode::Char('f') => top.only_failed ^= true,
        KeyCode::Char('?') => top.page = Some(help()),
        KeyCode::Enter | KeyCode::Char('l' | 'i') => return open(top, key, now),
        _ => move_selection(top, key, now),
    }
    None
}

fn move_selection(top: &mut Top, key: KeyCode, now: Timestamp) {
    let (rows, page) = (top.rows(top.focus, now), top.page_rows.max(1));
    let view: &mut ListView = top.focused();
    let at = view.position(&rows);
    let to = match key {
        KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => at + 1,
        KeyCode::PageUp => at.saturating_sub(page),
        KeyCode::PageDown => at + page,
        KeyCode::Home => 0,
        KeyCode::End => usize::MAX,
        _ => return,
    };
    view.select(to, &rows);
}

/// Opens the selected row: its logs, its status, or the units of a machine.
fn open(top: &mut Top, key: KeyCode, now: Timestamp) -> Option<Request> {
    let rows = top.rows(top.focus, now);
    let row = rows.get(top.focused().position(&rows))?;
    let (unit, machine) = (row.unit.clone(), row.machine.clone());
    match (top.focus, key) {
        (Pane::Machines, KeyCode::Char('i')) => Some(Request::MachineStatus { machine }),
        (Pane::Machines, _) => {
            row.cells[0].text().clone_into(&mut top.units.filter);
            top.focus = Pane::Units;
            None
        }
        (Pane::Units, KeyCode::Char('i')) => Some(Request::UnitStatus { unit }),
        (Pane::Units, _) => Some(Request::Logs { unit, machine }),
    }
}

/// Returns the page with all keys.
fn help() -> Page {
    let line = |(keys, effect): &(&str, &str)| {
        let padding = " ".repeat(12 - keys.chars().count());
        format!("{keys}{padding}{effect}")
    };
    let lines = KEYS.iter().map(line).collect();
    Page { title: "Keys".to_owned(), lines, above: Some(0) }
}
